"""A cache of runs that were read or just written: one for all logs of a process, bounded in bytes.

First in, first out; but a run that a reader of this process has not reached yet goes to the back of the queue instead of
out (twice at most, so that a reader that stands still does not fill the cache). Readers that want the same run at the same
time share one read. A limiter bounds the bytes of the reads under way. A read counts only until its run is handed out, not
while its consumer keeps the entries: a consumer that keeps them cannot block other reads.
"""

from __future__ import annotations

import bisect
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from uuid import UUID

from penstock.files import REAL_FILES, Files
from penstock.log.metrics import watch_cache
from penstock.log.pending import Pending
from penstock.log.position import Position
from penstock.log.read.run import FrameRun

CACHE_BYTES_MAX = 64 << 20  # small, because a process may be one of many Spark workers; enough for readers at the tail
IN_FLIGHT_BYTES_MAX = 64 << 20
_REQUEUES_MAX = 2
_Ledger = tuple[UUID, int]


class ReadLimiter:
    """Bounds the bytes of the reads under way. A read larger than the limit waits until it is alone."""

    def __init__(self, bytes_max: int = IN_FLIGHT_BYTES_MAX) -> None:
        self.bytes_max = bytes_max
        self.bytes = 0
        self._freed = threading.Condition()

    @contextmanager
    def take(self, size: int) -> Iterator[None]:
        with self._freed:
            while self.bytes and self.bytes + size > self.bytes_max:
                self._freed.wait()
            self.bytes += size
        try:
            yield
        finally:
            with self._freed:
                self.bytes -= size
                self._freed.notify_all()


class _Runs:
    """The runs of one ledger, ordered by their first entry."""

    __slots__ = ("firsts", "runs")

    def __init__(self) -> None:
        self.firsts: list[int] = []
        self.runs: list[FrameRun] = []


