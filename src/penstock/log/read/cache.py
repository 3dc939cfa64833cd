"""A cache of runs that were read or just written: one for all logs of a process, bounded in bytes.

What counts is all the memory that a run takes, its table and the objects around it too: a run of one small entry is mostly
those. Nothing here is more work where there are more runs, but for finding a run, a binary search.

First in, first out; but a run that a consumer of this process (a cursor, or a reader of its own) has not reached yet goes to
the back of the queue instead of out (twice at most, so that one that stands still does not fill the cache). Without a
consumer the owner puts nothing in. Readers that want the same run at the same
time share one read. A limiter bounds the bytes of the reads under way. A read counts only until its run is handed out, not
while its consumer keeps the entries: a consumer that keeps them cannot block other reads.
"""

from __future__ import annotations

import bisect
import math
import os
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID

from penstock.arguments import check_count
from penstock.files import REAL_FILES, Files
from penstock.log.metrics import watch_cache
from penstock.log.pending import Pending
from penstock.log.position import Position
from penstock.log.read.run import FrameRun

CACHE_BYTES_MAX = 64 << 20  # small, because a process may be one of many Spark workers; enough for readers at the tail
IN_FLIGHT_BYTES_MAX = 64 << 20
_REQUEUES_MAX = 2
_RUN_BYTES = 500  # what the objects of a run take beside its bytes and its table, as measured
_DEAD_MIN = 64
_ROOM_SHARE = 64  # a full cache makes room for 1/64 of its size at a time

LogKey = Hashable  # what tells a log from all others of this process: see `cache_key`
_Ledger = tuple[LogKey, int]


def cache_key(uuid: UUID, directory: Path) -> LogKey:
    """A log is told by its directory too: a copy of it has the same uuid, and other entries at the same positions."""
    return f"{uuid} {directory.resolve()}"


def _bytes_of(run: FrameRun) -> int:
    return len(run.raw) + 32 * (run.last - run.first + 1) + _RUN_BYTES


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
    """The runs of one ledger, ordered by their first entry.

    A run that goes leaves a gap, because closing it would move all that follow; once most are gaps, all are closed.
    """

    __slots__ = ("_dead", "_firsts", "_head", "_runs", "ledger")

    def __init__(self, ledger: _Ledger) -> None:
        self.ledger = ledger
        self._firsts: list[int] = []
        self._runs: list[FrameRun | None] = []
        self._dead = 0
        self._head = 0  # where the first run may be: a guess that saves the search

    def at(self, first: int) -> FrameRun | None:
        """The run that starts at this entry."""
        at = bisect.bisect_left(self._firsts, first)
        return self._runs[at] if at < len(self._firsts) and self._firsts[at] == first else None

    def holding(self, entry: int) -> FrameRun | None:
        """A run that holds the entry."""
        at = bisect.bisect_right(self._firsts, entry) - 1
        run = self._runs[at] if at >= 0 else None
        return run if run is not None and run.last >= entry else None

    def put(self, run: FrameRun) -> None:
        """Adds the run, in the place of one that starts at the same entry."""
        at = bisect.bisect_left(self._firsts, run.first)
        if at < len(self._firsts) and self._firsts[at] == run.first:
            self._dead -= self._runs[at] is None
            self._runs[at] = run
        else:
            self._firsts.insert(at, run.first)
            self._runs.insert(at, run)

    def remove(self, run: FrameRun) -> bool:
        """Whether there are others left."""
        head, runs = self._head, self._runs
        if head < len(runs) and runs[head] is run:  # first in, first out: most often it is the first one
            runs[head] = None
            self._head = head + 1
        else:
            runs[bisect.bisect_left(self._firsts, run.first)] = None
        dead = self._dead = self._dead + 1
        if dead >= _DEAD_MIN and 2 * dead > len(runs):
            self._runs = [run for run in runs if run is not None]
            self._firsts = [run.first for run in self._runs if run is not None]
            self._dead = self._head = 0
            return bool(self._runs)
        return dead < len(runs)

    def all(self) -> Iterator[FrameRun]:
        return (run for run in self._runs if run is not None)


