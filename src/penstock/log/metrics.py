"""Sums over all logs, cursors and read caches of this process, for the metrics of observe/metrics.py.

What is to be counted registers itself here (`watch_…`); the figures are asked for only when the metrics are. Watched
objects are held weakly: one that was never closed does not stay for the metrics' sake.
"""

from __future__ import annotations

import contextlib
import threading
from typing import Protocol
from weakref import WeakSet

from penstock.errors import PenstockError
from penstock.observe.metrics import METRICS, LogTotals


class LogFigures(Protocol):
    """The figures of one log that are added up here; `LogStatistics` has them."""

    @property
    def ledgers(self) -> int: ...

    @property
    def entries(self) -> int: ...

    @property
    def messages(self) -> int: ...

    @property
    def bytes(self) -> int: ...

    @property
    def body_bytes(self) -> int: ...

    @property
    def skipped_entries(self) -> int: ...

    @property
    def waiting_bytes(self) -> int: ...

    @property
    def deleting(self) -> int: ...

    @property
    def failed_deletes(self) -> int: ...

    @property
    def offloaded_ledgers(self) -> int: ...

    @property
    def offloaded_bytes(self) -> int: ...

    @property
    def discarded(self) -> int: ...


class WatchedLog(Protocol):
    """An owner's log."""

    def statistics(self) -> LogFigures: ...


class WatchedCursor(Protocol):
    """An owner's durable cursor."""

    @property
    def record_bytes(self) -> int: ...

    def backlog_about(self) -> tuple[int, int]: ...

    def hole_count(self) -> int: ...


class WatchedCache(Protocol):
    """A cache of what was read."""

    bytes: int
    hits: int
    misses: int
    evictions: int


_lock = threading.Lock()
_logs: WeakSet[WatchedLog] = WeakSet()
_cursors: WeakSet[WatchedCursor] = WeakSet()
_caches: WeakSet[WatchedCache] = WeakSet()


def watch_log(log: WatchedLog) -> None:
    with _lock:
        _logs.add(log)


def forget_log(log: WatchedLog) -> None:
    with _lock:
        _logs.discard(log)


def watch_cursor(cursor: WatchedCursor) -> None:
    with _lock:
        _cursors.add(cursor)


def forget_cursor(cursor: WatchedCursor) -> None:
    with _lock:
        _cursors.discard(cursor)


def watch_cache(cache: WatchedCache) -> None:
    with _lock:
        _caches.add(cache)


def log_totals() -> LogTotals:
    """The sums, as of now. A log or cursor that is closed or fails meanwhile is left out: a scrape never fails."""
    with _lock:
        logs, cursors, caches = list(_logs), list(_cursors), list(_caches)
    figures: list[LogFigures] = []
    for log in logs:
        with contextlib.suppress(PenstockError, OSError):
            figures.append(log.statistics())
    backlogs, backlog_bytes, record_bytes, holes = [0], [0], 0, 0
    for cursor in cursors:
        with contextlib.suppress(PenstockError, OSError):
            entries, size = cursor.backlog_about()
            backlogs.append(entries)
            backlog_bytes.append(size)
            record_bytes += cursor.record_bytes
            holes += cursor.hole_count()
    return LogTotals(
        logs=len(logs),
        ledgers=sum(one.ledgers for one in figures),
        entries=sum(one.entries for one in figures),
        messages=sum(one.messages for one in figures),
        stored_bytes=sum(one.bytes for one in figures),
        body_bytes=sum(one.body_bytes for one in figures),
        skipped_entries=sum(one.skipped_entries for one in figures),
        waiting_bytes=sum(one.waiting_bytes for one in figures),
        deleting_ledgers=sum(one.deleting for one in figures),
        cursors=len(cursors),
        backlog_entries=sum(backlogs),
        backlog_entries_max=max(backlogs),
        backlog_bytes=sum(backlog_bytes),
        backlog_bytes_max=max(backlog_bytes),
        cursor_bytes=record_bytes,
        cursor_holes=holes,
        cache_bytes=sum(cache.bytes for cache in caches),
        cache_hits=sum(cache.hits for cache in caches),
        cache_misses=sum(cache.misses for cache in caches),
        cache_evictions=sum(cache.evictions for cache in caches),
        failed_deletes=sum(one.failed_deletes for one in figures),
        offloaded_ledgers=sum(one.offloaded_ledgers for one in figures),
        offloaded_bytes=sum(one.offloaded_bytes for one in figures),
        discarded_ledgers=sum(one.discarded for one in figures),
    )


METRICS.watch_logs(log_totals)