class ReadCache:
    """Thread-safe."""

    def __init__(self, bytes_max: int = CACHE_BYTES_MAX, in_flight_bytes_max: int = IN_FLIGHT_BYTES_MAX) -> None:
        self.bytes_max = bytes_max
        self.bytes = 0
        self.hits = 0
        self.misses = 0
        self.limiter = ReadLimiter(in_flight_bytes_max)
        self._lock = threading.Lock()
        self._ledgers: dict[_Ledger, _Runs] = {}
        self._queue: deque[tuple[UUID, FrameRun]] = deque()
        self._expected: weakref.WeakKeyDictionary[object, tuple[UUID, Position]] = weakref.WeakKeyDictionary()
        self._reads: dict[tuple[UUID, int, int], Pending[FrameRun]] = {}

    def expect(self, reader: object, log: UUID, position: Position) -> None:
        """`reader` will read on at `position`: keep the runs from there on if possible. Holds no reference to `reader`."""
        with self._lock:
            self._expected[reader] = (log, position)

    def forget(self, reader: object) -> None:
        with self._lock:
            self._expected.pop(reader, None)

    def wants(self, log: UUID) -> bool:
        """Whether this process has a reader of the log, so that the owner's new entries are worth keeping."""
        if not self._expected:
            return False
        with self._lock:
            return any(expected == log for expected, _ in self._expected.values())

    def get(self, log: UUID, ledger_id: int, entry_id: int) -> FrameRun | None:
        """A run that holds the entry, if there is one. Counts a hit or a miss."""
        with self._lock:
            run = self._find((log, ledger_id), entry_id)
            if run is None:
                self.misses += 1
            else:
                self.hits += 1
            return run

    def put(self, log: UUID, run: FrameRun) -> None:
        size = len(run.raw)
        if size > self.bytes_max // 4:
            return  # one large run must not push out everything else
        key = (log, run.ledger_id)
        with self._lock:
            runs = self._ledgers.setdefault(key, _Runs())
            at = bisect.bisect_left(runs.firsts, run.first)
            if at < len(runs.firsts) and runs.firsts[at] == run.first:
                if runs.runs[at].last >= run.last:
                    return
                self._queue.remove((log, runs.runs[at]))
                self.bytes -= len(runs.runs[at].raw)
                runs.runs[at] = run
            else:
                runs.firsts.insert(at, run.first)
                runs.runs.insert(at, run)
            self._queue.append((log, run))
            self.bytes += size
            self._evict()

    def shared(self, log: UUID) -> bool:
        """Whether this process has several readers of the log, so that one may want what another read."""
        if len(self._expected) < 2:
            return False
        with self._lock:
            return sum(expected == log for expected, _ in self._expected.values()) > 1

    def load(self, log: UUID, ledger_id: int, entry_id: int, read: Callable[[], FrameRun]) -> FrameRun:
        """The run that starts at the entry. Shares a read of it that is under way; otherwise calls `read` and keeps the run."""
        key = (log, ledger_id, entry_id)
        with self._lock:
            other = self._reads.get(key)
            if other is None:
                mine: Pending[FrameRun] = Pending()
                self._reads[key] = mine
        if other is not None:
            return other.result()
        try:
            run = read()
        except BaseException as error:
            with self._lock:
                del self._reads[key]
            mine.fail(error)
            raise
        self.put(log, run)
        with self._lock:
            del self._reads[key]
        mine.complete(run)
        return run

    def drop(self, log: UUID, ledger_ids: set[int] | None = None) -> None:
        """Drops the runs of these ledgers, or of the whole log, which were trimmed, truncated or deleted."""
        with self._lock:
            gone = [key for key in self._ledgers if key[0] == log and (ledger_ids is None or key[1] in ledger_ids)]
            if not gone:
                return
            for key in gone:
                del self._ledgers[key]
            self._queue = deque(item for item in self._queue if (item[0], item[1].ledger_id) in self._ledgers)
            self.bytes = sum(len(run.raw) for _, run in self._queue)

    def forked(self) -> None:
        """In a forked child: whoever holds a lock or has a read under way is a thread that the child does not have."""
        self._lock = threading.Lock()
        self._reads = {}
        self.limiter = ReadLimiter(self.limiter.bytes_max)

    def _find(self, key: _Ledger, entry_id: int) -> FrameRun | None:
        runs = self._ledgers.get(key)
        if runs is None:
            return None
        at = bisect.bisect_right(runs.firsts, entry_id) - 1
        if at < 0 or runs.runs[at].last < entry_id:
            return None
        return runs.runs[at]

    def _evict(self) -> None:
        while self.bytes > self.bytes_max and self._queue:
            log, run = self._queue.popleft()
            if run.requeues < _REQUEUES_MAX and self._still_needed(log, run):
                run.requeues += 1
                self._queue.append((log, run))
                continue
            self.bytes -= len(run.raw)
            runs = self._ledgers[log, run.ledger_id]
            at = bisect.bisect_left(runs.firsts, run.first)
            del runs.firsts[at], runs.runs[at]
            if not runs.firsts:
                del self._ledgers[log, run.ledger_id]

    def _still_needed(self, log: UUID, run: FrameRun) -> bool:
        last = Position(run.ledger_id, run.last)
        return any(expected == log and position <= last for expected, position in self._expected.values())


PROCESS_CACHE = ReadCache()
watch_cache(PROCESS_CACHE)
os.register_at_fork(after_in_child=PROCESS_CACHE.forked)


_OTHERS: weakref.WeakKeyDictionary[Files, ReadCache] = weakref.WeakKeyDictionary()


def cache_for(files: Files) -> ReadCache:
    """The process's cache. Each other file system, as tests have them, has its own cache."""
    return PROCESS_CACHE if files is REAL_FILES else _OTHERS.setdefault(files, ReadCache())


def configure_cache(bytes_max: int, in_flight_bytes_max: int = IN_FLIGHT_BYTES_MAX) -> None:
    """Sets the sizes of the process's cache, which all of its logs share."""
    PROCESS_CACHE.bytes_max = bytes_max
    PROCESS_CACHE.limiter.bytes_max = in_flight_bytes_max
