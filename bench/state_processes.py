"""Opening a state after kill -9, in a process of its own.

python -m bench.state_processes write|open|open-cold DIRECTORY KEYS TAIL
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from bench.result import Result
from penstock.log import Log, LogSettings
from penstock.state import BucketState, StateSettings

_LOG = LogSettings(maintenance_interval_seconds=0)
_BATCH = 1000


def child(what: str, directory: Path, keys: int, tail: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "bench.state_processes", what, str(directory), str(keys), str(tail)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def answer(what: str, directory: Path, keys: int, tail: int) -> dict[str, float]:
    with child(what, directory, keys, tail) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
    if process.returncode != 0 or not line:
        raise RuntimeError(f"{what} ended with {process.returncode}")
    return dict(json.loads(line))


def killed(directory: Path, keys: int, tail: int) -> Path:
    """A log whose owner was killed, with `keys` keys in a checkpoint and `tail` changes after it."""
    with child("write", directory, keys, tail) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGKILL)
    os.sync()  # else the next measurement would include writing gigabytes back to the disk
    return directory


def opened(directory: Path, keys: int, tail: int, rounds: int, *, what: str = "open") -> tuple[float, float]:
    """Median milliseconds of opening the state, and of opening its log before that; each round on a copy of what was
    left."""
    last = max((directory / "log").glob("ledger-*.log"))

    def copy(source: str, target: str) -> None:
        if source.endswith((".log", ".run", ".json")) and source != str(last):
            os.link(source, target)  # nobody writes to these
        else:
            shutil.copy2(source, target)

    seen = []
    for _ in range(rounds):
        again = directory.with_name(f"{directory.name}-copy")
        shutil.copytree(directory, again, copy_function=copy)
        seen.append(answer(what, again, keys, tail))
        shutil.rmtree(again)
    return statistics.median(one["state"] for one in seen), statistics.median(one["log"] for one in seen)


def reopen(directory: Path, keys: int, rounds: int) -> Iterator[Result]:
    tail = keys // 4
    plain, log_ms = opened(killed(directory / "plain", keys, 0), keys, 0, rounds)
    cold, _ = opened(directory / "plain", keys, 0, 1, what="open-cold")
    shutil.rmtree(directory / "plain")
    name = f"open of {keys:,} keys after kill -9"
    yield Result(f"{name}, median", plain, "ms", goal=50, goal_kind="most")
    yield Result(f"{name}, imports of numba counted where the log did not need them", cold, "ms")
    yield Result(f"{name}: the log's own before it, median", log_ms, "ms")
    with_tail, _ = opened(killed(directory / "tail", keys, tail), keys, tail, rounds)
    shutil.rmtree(directory / "tail")
    rate = tail / max(with_tail - plain, 0.001) * 1000
    name = f"{name}: replay of {tail:,} changes after the checkpoint, median"
    yield Result(name, rate, "changes/s", goal=500_000, goal_kind="least")
    large, _ = opened(killed(directory / "large", 10 * keys, 0), 10 * keys, 0, rounds)
    shutil.rmtree(directory / "large")
    yield Result(
        f"open of {10 * keys:,} keys after kill -9, median", large, "ms", f"{keys:,} keys", plain,
        goal=1.5, goal_kind="ratio-most",
    )  # fmt: skip


def write(directory: Path, keys: int, tail: int) -> None:
    log = Log.open(directory / "log", _LOG)
    state = BucketState.open(log, StateSettings(checkpoint_bytes=64 << 20))
    store = state.raw_store("bench", "bench")
    fill(state, range(keys), store)
    state.checkpoint()
    state.checkpoint()
    state.engine.compact()
    state.close()
    state = BucketState.open(log, StateSettings(checkpoint_bytes=None, checkpoint_at_roll=False))
    store = state.raw_store("bench", "bench")
    fill(state, range(0, keys, max(keys // max(tail, 1), 1)) if tail else range(1), store)
    print("1", flush=True)
    time.sleep(600)  # killed here


def fill(state: BucketState, numbers: range, store: object) -> None:
    from penstock.state import RawStore

    assert isinstance(store, RawStore)
    for first in range(0, len(numbers), _BATCH):
        part = numbers[first : first + _BATCH]
        values = os.urandom(100 + len(part))
        change = state.begin()
        store.put_many(change, ((key_of(n), values[at : at + 100]) for at, n in enumerate(part)))
        pending = state.commit(change)
    pending.result()


def key_of(number: int) -> bytes:
    """16 bytes; consecutive numbers are far apart."""
    return (number * 0x9E3779B97F4A7C15F39CC0605CEDC835 % (1 << 128)).to_bytes(16, "big")


def reopened_warm(directory: Path, keys: int, tail: int) -> dict[str, float]:
    """Without the time of imports; many happen with the first open and the first call of a kernel."""
    from penstock.log.frames.check import check_chunk

    check_chunk(bytes(1 << 20), 1, 0)
    small = directory.with_name(f"{directory.name}-small")
    for _ in range(2):  # the second one from a checkpoint, with a change after it
        with Log.open(small / "log", _LOG) as log, closing(BucketState.open(log)) as state:
            fill(state, range(1), state.raw_store("bench", "bench"))
            state.checkpoint()
            fill(state, range(1), state.raw_store("bench", "bench"))
    shutil.rmtree(small)
    return reopened(directory, keys, tail)


def reopened(directory: Path, keys: int, tail: int) -> dict[str, float]:
    started = time.perf_counter()
    log = Log.open(directory / "log", _LOG)
    log_seconds = time.perf_counter() - started
    started = time.perf_counter()
    state = BucketState.open(log)
    seconds = time.perf_counter() - started
    store = state.raw_store("bench", "bench")
    if any(store.get(key_of(number)) is None for number in range(0, keys, max(keys // 1000, 1))):
        raise RuntimeError("a key is missing")
    state.close()
    log.close()
    return {"state": 1000 * seconds, "log": 1000 * log_seconds}


if __name__ == "__main__":
    what, where, amount, more = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    if what == "write":
        write(where, amount, more)
    else:
        print(json.dumps({"open": reopened_warm, "open-cold": reopened}[what](where, amount, more)), flush=True)
