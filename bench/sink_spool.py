"""The spool: enqueue beside spillers, spill throughput beside the raw disk, a million items, the cost of idle dispatchers.

`BENCH_SPOOL_SCALE` shrinks the amounts, for a quick try.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.result import Result
from penstock.delivery.payload import dispatcher_id
from penstock.delivery.spool import DataItem, Disk, Spool, SpoolLimits
from penstock.errors import Closed
from penstock.files import REAL_FILES

SCALE = float(os.environ.get("BENCH_SPOOL_SCALE", "1"))
INCARNATION = "0" * 32
MIB = 1 << 20
ROUNDS = 5
SMALL_BYTES = 100
SPILLERS = 4  # threads that enqueue 1 MiB payloads, all of which are spilled
MILLION = max(20_000, int(1_000_000 * SCALE))
DISPATCHERS = 10_000
ACTIVE = 100


def measure(directory: Path) -> Iterator[Result]:
    yield from enqueue_latency(directory)
    yield from spill_throughput(directory)
    yield from a_million_items(directory)
    yield from idle_dispatchers()


def _item(dispatcher: str, body: Any, at: float = 0.0) -> DataItem[None]:
    return DataItem(dispatcher, None, body, 1, 1, at)


def _identities(count: int) -> list[str]:
    return [dispatcher_id("bench", "shop", str(number)) for number in range(count)]


def _spool(directory: Path, **limits: int) -> Spool:
    return Spool(SpoolLimits(**limits), disk=Disk(directory, INCARNATION, REAL_FILES), name="bench")


def _take(spool: Spool, dispatcher: str) -> int:
    """What a writer does with a file's worth: pops it, reads it as a stream, and has it confirmed."""
    items = [item for item in spool.pop(dispatcher) if isinstance(item, DataItem)]
    read = sum(len(body) for body in spool.bodies(items))
    spool.flushed(items)
    return read


