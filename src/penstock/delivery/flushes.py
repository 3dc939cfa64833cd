"""Why and when the batches of one dispatcher were written: what the point query and the log lines of one table say.

Metrics never name a dispatcher, because there may be thousands. One of them is looked at in two other ways: `describe` of
its `FlushHistory` on request, and log lines, which `FlushLog` bounds twice: one in `LOG_SECONDS` for a dispatcher, and
`LOG_LINES_MAX` in that time for all of a changefeed. A line counts what came since the one before it, so nothing is hidden.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

from penstock.clock import Clock
from penstock.delivery.settings import FlushSettings

if TYPE_CHECKING:
    from penstock.delivery.dispatcher import Dispatcher
    from penstock.delivery.spool import Spool

_LOG = logging.getLogger(__name__)

WINDOW_SECONDS = 600.0  # what "recent" means
SLOT_SECONDS = 60.0  # the window moves in such steps, so that its memory does not grow with the number of flushes
LOG_SECONDS = 60.0
LOG_LINES_MAX = 1000
ROOM_LOOK_SECONDS = 1.0  # between two looks for batches, where the last one found none


class FlushReason(Enum):
    """Why a batch was written; the values are those of the metric `flush_total`."""

    SIZE = "size"
    INTERVAL = "interval"  # `flush.every` after its oldest payload came
    KEY = "key"  # the next payload may not share a batch with it: in storage, another version or date
    DDL = "ddl"
    CLOSE = "close"  # a flush request, or the end of the process
    INTENT = "intent"  # the last row of a batch that was begun before a restart
    QUOTA = "quota"  # the spool is above a high mark: nothing new comes before something has left
    ERROR = "error"  # not written: the try failed


@dataclass(slots=True)
class WriterStats:
    """Counted since the process started."""

    flushes: dict[str, int] = field(default_factory=lambda: {reason.value: 0 for reason in FlushReason})
    bytes_written: int = 0
    rows_written: int = 0
    write_seconds: float = 0.0  # from the beginning of each file to its progress, the sum over all threads
    retries: int = 0
    dispatchers_stopped: int = 0
    dispatchers_left_out: int = 0


class FlushHistory:
    """The flushes of one dispatcher in this run. Changed only by the thread that works on the dispatcher."""

    __slots__ = ("_slots", "last_at", "last_at_ms", "last_bytes", "last_reason", "logged_at", "unlogged")

    def __init__(self) -> None:
        self.last_reason: FlushReason | None = None
        self.last_at: float | None = None  # monotonic seconds
        self.last_at_ms: int | None = None
        self.last_bytes = 0
        self.logged_at: float | None = None
        self.unlogged: Counter[str] = Counter()  # by reason, since the last line
        self._slots: deque[tuple[int, Counter[str]]] = deque(maxlen=int(WINDOW_SECONDS / SLOT_SECONDS))

    def note(self, reason: FlushReason, size: int, now: float, now_ms: int) -> None:
        """A failed try counts, and is not the last flush: nothing was written."""
        slot = int(now // SLOT_SECONDS)
        if not self._slots or self._slots[-1][0] != slot:
            self._slots.append((slot, Counter()))
        self._slots[-1][1][reason.value] += 1
        self.unlogged[reason.value] += 1
        if reason is not FlushReason.ERROR:
            self.last_reason, self.last_at, self.last_at_ms, self.last_bytes = reason, now, now_ms, size

    def recent(self, now: float) -> dict[str, int]:
        """Counts by reason in the last `WINDOW_SECONDS`, reasons that did not occur left out."""
        oldest = int(now // SLOT_SECONDS) - (self._slots.maxlen or 0)
        total: Counter[str] = Counter()
        for slot, counts in tuple(self._slots):
            if slot > oldest:
                total.update(dict(counts))
        return dict(total)

    def describe(self, now: float) -> dict[str, Any]:
        """For the point query."""
        return {
            "last_flush_reason": self.last_reason.value if self.last_reason is not None else None,
            "last_flush_ms": self.last_at_ms,
            "last_flush_bytes": self.last_bytes,
            "seconds_since_last_flush": round(now - self.last_at, 3) if self.last_at is not None else None,
            "recent_flushes": self.recent(now),
            "recent_seconds": WINDOW_SECONDS,
        }


class FlushLog:
    """The log lines about flushes of one changefeed. Thread-safe."""

    def __init__(
        self, changefeed: str, settings: FlushSettings, clock: Clock, *, lines_max: int = LOG_LINES_MAX
    ) -> None:
        self._changefeed = changefeed
        self._settings = settings
        self._clock = clock
        self._lines_max = lines_max
        self._lock = threading.Lock()
        self._lines = 0
        self._began = float("-inf")

    def note(
        self, dispatcher: Dispatcher, reason: FlushReason, size: int, *, batch_bytes: int, spool_bytes: int
    ) -> None:
        """Adds a flush to its dispatcher's history, and writes a line about it, unless that is one too many."""
        history, now = dispatcher.flushes, self._clock.monotonic()
        before = history.last_at
        history.note(reason, size, now, self._clock.wall_ms())
        if not _LOG.isEnabledFor(logging.INFO) or not self._may_write(history, now):
            return
        since = dict(history.unlogged)
        history.logged_at = now
        history.unlogged.clear()
        facts = {
            "changefeed": self._changefeed,
            "table": f"{dispatcher.schema}.{dispatcher.table}",
            "dispatcher": dispatcher.id,
            "reason": reason.value,
            "file_bytes": size,
            "file_size_target": self._settings.size,
            "flush_interval_seconds": self._settings.every,
            "batch_bytes": batch_bytes,
            "spool_bytes": spool_bytes,
            "seconds_since_last_flush": round(now - before, 3) if before is not None else None,
            "flushes_since_last_line": since,
        }
        _LOG.info("flush", extra=facts)

    def _may_write(self, history: FlushHistory, now: float) -> bool:
        if history.logged_at is not None and now - history.logged_at < LOG_SECONDS:
            return False
        with self._lock:
            if now - self._began >= LOG_SECONDS:
                self._began, self._lines = now, 0
            self._lines += 1
            return self._lines <= self._lines_max


