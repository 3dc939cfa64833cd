"""The log beside a raw writer and a plain reader of the same bytes, and its absolute goals.

A goal beside a peer is judged by the median of five rounds (of fifteen short ones where appends stand beside the raw
writer), which alternate with the peer's, so that other load on the machine disturbs both; the best round of each is shown
too, without a goal. An absolute goal is judged by the best of
five rounds; read it together with the calibration. `BENCH_LOG_SCALE` shrinks the amounts, for a quick try.
"""

from __future__ import annotations

import os
import random
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import penstock.log.frames.kernels  # noqa: F401 (imports are not counted)
from bench import log_processes, log_sizes, raw_writer
from bench.pipeline import scratch
from bench.result import Result
from penstock.log import Log, LogReader, LogSettings, Pending, Position
from penstock.log.frames.check import check_chunk
from penstock.log.frames.format import encode_frame
from penstock.log.ledgers.info import ledger_path

SCALE = float(os.environ.get("BENCH_LOG_SCALE", "1"))
ROUNDS = 5
SHORT_ROUNDS = 15  # of appends beside the raw writer: short, so that memory stays warm (raw_writer.py)
RAW = "raw writer, same bytes and syncs"
_SETTINGS = LogSettings(maintenance_interval_seconds=0)
_KIB = 1024


def measure() -> Iterator[Result]:
    with scratch() as directory:
        yield from large_appends(directory)
        yield from batches(directory)
        yield from futures(directory)
        yield from acks(directory)
        yield from large_reads(directory)
        yield from small_reads(directory)
        yield from latencies(directory)
        yield from log_processes.reopen(directory, int(300_000 * SCALE), ROUNDS)
        yield from log_processes.holes(directory, int(1_000_000 * SCALE))
        yield from log_processes.many_cursors(directory, int(5_000 * SCALE))
        yield from log_sizes.measure(directory)
        yield from log_processes.cache_memory(directory)


def scaled(amount: int) -> int:
    return max(int(amount * SCALE), 1)


# Appends