def enqueue_latency(directory: Path) -> Iterator[Result]:
    """100-byte enqueues beside four threads whose 1 MiB payloads are all spilled and taken again."""
    spool = _spool(directory / "latency", memory_low_bytes=8 * MIB, memory_high_bytes=64 * MIB)
    small, *large = _identities(1 + SPILLERS)
    body = os.urandom(MIB)
    stop = threading.Event()

    def spill(dispatcher: str) -> None:
        while not stop.is_set():
            spool.admit(always=True)
            spool.enqueue(dispatcher, [_item(dispatcher, bytes(body), time.monotonic())])
            if spool.held_bytes(dispatcher) > 64 * MIB:
                _take(spool, dispatcher)

    threads = [threading.Thread(target=spill, args=(dispatcher,), daemon=True) for dispatcher in large]
    for thread in threads:
        thread.start()
    taken: list[float] = []
    end = time.monotonic() + max(1.0, 10 * SCALE)
    while time.monotonic() < end:
        item = _item(small, bytes(SMALL_BYTES), time.monotonic())
        before = time.perf_counter()
        spool.enqueue(small, [item])
        taken.append(time.perf_counter() - before)
        if len(taken) % 100 == 0:
            _take(spool, small)
        time.sleep(0.0005)  # a producer that also does something else
    stop.set()
    for thread in threads:
        thread.join()
    spilled = spool.totals().spilled_bytes
    spool.discard_all(_over())
    spool.close()
    assert spilled > 0, "nothing was spilled beside the enqueues"
    taken.sort()
    yield Result(
        "spool: enqueue of 100 bytes beside 4 spillers of 1 MiB, p50", 1000 * taken[len(taken) // 2], "ms",
        goal=1.0, goal_kind="most",
    )  # fmt: skip
    yield Result(
        "spool: enqueue of 100 bytes beside 4 spillers of 1 MiB, p99", 1000 * taken[int(0.99 * len(taken))], "ms",
        goal=1.0, goal_kind="most",
    )  # fmt: skip


def spill_throughput(directory: Path) -> Iterator[Result]:
    """Payloads of 1 MiB and of 1 KiB, spilled as fast as it goes, beside plain writes of the same bytes."""
    for size, name, goal in ((MIB, "1 MiB", 0.6), (1 << 10, "1 KiB", None)):
        amount = max(32 * MIB, int((512 if size == MIB else 64) * MIB * SCALE))
        ours, raw = [], []
        for number in range(ROUNDS):
            raw.append(_raw(directory / f"raw-{size}-{number}", amount))
            ours.append(_spill(directory / f"spill-{size}-{number}", size, amount))
        rate, peer = statistics.median(ours), statistics.median(raw)
        yield Result(
            f"spool: spilled payloads of {name}", rate, "MB/s", "plain writes of 1 MiB to the same disk", peer, goal
        )


def _raw(path: Path, amount: int) -> float:
    body = os.urandom(MIB)
    start = time.perf_counter()
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT)
    for _ in range(amount // MIB):
        os.write(descriptor, body)
    os.close(descriptor)
    seconds = time.perf_counter() - start
    path.unlink()
    return amount / seconds / 1e6


def _spill(directory: Path, size: int, amount: int) -> float:
    spool = Spool(
        SpoolLimits(memory_low_bytes=0), disk=Disk(directory, INCARNATION, REAL_FILES), background=False, name="bench"
    )
    body = os.urandom(size)
    identities = _identities(64)
    for number in range(amount // size):
        dispatcher = identities[number % len(identities)]
        spool.enqueue(dispatcher, [_item(dispatcher, body, float(number))])
    start = time.perf_counter()
    while spool.step():
        pass
    seconds = time.perf_counter() - start
    spilled = spool.totals().spilled_bytes
    spool.discard_all(_over())
    spool.close()
    return spilled / seconds / 1e6


def a_million_items(directory: Path) -> Iterator[Result]:
    """A million payloads of 400 bytes over 10,000 dispatchers, in a process of its own: its memory beside its limit."""
    code = f"from bench.sink_spool import million; million({str(directory / 'million')!r})"
    root = Path(__file__).parents[1]
    path = os.pathsep.join([str(root / "src"), str(root)])
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={**os.environ, "PYTHONPATH": path}
    )
    seconds, peak_mb, held_mb = (float(word) for word in done.stdout.split())
    yield Result("spool: a million items over 10,000 dispatchers", MILLION / seconds, "items/s")
    yield Result(
        "spool: memory of that process at its peak, above its start", peak_mb, "MB",
        "memory_high_bytes", SpoolLimits().memory_high_bytes / 4 / 1e6, goal=1.25, goal_kind="ratio-most",
    )  # fmt: skip
    yield Result("spool: held at the peak, in memory and on disk", held_mb, "MB")


def million(directory: str) -> None:
    """Prints seconds, MB of resident memory that came with it, and MB that were held at most."""
    high = SpoolLimits().memory_high_bytes // 4
    spool = _spool(Path(directory), memory_high_bytes=high, memory_low_bytes=high // 2)
    identities = _identities(DISPATCHERS)
    before = _resident()
    start = time.perf_counter()
    held = 0
    for number in range(MILLION):
        dispatcher = identities[number % DISPATCHERS]
        spool.admit(always=True)
        spool.enqueue(dispatcher, [_item(dispatcher, b"%09d" % number + bytes(391), float(number))])
        if spool.suppressed:  # upstream waits; writers take the dispatchers in turn
            held = max(held, spool.bytes)
            while spool.suppressed and (picked := spool.pick()) is not None:
                _take(spool, picked)
    while (picked := spool.pick()) is not None:
        _take(spool, picked)
    seconds = time.perf_counter() - start
    peak = _resident(peak=True)
    assert spool.bytes == 0, spool.totals()
    spool.close()
    print(seconds, (peak - before) / 1e6, held / 1e6)


def _resident(*, peak: bool = False) -> int:
    field = "VmHWM:" if peak else "VmRSS:"
    with Path("/proc/self/status").open() as lines:
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))


def idle_dispatchers() -> Iterator[Result]:
    """A tick: 100 dispatchers get an item each and are picked, popped and flushed; the others were active once."""
    ticks = max(20, int(200 * SCALE))
    worlds = {count: _with_history(count) for count in (1000, DISPATCHERS)}
    taken: dict[int, list[float]] = {count: [] for count in worlds}
    for _ in range(ticks):
        for count, (spool, identities) in worlds.items():
            active = identities[:: count // ACTIVE]
            start = time.thread_time()
            for dispatcher in active:
                spool.enqueue(dispatcher, [_item(dispatcher, b"x" * 400)])
            while (picked := spool.pick()) is not None:
                spool.flushed([item for item in spool.pop(picked) if isinstance(item, DataItem)])
            taken[count].append(time.thread_time() - start)
    yield Result(
        "spool: a tick with 100 active of 10,000 dispatchers", 1000 * statistics.median(taken[DISPATCHERS]), "ms",
        "100 active of 1,000", 1000 * statistics.median(taken[1000]), goal=1.2, goal_kind="ratio-most",
    )  # fmt: skip


def _with_history(count: int) -> tuple[Spool, list[str]]:
    spool = Spool()
    identities = _identities(count)
    for dispatcher in identities:
        spool.enqueue(dispatcher, [_item(dispatcher, b"x")])
    while (picked := spool.pick()) is not None:
        spool.flushed([item for item in spool.pop(picked) if isinstance(item, DataItem)])
    return spool, identities


def _over() -> Closed:
    return Closed("the measurement is over")
