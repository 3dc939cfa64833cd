"""Bucket state beside tuned rocksdict (bloom filter, 256 MB of cache) and a raw writer, and its absolute goals.

A million keys of 16 bytes with values of 100. Ratios are of the CPU time of the whole process, all threads included, in
rounds that alternate with the peer; the median is judged. The goals are for `RawStore`; `TypedStore` has some of
its own. Before gets are measured, their keys are copied in the order of the gets: a real caller's key is in the processor's
cache too. `BENCH_STATE_SCALE` shrinks the amounts, for a quick try.
"""

from __future__ import annotations

import gc
import os
import random
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import google_crc32c
import rocksdict

import penstock.state.engines.native.lookup
import penstock.state.engines.native.writer  # noqa: F401
from bench import state_processes
from bench.pipeline import scratch
from bench.result import Result
from penstock.log import Log, LogSettings
from penstock.state import BucketState, RawStore, StateDescriptor, StateSettings, TypedStore
from penstock.state.types import codecs

SCALE = float(os.environ.get("BENCH_STATE_SCALE", "1"))
KEYS = max(int(1_000_000 * SCALE), 10_000)
ASKED = KEYS // 4
BATCH = 1000
ROUNDS = 5
ROCKS = "rocksdict, bloom, 256 MB cache"
LEAST = "least Python: a dict, and the same bytes with a CRC appended and fdatasynced"
RAW = "raw append and fdatasync of the same bytes"
KEY_BYTES, VALUE_BYTES = 16, 100
LIVE_BYTES = KEYS * (KEY_BYTES + VALUE_BYTES)
LOG = LogSettings(maintenance_interval_seconds=0)
BY_HAND = StateSettings(checkpoint_bytes=None, checkpoint_at_roll=False)

Batches = list[list[tuple[bytes, bytes]]]


def measure() -> Iterator[Result]:
    with scratch() as directory:
        yield from puts_and_gets(directory)
        yield from durable_commits(directory)
        yield from pauses(directory)
        yield from disk(directory)
        yield from state_processes.reopen(directory, KEYS, ROUNDS)


def batches(seed: int) -> Batches:
    """Random keys in random order; the same keys for the same seed, other values each time."""
    chosen = random.Random(seed)
    keys = [chosen.randbytes(KEY_BYTES) for _ in range(KEYS)]
    values = os.urandom(KEYS + VALUE_BYTES)
    pairs = [(key, values[at : at + VALUE_BYTES]) for at, key in enumerate(keys)]
    return [pairs[at : at + BATCH] for at in range(0, KEYS, BATCH)]


def microseconds(work: Callable[[], object], count: int) -> float:
    gc.collect()
    started = time.process_time()
    work()
    return 1e6 * (time.process_time() - started) / count


# Puts and gets


