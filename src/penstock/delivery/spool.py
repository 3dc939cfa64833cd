"""The spool of one changefeed: payloads that were published and are not at the sink yet. It is in memory only and may
be lost at any moment.

- Items of one dispatcher come out in the order in which they went in. Dispatchers are spread over shards by a hash of
  their id, so that producers and writers of different dispatchers seldom meet at a lock.
- `pick` hands out dispatchers with queued items, round-robin; nothing ever scans all dispatchers.
- Bytes count from staging until `release`, that is until the remote write is done and recorded.
- `enqueue` never blocks. Each published range has one *wake* per dispatcher, which says that upstream may send more.
  Below the high watermark it runs at once; above it, it is kept back until the bytes have fallen to the low watermark.
  The spool exceeds the high watermark by at most what is in flight upstream. Drain markers count no bytes and always
  pass.
- `discard` drops items; the callback of each runs exactly once, with an error.

Spilling to disk is not built yet (docs/formats/spool-segment.md).
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from penstock.delivery.payload import Payload
from penstock.errors import BadInput, Closed, PenstockError

SPOOL_HIGH_BYTES = 512 << 20
SPOOL_LOW_BYTES = 256 << 20
SPOOL_SHARDS = 16  # enough that writers and producers seldom share a lock; does not grow with dispatchers

Wake = Callable[[], None]
Finished = Callable[[PenstockError | None], None]  # None: it is at the sink


@dataclass(frozen=True, slots=True)
class SpoolLimits:
    """Wakes are kept back above `high_bytes` and come again at or below `low_bytes`."""

    high_bytes: int = SPOOL_HIGH_BYTES
    low_bytes: int = SPOOL_LOW_BYTES

    def __post_init__(self) -> None:
        if not 0 <= self.low_bytes <= self.high_bytes:
            raise BadInput(f"spool watermarks: low {self.low_bytes} bytes must be at most high {self.high_bytes} bytes")


@dataclass(slots=True, eq=False)
class PayloadItem:
    """A data payload or a DDL in its dispatcher's queue. `finished` runs once: when it is at the sink, or discarded."""

    payload: Payload
    enqueued_at: float  # monotonic seconds
    finished: Finished | None = None

    @property
    def size(self) -> int:
        return self.payload.size


@dataclass(slots=True, eq=False)
class DrainMarker:
    """Everything before it in its dispatcher's queue is at the sink once `finished` runs without an error."""

    reason: str
    finished: Finished | None = None

    @property
    def size(self) -> int:
        return 0


SpoolItem = PayloadItem | DrainMarker


def finish(item: SpoolItem, error: PenstockError | None) -> None:
    """Runs the item's callback, once."""
    callback, item.finished = item.finished, None
    if callback is not None:
        callback(error)


@dataclass(slots=True)
class SpoolStats:
    """Counters since the start of the process."""

    wakes: int = 0
    wakes_suppressed: int = 0
    items_enqueued: int = 0
    items_discarded: int = 0


@dataclass(slots=True)
class _Shard:
    lock: threading.Lock = field(default_factory=threading.Lock)
    queues: dict[str, deque[SpoolItem]] = field(default_factory=dict)  # never holds an empty queue
    active: deque[str] = field(default_factory=deque)
    in_active: set[str] = field(default_factory=set)