class RoomMaker:
    """Finds the batches that are written before their time, because together they hold so much that wakes are suppressed:
    without that, what thousands of small batches hold would come free with their interval only, and nothing could come in
    until then.

    The largest go first, and no more of them than bring the spool down to where wakes come again. In an outage that makes no
    room and only small files; so no more than `at_once` are on their way, those left out that fail while others succeed.
    Not thread-safe: the writer holds its lock around every call.
    """

    def __init__(self, spool: Spool, at_once: int) -> None:
        self.look_at: float | None = None  # monotonic seconds of the next look; None while there is room
        self._spool = spool
        self._at_once = at_once
        self._found: deque[Dispatcher] = deque()  # largest first
        self._begun: list[Dispatcher] = []

    def next(self, dispatchers: Mapping[str, Dispatcher], now: float, wrote_at: float) -> Dispatcher | None:
        """An idle dispatcher whose batch is to be written now. Called where no other work is to do; cheap but for one look in
        `ROOM_LOOK_SECONDS`. `wrote_at`: when the last write of anybody succeeded."""
        if not self._spool.suppressed:
            self.look_at = None
            self._found.clear()
            return None
        excess = self._spool.excess_bytes()
        if not excess:  # yet: the spiller is at work
            self.look_at = now + ROOM_LOOK_SECONDS
            return None
        self._begun = [each for each in self._begun if each.forced and dispatchers.get(each.id) is each]
        on_their_way = [each for each in self._begun if each.failing_since is None or wrote_at <= each.failing_since]
        if len(on_their_way) >= self._at_once:
            self.look_at = now + ROOM_LOOK_SECONDS  # or earlier, when one of them is written
            return None
        if not self._found and (self.look_at is None or now >= self.look_at):
            self._look(dispatchers, excess)
            self.look_at = now + ROOM_LOOK_SECONDS
        while self._found:
            found = self._found.popleft()
            if dispatchers.get(found.id) is found and found.can_be_forced:
                self._begun.append(found)
                self.look_at = now  # for the one after it
                return found
        return None

    def _look(self, dispatchers: Mapping[str, Dispatcher], excess: int) -> None:
        batches = [(each.batch.held_bytes, each) for each in dispatchers.values() if each.batch is not None]
        excess -= sum(size for size, each in batches if each.write is not None and each.failing_since is None)
        for size, each in sorted(batches, key=lambda one: -one[0]):
            if excess <= 0:
                return
            if each.can_be_forced:
                self._found.append(each)
                excess -= size
