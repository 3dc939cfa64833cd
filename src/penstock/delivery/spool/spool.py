"""The spool of one changefeed: the contract for staging, dispatchers and writers. See the package's docstring."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.delivery.spool.account import Account, Wake
from penstock.delivery.spool.background import Background
from penstock.delivery.spool.items import DataItem, DrainMarkerItem, Place, SpoolItem, acknowledge
from penstock.delivery.spool.limits import POP_BYTES_MAX, POP_ITEMS_MAX, READ_BACK_BYTES, SHARDS, SpoolLimits
from penstock.delivery.spool.read_back import ReadBack
from penstock.delivery.spool.segment import SPACE_HINT, Segments
from penstock.delivery.spool.shard import Shard
from penstock.delivery.spool.spiller import Spiller
from penstock.errors import BadInput, Closed, PenstockError, TooMuch, Unavailable
from penstock.files import REAL_FILES, Buffer, Files
from penstock.observe.metrics import SpoolTotals

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Disk:
    """Where a spool puts what does not fit in memory. `incarnation` is 32 hex digits."""

    directory: Path
    incarnation: str
    files: Files = REAL_FILES


class Spool:
    """Thread-safe. Callbacks run outside the locks, on the thread that caused them.

    Without `disk` everything stays in memory. With `background=False` nothing is spilled by itself: a test calls `step`.
    """

    def __init__(
        self,
        limits: SpoolLimits = SpoolLimits(),  # noqa: B008
        *,
        disk: Disk | None = None,
        clock: Clock = SYSTEM_CLOCK,
        name: str = "",
        shards: int = SHARDS,
        read_back_bytes: int = READ_BACK_BYTES,
        background: bool = True,
        on_drained: Callable[[float], None] = lambda _seconds: None,
        on_suppressed: Callable[[], None] = lambda: None,
    ) -> None:
        self.limits = limits
        self.items_enqueued = 0
        self.items_dropped = 0
        self._account = Account(limits, name)
        self._shards = [Shard(index) for index in range(shards)]
        self._read_back = ReadBack(read_back_bytes, self._account)
        self._clock = clock
        self._name = name
        self._on_drained = on_drained
        self._on_suppressed = on_suppressed  # runs as wakes do; writers may have to make room
        self._suppressions_told = 0
        self._next_shard = 0
        self._closed = False
        self._segments: Segments | None = None
        self._spiller: Spiller | None = None
        self._background: Background | None = None
        if disk is not None:
            self._segments = Segments(disk.directory, disk.files, disk.incarnation, limits.segment_bytes)
            self._segments.clean()
            self._spiller = Spiller(self._shards, self._account, self._segments, clock)
            self._background = Background(self._spiller, self._account, self.step, clock, name=name, enabled=background)

    # ---- in: staging and enqueueing

    def admit(self, *, always: bool = False) -> None:
        """Called before something is staged, and the only place where the hard quota acts: raises `TooMuch` above it.

        Where the spiller is behind, waits for it a little. `always`: for rows without which what is held cannot leave.
        """
        account, limits = self._account, self.limits
        if self._background is not None and account.memory_bytes > limits.memory_high_bytes:
            self._background.wait_for_memory(limits.memory_high_bytes)
        if always:
            return
        held = (
            f"{self._name or 'the spool'} holds {account.memory_bytes} bytes in memory and {account.disk_bytes} on disk"
        )
        if account.bytes > limits.quota_bytes:
            raise TooMuch(
                f"{held}, more than its quota of {limits.quota_bytes}",
                hint="stage less at once, or wait until the sink has taken some of it",
            )
        if account.memory_bytes > limits.memory_high_bytes and account.disk_error:
            raise Unavailable(
                f"{held}; memory is full, and the disk cannot be used: {account.disk_error}", hint=SPACE_HINT
            )

    def stage(self, item: DataItem[Any]) -> None:
        """Counts an item that may or may not be enqueued later; it may be spilled from now on."""
        self._hold([item], staged=True)

    def enqueue(self, dispatcher: str, items: Sequence[SpoolItem], wake: Wake | None = None) -> None:
        """Appends to the dispatcher's queue, in this order; staged items change accounts, others are counted now. Then
        the wake runs, or is kept while wakes are suppressed. Never blocks.

        What a failed dispatcher gets ends with its error; the wake runs all the same.
        """
        if self._closed:
            raise Closed("the spool is closed")
        shard = self._shard(dispatcher)
        with shard.lock:
            self._check(shard, dispatcher, items)
            error = shard.failed.get(dispatcher)
            staged = staged_items = memory = fresh = 0
            for item in items:
                if not isinstance(item, DataItem):
                    item.enqueued_at = item.enqueued_at or self._clock.monotonic()
                elif item.staged:
                    item.staged = False
                    staged += item.size + item.overhead
                    staged_items += 1
                else:
                    shard.hold(item)
                    memory += item.size + item.overhead
                    fresh += 1
            if error is None and items:
                shard.append(dispatcher, list(items))
            self._account.move(memory=memory, staged=-staged, items=fresh, staged_items=-staged_items)
            self.items_enqueued += len(items)
        if error is not None:
            self.drop(items, error)
        if wake is not None:
            self._account.offer(wake)
        self._after_change()

    @staticmethod
    def _check(shard: Shard, dispatcher: str, items: Sequence[SpoolItem]) -> None:
        """Before anything is changed. A marker at T comes after rows below T only: rows are in commit order, so the last
        one tells."""
        queue = shard.queues.get(dispatcher)
        last = queue[-1] if queue else None
        for item in items:
            if item.dispatcher != dispatcher:
                raise BadInput(f"an item of dispatcher {item.dispatcher} was enqueued for {dispatcher}")
            if isinstance(item, DataItem):
                if item.place is Place.GONE or (item.place is not Place.NEW and not item.staged):
                    raise BadInput(f"an item of dispatcher {dispatcher} was enqueued twice")
            elif (
                item.ddl_commit_ts is not None
                and isinstance(last, DataItem)
                and last.max_commit_ts >= item.ddl_commit_ts
            ):
                raise BadInput(
                    f"a DDL at {item.ddl_commit_ts} would drain rows at {last.max_commit_ts} of dispatcher {dispatcher}"
                )
            last = item

    # ---- out: dispatchers and writers

    def pick(self) -> str | None:
        """The next dispatcher with something queued, in turn; it is not picked again before `enqueue` or `activate`."""
        count = len(self._shards)
        for step in range(count):
            shard = self._shards[(self._next_shard + step) % count]
            if not shard.has_active:  # read without the lock: an enqueue that is missed here wakes a writer afterwards
                continue
            with shard.lock:
                dispatcher = shard.pick()
            if dispatcher is not None:
                self._next_shard = (self._next_shard + step + 1) % count
                return dispatcher
        return None

    def activate(self, dispatcher: str) -> bool:
        """Puts a dispatcher that still has items behind the other active ones. False if it has none."""
        shard = self._shard(dispatcher)
        with shard.lock:
            return shard.activate(dispatcher)

    def pop(
        self, dispatcher: str, *, items_max: int = POP_ITEMS_MAX, bytes_max: int = POP_BYTES_MAX
    ) -> list[SpoolItem]:
        """The oldest items of the dispatcher, at least one if there is any. They count, and may be spilled, until
        `flushed` or `drop`."""
        shard = self._shard(dispatcher)
        with shard.lock:
            return shard.pop(dispatcher, items_max, bytes_max)

    def load(self, item: DataItem[Any]) -> Buffer:
        """The item's body, from memory or from its segment; what is read is not kept by the spool."""
        shard = self._shard(item.dispatcher)
        with shard.lock:
            if item.body is not None:
                return item.body
            pointer = item.pointer
            if pointer is None or item.place is Place.GONE:
                raise Closed(f"an item of dispatcher {item.dispatcher} is not in the spool any more")
            segment = pointer.segment
            segment.readers += 1  # so that nobody deletes the file during the read
        try:
            return segment.read(pointer, bytes.fromhex(item.dispatcher))
        finally:
            with shard.lock:
                segment.readers -= 1
                if not segment.live and self._spiller is not None:
                    self._spiller.look_at(segment)
            if self._background is not None:
                self._background.signal()

    def bodies(self, items: Iterable[DataItem[Any]]) -> Iterator[Buffer]:
        """The bodies one after another, for a file that is put together as a stream: one at a time is in memory."""
        for item in items:
            with self._read_back.grant(item.size if item.body is None else 0):
                yield self.load(item)
        self._after_change()

    def count_assembled(self, size: int) -> None:
        """Adds the bytes of a file that a writer has put together; negative when it has let go of it."""
        self._account.move(reading=size)
        self._after_change()

    def flushed(self, items: Sequence[DataItem[Any]], markers: Sequence[DrainMarkerItem] = ()) -> None:
        """The items are at the sink, confirmed. In this order: (1) the `post_flush` of each item; (2) bytes and segments
        are let go; (3) the acks of the markers, which came after the items; (4) wakes, if suppression ends.

        All of that happens also where a callback raises; the first error is raised at the end.
        """
        with contextlib.ExitStack() as stack:  # in reverse
            stack.callback(self._after_change)
            for marker in reversed(markers):
                stack.callback(self._ack, marker, None)
            stack.callback(self._release, items)
            for item in reversed(items):
                if item.place is not Place.GONE:
                    callbacks, item.post_flush, item.on_drop = item.post_flush, (), None
                    for callback in reversed(callbacks):
                        stack.callback(callback)

    # ---- items that will not be written

    def drop(self, items: Sequence[SpoolItem], error: PenstockError) -> None:
        """Ends items that were staged or popped: bytes are free, `on_drop` and acks get the error, `post_flush` never
        runs."""
        if not items:
            return
        data = [item for item in items if isinstance(item, DataItem)]
        with contextlib.ExitStack() as stack:
            stack.callback(self._after_change)
            for item in reversed(items):
                if not isinstance(item, DataItem):
                    stack.callback(self._ack, item, error)
                elif item.place is not Place.GONE:
                    callback, item.on_drop, item.post_flush = item.on_drop, None, ()
                    if callback is not None:
                        stack.callback(callback, error)
            stack.callback(self._release, data)
            self.items_dropped += len(items)

    def discard(self, dispatcher: str, error: PenstockError) -> int:
        """Drops the dispatcher's queue; returns the number of items."""
        shard = self._shard(dispatcher)
        with shard.lock:
            items = shard.take_queue(dispatcher)
        self.drop(items, error)
        return len(items)

    def fail(self, dispatcher: str, error: PenstockError) -> int:
        """Drops the dispatcher's queue, and whatever it gets until `revive`: its share is free for the others."""
        shard = self._shard(dispatcher)
        with shard.lock:
            shard.failed[dispatcher] = error
        return self.discard(dispatcher, error)

    def revive(self, dispatcher: str) -> None:
        shard = self._shard(dispatcher)
        with shard.lock:
            shard.failed.pop(dispatcher, None)

    def discard_all(self, error: PenstockError) -> int:
        """Drops every queue and forgets which dispatchers failed. Staged and popped items are their holders' to drop."""
        dropped = 0
        for shard in self._shards:
            with shard.lock:
                items = shard.take_all()
                shard.failed.clear()
            self.drop(items, error)
            dropped += len(items)
        return dropped

    def close(self, error: PenstockError | None = None) -> None:
        """Drops everything in the queues, ends the thread and deletes the segments."""
        if self._closed:
            return
        self._closed = True
        self.discard_all(error or Closed("the spool is closed"))
        if self._background is not None and self._spiller is not None:
            self._background.close()
            self._spiller.delete_all()

    # ---- figures

    @property
    def bytes(self) -> int:
        """Held in memory and on disk: queued, at the writers, staged, read back and assembled."""
        return self._account.bytes

    @property
    def memory_bytes(self) -> int:
        return self._account.memory_bytes

    @property
    def disk_bytes(self) -> int:
        return self._account.disk_bytes

    @property
    def staged_bytes(self) -> int:
        return self._account.staged_bytes

    @property
    def all_staged(self) -> bool:
        """Whether nothing that was published is held."""
        return self._account.items == self._account.staged_items

    @property
    def segment_bytes(self) -> int:
        """What the segments take of the real disk."""
        return self._segments.bytes if self._segments is not None else 0

    @property
    def suppressed(self) -> bool:
        """True while a wake is kept back, or would be."""
        return self._account.suppressed or self._account.kept_wakes > 0

    @property
    def alarm(self) -> str | None:
        """Why nothing can be spilled now; None while the disk works."""
        return self._account.disk_error

    def excess_bytes(self) -> int:
        """How much must leave for the sink before wakes come again. 0 while they come, and while spilling may bring them."""
        account, limits = self._account, self.limits
        if not account.suppressed:
            return 0
        spills = self._spiller is not None and account.disk_error is None and any(s.can_spill for s in self._shards)
        in_memory = 0 if spills else account.memory_bytes - limits.memory_low_bytes
        return max(0, account.bytes - account.staged_bytes - limits.low_bytes, in_memory)

    def held_bytes(self, dispatcher: str) -> int:
        """What one dispatcher holds, staged and popped items included."""
        return self._shard(dispatcher).held.get(dispatcher, 0)

    def queued_dispatchers(self) -> list[str]:
        """The dispatchers with queued items."""
        found: list[str] = []
        for shard in self._shards:
            with shard.lock:
                found.extend(shard.queues)
        return found

    def describe(self) -> dict[str, Any]:
        """For `status`."""
        account = self._account
        return {
            "spool_bytes": account.bytes,
            "spool_memory_bytes": account.memory_bytes,
            "spool_disk_bytes": account.disk_bytes,
            "spool_alarm": account.disk_error,
            "staged_bytes": account.staged_bytes,
            "wakes": account.wakes,
            "wakes_suppressed": account.wakes_suppressed,
        }

    def totals(self) -> SpoolTotals:
        account, spiller, segments = self._account, self._spiller, self._segments
        return SpoolTotals(
            memory_bytes=account.memory_bytes,
            disk_bytes=account.disk_bytes,
            bytes=account.bytes,
            staged_bytes=account.staged_bytes,
            segment_bytes=self.segment_bytes,
            segments=segments.count if segments else 0,
            items=account.items,
            memory_items=account.items - account.disk_items,
            disk_items=account.disk_items,
            suppressed=int(self.suppressed),
            disk_alarm=int(account.disk_error is not None),
            wake_calls=account.wakes,
            wake_suppressed=account.wakes_suppressed,
            pending_wakes=account.kept_wakes,
            spilled_bytes=spiller.spilled_bytes if spiller else 0,
            read_back_bytes=self._read_back.read_bytes,
            rotations=segments.rotations if segments else 0,
            rewritten_segments=spiller.rewritten_segments if spiller else 0,
            disk_errors=spiller.disk_errors if spiller else 0,
            dropped_items=self.items_dropped,
        )

    # ---- the background

    def step(self) -> bool:
        """One unit of background work on the caller's thread. False where nothing is to do now."""
        if self._spiller is None:
            return False
        did = self._spiller.step()
        self._run_wakes()
        return did

    # ---- inside

    def _shard(self, dispatcher: str) -> Shard:
        return self._shards[int(dispatcher[:8], 16) % len(self._shards)]

    def _hold(self, items: Sequence[DataItem[Any]], *, staged: bool) -> None:
        if self._closed:
            raise Closed("the spool is closed")
        for item in items:
            shard = self._shard(item.dispatcher)
            size = item.size + item.overhead
            with shard.lock:
                if item.place is not Place.NEW:
                    raise BadInput(f"an item of dispatcher {item.dispatcher} was staged twice")
                shard.hold(item)
                item.staged = staged
                self._account.move(memory=size, staged=size if staged else 0, items=1, staged_items=int(staged))
        self._after_change()

    def _release(self, items: Sequence[DataItem[Any]]) -> None:
        for dispatcher, group in groupby(items, key=lambda item: item.dispatcher):
            shard = self._shard(dispatcher)
            memory = disk = staged = staged_items = count = disk_items = 0
            with shard.lock:
                for item in group:
                    if item.place in (Place.GONE, Place.NEW):
                        continue
                    count += 1
                    memory += item.overhead
                    staged += (item.size + item.overhead) if item.staged else 0
                    staged_items += item.staged
                    shard.let_go(item)
                    if item.place is Place.DISK:
                        assert self._spiller is not None and item.pointer is not None
                        disk += item.pointer.record_bytes
                        disk_items += 1
                        self._spiller.let_go(item)
                    else:
                        memory += item.size
                    item.place = Place.GONE
                    item.staged = False
                    item.body = item.pointer = None
                self._account.move(
                    memory=-memory,
                    disk=-disk,
                    staged=-staged,
                    items=-count,
                    disk_items=-disk_items,
                    staged_items=-staged_items,
                )

    def _ack(self, marker: DrainMarkerItem, error: PenstockError | None) -> None:
        if marker.ack is not None and marker.ddl_commit_ts is not None:
            seconds = self._clock.monotonic() - marker.enqueued_at
            if error is None:
                self._on_drained(seconds)
            facts = {"changefeed": self._name, "marker": marker.marker_id, "ddl_commit_ts": marker.ddl_commit_ts}
            _LOG.debug("a drain ended", extra={**facts, "seconds": seconds, "error": str(error or "")})
        acknowledge(marker, error)

    def _after_change(self) -> None:
        self._run_wakes()
        if self._background is not None:
            self._background.signal()

    def _run_wakes(self) -> None:
        for wake in self._account.due():
            wake.callback()
        if self._account.suppressions != self._suppressions_told:
            self._suppressions_told = self._account.suppressions
            self._on_suppressed()