def beside_raw(
    directory: Path,
    name: str,
    entry_bytes: int,
    entries: int,
    work: Callable[[Log], None],
    *,
    at_disk: list[float] | None = None,
    used: tuple[list[float], list[float]] | None = None,
    rounds: int = ROUNDS,
) -> tuple[list[float], list[float]]:
    """Entries per second of the log and of the raw writer, in rounds that alternate, both with warm memory.

    `at_disk` gets the seconds an entry that the log waited for its writes and syncs; `used` the processor seconds an entry
    of both, all threads of the log included.
    """
    mine: list[float] = []
    theirs: list[float] = []
    total = entries * entry_bytes
    for number in range(rounds):
        with Log.open(directory / f"{name}-{number}", _SETTINGS) as log:
            raw_writer.warm_memory(directory / f"{name}-warm", total)
            work_started, work_used = time.perf_counter(), time.process_time()
            work(log)
            mine.append(entries / (time.perf_counter() - work_started))
            mine_used = time.process_time() - work_used
            commits = log.statistics().commits
            if at_disk is not None:
                at_disk.append(log._appender.counters.sync_seconds / entries)
        Log.delete(directory / f"{name}-{number}")
        raw_writer.warm_memory(directory / f"{name}-warm", total)
        seconds, raw_used = raw_writer.write(directory / f"{name}-raw", total, max(total // commits, 1))
        theirs.append(entries / seconds)
        if used is not None:
            used[0].append(mine_used / entries)
            used[1].append(raw_used / entries)
    return mine, theirs


def beside(name: str, mine: list[float], peer: str, theirs: list[float], goal: float) -> Iterator[Result]:
    """Rates of the rounds: the median is judged by the goal, the best round is shown beside it."""
    yield Result(f"{name}, median", statistics.median(mine), "entries/s", peer, statistics.median(theirs), goal=goal)
    yield Result(f"{name}, best round", max(mine), "entries/s", peer, max(theirs))


def large_appends(directory: Path) -> Iterator[Result]:
    """64 KiB entries, 32 outstanding."""
    size, entries = 64 * _KIB, scaled(1000)
    data = os.urandom(size)
    at_disk: list[float] = []
    used: tuple[list[float], list[float]] = [], []
    mine, theirs = beside_raw(
        directory, "large", size, entries, lambda log: append_all(log, data, entries, 32), at_disk=at_disk, used=used,
        rounds=SHORT_ROUNDS,
    )  # fmt: skip
    name = "append 64 KiB, 32 outstanding"
    yield from beside(name, mine, RAW, theirs, 0.8)
    # Where the rest goes: checksums, the hand-over between the threads, the slot for readers; while they work, no sync runs.
    # All outstanding entries are in one group, so that an answer, the caller's next appends and their frames come one after
    # the other. Two groups in turn would hide that behind the syncs, and need twice as many of them.
    yield Result(
        f"{name}: of that, its writes and syncs, median", 1e6 * statistics.median(at_disk), "µs an entry",
        "the raw writer", 1e6 / statistics.median(theirs),
    )  # fmt: skip
    yield cpu_beside(name, used)


def cpu_beside(name: str, used: tuple[list[float], list[float]]) -> Result:
    """Also says whether memory was warm for both: the raw writer does nothing but copy and wait."""
    return Result(
        f"{name}, CPU of all threads, median", 1e6 * statistics.median(used[0]), "µs an entry",
        "the raw writer", 1e6 * statistics.median(used[1]),
    )  # fmt: skip


def batches(directory: Path) -> Iterator[Result]:
    """1 KiB entries, given as batches: one answer each."""
    batch, count = 4096, scaled(10)
    data = [os.urandom(_KIB) for _ in range(batch)]

    def work(log: Log) -> None:
        for _ in range(count):
            log.append_many(data).result()

    used: tuple[list[float], list[float]] = [], []
    mine, theirs = beside_raw(directory, "batches", _KIB, batch * count, work, used=used, rounds=SHORT_ROUNDS)
    name = "append 1 KiB in batches of 4096"
    yield from beside(name, mine, RAW, theirs, 0.5)
    yield cpu_beside(name, used)


def futures(directory: Path) -> Iterator[Result]:
    """1 KiB entries with a future each, 1000 outstanding."""
    entries = scaled(200_000)
    data = os.urandom(_KIB)
    mine, theirs = beside_raw(directory, "futures", _KIB, entries, lambda log: append_all(log, data, entries, 1000))
    name = "append 1 KiB, a future each, 1000 outstanding, best of 5"
    yield Result(name, max(mine), "entries/s", RAW, max(theirs), goal=100_000, goal_kind="least")


def append_all(log: Log, data: bytes, entries: int, outstanding: int) -> None:
    """Appends with at most `outstanding` unanswered. Answers come in order, so the last one of a half stands for all of
    it."""
    half = max(outstanding // 2, 1)
    before: Pending[Position] | None = None
    for start in range(0, entries, half):
        for _ in range(min(half, entries - start)):
            last = log.append(data)
        if before is not None:
            before.result()
        before = last
    if before is not None:
        before.result()


def acks(directory: Path) -> Iterator[Result]:
    """Single entries acked in random order, a call each, 1000 outstanding; each durable."""
    entries = scaled(100_000)
    rates = []
    with Log.open(directory / "acked", _SETTINGS) as log:
        span = log.append_many([b"x"] * entries).result()
        positions = [Position(span.first.ledger_id, entry) for entry in range(entries)]
        random.Random(4).shuffle(positions)
        for number in range(ROUNDS):
            cursor = log.open_cursor(f"c{number}")
            started = time.perf_counter()
            waiting: list[Pending[None]] = []
            for position in positions:
                waiting.append(cursor.ack(position))
                if len(waiting) == 1000:
                    for pending in waiting[:500]:
                        pending.result()
                    del waiting[:500]
            for pending in waiting:
                pending.result()
            rates.append(entries / (time.perf_counter() - started))
            if cursor.mark_delete_position != span.last:
                raise RuntimeError("the acks did not all arrive")
    Log.delete(directory / "acked")
    yield Result("individual acks, durable, best of 5", max(rates), "acks/s", goal=50_000, goal_kind="least")


# Reads


def written(directory: Path, entry_bytes: int, entries: int) -> Path:
    """Makes a log with one sealed ledger of `entries` entries."""
    settings = LogSettings(maintenance_interval_seconds=0, ledger_bytes_max=4 << 30, ledger_entries_max=10_000_000)
    with Log.open(directory, settings) as log:
        data = os.urandom(entry_bytes)
        batch = max((4 << 20) // entry_bytes, 1)
        for start in range(0, entries, batch):
            log.append_many([data] * min(batch, entries - start)).result()
    return directory


def read_all(reader: LogReader) -> int:
    size = 0
    for entry in reader.read(reader.first, reader.end()):
        size += len(entry.data)
    return size


def catch_up(directory: Path, entry_bytes: int, entries: int) -> tuple[list[float], list[float], list[float]]:
    """Entries per second of whole passes over the log, of plain reads of its file, and of reads into one buffer, in
    turn.

    The log's cache is emptied before each pass.
    """
    path = written(directory, entry_bytes, entries)
    reader = LogReader.open(path)
    (view,) = [view for view in reader.ledgers() if view.entries]
    mine: list[float] = []
    plain: list[float] = []
    into: list[float] = []
    for _ in range(ROUNDS + 1):
        reader.cache.drop(reader.uuid)
        started = time.perf_counter()
        size = read_all(reader)
        mine.append(entries / (time.perf_counter() - started))
        if size != entry_bytes * entries:
            raise RuntimeError(f"read {size} bytes")
        plain.append(entries / raw_writer.read(ledger_path(path, view.info.id)))
        into.append(entries / raw_writer.read_into(ledger_path(path, view.info.id)))
    reader.close()
    Log.delete(path)
    return mine[1:], plain[1:], into[1:]  # the first round fills the kernel's page cache


def large_reads(directory: Path) -> Iterator[Result]:
    mine, plain, into = catch_up(directory / "large-read", 64 * _KIB, scaled(4000))
    name = "catch-up read 64 KiB, checksums verified"
    yield from beside(name, mine, "plain read of the file", plain, 0.5)
    yield Result(
        f"{name}, median", statistics.median(mine), "entries/s", "readinto one buffer", statistics.median(into)
    )
    yield Result(
        f"{name}: of that, the checksums alone", checksum_micros(64 * _KIB), "µs an entry", "plain read of the file",
        1e6 / statistics.median(plain),
    )  # fmt: skip


def checksum_micros(entry_bytes: int) -> float:
    """CPU time of an entry's check, of a chunk in memory: the least of a few rounds."""
    frames = [encode_frame(1, 1, number, 0, 0, (os.urandom(entry_bytes),), ())[0] for number in range(30)]
    chunk = b"".join(buffer for frame in frames for buffer in frame)
    seconds = []
    for _ in range(20):
        started = time.thread_time()
        if len(check_chunk(chunk, 1, 0)[0]) != len(frames):
            raise RuntimeError("a frame does not match its checksum")
        seconds.append(time.thread_time() - started)
    return 1e6 * min(seconds) / len(frames)


def small_reads(directory: Path) -> Iterator[Result]:
    mine, plain, _ = catch_up(directory / "small-read", _KIB, scaled(300_000))
    yield Result(
        "catch-up read 1 KiB, checksums verified, best of 5", max(mine), "entries/s",
        "plain read of the file", max(plain), goal=200_000, goal_kind="least",
    )  # fmt: skip


# Latencies


def p95(seconds: list[float]) -> float:
    """In milliseconds."""
    return 1000 * sorted(seconds)[int(0.95 * (len(seconds) - 1))]


def best_p95(rounds: list[list[float]]) -> float:
    return min(p95(one) for one in rounds)


def latencies(directory: Path) -> Iterator[Result]:
    count = scaled(300)
    with Log.open(directory / "latency", _SETTINGS) as log:
        data = os.urandom(_KIB)
        append: list[list[float]] = []
        tail: list[list[float]] = []
        raw: list[list[float]] = []
        cursor = log.open_cursor("tail", start="latest")
        for number in range(ROUNDS):
            append.append([])
            tail.append([])
            for _ in range(count):
                started = time.perf_counter()
                position = log.append(data).result()
                durable = time.perf_counter()
                (entry,) = cursor.read()
                tail[-1].append(time.perf_counter() - durable)
                append[-1].append(durable - started)
                if entry.position != position:
                    raise RuntimeError("the tail is not what was appended")
            raw.append(raw_writer.latencies(directory / f"raw-{number}", _KIB, count))
        yield Result(
            "append 1 KiB, one at a time, p95, best of 5", best_p95(append), "ms",
            "raw write and fdatasync", best_p95(raw), goal=10, goal_kind="most",
        )  # fmt: skip
        yield Result("tail read, p95, best of 5", best_p95(tail), "ms", goal=1, goal_kind="most")
    Log.delete(directory / "latency")
    path = written(directory / "uncached", 4 * _KIB, scaled(50_000))
    reader = LogReader.open(path)
    first, chosen = reader.first, random.Random(4)
    reads: list[list[float]] = []
    for _ in range(ROUNDS):
        reads.append([])
        for _ in range(scaled(200)):
            position = Position(first.ledger_id, chosen.randrange(scaled(50_000)))
            reader.cache.drop(reader.uuid)
            started = time.perf_counter()
            (_,) = reader.read(position, position)
            reads[-1].append(time.perf_counter() - started)
    reader.close()
    Log.delete(path)
    name = "uncached read of one 4 KiB entry, p95, best of 5"
    yield Result(name, best_p95(reads), "ms", goal=5, goal_kind="most")