class Spool:
    """Thread-safe. Callbacks run outside the locks, on the thread that caused them."""

    def __init__(self, limits: SpoolLimits = SpoolLimits(), *, shards: int = SPOOL_SHARDS) -> None:  # noqa: B008
        self.limits = limits
        self.stats = SpoolStats()
        self._shards = [_Shard() for _ in range(shards)]
        self._next_shard = 0
        self._account = threading.Lock()
        self._bytes = 0
        self._staged_bytes = 0
        self._suppressed = False
        self._kept_wakes: deque[Wake] = deque()
        self._closed = False

    @property
    def bytes(self) -> int:
        """Bytes in the queues, at the writers, and staged but not yet published."""
        return self._bytes + self._staged_bytes

    @property
    def staged_bytes(self) -> int:
        return self._staged_bytes

    @property
    def suppressed(self) -> bool:
        return self._suppressed

    def enqueue(self, dispatcher: str, items: Sequence[SpoolItem], wake: Wake | None = None) -> None:
        """Appends to the dispatcher's queue and runs or keeps `wake`. Never blocks on the sink."""
        if self._closed:
            raise Closed("the spool is closed")
        shard = self._shard(dispatcher)
        with shard.lock:
            shard.queues.setdefault(dispatcher, deque()).extend(items)
            self._activate(shard, dispatcher)
        with self._account:
            self._bytes += sum(item.size for item in items)
            self.stats.items_enqueued += len(items)
            self._watermarks()
            if wake is not None and self._suppressed:
                self._kept_wakes.append(wake)
                self.stats.wakes_suppressed += 1
                wake = None
            elif wake is not None:
                self.stats.wakes += 1
        if wake is not None:
            wake()

    def pick(self) -> str | None:
        """The next dispatcher with something queued; it is not picked again before `enqueue` or `activate`."""
        count = len(self._shards)
        for step in range(count):
            shard = self._shards[(self._next_shard + step) % count]
            if not shard.active:  # read without the lock: an enqueue that is missed here wakes a writer afterwards
                continue
            with shard.lock:
                if shard.active:
                    dispatcher = shard.active.popleft()
                    shard.in_active.discard(dispatcher)
                    self._next_shard = (self._next_shard + step + 1) % count
                    return dispatcher
        return None

    def activate(self, dispatcher: str) -> bool:
        """Puts a dispatcher that still has items behind the other active ones. False if it has none."""
        shard = self._shard(dispatcher)
        with shard.lock:
            if dispatcher not in shard.queues:
                return False
            self._activate(shard, dispatcher)
            return True

    def dequeue(self, dispatcher: str) -> SpoolItem | None:
        """The oldest item of the dispatcher. Its bytes stay in the account until `release`."""
        shard = self._shard(dispatcher)
        with shard.lock:
            queue = shard.queues.get(dispatcher)
            if queue is None:
                return None
            item = queue.popleft()
            if not queue:
                del shard.queues[dispatcher]
            return item

    def release(self, size: int) -> None:
        """Subtracts bytes that left memory. Wakes that were kept back may run."""
        self._move(released=size)

    def stage(self, size: int) -> None:
        """Adds bytes that were staged and may or may not be published; negative where they were dropped."""
        self._move(staged=size)

    def unstage(self, size: int) -> None:
        """Subtracts staged bytes that are enqueued next. No wake runs here: the bytes only change accounts."""
        with self._account:
            self._staged_bytes -= size

    def discard(self, dispatcher: str, error: PenstockError) -> int:
        """Drops the dispatcher's queue; returns the number of items."""
        shard = self._shard(dispatcher)
        with shard.lock:
            items = shard.queues.pop(dispatcher, deque())
        self.drop(items, error)
        return len(items)

    def discard_all(self, error: PenstockError) -> int:
        dropped = 0
        for shard in self._shards:
            with shard.lock:
                queues = list(shard.queues.values())
                shard.queues.clear()
                shard.active.clear()
                shard.in_active.clear()
            for queue in queues:
                dropped += len(queue)
                self.drop(queue, error)
        return dropped

    def drop(self, items: Sequence[SpoolItem] | deque[SpoolItem], error: PenstockError) -> None:
        """Ends items that were dequeued and will not be written: bytes are released, callbacks get the error."""
        size = sum(item.size for item in items)
        with self._account:
            self.stats.items_discarded += len(items)
        for item in items:
            finish(item, error)
        self._move(released=size)

    def queued_dispatchers(self) -> list[str]:
        """The dispatchers with queued items."""
        found: list[str] = []
        for shard in self._shards:
            with shard.lock:
                found.extend(shard.queues)
        return found

    def close(self, error: PenstockError | None = None) -> None:
        self._closed = True
        self.discard_all(error or Closed("the spool is closed"))

    def _shard(self, dispatcher: str) -> _Shard:
        return self._shards[int(dispatcher[:8], 16) % len(self._shards)]

    @staticmethod
    def _activate(shard: _Shard, dispatcher: str) -> None:
        if dispatcher not in shard.in_active:
            shard.in_active.add(dispatcher)
            shard.active.append(dispatcher)

    def _move(self, *, released: int = 0, staged: int = 0) -> None:
        with self._account:
            self._bytes -= released
            self._staged_bytes += staged
            self._watermarks()
            wakes: list[Wake] = []
            if not self._suppressed and self._kept_wakes:
                wakes = list(self._kept_wakes)
                self._kept_wakes.clear()
                self.stats.wakes += len(wakes)
        for wake in wakes:
            wake()

    def _watermarks(self) -> None:
        """Sets `_suppressed` above the high watermark, clears it at the low one. Under the account's lock."""
        if self.bytes > self.limits.high_bytes:
            self._suppressed = True
        elif self.bytes <= self.limits.low_bytes:
            self._suppressed = False
