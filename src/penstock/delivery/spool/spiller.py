"""What happens behind a spool's back: payloads move to disk, segments are rewritten and deleted.

`step` does one unit of that, whoever calls it: the thread of the spool, or a test. The order in which a payload moves:

1. the oldest items of a shard are marked SPILLING, under the shard's lock;
2. their whole records are written, under no lock that anybody else takes;
3. under the shard's lock again, each item that was not let go meanwhile gets its pointer, gives up its body, and its
   bytes change from the memory account to the disk account.

When a write fails, the items of (1) stay in memory, wakes are suppressed and the alarm is on (`Account.disk_error`); the
next try comes after a pause, and with the first one that succeeds everything is as before.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Sequence
from typing import Any

from penstock.clock import Clock
from penstock.delivery.spool.account import Account
from penstock.delivery.spool.items import DataItem, DiskPointer, Place
from penstock.delivery.spool.segment import Segment, Segments
from penstock.delivery.spool.segment_format import (
    FILE_HEADER_BYTES,
    RECORD_HEADER_BYTES,
    payload_of,
    record_header,
)
from penstock.delivery.spool.shard import Shard
from penstock.errors import PenstockError, StorageFailed
from penstock.files import Buffer

_LOG = logging.getLogger(__name__)

SPILL_BYTES = 1 << 20  # one write
SPILL_ITEMS = 128  # one write; preparing so many takes well below a millisecond, in which no other thread runs
REWRITE_BELOW = 0.25  # a closed segment with a smaller part in use is rewritten
REWRITE_FOR_ROOM_BELOW = 0.75  # the same where the quota leaves no room
RETRY_FIRST_SECONDS = 0.2
RETRY_SECONDS_MAX = 5.0


class Spiller:
    """The background work of one spool. `empty` and `sparse` may be called under a shard's lock."""

    def __init__(self, shards: Sequence[Shard], account: Account, segments: Segments, clock: Clock) -> None:
        self.spilled_bytes = 0
        self.spilled_items = 0
        self.rewritten_segments = 0
        self.disk_errors = 0
        self.failed_deletes = 0
        self._shards = shards
        self._account = account
        self._segments = segments
        self._clock = clock
        self._working = threading.Lock()  # one step at a time
        self._empty: deque[Segment] = deque()
        self._sparse: deque[Segment] = deque()
        self._undeleted: list[Segment] = []
        self._pause = 0.0
        self._retry_at: float | None = None
        self._delete_again_at: float | None = None

    # ---- asked by the spool

    @property
    def wanted(self) -> bool:
        """Something may be to do. Cheap: asked after each enqueue."""
        account = self._account
        return account.memory_bytes > account.limits.memory_low_bytes or bool(self._empty or self._sparse)

    def until_retry(self) -> float | None:
        """Seconds until a failed write or delete is tried again; None where nothing has failed."""
        times = [at for at in (self._retry_at, self._delete_again_at) if at is not None]
        return max(0.0, min(times) - self._clock.monotonic()) if times else None

    def let_go(self, item: DataItem[Any]) -> None:
        """The item's record is not needed any more. Under the shard's lock."""
        pointer = item.pointer
        assert pointer is not None
        segment = pointer.segment
        del segment.live[pointer.offset]
        segment.live_bytes -= RECORD_HEADER_BYTES + pointer.length
        self.look_at(segment)

    def look_at(self, segment: Segment) -> None:
        """Notes a segment that can be deleted or should be rewritten. Under the shard's lock."""
        if not segment.live:
            if not segment.readers:
                self._empty.append(segment)
        elif segment.sealed and segment.live_bytes < REWRITE_BELOW * segment.size and not segment.sparse:
            segment.sparse = True
            self._sparse.append(segment)

    # ---- the work

    def step(self) -> bool:
        """One unit of work. False where nothing is to do now."""
        with self._working:
            deleted = self._delete_empty()
            if self._retry_at is not None:
                if self._clock.monotonic() < self._retry_at:
                    return deleted
                if self._account.memory_bytes <= self._account.limits.memory_low_bytes:
                    self._healed()  # nothing has to be spilled any more: the next time will tell
            return self._spill() or self._rewrite_sparse() or deleted

    def delete_all(self) -> None:
        """At the end, when no item is left. What cannot be deleted is deleted by the next process."""
        with self._working:
            for segment in self._segments.known():
                try:
                    self._segments.delete(segment)
                except StorageFailed:
                    self.failed_deletes += 1

    def _spill(self) -> bool:
        account = self._account
        if account.memory_bytes <= account.limits.memory_low_bytes:
            return False
        shard = self._oldest_shard()
        if shard is None:
            if self._retry_at is not None:
                self._healed()  # nothing is left that could be spilled, so nothing to try again: the next time will tell
            return False
        with shard.lock:
            items = shard.take_oldest(SPILL_ITEMS, min(SPILL_BYTES, self._segments.segment_bytes))
        if not items:
            return False
        size = sum(item.size for item in items) + len(items) * RECORD_HEADER_BYTES
        if not self._room_for(size + FILE_HEADER_BYTES):
            return self._no_room(shard, items, size)
        try:
            self._write(shard, items, size)
        except StorageFailed as error:
            with shard.lock:
                shard.put_back(items)
            self._failed(str(error))
            return False
        self._healed()
        return True

    def _write(self, shard: Shard, items: list[DataItem[Any]], size: int) -> None:
        buffers: list[Buffer] = []
        for item in items:
            body = item.body
            if body is None:  # let go since it was marked: its place in the file stays, so that offsets are as counted
                body = bytes(item.size)
            buffers.append(record_header(bytes.fromhex(item.dispatcher), body))
            buffers.append(body)
        segment, offset = self._segments.append(shard.index, buffers, size)
        moved = moved_items = 0
        with shard.lock:
            for item in items:
                if item.place is Place.SPILLING:
                    item.pointer = DiskPointer(segment, offset, item.size)
                    item.body = None
                    item.place = Place.DISK
                    segment.live[offset] = item
                    segment.used = True
                    moved += item.size
                    moved_items += 1
                offset += RECORD_HEADER_BYTES + item.size
            on_disk = moved + moved_items * RECORD_HEADER_BYTES
            segment.live_bytes += on_disk
            self._account.move(memory=-moved, disk=on_disk, disk_items=moved_items)
            self.look_at(segment)
        self.spilled_bytes += moved
        self.spilled_items += moved_items

    def _oldest_shard(self) -> Shard | None:
        found: Shard | None = None
        oldest = float("inf")
        for shard in self._shards:
            with shard.lock:
                at = shard.oldest()
            if at is not None and at < oldest:
                found, oldest = shard, at
        return found

    # ---- the quota, and segments that are nearly empty

    def _room_for(self, size: int) -> bool:
        """One segment's worth stays free, so that rewriting a segment fits into the quota."""
        quota = self._account.limits.quota_bytes
        return self._segments.bytes + size <= quota - self._segments.segment_bytes

    def _no_room(self, shard: Shard, items: list[DataItem[Any]], size: int) -> bool:
        quota = self._account.limits.quota_bytes
        with shard.lock:
            if len(items) == 1 and size + FILE_HEADER_BYTES > quota - self._segments.segment_bytes:
                items[
                    0
                ].pinned = True  # would not fit into an empty disk either: it stays in memory, and passes from there
            shard.put_back(items)
        if items[0].pinned or self._rewrite_for_room():
            return True
        self._failed(f"the segments in {self._segments.directory} take {self._segments.bytes} of {quota} bytes")
        return False

    def _rewrite_for_room(self) -> bool:
        """The segment whose rewriting frees most. False where there is none worth it."""
        quota = self._account.limits.quota_bytes
        worth = [
            segment
            for segment in self._segments.known()
            if segment.readable
            and segment.live
            and segment.live_bytes <= REWRITE_FOR_ROOM_BELOW * segment.size
            and self._segments.bytes + segment.live_bytes + FILE_HEADER_BYTES <= quota
        ]
        if not worth:
            return False
        return self._rewrite(max(worth, key=lambda segment: segment.dead_bytes))

    def _rewrite_sparse(self) -> bool:
        while self._sparse:
            segment = self._sparse.popleft()
            segment.sparse = False
            needed = self._segments.bytes + segment.live_bytes + FILE_HEADER_BYTES
            if segment.live and segment.readable and needed <= self._account.limits.quota_bytes:
                return self._rewrite(segment)
        return False

    def _rewrite(self, segment: Segment) -> bool:
        """Copies the records that are still pointed to into the open segment of the shard; then the file can go."""
        self._segments.seal(segment)
        shard = self._shards[segment.shard]
        while True:
            with shard.lock:
                found = [item for _, item in zip(range(SPILL_ITEMS), segment.live.values(), strict=False)]
                pointers = [item.pointer for item in found if item.pointer is not None]
            if not found:
                break
            try:
                records, taken = [], 0
                for item, pointer in zip(found, pointers, strict=True):
                    record = segment.read_record(pointer)
                    payload_of(record, bytes.fromhex(item.dispatcher), pointer.length, segment.path)
                    records.append(record)
                    taken += len(record)
                    if taken >= SPILL_BYTES:
                        break
            except PenstockError as error:
                segment.readable = False  # whoever wants the item gets the error; nothing is copied that does not match
                _LOG.error("a spool segment cannot be rewritten", extra={"reason": str(error)})
                return False
            try:
                into, offset = self._segments.append(segment.shard, records, taken)
            except StorageFailed as error:
                self._failed(str(error))
                return False
            with shard.lock:
                for item, pointer, record in zip(found, pointers, records, strict=False):
                    if item.pointer is pointer and item.place is Place.DISK:
                        item.pointer = DiskPointer(into, offset, pointer.length)
                        into.live[offset] = item
                        into.used = True
                        into.live_bytes += len(record)
                        del segment.live[pointer.offset]
                        segment.live_bytes -= len(record)
                    offset += len(record)
                self.look_at(into)
        with shard.lock:
            self.look_at(segment)
        self.rewritten_segments += 1
        self._delete_empty()
        return True

    def _delete_empty(self) -> bool:
        now = self._clock.monotonic()
        if self._delete_again_at is not None and now >= self._delete_again_at:
            self._empty.extend(self._undeleted)
            self._undeleted.clear()
            self._delete_again_at = None
        deleted = freed = False
        while self._empty:
            segment = self._empty.popleft()
            with self._shards[segment.shard].lock:
                if segment.live or segment.readers or segment.deleted:
                    continue
            self._segments.seal(segment)
            try:
                self._segments.delete(segment)
            except StorageFailed as error:
                self.failed_deletes += 1
                self._undeleted.append(segment)
                self._delete_again_at = now + RETRY_SECONDS_MAX
                _LOG.warning("a spool segment is not deleted yet", extra={"reason": str(error)})
            else:
                deleted = True
                freed = freed or segment.used
        if freed and self._retry_at is not None:  # not for what a failed write has left: that would go round for ever
            self._retry_at = now  # there is space again, perhaps enough
        return deleted

    # ---- alarm

    def _failed(self, reason: str) -> None:
        self.disk_errors += 1
        for segment in self._segments.known():  # one that the failed write has ended, with nothing in it
            with self._shards[segment.shard].lock:
                if segment.sealed and not segment.live:
                    self.look_at(segment)
        if self._account.disk_error is None:
            _LOG.error("the spool cannot use its disk; wakes are suppressed", extra={"reason": reason})
        self._account.set_disk_error(reason)
        self._pause = min(RETRY_SECONDS_MAX, 2 * self._pause or RETRY_FIRST_SECONDS)
        self._retry_at = self._clock.monotonic() + self._pause

    def _healed(self) -> None:
        self._retry_at = None
        self._pause = 0.0
        if self._account.disk_error is not None:
            _LOG.info("the spool uses its disk again")
            self._account.set_disk_error(None)
