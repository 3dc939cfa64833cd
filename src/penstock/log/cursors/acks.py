"""The acks of one cursor: taken at once, durable in groups.

A call changes the state in memory and joins the open group; all calls of a group share one future, because they become
durable together. The group's record is built when the thread that commits is ready for it, so it holds every ack that
came while the record before was written: one roaring bitmap a ledger, however many acks there are. Waiting acks
therefore take almost no memory, and a call never has to wait for room.

Acks count only for entries that the log has. A truncation takes back those of the entries that it removes: in memory as
soon as this cursor sees it (`seen`), and at each open by the replay; the records stay as they are.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from itertools import chain

from pyroaring import BitMap

from penstock.clock import Clock
from penstock.errors import BadInput, Closed, PenstockError
from penstock.log.closed import closed_in_children
from penstock.log.cursors.acked import Acked, Bitmaps, clip, split
from penstock.log.cursors.pointer import Pointer
from penstock.log.cursors.records import (
    NOWHERE,
    CursorState,
    encode_acks,
    encode_details,
    encode_reset,
    encode_snapshot,
)
from penstock.log.pending import Pending
from penstock.log.position import Position, check_position
from penstock.log.read.positions import LedgerView, LedgerViews
from penstock.log.read.reader import LogReader
from penstock.log.records.record_log import RecordLog
from penstock.log.records.workers import is_worker
from penstock.observe.metrics import METRICS

_logger = logging.getLogger(__name__)

_COMPACT_BYTES_MIN = 1 << 20
_COMPACT_FACTOR = 4  # times the last snapshot: what compactions write stays a fraction of what acks write
_ACTIVE_STEP_MS = 1000  # activity by reads alone is written at close, if it is this much later than what is written
_COMPACT_AT_CLOSE_BYTES = 16 << 10  # so that a closed cursor is small, and quick to open
_CLOSE_SECONDS_MAX = 10.0  # how long a close waits for its compaction; without it the records stay as they are


class _Group:
    """Calls that become durable together. `reached` is the mark-delete after them, and `state` the details that go with
    them, where there are some: both are known once the group is closed."""

    __slots__ = ("begun", "bitmaps", "details", "mark_delete", "pending", "reached", "state")

    def __init__(self) -> None:
        self.pending: Pending[None] = Pending()
        self.mark_delete = NOWHERE
        self.bitmaps: Bitmaps = {}
        self.details = False
        self.reached: Position | None = None
        self.state: CursorState | None = None
        self.begun = time.perf_counter()


class Acks:
    """Thread-safe. Without a `store` (the record log) nothing is durable: for a cursor in memory."""

    def __init__(
        self,
        reader: LogReader,
        name: str,
        state: CursorState,
        *,
        clock: Clock,
        store: RecordLog | None = None,
        pointer: Pointer | None = None,
    ) -> None:
        self._reader = reader
        self._name = name
        self._state = state
        self._clock = clock
        self._store = store
        self._pointer = pointer
        self._lock = threading.Lock()
        self._durable = state.acked.mark_delete
        self._views = LedgerViews(truncations=reader.truncations)  # `seen` looks at more before anything is read
        self._entries: dict[int, int] = {}  # how many a ledger that was asked for has, as of `_views`
        self._group: _Group | None = None
        self._compacting = False
        # How large a snapshot is, not how large the records are that make it up: else each restart would allow more.
        self._snapshot_bytes = len(encode_snapshot(state, reader.uuid)) if store is not None else 0
        self._closed = False
        self._active_written_ms = state.active_ms
        self.groups_persisted = 0
        closed_in_children(self)

    # -- what is known ---------------------------------------------------------------------------------------------

    @property
    def durable_mark_delete(self) -> Position:
        return self._durable

    @property
    def mark_delete(self) -> Position:
        """With every call so far, durable or not."""
        with self._lock:
            self._state.acked.advance(self._views)
            return self._state.acked.mark_delete

    @property
    def active_ms(self) -> int:
        return self._state.active_ms

    def used_now(self) -> None:
        self._state.active_ms = self._clock.wall_ms()

    def contains(self, position: Position) -> bool:
        with self._lock:
            return self._state.acked.contains(position)

    def unacked(self, ledger_id: int, first: int, last: int) -> BitMap:
        with self._lock:
            return self._state.acked.unacked(ledger_id, first, last)

    def backlog(self, views: LedgerViews) -> int:
        """How many entries are not acked."""
        self.seen(views)
        with self._lock:
            return self._state.acked.backlog(views)

    def counts(self, views: LedgerViews) -> list[tuple[LedgerView, int]]:
        """Each ledger at or after the mark-delete, and how many of its entries are not acked, as of one moment."""
        self.seen(views)
        with self._lock:
            acked = self._state.acked
            return [(view, acked.count(view)) for view in views.since(acked.mark_delete.ledger_id)]

    def seen(self, views: LedgerViews) -> None:
        """The ledgers as a reader sees them now. Where the log was truncated since the last time, the acks follow."""
        if views.truncations != self._views.truncations or views.skipped != self._views.skipped:
            with self._lock:
                self._look(views)

    def bitmaps(self) -> Bitmaps:
        with self._lock:
            self._state.acked.advance(self._views)
            return {number: bitmap.copy() for number, bitmap in sorted(self._state.acked.ledgers.items())}

    def holes(self) -> int:
        with self._lock:
            self._state.acked.advance(self._views)
            return self._state.acked.holes

    def properties(self) -> tuple[dict[str, str], dict[str, str]]:
        with self._lock:
            return dict(self._state.properties), dict(self._state.position_properties)

    # -- changes ---------------------------------------------------------------------------------------------------

    def ack_one(self, position: Position) -> Pending[None]:
        ledger_id, entry_id = position
        with self._lock:
            if not 0 <= entry_id < self._entries.get(ledger_id, 0):
                check_position("position", position)
                self._refuse_unknown(position)
            group = self._join()
            acked = self._state.acked
            if (ledger_id, entry_id) > acked.mark_delete:
                _bitmap_of(acked.ledgers, ledger_id).add(entry_id)
                _bitmap_of(group.bitmaps, ledger_id).add(entry_id)
            return group.pending

    def ack_range(self, first: Position, last: Position) -> Pending[None]:
        with self._lock:
            last = self._last_entry(last)
            if first > last:
                raise BadInput(f"cannot ack from {first} to {last}: the first comes after the last")
            self._refuse_unknown(last)
            return self._add(
                split(first, last, self._refresh_views() if first.ledger_id < last.ledger_id else self._views)
            )

    def ack_each(self, positions: Iterable[Position]) -> Pending[None]:
        by_ledger: dict[int, list[int]] = {}
        try:
            for ledger_id, entry_id in positions:
                by_ledger.setdefault(ledger_id, []).append(entry_id)
        except (TypeError, ValueError) as error:
            raise BadInput(f"these are no positions: {error}", hint="an iterable of Position") from error
        if not {type(number) for number in chain(by_ledger, *by_ledger.values())} <= {int}:
            raise BadInput("these are no positions", hint="an iterable of Position")
        with self._lock:
            for ledger_id, entries in by_ledger.items():
                if min(entries) < 0:
                    raise BadInput(f"{Position(ledger_id, min(entries))} is no entry")
                check_position("a position", last := Position(ledger_id, max(entries)))
                self._refuse_unknown(last)
            passed = (
                self._state.acked.mark_delete.ledger_id
            )  # of trimmed ledgers nobody knows how many entries they had
            return self._add({number: BitMap(entries) for number, entries in by_ledger.items() if number >= passed})

    def _add(self, bitmaps: Mapping[int, BitMap]) -> Pending[None]:
        group = self._join()
        self._state.acked.add({n: b for n, b in bitmaps.items() if n >= self._state.acked.mark_delete.ledger_id})
        for number, bitmap in bitmaps.items():
            _bitmap_of(group.bitmaps, number).update(bitmap)
        return group.pending

    def move_to(self, position: Position, properties: Mapping[str, str] | None = None) -> Pending[None]:
        with self._lock:
            position = self._last_entry(position)
            acked = self._state.acked
            acked.advance(self._views)
            if position < self._last_entry(acked.mark_delete):  # (L, last) and (L + 1, -1) are the same place
                raise BadInput(f"cursor {self._name} is at {acked.mark_delete} and cannot go back to {position}")
            self._refuse_unknown(position)
            group = self._join()
            acked.move_to(position)
            group.mark_delete = max(group.mark_delete, position)
            if properties is not None:
                self._state.position_properties = dict(properties)
                group.details = True
            return group.pending

    def reset(self, position: Position) -> Pending[None]:
        """Sets the mark-delete to `position`, forward or back; nothing after it is acked then.

        (1) trim is held back to the earlier of both positions; (2) the record; (3) positions are published again.
        """
        self._check_open()
        if self._pointer is not None:
            self._pointer.pull_back(position)
        with self._lock:
            self._close_group()
            answer = self._append(lambda: encode_reset(position), lambda: self._reached_by_reset(position))
            self._state.reset(position)
            self._follow_skips()
            if self._store is None:
                self._durable = position
            return answer

    def _reached_by_reset(self, position: Position) -> Position:
        self._durable = position
        if self._pointer is not None:
            self._pointer.release()
        return position

    def set_properties(self, properties: Mapping[str, str]) -> Pending[None]:
        with self._lock:
            # A later mark-delete belongs to a later record, with its own properties: those must not be durable before it.
            self._close_group()
            state = dataclasses.replace(self._state, properties=dict(properties))
            answer = self._append(lambda: encode_details(state), lambda: self._durable)
            self._state.properties = state.properties
            return answer

    def forked(self) -> None:
        """In a forked child, which does not own the cursor."""
        self._lock = threading.Lock()
        self._closed = True

    def close(self) -> None:
        with self._lock:
            if self._closed:
                return
            store = self._store
            if store is not None and self._state.active_ms >= self._active_written_ms + _ACTIVE_STEP_MS:
                with contextlib.suppress(PenstockError):  # `store.close` below raises it
                    store.append_built(self._build_details)
            self._closed = True
            compaction: Pending[int] | None = None
            if (
                store is not None
                and not self._compacting
                and store.bytes >= max(_COMPACT_AT_CLOSE_BYTES, 2 * self._snapshot_bytes)
            ):
                with contextlib.suppress(PenstockError):
                    compaction = self._compact(store)
        if store is None:
            return
        if compaction is not None and not is_worker():  # on such a thread it would wait for itself
            with contextlib.suppress(TimeoutError):  # the record log takes no step of it once it is closed
                compaction.exception(_CLOSE_SECONDS_MAX)
        failed = None
        try:
            store.close()
        except Exception as error:
            failed = error
        if self._pointer is not None:
            self._pointer.publish(self._current)
        if failed is not None:
            raise failed

    # -- groups; the lock is held --------------------------------------------------------------------------------

    def _join(self) -> _Group:
        """The open group, begun where there is none. Raises what stopped the record log, before anything is changed."""
        group = self._group
        if group is None:
            self._check_open()
            group = _Group()
            if self._store is None:
                group.pending.complete(None)
                return group
            self._store.append_built(lambda: self._build(group)).add_done_callback(
                lambda done: self._finish(group, done)
            )
            self._group = group
        return group

    def _close_group(self) -> None:
        """Later calls begin another group."""
        group, self._group = self._group, None
        if group is not None:
            self._state.acked.advance(self._views)
            group.reached = self._state.acked.mark_delete
            group.state = dataclasses.replace(self._state) if group.details else None

    def _append(self, build: Callable[[], bytes], reached: Callable[[], Position]) -> Pending[None]:
        """Appends a record of its own, in order with the groups. `reached`: the mark-delete once it is durable."""
        self._check_open()
        answer: Pending[None] = Pending()
        if self._store is None:
            answer.complete(None)
            return answer

        def finish(done: Pending[int]) -> None:
            error = done.exception(0)
            if error is not None:
                answer.fail(error)
                return
            self._durable = reached()
            answer.complete(None)

        self._store.append_built(build).add_done_callback(finish)
        return answer

    def _compact(self, store: RecordLog) -> Pending[int]:
        self._compacting = True
        answer = store.compact(self._build_snapshot)
        answer.add_done_callback(self._compacted)
        return answer

    # -- on the thread that commits ------------------------------------------------------------------------------

    def _build(self, group: _Group) -> bytes:
        with self._lock:
            if self._group is group:
                self._state.active_ms = self._active_written_ms = self._clock.wall_ms()
                self._close_group()
            return encode_acks(group.mark_delete, group.bitmaps, group.state)

    def _build_details(self) -> bytes:
        with self._lock:
            return encode_details(self._state)

    def _build_snapshot(self) -> bytes:
        with self._lock:
            self._state.acked.advance(self._views)
            for bitmap in self._state.acked.ledgers.values():
                bitmap.run_optimize()
            raw = encode_snapshot(self._state, self._reader.uuid)
            self._snapshot_bytes = len(raw)
            return raw

    def _finish(self, group: _Group, done: Pending[int]) -> None:
        error = done.exception(0)
        if error is not None:
            group.pending.fail(error)
            return
        assert group.reached is not None
        self._durable = group.reached
        self.groups_persisted += 1
        METRICS.cursor_persist_seconds.observe(time.perf_counter() - group.begun)
        group.bitmaps = {}
        group.pending.complete(None)
        if self._pointer is not None:
            self._pointer.publish_later(self._current)
        self._compact_if_large()

    def _compact_if_large(self) -> None:
        store = self._store
        if store is None or store.bytes < max(_COMPACT_BYTES_MIN, _COMPACT_FACTOR * self._snapshot_bytes):
            return
        with self._lock:
            if not self._compacting and not self._closed:
                self._compact(store)

    def _current(self) -> tuple[Position, int]:
        return self._durable, self._state.active_ms

    def _compacted(self, _: Pending[int]) -> None:
        self._compacting = False

    # -- the log -------------------------------------------------------------------------------------------------

    def _check_open(self) -> None:
        if self._closed:
            raise Closed(f"cursor {self._name} is closed")

    def _refresh_views(self) -> LedgerViews:
        self._check_open()
        return self._look(self._reader.ledgers())

    def _look(self, views: LedgerViews) -> LedgerViews:
        truncated = views.truncations != self._views.truncations
        self._views = views
        self._entries = {}
        if truncated:
            self._state.acked.follow_truncation(views)
            self._durable = views.kept(self._durable)
            if self._group is not None:
                clip(self._group.bitmaps, views)
                self._group.mark_delete = views.kept(self._group.mark_delete)
        self._state.acked.follow_trim(views)
        self._follow_skips()
        return views

    def _follow_skips(self) -> None:
        """Entries that were skipped count as acked, and it is said how many of them this cursor had not acked."""
        if self._views.skipped and (passed := self._state.acked.follow_skips(self._views)):
            METRICS.log_passed_over_entries.inc(passed)
            _logger.warning("cursor %s passes over %d entries that were skipped", self._name, passed)

    def _is_entry(self, position: Position) -> bool:
        """Whether the log has the entry, as of `_views`."""
        ledger_id, entry_id = position
        if ledger_id not in self._entries:
            view = self._views.find(ledger_id)
            self._entries[ledger_id] = view.entries if view is not None else 0
        return 0 <= entry_id < self._entries[ledger_id]

    def _refuse_unknown(self, position: Position) -> None:
        """Raises `BadInput` for an entry that the log does not have and never had."""
        ledger_id, entry_id = position
        if self._is_entry(position):
            return
        self._refresh_views()
        if self._is_entry(position):
            return
        if position <= self._state.acked.mark_delete:
            view = self._views.find(ledger_id)
            if view is None and (position == self._state.acked.mark_delete or position <= self._reader.end()):
                return  # the entry was trimmed
            if view is not None and (entry_id < 0 or not view.info.sealed):
                return  # the end of an open ledger, as readers see it, may be old after a power cut
        raise BadInput(f"cursor {self._name}: entry {position} is not in the log, which ends at {self._reader.end()}")

    def _last_entry(self, position: Position) -> Position:
        return previous(position, self._refresh_views()) if position.entry_id < 0 else position


def previous(position: Position, views: LedgerViews) -> Position:
    """For `(L, -1)` the last entry before it, which is the same place; any other position unchanged."""
    return position if position.entry_id >= 0 else views.previous(position) or position


def _bitmap_of(bitmaps: Bitmaps, ledger_id: int) -> BitMap:
    bitmap = bitmaps.get(ledger_id)
    if bitmap is None:
        bitmap = bitmaps[ledger_id] = BitMap()
    return bitmap


__all__ = ["Acked", "Acks", "previous"]