def puts_and_gets(directory: Path) -> Iterator[Result]:
    """Each round puts into an empty state, then gets from it several times."""
    work = batches(5)
    chosen = random.Random(6)
    asked = [bytes(bytearray(key)) for batch in chosen.sample(work, max(len(work) // 4, 1)) for key, _ in batch]
    chosen.shuffle(asked)
    asked = [bytes(bytearray(key)) for key in asked]
    seen: dict[str, list[float]] = {}

    def note(name: str, value: float) -> None:
        seen.setdefault(name, []).append(value)

    for number in range(3):
        peer = rocks(directory / f"rocks-{number}")
        note("rocks put", microseconds(lambda db=peer: rocks_put(db, work), KEYS))  # type: ignore[misc]
        with Log.open(directory / f"single-{number}", LOG) as log, closing(BucketState.open(log, BY_HAND)) as state:
            store = state.raw_store("bench", "bench")
            note("put one by one", microseconds(lambda s=state, r=store: put_singly(s, r, work), KEYS))  # type: ignore[misc]
        Log.delete(directory / f"single-{number}")
        log = Log.open(directory / f"log-{number}", LOG)
        state = BucketState.open(log, BY_HAND)
        store = state.raw_store("bench", "bench")
        note("put", microseconds(lambda s=state, r=store: put_batches(s, r, work), KEYS))  # type: ignore[misc]
        for _ in range(2):
            note("rocks get", microseconds(lambda db=peer: ask(db.get, asked), len(asked)))  # type: ignore[misc]
            note("overlay get", microseconds(lambda r=store: ask(r.get, asked), len(asked)))  # type: ignore[misc]
        state.checkpoint()
        peer.flush()
        ask(store.get, asked)  # pages are checked at their first touch
        for _ in range(3):
            note("rocks get, flushed", microseconds(lambda db=peer: ask(db.get, asked), len(asked)))  # type: ignore[misc]
            note("file get", microseconds(lambda r=store: ask(r.get, asked), len(asked)))  # type: ignore[misc]
        note("iterate", microseconds(lambda r=store: drain(r.iterate()), KEYS))  # type: ignore[misc]
        note("rocks iterate", microseconds(lambda db=peer: drain(db.items()), KEYS))  # type: ignore[misc]
        state.close()
        log.close()
        Log.delete(directory / f"log-{number}")
        peer.close()
    yield beside("put, batches of 1000, CPU", "µs", seen["put"], seen["rocks put"], 0.30)
    yield beside("put one by one into batches of 1000, CPU", "µs", seen["put one by one"], seen["rocks put"], None)
    yield beside("get from the overlay, CPU", "µs", seen["overlay get"], seen["rocks get"], 0.20)
    yield beside("get from a checkpoint file, CPU", "µs", seen["file get"], seen["rocks get"], 0.30)
    yield beside(
        "get from a checkpoint file, CPU",
        "µs",
        seen["file get"],
        seen["rocks get, flushed"],
        None,
        peer=f"{ROCKS}, flushed",
    )
    yield beside("iterate over a checkpoint file, CPU", "µs", seen["iterate"], seen["rocks iterate"], None)
    yield from typed(directory, work, seen)


def typed(directory: Path, work: Batches, seen: dict[str, list[float]]) -> Iterator[Result]:
    descriptor = StateDescriptor("typed", "bench", codecs.raw, codecs.raw)
    with Log.open(directory / "typed", LOG) as log, closing(BucketState.open(log, BY_HAND)) as state:
        store = state.get_or_create_store(descriptor)
        put = [microseconds(lambda: put_typed(state, store, work), KEYS)]
        asked = [key for batch in work[: max(len(work) // 4, 1)] for key, _ in batch]
        random.Random(7).shuffle(asked)
        asked = [bytes(bytearray(key)) for key in asked]
        overlay = [microseconds(lambda: ask(store.get, asked), len(asked)) for _ in range(3)]
        state.checkpoint()
        ask(store.get, asked)
        file = [microseconds(lambda: ask(store.get, asked), len(asked)) for _ in range(3)]
    Log.delete(directory / "typed")
    yield beside("TypedStore: put, batches of 1000, CPU", "µs", put, seen["rocks put"], 0.5)
    yield beside("TypedStore: get from the overlay, CPU", "µs", overlay, seen["rocks get"], 0.5)
    yield beside("TypedStore: get from a checkpoint file, CPU", "µs", file, seen["rocks get"], None)


def beside(
    name: str, unit: str, mine: list[float], theirs: list[float], goal: float | None, *, peer: str = ROCKS
) -> Result:
    value, other = statistics.median(mine), statistics.median(theirs)
    return Result(
        f"{name}, median" if len(mine) > 1 else name, value, unit, peer, other, goal=goal, goal_kind="ratio-most"
    )


def rocks(path: Path) -> Any:
    blocks = rocksdict.BlockBasedOptions()
    blocks.set_bloom_filter(10, False)
    blocks.set_block_cache(rocksdict.Cache(256 << 20))
    options = rocksdict.Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_block_based_table_factory(blocks)
    return rocksdict.Rdict(str(path), options)


def rocks_put(db: Any, work: Batches) -> None:
    for batch in work:
        written = rocksdict.WriteBatch(raw_mode=True)
        for key, value in batch:
            written.put(key, value)
        db.write(written)


def put_batches(state: BucketState, store: RawStore, work: Batches) -> None:
    for batch in work:
        change = state.begin()
        store.put_many(change, batch)
        pending = state.commit(change)
    pending.result()


def put_singly(state: BucketState, store: RawStore, work: Batches) -> None:
    for batch in work:
        change = state.begin()
        for key, value in batch:
            store.put(change, key, value)
        pending = state.commit(change)
    pending.result()


def put_typed(state: BucketState, store: TypedStore[bytes, bytes], work: Batches) -> None:
    for batch in work:
        change = state.begin()
        for key, value in batch:
            store.put(change, key, value)
        pending = state.commit(change)
    pending.result()


def ask(get: Callable[[bytes], bytes | None], keys: list[bytes]) -> None:
    for key in keys:
        if get(key) is None:
            raise RuntimeError("a key is missing")


def drain(pairs: Any) -> None:
    count = sum(1 for _ in pairs)
    if count != KEYS:
        raise RuntimeError(f"{count} keys")


class closing:  # noqa: N801 (as contextlib's, which asks for more than it needs)
    def __init__(self, state: BucketState) -> None:
        self._state = state

    def __enter__(self) -> BucketState:
        return self._state

    def __exit__(self, *_: object) -> None:
        self._state.close()


# Durable commits


def durable_commits(directory: Path) -> Iterator[Result]:
    """One batch at a time, each durable before the next; in turn the raw writer syncs as many bytes as the batch's
    frame has."""
    work = batches(9)[: max(int(300 * SCALE), 20)]
    mine: list[float] = []
    theirs: list[float] = []
    least: list[float] = []
    cpu: dict[str, list[float]] = {"mine": [], "least": []}
    table: dict[bytes, bytes] = {}
    with Log.open(directory / "durable", LOG) as log, closing(BucketState.open(log, BY_HAND)) as state:
        store = state.raw_store("bench", "bench")
        put_batches(state, store, work[:2])
        frame = 64 + 4 + BATCH * (32 + KEY_BYTES + VALUE_BYTES)
        data = os.urandom(frame)
        file = os.open(directory / "raw", os.O_CREAT | os.O_WRONLY, 0o644)
        os.fsync(file)
        for number, batch in enumerate(work):
            if (
                not number * frame % LOG.preallocate_bytes // frame
            ):  # space is reserved ahead in steps, as the log does it
                os.posix_fallocate(file, 2 * number * frame, 2 * LOG.preallocate_bytes)
            fresh = [
                (bytes(bytearray(key)), bytes(bytearray(value))) for key, value in batch
            ]  # copies, in the processor's cache as a caller's would be
            started, used = time.perf_counter(), time.process_time()
            change = state.begin()
            store.put_many(change, fresh)
            state.commit(change).result()
            mine.append(1000 * (time.perf_counter() - started))
            cpu["mine"].append(1000 * (time.process_time() - used))
            started = time.perf_counter()
            os.pwrite(file, data, 2 * number * frame)
            os.fdatasync(file)
            theirs.append(1000 * (time.perf_counter() - started))
            started, used = time.perf_counter(), time.process_time()
            append_dict(file, (2 * number + 1) * frame, table, fresh)
            least.append(1000 * (time.perf_counter() - started))
            cpu["least"].append(1000 * (time.process_time() - used))
        os.close(file)
    (directory / "raw").unlink()
    Log.delete(directory / "durable")
    yield beside("durable commit of 1000 puts", "ms", mine, theirs, 1.4, peer=RAW)
    yield beside("durable commit of 1000 puts, the best of each", "ms", [min(mine)], [min(theirs)], None, peer=RAW)
    yield beside("durable commit of 1000 puts", "ms", mine, least, 1.3, peer=LEAST)
    yield beside("durable commit of 1000 puts, CPU of all threads", "ms", cpu["mine"], cpu["least"], None, peer=LEAST)
    yield beside("least Python: a dict, and the same bytes with a CRC", "ms", least, theirs, None, peer=RAW)


def append_dict(file: int, at: int, table: dict[bytes, bytes], pairs: list[tuple[bytes, bytes]]) -> None:
    """Puts and a durable append without threads, readers or namespaces: a lower bound for Python."""
    change = dict(pairs)
    header = bytes(32)
    raw = b"".join([part for key, value in change.items() for part in (header, key, value)])
    os.pwrite(file, raw + google_crc32c.value(raw).to_bytes(4, "little"), at)
    os.fdatasync(file)
    table.update(change)


# Pauses


def pauses(directory: Path) -> Iterator[Result]:
    """How long a call of `commit` holds up a writer while a checkpoint of all keys is being written."""
    work = batches(11)
    with Log.open(directory / "pauses", LOG) as log, closing(BucketState.open(log, BY_HAND)) as state:
        store = state.raw_store("bench", "bench")
        put_batches(state, store, work[:1])
        state.checkpoint()  # loads the kernels
        put_batches(state, store, work)
        gc.collect()
        gc.freeze()  # the million tuples above belong to the benchmark: the garbage collector must not walk them
        calm = commits_until(state, store, work, threading.Event(), count=2000)
        done = threading.Event()
        seconds: list[float] = []

        def checkpoint() -> None:
            started = time.perf_counter()
            state.checkpoint()
            seconds.append(time.perf_counter() - started)
            done.set()

        thread = threading.Thread(target=checkpoint)
        thread.start()
        paused = commits_until(state, store, work, done)
        thread.join()
        gc.unfreeze()
    Log.delete(directory / "pauses")
    name = f"commit beside a checkpoint of {KEYS:,} keys"
    yield Result(f"{name}: the writer's pause, p99 of {len(paused):,}", p99(paused), "ms", goal=2, goal_kind="most")
    yield Result(f"{name}: its longest", max(paused), "ms")
    yield Result("commit without a checkpoint: the writer's pause, p99", p99(calm), "ms")
    yield Result(f"checkpoint of {KEYS:,} keys beside a writer", seconds[0], "s")


def commits_until(
    state: BucketState, store: RawStore, work: Batches, done: threading.Event, count: int | None = None
) -> list[float]:
    """Milliseconds of each call of `commit` with one put, with a short pause after each."""
    seen: list[float] = []
    pairs = [pair for batch in work[:100] for pair in batch]
    while not done.is_set() and (count is None or len(seen) < count):
        pair = pairs[len(seen) % len(pairs)]
        started = time.perf_counter()
        change = state.begin()
        store.put(change, *pair)
        pending = state.commit(change)
        seen.append(1000 * (time.perf_counter() - started))
        if not len(seen) % 64:
            pending.result()
        time.sleep(0.0002)
    return seen


def p99(seen: list[float]) -> float:
    return sorted(seen)[int(0.99 * (len(seen) - 1))]


# Disk


def disk(directory: Path) -> Iterator[Result]:
    """Every key is overwritten ten times, in random order; checkpoints and merges as they come by default."""
    work = batches(13)
    chosen = random.Random(14)
    with Log.open(directory / "disk", LOG) as log, closing(BucketState.open(log)) as state:
        store = state.raw_store("bench", "bench")
        for _ in range(11):
            put_batches(state, store, chosen.sample(work, len(work)))
        state.checkpoint()
        state.engine.flush()
        size = sum(path.stat().st_size for path in (directory / "disk" / "state").iterdir())
        live = LIVE_BYTES / 1e6
    Log.delete(directory / "disk")
    yield Result(
        "disk of the checkpoints after a tenfold overwrite", size / 1e6, "MB", "live keys and values", live,
        goal=1.5, goal_kind="ratio-most",
    )  # fmt: skip
