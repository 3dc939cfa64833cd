"""What all logs and cursors of this process amount to, for metrics (observe/metrics.py). Counted when somebody asks."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Protocol
from weakref import WeakSet

from penstock.errors import PenstockError
from penstock.log.read.cache import PROCESS_CACHE
from penstock.observe.metrics import METRICS, LogTotals

if TYPE_CHECKING:
    from penstock.log.statistics import LogStatistics


class WatchedLog(Protocol):
    """An owner's log."""

    def statistics(self) -> LogStatistics: ...


class WatchedCursor(Protocol):
    """An owner's durable cursor."""

    @property
    def record_bytes(self) -> int: ...

    def backlog_about(self) -> tuple[int, int]: ...

    def hole_count(self) -> int: ...


_lock = threading.Lock()
_logs: WeakSet[WatchedLog] = WeakSet()
_cursors: WeakSet[WatchedCursor] = WeakSet()


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


def log_totals() -> LogTotals:
    """One closed or failing in this moment is left out: a scrape never fails because of it."""
    with _lock:
        logs, cursors = list(_logs), list(_cursors)
    statistics = []
    for log in logs:
        with contextlib.suppress(PenstockError, OSError):
            statistics.append(log.statistics())
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
        ledgers=sum(one.ledgers for one in statistics),
        entries=sum(one.entries for one in statistics),
        stored_bytes=sum(one.bytes for one in statistics),
        waiting_bytes=sum(one.waiting_bytes for one in statistics),
        deleting_ledgers=sum(one.deleting for one in statistics),
        cursors=len(cursors),
        backlog_entries=sum(backlogs),
        backlog_entries_max=max(backlogs),
        backlog_bytes=sum(backlog_bytes),
        backlog_bytes_max=max(backlog_bytes),
        cursor_bytes=record_bytes,
        cursor_holes=holes,
        cache_bytes=PROCESS_CACHE.bytes,
        cache_hits=PROCESS_CACHE.hits,
        cache_misses=PROCESS_CACHE.misses,
        failed_deletes=sum(one.failed_deletes for one in statistics),
        offloaded_ledgers=sum(one.offloaded_ledgers for one in statistics),
        offloaded_bytes=sum(one.offloaded_bytes for one in statistics),
        discarded_ledgers=sum(one.discarded for one in statistics),
    )


METRICS.watch_logs(log_totals)
