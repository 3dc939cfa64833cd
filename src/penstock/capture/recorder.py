"""Appends frames to the log, each an entry with the state that belongs to it, and follows which of them are durable.

The position, the open transaction and new schemas are in the same frame as the entry: all survive a crash or none does.
What waits for the disk is bounded, so a slow disk slows reading down instead of filling the memory.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from penstock.capture.held import LogHeldGroups
from penstock.capture.position import PositionTracker
from penstock.capture.schemas import SchemaTracker
from penstock.capture.transactions.frame_content import FrameContent
from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.entries.stores import (
    LOAD_SCOPE,
    LOAD_TABLE,
    SCHEMA_HISTORY,
    SCHEMA_RESUMED,
    SOURCE,
    SOURCE_MISSED,
    SOURCE_OPEN,
    SOURCE_POSITION,
    SOURCE_VOID,
)
from penstock.errors import StorageFailed
from penstock.log import Log, Pending
from penstock.schema.model import ChangeKind, DdlType, TableSchema
from penstock.sources.load import ARRIVED, TableLoad
from penstock.sources.position import OpenTransaction, SourcePosition
from penstock.sources.settings import LoadScope
from penstock.state import BucketState, Change

WAITING_BYTES_MAX = 64 << 20
RELEASE_SECONDS_MIN = 1.0  # between two changes of the pin of held groups: each is a write of metadata
DURABLE_SECONDS_MAX = 60.0  # an append that takes longer is an error

_logger = logging.getLogger(__name__)


class Recorder:
    """The writer of one capture. Not thread-safe: owned by the capture loop."""

    def __init__(self, log: Log, state: BucketState, schemas: SchemaTracker, clock: Clock = SYSTEM_CLOCK) -> None:
        self._state = state
        self._schemas = schemas
        self._clock = clock
        self._positions = state.store(SOURCE_POSITION)
        self._opens = state.store(SOURCE_OPEN)
        self._history = state.store(SCHEMA_HISTORY)
        self._resumed = state.store(SCHEMA_RESUMED)
        self._missed = state.store(SOURCE_MISSED)
        self._voids = state.store(SOURCE_VOID)
        self.loads = state.store(LOAD_TABLE)
        self._scopes = state.store(LOAD_SCOPE)
        self.groups = LogHeldGroups(log, state, self.finish)
        self._tracker: PositionTracker | None = None
        self._waiting: deque[tuple[Pending[Any], int, int]] = deque()
        self._waiting_bytes = 0
        stored = self._positions.get(SOURCE)
        if stored is not None:
            self._tracker = PositionTracker(stored, clock)
        # One number stays free at each start, for table versions of a changefeed's own (formats/settings-versions.md). Every frame
        # carries it: between two starts with a frame between them, the number that the first left free is never given again.
        self.commit_ts_min = stored.commit_ts + 1 if stored is not None else 0
        self.open: OpenTransaction | None = self._opens.get(SOURCE)
        self._release_due = True  # a kill may have left a pin behind
        self._released = clock.monotonic() - RELEASE_SECONDS_MIN
        self.transactions = self.events = self.bytes = 0
        self.entries = self.voids = 0  # frames with events, and with parts that never happened, since the start
        self.load_changes = 0  # frames in which a load became another one: it went to another name, or begins anew
        self.failed = False  # a frame could not be appended: nothing may come after it
        schemas.loads_arrivals = self._loads_arrivals

    @property
    def position(self) -> SourcePosition | None:
        """The position of the last frame, durable or not; None for a new log."""
        return self._positions.get(SOURCE)

    @property
    def scope(self) -> LoadScope | None:
        """Which tables were to be loaded by themselves at the last start; None where none were, ever."""
        return self._scopes.get(SOURCE)

    @property
    def missed(self) -> list[tuple[str, str]]:
        """The XA groups that committed and were prepared before the log's start, with the position after the commit: their rows
        are not in the log."""
        return list(self._missed.items())

    @property
    def snapshot(self) -> SourcePosition:
        """The end of the last commit that was read and appended, or had nothing to append. For a log that has begun."""
        assert self._tracker is not None
        return self._tracker.snapshot

    @property
    def durable(self) -> SourcePosition | None:
        return self._tracker.pending_snapshot if self._tracker else None

    @property
    def waiting(self) -> bool:
        """Whether an appended frame is not known to be durable yet."""
        return bool(self._waiting)

    def append(self, frame: FrameContent) -> None:
        """Hands the frame to the log. Blocks while more than WAITING_BYTES_MAX are not durable.

        After an error the log ends before this frame, or before an earlier one: a later frame would leave a hole.
        """
        if self.failed:
            raise StorageFailed("an earlier frame was not appended", hint="start again")
        self.failed = True
        self._append(frame)
        self.failed = False

    def _append(self, frame: FrameContent) -> None:
        frame = self._with_hold(frame)
        if self._tracker is None:
            self._tracker = PositionTracker(frame.position, self._clock)
        ticket = self._tracker.appended(frame.position)  # first: it refuses a position that goes back
        change = self._state.begin()
        self._put_position(change, frame.position)
        if frame.open is not None:
            self._opens.put(change, SOURCE, frame.open)
        elif self.open is not None:
            self._opens.delete(change, SOURCE)
        self.open = frame.open
        if frame.held is not None:
            self.groups.store.put(change, frame.held.xid, frame.held)
        if frame.released:
            self.groups.store.delete(change, frame.released)
        if frame.missed:
            self._missed.put(change, frame.missed, str(frame.position))
            _logger.warning(
                "the XA group %s committed before %s, and was prepared before the log's start: its rows lie before the start, "
                "and are not in the log. Tables that are loaded by themselves are loaded again",
                frame.missed,
                frame.position,
            )
        if frame.void:
            for earlier, _ in self._voids.items():  # readers follow the changes: the store need not grow
                self._voids.delete(change, earlier)
            self._voids.put(change, frame.void, frame.void_reason)
        moved = self._moved_loads(frame.schemas) | (self._loads_anew() if frame.missed else {}) | self._arrived_loads()
        for table in frame.schemas:
            self._history.put(change, self._schemas.record(table), table)
        for name, load in (*frame.loads.items(), *moved.items()):
            self.loads.put(change, name, load)
        self.load_changes += bool(moved)
        if frame.scope is not None:
            self._scopes.put(change, SOURCE, frame.scope)
        size = sum(len(buffer) for buffer in frame.data)
        pending = self._state.commit(change, frame.data)
        self._waiting.append((pending, ticket, size))
        self._waiting_bytes += size
        self.transactions += frame.transactions
        self.events += frame.events
        self.bytes += size
        self.entries += bool(frame.data and not frame.loads)
        self.voids += bool(frame.void)
        if frame.held is not None:
            self.groups.remember(frame.held, frame.data)
        if frame.released or frame.void:
            self.groups.forget(frame.released)
            self._release_due = True
        while self._waiting_bytes > WAITING_BYTES_MAX:
            self._settle(wait=True)
        self.settle()

    def _put_position(self, change: Change, position: SourcePosition) -> None:
        commit_ts = max(position.commit_ts, self.commit_ts_min)
        self._positions.put(change, SOURCE, replace(position, commit_ts=commit_ts))

    def resume(self, tables: Iterable[TableSchema]) -> None:
        """Makes durable, all or nothing, what stands for these parked versions; a frame with state only, which moves no
        position. Only between transactions: a frame ends the open one."""
        assert self.open is None, "a transaction is open"
        if self.failed:
            raise StorageFailed("an earlier frame was not appended", hint="start again")
        self.failed = True
        change = self._state.begin()
        for table in tables:
            self._resumed.put(change, table.key, table)
        if (here := self.position) is not None:
            self._put_position(change, here)
        self._state.commit(change, []).result(DURABLE_SECONDS_MAX)
        self.failed = False
        for table in tables:
            self._schemas.resume(table)

    def _moved_loads(self, made: Iterable[TableSchema]) -> dict[tuple[str, str], TableLoad]:
        """The loads that are others after a statement, before that is recorded. One that renames tables: each goes with its
        table, also where tables trade their names. What came under a name from a table without a load is in the log already, unless nobody followed that
        table: then all of it is loaded, where tables are loaded by themselves (a backfill is of the table that it was asked
        for). How many rows were loaded under a name stays with the name."""
        renamed = [table for table in made if table.kind is ChangeKind.RENAME]
        moved: dict[tuple[str, str], TableLoad] = {}
        for table in renamed:
            name = (table.schema, table.table)
            there = self.loads.get(name)
            if not table.columns:
                if there is not None and not there.done:
                    moved[name] = replace(there, done=True, note=f"renamed to {table.other}")
                continue
            origin = next((one for one in renamed if one.name == table.other), None)
            came = self.loads.get((origin.schema, origin.table)) if origin is not None else None
            rows = there.rows if there is not None else 0
            if came is not None and origin is not None:
                kept = came.done or self._keeps_key(table, (origin.schema, origin.table))
                moved[name] = replace(came if kept else came.anew(), rows=rows)
            elif there is not None:
                followed = origin is not None and self._schemas.follows(origin.schema, origin.table)
                done = followed or there.backfill
                moved[name] = replace(there.anew(), done=done, note=f"was {table.other}")
        return moved | self._other_tables_loads(made) | self._exchanged_loads(made)

    def _other_tables_loads(self, made: Iterable[TableSchema]) -> dict[tuple[str, str], TableLoad]:
        """The loads of tables that are not the same any more under the same name. One that is dropped has no rows; one that
        is created has all of its rows in the log. Where the columns of the key are others, the last key that was read says
        nothing of the rows that are left, whatever the new columns are called."""
        found: dict[tuple[str, str], TableLoad] = {}
        for table in made:
            name = (table.schema, table.table)
            load = self.loads.get(name)
            if load is None or load.done or not load.key:
                continue
            if table.kind in (ChangeKind.CREATE, ChangeKind.DROP):
                found[name] = replace(load, done=True, note="it was dropped")
            elif table.kind is ChangeKind.ALTER and not self._keeps_key(table, name):
                found[name] = load.anew()
        return found

    def _loads_arrivals(self, schema: str, table: str) -> bool:
        return (scope := self.scope) is not None and scope.matches(schema, table)

    def _arrived_loads(self) -> dict[tuple[str, str], TableLoad]:
        """The loads of tables that a rename gave a name that is loaded by itself, and of which nobody followed what they hold.
        In the first frame after the statement was read: none that has passed it is durable without them."""
        found: dict[tuple[str, str], TableLoad] = {}
        for name, (known, hidden) in self._schemas.take_arrivals().items():
            load = self.loads.get(name)
            if load is None if known else (load is None or load.done or bool(load.key)):
                _logger.info("%s came from a name that nobody followed: its rows are loaded", ".".join(name))
                rows = load.rows if load is not None else 0
                found[name] = TableLoad((), (), rows, note=ARRIVED, begun_ms=self._clock.wall_ms(), joins=hidden)
        return found

    def _keeps_key(self, table: TableSchema, before: tuple[str, str]) -> bool:
        known = self._schemas.in_force(*before)
        return known is not None and table.keeps_key_of(known)

    def _exchanged_loads(self, made: Iterable[TableSchema]) -> dict[tuple[str, str], TableLoad]:
        """The loads of tables that exchange rows, from their beginning: what is not loaded yet of the one may be behind what is
        loaded of the other, and no row event brings it."""
        names = [(table.schema, table.table) for table in made if table.ddl_type is DdlType.EXCHANGE_PARTITION]
        loads = {name: load for name in names if (load := self.loads.get(name)) is not None}
        if all(load.done for load in loads.values()):
            return {}
        return {name: load.anew() for name, load in loads.items()}

    def _loads_anew(self) -> dict[tuple[str, str], TableLoad]:
        """The loads that begin anew where an XA group commits whose rows are not in the log. Nobody knows of which tables they
        are, and what was read before the commit does not have them. A backfill that is done was of its own moment."""
        found: dict[tuple[str, str], TableLoad] = {}
        for name, load in self.loads.items():
            if load.key and not (load.done and (load.backfill or load.note)):
                found[str(name[0]), str(name[1])] = load.anew()
        return found

    def _with_hold(self, frame: FrameContent) -> FrameContent:
        """The frame, with the position of the log that keeps its held entries."""
        group, opened = frame.held, frame.open
        before = self.open.after if self.open is not None and self.open.held else ""
        if group is not None and group.entries:
            return replace(frame, held=replace(group, after=before or self.groups.hold()))
        if opened is not None and opened.held:
            return replace(frame, open=replace(opened, after=before or self.groups.hold()))
        return frame

    def settle(self) -> None:
        """Notes which frames have become durable. Raises the error of a failed append."""
        while self._waiting and self._waiting[0][0].done():
            self._settle(wait=False)
        now = self._clock.monotonic()
        if self._release_due and not self._waiting and now - self._released >= RELEASE_SECONDS_MIN:
            self._release(now)

    def finish(self) -> None:
        """Returns once everything appended is durable."""
        while self._waiting:
            self._settle(wait=True)

    def close(self) -> None:
        """Everything appended is durable, and nothing is kept in the log that nobody needs."""
        self.finish()
        if self._release_due:
            self._release(self._clock.monotonic())

    def _release(self, now: float) -> None:
        """Not before the frames that need a pin no more are durable."""
        self.groups.release(self.open)
        self._release_due = False
        self._released = now

    def reading(self, read: SourcePosition, *, inside: bool) -> None:
        """How far events were read, for status, and whether a transaction is open there."""
        if self._tracker is not None:
            self._tracker.reading(read, inside=inside)

    def status(self) -> dict[str, Any] | None:
        """The positions that `penstock status` shows; None before there is one."""
        return self._tracker.status() if self._tracker else None

    def passed(self, position: SourcePosition) -> None:
        """Everything before `position` is appended, or had nothing to append.

        While nothing else is pending, a frame with state only makes the position durable, at most once a second.
        """
        assert self._tracker is not None
        self.settle()
        self._tracker.passed(position)
        due = self._tracker.idle_due()
        if due is not None and self.open is None:
            self.append(FrameContent([], replace(due, commit_ts=max(due.commit_ts, position.commit_ts))))

    def _settle(self, *, wait: bool) -> None:
        assert self._tracker is not None
        pending, ticket, size = self._waiting[0]
        before, self.failed = self.failed, True
        pending.result(DURABLE_SECONDS_MAX if wait else 0)
        self.failed = before
        self._waiting.popleft()
        self._waiting_bytes -= size
        self._tracker.acknowledge(ticket)
