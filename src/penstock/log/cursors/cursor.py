"""Cursors: named readers of a log that remember what is done (docs/formats/record-log.md, "Cursor records").

A cursor has an owner and an epoch of its own, independent of its log's. Its acks go into a record log of its own; an
ack is durable when its future completes. The cursor holds a mark-delete position (nothing at or before it is needed any
more) and the single acked entries after it, in one roaring bitmap a ledger: there is no limit on holes, and no ack is
ever dropped. The mark-delete moves over contiguous acked entries, across the ends of ledgers too. Only `reset` moves it
back.

The read position is only in memory: an open cursor begins after its mark-delete, and reads each entry that is not acked
once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from threading import Lock
from types import TracebackType

from pyroaring import BitMap

from penstock.arguments import (
    check_callable,
    check_component,
    check_count,
    check_texts,
    check_timeout,
    check_type,
)
from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.errors import Closed
from penstock.files import REAL_FILES, Files
from penstock.log.append.request import Terminated
from penstock.log.closed import FORK_HINT, closed_in_children
from penstock.log.cursors.acked import Acked, runs
from penstock.log.cursors.acks import Acks, previous
from penstock.log.cursors.backlog import CursorStats, backlog_about, backlog_bytes
from penstock.log.cursors.opening import Start, open_durable, start_position
from penstock.log.cursors.reading import Batch, Skip, is_terminated, nth_unacked, place_to_read, read_entries, read_one
from penstock.log.cursors.records import CursorState
from penstock.log.frames.format import Entry
from penstock.log.metrics import forget_cursor, watch_cursor
from penstock.log.pending import Pending
from penstock.log.position import Position, check_position, checked_positions
from penstock.log.read.reader import LogReader
from penstock.log.read.tail import Tail
from penstock.log.records.record_log import RecordLog

_ITERATED_ENTRIES = 1000  # of a batch that an iteration holds
_ITERATED_BYTES = 4 << 20


class Cursor:
    """The owner's handle. Thread-safe. Its properties are what it knew last, once it is closed; every call raises `Closed`."""

    def __init__(
        self, reader: LogReader, name: str, acks: Acks, records: RecordLog | None = None, tail: Tail | None = None
    ) -> None:
        self.name = name
        self._reader = reader
        self._acks = acks
        self._records = records
        self.tail = tail or Tail()
        self._read_lock = Lock()
        self._read_position = _after(acks.durable_mark_delete)
        self.moves = 0  # of the read position, by anything but a read
        self.cancelled = 0
        self._closed = False
        self._closed_hint = ""
        self._on_close: Callable[[], None] | None = None
        self.withdraw = self.close  # for an opener whom it did not reach; a table spares it where others have it
        if records is not None:
            watch_cursor(self)
        closed_in_children(self)

    @classmethod
    def open(
        cls,
        reader: LogReader,
        directory: Path,
        name: str,
        start: Start = "earliest",
        files: Files = REAL_FILES,
        *,
        clock: Clock = SYSTEM_CLOCK,
        tail: Tail | None = None,
        on_moved: Callable[[], None] = lambda: None,
    ) -> Cursor:
        """Becomes the owner of the cursor. `start` is for a new cursor; where it is a position, entries after it are
        unread.

        Raises `Unavailable` while another process owns it, `Corruption` where its records are damaged or gone.
        """
        check_type("reader", reader, LogReader)
        check_component("files", files, "make_directory")
        check_component("clock", clock, "wall_ms")
        check_type("tail", tail, Tail, optional=True)
        check_callable("on_moved", on_moved)
        records, state, pointer = open_durable(
            reader, directory, name, start, files=files, clock=clock, on_moved=on_moved
        )
        return cls(reader, name, Acks(reader, name, state, clock=clock, store=records, pointer=pointer), records, tail)

    @classmethod
    def in_memory(
        cls,
        reader: LogReader,
        name: str = "",
        start: Start = "latest",
        *,
        clock: Clock = SYSTEM_CLOCK,
        tail: Tail | None = None,
    ) -> Cursor:
        """A cursor that is not durable: it is not registered, and does not hold back trim."""
        check_type("reader", reader, LogReader)
        check_type("name", name, str)
        check_component("clock", clock, "wall_ms")
        check_type("tail", tail, Tail, optional=True)
        state = CursorState(Acked(start_position(reader, start)))
        return cls(reader, name, Acks(reader, name, state, clock=clock), None, tail)

    # -- facts ---------------------------------------------------------------------------------------------------

    @property
    def durable(self) -> bool:
        return self._records is not None

    @property
    def failed(self) -> bool:
        """Whether it takes no more acks: it was fenced, closed, or its disk failed."""
        return self._closed or (self._records is not None and self._records.error is not None)

    @property
    def epoch(self) -> int:
        return self._records.epoch if self._records is not None else 0

    @property
    def mark_delete_position(self) -> Position:
        """Nothing at or before this position is needed any more. Durable, unless the cursor itself is not."""
        return self._acks.durable_mark_delete if self.durable else self._acks.mark_delete

    @property
    def read_position(self) -> Position:
        """Where the next read begins; the entry may be acked, or not be written yet."""
        return self._read_position

    @property
    def last_active_ms(self) -> int:
        """When the cursor last read or acked."""
        return self._acks.active_ms

    @property
    def record_bytes(self) -> int:
        """Size of its record log."""
        return self._records.bytes if self._records is not None else 0

    def is_acked(self, position: Position) -> bool:
        """Whether an ack of this entry was taken (it may still be on its way to the disk)."""
        check_position("position", position)
        self._check_open()
        return self._acks.contains(position)

    def has_more(self) -> bool:
        """Whether `read` would give something."""
        self._check_open()
        views = self._reader.ledgers()
        return nth_unacked(self._acks, views, self._read_position, 1) is not None

    def backlog(self) -> int:
        """How many durable entries of the log are not acked. Exact."""
        self._check_open()
        return self._acks.backlog(self._reader.ledgers())

    def backlog_bytes(self) -> int:
        """As `backlog`, in bytes of the entries' data. Exact."""
        self._check_open()
        return backlog_bytes(self._reader, self._acks)

    def backlog_about(self) -> tuple[int, int]:
        """(backlog in entries, exact; in bytes of frames, estimated: a ledger acked in part counts in proportion)."""
        self._check_open()
        return backlog_about(self._reader, self._acks)

    def earliest_ms(self) -> int | None:
        """When the oldest entry of the backlog was written; None where there is no backlog."""
        oldest = read_one(self._reader.scan, lambda: self.nth_position(1))
        return None if oldest is None else oldest.wall_ms

    def holes(self) -> Iterator[tuple[Position, Position]]:
        """The acked runs after the mark-delete, as (first, last); for status."""
        self._check_open()
        bitmaps = self._acks.bitmaps()
        return (
            (Position(n, first), Position(n, last)) for n, bitmap in bitmaps.items() for first, last in runs(bitmap)
        )

    def hole_count(self) -> int:
        self._check_open()
        return self._acks.holes()

    def stats(self) -> CursorStats:
        self._check_open()
        return CursorStats(
            mark_delete=self.mark_delete_position,
            backlog_entries=self.backlog(),
            holes=self.hole_count(),
            record_bytes=self.record_bytes,
            groups_persisted=self._acks.groups_persisted,
            active_ms=self.last_active_ms,
        )

    # -- acks ----------------------------------------------------------------------------------------------------

    def ack(self, first: Position, last: Position | None = None) -> Pending[None]:
        """Acks one entry, or all from `first` to `last`, both included; done once that is durable.

        Acking again is fine. Raises `BadInput` where an entry of them is not durable in the log.
        """
        if last is None and type(first) is Position and type(first[0]) is type(first[1]) is int and first[1] >= 0:
            return self._acks.ack_one(first)
        check_position("first", first)
        check_position("last", first if last is None else last)
        if last is None or first == last:
            first = last = first if first.entry_id >= 0 else previous(first, self._reader.ledgers())
        return self._acks.ack_range(first, last)

    def ack_each(self, positions: Iterable[Position]) -> Pending[None]:
        """Acks exactly these entries, in any order: all of them become durable together. Raises as `ack`."""
        return self._acks.ack_each(positions)

    def mark_delete(self, position: Position, properties: Mapping[str, str] | None = None) -> Pending[None]:
        """Acks everything up to `position`. Raises `BadInput` for an older position, and for one after the end.

        `properties`, where given, become durable with it and replace those of the last mark-delete that had any.
        """
        check_position("position", position)
        if properties is not None:
            check_texts("properties", properties)
        return self._acks.move_to(position, properties)

    def skip(self, entries: int) -> Pending[None]:
        """Acks the first `entries` entries of the backlog: up to its end where it is shorter."""
        check_count("entries", entries)
        position = self.nth_position(entries) if entries else self._acks.mark_delete
        answer = self.clear_backlog() if position is None else self._acks.move_to(position)
        self._not_before_mark_delete()
        return answer

    def clear_backlog(self) -> Pending[None]:
        """Acks everything that is in the log now."""
        answer = self._acks.move_to(max(self._reader.end(), self._acks.mark_delete))
        self._not_before_mark_delete()
        return answer

    def reset(self, position: Position | str) -> Pending[None]:
        """Makes `position` the next entry to be read, and everything from it on unacked, durably; forward or back.

        Also "earliest" and "latest". Where the entry was trimmed, the first entry that is kept takes its place.
        """
        self._check_open()
        target = place_to_read(self._reader, position)
        before = Position(target.ledger_id, target.entry_id - 1) if target.entry_id > 0 else None
        answer = self._acks.reset(before or previous(Position(target.ledger_id, -1), self._reader.ledgers()))
        self._move(target)
        return answer

    def properties(self) -> dict[str, str]:
        self._check_open()
        return self._acks.properties()[0]

    def mark_delete_properties(self) -> dict[str, str]:
        self._check_open()
        return self._acks.properties()[1]

    def set_properties(self, properties: Mapping[str, str]) -> Pending[None]:
        """Replaces all properties; done once that is durable."""
        check_texts("properties", properties)
        return self._acks.set_properties(properties)

    # -- reading -------------------------------------------------------------------------------------------------

    def read(
        self,
        max_entries: int = 100,
        max_bytes: int | None = None,
        end: Position | None = None,
        skip: Skip | None = None,
    ) -> Batch:
        """The next entries that are not acked, in order; empty only where there is none (up to `end`, included).

        Stops after the entry that reaches `max_bytes`. Entries for which `skip(position)` is true are passed over,
        unacked.
        """
        check_count("max_entries", max_entries, least=1)
        check_count("max_bytes", max_bytes, least=1, optional=True)
        if end is not None:
            check_position("end", end)
        check_callable("skip", skip, optional=True)
        with self._read_lock:
            self._check_open()
            self._acks.used_now()
            entries, self._read_position = read_entries(
                self._reader,
                self._acks,
                self._read_position,
                max_entries=max_entries,
                max_bytes=max_bytes,
                end=end,
                skip=skip,
            )
            self._reader.cache.expect(self, self._reader.cache_key, self._read_position)
            batch = Batch(entries)
            batch.moves = self.moves
            return batch

    def read_or_wait(
        self,
        max_entries: int = 100,
        max_bytes: int | None = None,
        timeout: float | None = None,
        skip: Skip | None = None,
    ) -> Batch:
        """As `read`, and waits while there is nothing. Empty after `timeout` seconds, or where `cancel_reads` was
        called.

        Raises `Terminated` where nothing can come any more, `Closed` where the cursor is closed meanwhile.
        """
        check_timeout(timeout)
        deadline = None if timeout is None else time.monotonic() + timeout
        cancelled = self.cancelled
        attempt = 0
        while True:
            seen = self.tail.count
            entries = self.read(max_entries, max_bytes, skip=skip)
            if not entries and is_terminated(self._reader):
                entries = self.read(max_entries, max_bytes, skip=skip)  # entries may have come before the termination
                if not entries:
                    raise Terminated(
                        f"log {self._reader.name} was terminated, and cursor {self.name} has read all of it"
                    )
            left = None if deadline is None else deadline - time.monotonic()
            if entries or self.cancelled != cancelled or (left is not None and left <= 0):
                return entries
            self.tail.wait(seen, attempt, left)
            attempt += 1

    def cancel_reads(self) -> None:
        """Whoever waits in `read_or_wait` gets an empty list."""
        self._check_open()
        self.cancelled += 1
        self.tail.notify()

    def replay(self, positions: Iterable[Position]) -> list[Entry]:
        """These entries again, in order, without those that are acked. The read position stays."""
        self._check_open()
        entries: list[Entry] = []
        for position in sorted(set(checked_positions(positions))):
            if not self._acks.contains(position):
                entries += self._reader.entries(position, position)
        return entries

    def nth(self, number: int) -> Entry | None:
        """The `number`-th entry of the backlog, counted from 1; None where it is shorter. Moves nothing."""
        return read_one(self._reader.entries, lambda: self.nth_position(number))

    def nth_position(self, number: int) -> Position | None:
        self._check_open()
        check_count("number", number, least=1)
        return nth_unacked(self._acks, self._reader.ledgers(), _after(self._acks.mark_delete), number)

    def seek(self, position: Position | str) -> None:
        """Reads go on at `position` ("earliest": the first entry of the log; "latest": after the last). Not durable."""
        self._check_open()
        self._move(place_to_read(self._reader, position))

    def rewind(self) -> None:
        """Reads begin after the mark-delete again."""
        self._check_open()
        self._move(_after(self._acks.mark_delete))

    def find_newest(self, matches: Callable[[Entry], bool], *, everywhere: bool = False) -> Position | None:
        """The newest entry that matches, by binary search over the backlog, or over all of the log.

        Entries must match up to some point and not after it. None where the first one does not.
        """
        self._check_open()
        return self._reader.find_newest(matches, None if everywhere else self._acks.mark_delete)

    def find_newest_by_time(self, wall_ms: int, *, everywhere: bool = False) -> Position | None:
        """The newest entry such that it and all before it were written at or before `wall_ms`; None where there is
        none.

        By the ledgers' time index. Of the backlog, or of all of the log.
        """
        self._check_open()
        found = self._reader.find_by_time(wall_ms)
        return None if found is None or (not everywhere and found <= self._acks.mark_delete) else found

    def follow_log(self) -> None:
        """The log was truncated, or entries of it were skipped: from here on acks of entries that went are refused, and
        those that were skipped count as acked."""
        self._acks.seen(self._reader.ledgers())

    def unacked(self, ledger_id: int, last: int) -> BitMap:
        """The entries of the ledger up to `last` that are not acked, with the acks that are still on their way."""
        check_count("ledger_id", ledger_id)
        check_count("last", last)
        self._check_open()
        return self._acks.unacked(ledger_id, 0, last)

    @property
    def taken_mark_delete(self) -> Position:
        """As `mark_delete_position`, with the acks that are still on their way to the disk."""
        return self._acks.mark_delete

    def close(self) -> None:
        """Finishes the acks on their way and gives up ownership (as `RecordLog.close`). Reads that wait raise `Closed`."""
        if self._closed:
            return
        self._closed = True
        forget_cursor(self)
        self._reader.cache.forget(self)
        self.tail.notify()
        try:
            self._acks.close()
        finally:
            on_close, self._on_close = self._on_close, None
            if on_close is not None:
                on_close()

    def call_at_close(self, callback: Callable[[], None]) -> None:
        """For a list of open cursors, which must learn of the close."""
        check_callable("callback", callback)
        self._on_close = callback

    def __enter__(self) -> Cursor:
        self._check_open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __iter__(self) -> Iterator[Entry]:
        """The entries that are not acked, from the read position up to the end of the log as it is by then.

        Read in batches; where the iteration is left early, reads go on at the first entry that it did not give. Where the
        cursor is moved meanwhile (`seek`, `reset`, `rewind`), the iteration goes on from there.
        """
        while entries := self.read(_ITERATED_ENTRIES, _ITERATED_BYTES):
            given = 0
            try:
                for entry in entries:
                    self._check_open()
                    given += 1
                    yield entry
                    if self.moves != entries.moves:
                        break
            finally:
                if not self._closed:
                    self.give_back(entries, given)

    def give_back(self, batch: Batch, given: int = 0) -> None:
        """The entries of a read from number `given` on reached nobody: reads go on there, unless the cursor was moved."""
        check_type("batch", batch, Batch)
        check_count("given", given)
        self._check_open()
        with self._read_lock:
            if given < len(batch) and batch.moves == self.moves:
                self._read_position = min(self._read_position, batch[given].position)

    # ------------------------------------------------------------------------------------------------------------

    def _check_open(self) -> None:
        if self._closed:
            raise Closed(f"cursor {self.name} is closed", hint=self._closed_hint)

    def forked(self) -> None:
        """In a forked child, which does not own the cursor; a thread that it does not have may hold the lock."""
        self._read_lock = Lock()
        self._closed = True
        self._closed_hint = FORK_HINT

    def _move(self, position: Position) -> None:
        """Reads go on there, whatever was read before."""
        with self._read_lock:
            self._read_position = position
            self.moves += 1

    def _not_before_mark_delete(self) -> None:
        with self._read_lock:
            self._read_position = max(self._read_position, _after(self._acks.mark_delete))


def _after(mark_delete: Position) -> Position:
    return Position(mark_delete.ledger_id, mark_delete.entry_id + 1)