class ReadCache:
    """Thread-safe."""

    def __init__(self, bytes_max: int = CACHE_BYTES_MAX, in_flight_bytes_max: int = IN_FLIGHT_BYTES_MAX) -> None:
        self.bytes_max = bytes_max
        self.bytes = 0
        self.hits = 0
        self.misses = 0
        self.evictions = 0  # of runs, to make room
        self.limiter = ReadLimiter(in_flight_bytes_max)
        self._lock = threading.Lock()
        self._ledgers: dict[_Ledger, _Runs] = {}
        self._queue: OrderedDict[FrameRun, tuple[_Runs, int]] = OrderedDict()  # with its bytes; the first goes first
        self._expected: weakref.WeakKeyDictionary[object, tuple[LogKey, Position]] = weakref.WeakKeyDictionary()
        self._reads: dict[tuple[LogKey, int, int], Pending[FrameRun]] = {}

    def expect(self, consumer: object, log: LogKey, position: Position) -> None:
        """`consumer` will read on at `position`: keep the runs from there on if possible. Holds no reference to it."""
        with self._lock:
            self._expected[consumer] = (log, position)

    def forget(self, consumer: object) -> None:
        with self._lock:
            self._expected.pop(consumer, None)

    def wants(self, log: LogKey) -> bool:
        """Whether this process has a consumer of the log, so that the owner's new entries are worth keeping."""
        if not self._expected:
            return False
        with self._lock:
            return any(expected == log for expected, _ in self._expected.values())

    def get(self, log: LogKey, ledger_id: int, entry_id: int) -> FrameRun | None:
        """A run that holds the entry, if there is one. Counts a hit or a miss."""
        with self._lock:
            runs = self._ledgers.get((log, ledger_id))
            run = runs.holding(entry_id) if runs is not None else None
            if run is None:
                self.misses += 1
            else:
                self.hits += 1
            return run

    def put(self, log: LogKey, run: FrameRun) -> None:
        size = _bytes_of(run)
        if size > self.bytes_max // 4:
            return  # one large run must not push out everything else
        key = (log, run.ledger_id)
        with self._lock:
            runs = self._ledgers.get(key)
            if runs is None:
                runs = self._ledgers[key] = _Runs(key)
            old = runs.at(run.first)
            if old is not None:
                if old.last >= run.last:
                    return
                self.bytes -= self._queue.pop(old)[1]
            runs.put(run)
            self._queue[run] = (runs, size)
            self.bytes += size
            if self.bytes > self.bytes_max:
                self._evict()

    def shared(self, log: LogKey) -> bool:
        """Whether this process has several consumers of the log, so that one may want what another read."""
        if len(self._expected) < 2:
            return False
        with self._lock:
            return sum(expected == log for expected, _ in self._expected.values()) > 1

    def load(self, log: LogKey, ledger_id: int, entry_id: int, read: Callable[[], FrameRun]) -> FrameRun:
        """The run that starts at the entry. Shares a read of it that is under way; otherwise calls `read` and keeps the run.

        Why a shared read failed may be its caller's own matter (its reader was closed, its thread interrupted, or it makes
        fewer attempts): then this caller reads too.
        """
        key = (log, ledger_id, entry_id)
        mine: Pending[FrameRun] = Pending()
        while True:
            with self._lock:
                other = self._reads.setdefault(key, mine)
            if other is mine:
                break
            if other.exception() is None:
                return other.result()
        try:
            run = read()
            self.put(log, run)
        except BaseException as error:
            with self._lock:
                del self._reads[key]
            mine.fail(error)
            raise
        with self._lock:
            del self._reads[key]
        mine.complete(run)
        return run

    def drop(self, log: LogKey, ledger_ids: set[int] | None = None) -> None:
        """Drops the runs of these ledgers, or of the whole log, which were trimmed, truncated or deleted."""
        with self._lock:
            gone = [key for key in self._ledgers if key[0] == log and (ledger_ids is None or key[1] in ledger_ids)]
            for key in gone:
                for run in self._ledgers.pop(key).all():
                    self.bytes -= self._queue.pop(run)[1]

    def forked(self) -> None:
        """In a forked child: whoever holds a lock or has a read under way is a thread that the child does not have. It may
        have been in the middle of a change, so the child begins with an empty cache."""
        self._lock = threading.Lock()
        self._reads = {}
        self._ledgers, self._queue, self.bytes = {}, OrderedDict(), 0
        self.limiter = ReadLimiter(self.limiter.bytes_max)

    def _evict(self) -> None:
        """Makes some more room than is needed now, so that what a look at all consumers costs is shared by many puts."""
        enough, left = self.bytes_max - self.bytes_max // _ROOM_SHARE, self.bytes
        needed_from: dict[_Runs, float] = {}
        queue = self._queue
        while left > enough and queue:
            run, held = queue.popitem(last=False)
            runs, size = held
            if run.requeues < _REQUEUES_MAX:
                if runs not in needed_from:
                    needed_from[runs] = self._needed_from(*runs.ledger)
                if run.last >= needed_from[runs]:
                    run.requeues += 1
                    queue[run] = held
                    continue
            left -= size
            self.evictions += 1
            if not runs.remove(run):
                del self._ledgers[runs.ledger]
        self.bytes = left

    def _needed_from(self, log: LogKey, ledger_id: int) -> float:
        """The first entry of the ledger that a consumer has not reached; infinity where all of them are beyond it."""
        ahead = [position for expected, position in self._expected.values() if expected == log]
        lowest = min(ahead, default=None)
        if lowest is None or lowest.ledger_id > ledger_id:
            return math.inf
        return lowest.entry_id if lowest.ledger_id == ledger_id else 0


PROCESS_CACHE = ReadCache()
watch_cache(PROCESS_CACHE)
os.register_at_fork(after_in_child=PROCESS_CACHE.forked)


_OTHERS: weakref.WeakKeyDictionary[Files, ReadCache] = weakref.WeakKeyDictionary()


def cache_for(files: Files) -> ReadCache:
    """The process's cache. Each other file system, as tests have them, has its own cache."""
    return PROCESS_CACHE if files is REAL_FILES else _OTHERS.setdefault(files, ReadCache())


def configure_cache(bytes_max: int, in_flight_bytes_max: int = IN_FLIGHT_BYTES_MAX) -> None:
    """Sets the sizes of the process's cache, which all of its logs share."""
    check_count("bytes_max", bytes_max)
    check_count("in_flight_bytes_max", in_flight_bytes_max, least=1)
    PROCESS_CACHE.bytes_max = bytes_max
    PROCESS_CACHE.limiter.bytes_max = in_flight_bytes_max
