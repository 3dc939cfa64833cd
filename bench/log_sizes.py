"""What the log costs where there is much of it: ten thousand ledgers, a full cache.

CPU time, the least of five rounds, which alternate with those of the small log or the empty cache beside it. The memory of
the cache is measured in a process of its own (log_processes.py).
"""

from __future__ import annotations

import dataclasses
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from bench.result import Result
from penstock.log import Cursor, Log, LogSettings, Position
from penstock.log.ledgers.info import LedgerInfo
from penstock.log.read.cache import ReadCache
from penstock.log.read.run import FrameRun

_FEW, _MANY = 10, 10_000
_READS, _ROLLS, _PUTS = 200, 10, 20_000
_RUN_DATA = 1024
_ROUNDS = 5


def measure(directory: Path) -> Iterator[Result]:
    yield from ledgers(directory / "sizes")
    yield from cache_puts()


# Ten thousand ledgers


def ledgers(directory: Path) -> Iterator[Result]:
    """A read of ten entries at the tail, and a roll, beside ten and beside ten thousand ledgers."""
    counts = (_FEW, _MANY)
    logs = {count: log_of(directory / str(count) / "log", count) for count in counts}
    cursors = {count: log.open_cursor("tail", durable=False, start="earliest") for count, log in logs.items()}
    reads: dict[int, list[float]] = {count: [] for count in counts}
    rolls: dict[int, list[float]] = {count: [] for count in counts}
    for _ in range(_ROUNDS):
        for count in counts:
            reads[count].append(read_seconds(logs[count], cursors[count]))
        for count in counts:
            rolls[count].append(roll_seconds(logs[count]))
    for log in logs.values():
        log._parts.catalog.change(
            lambda listed: dataclasses.replace(listed, ledgers=tuple(info for info in listed.ledgers if info.id > 0))
        )
        log.close()
    shutil.rmtree(directory)
    few = f"with {_FEW} ledgers"
    yield Result(
        f"read of 10 entries at the tail with {_MANY:,} ledgers, CPU, best of {_ROUNDS}", 1e6 * min(reads[_MANY]),
        "µs", few, 1e6 * min(reads[_FEW]), goal=1.2, goal_kind="ratio-most",
    )  # fmt: skip
    yield Result(
        f"roll with {_MANY:,} ledgers, CPU, best of {_ROUNDS}", 1000 * min(rolls[_MANY]), "ms", few,
        1000 * min(rolls[_FEW]),
    )  # fmt: skip


def log_of(directory: Path, count: int) -> Log:
    """A log whose list names so many ledgers before its own, which nobody reads here: their files are not made."""
    directory.parent.mkdir(parents=True)
    log = Log.open(directory, LogSettings(maintenance_interval_seconds=0))
    old = tuple(
        LedgerInfo(number, 1, state="sealed", entries=1, frames_end=200, first_ms=1, last_ms=1)
        for number in range(-count, 0)
    )
    log._parts.catalog.change(lambda listed: dataclasses.replace(listed, ledgers=(*old, *listed.ledgers)))
    log.reader().refresh()
    return log


def read_seconds(log: Log, cursor: Cursor) -> float:
    """Of one read."""
    span = log.append_many([b"x"] * 10 * _READS).result()
    cursor.seek(span.first)
    started = time.process_time()
    for _ in range(_READS):
        if len(cursor.read_or_wait(10)) != 10:
            raise RuntimeError("the tail is not what was appended")
    return (time.process_time() - started) / _READS


def roll_seconds(log: Log) -> float:
    """Of one roll."""
    seconds = 0.0
    for _ in range(_ROLLS):
        log.append(b"x").result()
        started = time.process_time()
        log.roll()
        seconds += time.process_time() - started
    return seconds / _ROLLS


# A full cache


def cache_puts() -> Iterator[Result]:
    """A put into a full cache, with a consumer at the tail, as an owner does it for its readers."""
    full, empty = [], []
    for _ in range(_ROUNDS):
        empty.append(put_seconds(1 << 40))
        full.append(put_seconds(1 << 20))
    yield Result(
        f"cache put at the limit, CPU, best of {_ROUNDS}", 1e6 * min(full), "µs", "put far below the limit",
        1e6 * min(empty), goal=1.5, goal_kind="ratio-most",
    )  # fmt: skip


def put_seconds(bytes_max: int) -> float:
    """Of one put of a run of one entry."""
    cache, log, consumer = ReadCache(bytes_max), "bench", threading.Event()
    cache.expect(consumer, log, Position(1, 2 * _PUTS))
    raw, table = bytes(_RUN_DATA), np.zeros((1, 4), np.int64)
    runs = [FrameRun(1, number, raw, table) for number in range(2 * _PUTS)]
    for run in runs[:_PUTS]:
        cache.put(log, run)
    started = time.process_time()
    for run in runs[_PUTS:]:
        cache.put(log, run)
    return (time.process_time() - started) / _PUTS
