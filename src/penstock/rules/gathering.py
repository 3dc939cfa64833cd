"""The changes of tables that are one at the sink, on their way through a range: rows wait until all of a group are there, and
go on together in the order of the log; of a statement that changes several of them, the whole is told once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from penstock.log.position import Position, Seq
from penstock.rules.images import Images
from penstock.rules.routes import Name
from penstock.rules.rules import Change, Rules
from penstock.rules.table_rules import RuleMismatch
from penstock.rules.wholes import Wholes, aligned, in_log_order
from penstock.schema.changes import ChangeBatch, SchemaChange
from penstock.schema.model import ChangeKind, DdlType, TableSchema
from penstock.schema.statements import alter_table, create_table
from penstock.schema.view import SchemaView


class Gathering:
    """Of one range. Whoever asks sees to it that nothing comes after a stop."""

    def __init__(self, rules: Rules, view: SchemaView) -> None:
        self._rules = rules
        self._view = view
        self._wholes = Wholes(rules, view)
        self._waiting: dict[Name, list[ChangeBatch]] = {}
        self._stops: dict[Name, SchemaChange] = {}
        self._told: dict[Name, bytes] = {}  # the seq of the last statement of each whole

    def takes(self, table: TableSchema) -> bool:
        return self._rules.gathers((table.schema, table.table))

    def take(self, batch: ChangeBatch) -> None:
        """Rows of a part, of the group that is read."""
        if len(batch):
            self._waiting.setdefault(self._target(batch.table), []).append(batch)

    def stop(self, change: SchemaChange) -> None:
        """A part is parked, or its rows cannot be read from here on: so it is with the whole."""
        for one in self._rules.apply(change):
            if isinstance(one, SchemaChange):
                target = self._target(change.table)
                self._stops[target] = min(one, self._stops.get(target, one), key=_seq)

    def over(self) -> Iterator[Change]:
        """The group has no more rows."""
        waiting, self._waiting = self._waiting, {}
        stops, self._stops = self._stops, {}
        for target in {**waiting, **stops}:
            yield from self._rows(target, waiting.get(target, []), stops.get(target))

    # ---- rows

    def _rows(self, target: Name, batches: list[ChangeBatch], stop: SchemaChange | None) -> Iterator[Change]:
        """All rows of the group, up to what stops the whole, and that. A stop in an earlier piece is the earlier one."""
        if batches:
            first, last = min(position_of(one, 0) for one in batches), max(position_of(one, -1) for one in batches)
            edges = [first, *self._wholes.edges(target, first, last)]
            for edge, until in zip(edges, [*edges[1:], None], strict=True):
                pieces = [piece for one in batches if len(piece := rows_between(one, edge, until))]
                rows, here = self._piece(target, edge, pieces, stop) if pieces else (None, None)
                if rows is not None and len(rows):
                    yield rows
                if here is not None:
                    stop = here
                    break
        if stop is not None:
            yield stop

    def _piece(
        self, target: Name, position: Position, batches: list[ChangeBatch], stop: SchemaChange | None
    ) -> tuple[ChangeBatch | None, SchemaChange | None]:
        """Rows between which the whole stays the same, up to `stop`; and what stops it among them, if something does."""
        try:
            whole = self._wholes.at(target, position)
        except RuleMismatch as error:
            earliest = min(batches, key=lambda one: one.seq[0].tobytes())
            here = self._rules.stopped_at(earliest, error.message)
            return None, here if stop is None else min(here, stop, key=_seq)
        assert whole is not None, "a table with rows is there"
        parts: list[Images] = []
        last = max(one.seq[-1].tobytes() for one in batches)
        found = stop if stop is not None and stop.seq <= last else None
        for batch in batches:
            images, reason, at = self._rules.images(batch)
            if reason:
                here = self._rules.stopped_at(batch.slice(at, len(batch)), reason)
                found = here if found is None else min(found, here, key=_seq)
            parts.append(aligned(images, self._rules.table(batch.table).columns, whole))
        made = in_log_order(parts)
        if found is not None:
            made = made.slice(int(np.searchsorted(_seqs(made.seq), np.bytes_(found.seq))))
        return made.batch(whole), found

    # ---- statements

    def statement(self, change: SchemaChange) -> Iterator[SchemaChange]:
        """The change of a part, as the whole is told of it."""
        table, rules = change.table, self._rules
        target = self._target(table)
        position = Seq.from_bytes(change.seq).position
        held = rules.held_back(change) if table.columns else None
        if held is not None:  # also what comes from a name that is held back, and that the sink does not take any more
            yield held
            return
        try:
            self._check(change, target)
            after = self._wholes.at(target, position)
        except RuleMismatch as error:
            yield rules.stopped_at(change, error.message)
            return
        if after is None or self._told.get(target) == change.seq:
            return  # its rows stay; or another part of it was in the same statement
        self._told[target] = change.seq
        before = self._seen(self._wholes, target, Position(position.ledger_id, position.entry_id - 1))
        yield _told(before, after, change.seq, change.commit_ts)

    def _check(self, change: SchemaChange, target: Name) -> None:
        table = change.table
        self._rules.check_kept(change)
        if table.kind is ChangeKind.TRUNCATE:
            raise RuleMismatch(
                f"{table.name} was emptied without row events, and its rows in {'.'.join(target)} cannot be told from others'"
            )
        if table.kind is not ChangeKind.RENAME or not table.columns:
            return
        origin = next((one for one in change.together if one.name == table.other), None)
        if origin is None or not self._rules.wants(origin.schema, origin.table):
            return
        if self._target(origin) != target:
            raise RuleMismatch(
                f"{origin.name} became {table.name}, a part of {'.'.join(target)}, and its earlier rows are under another name"
            )

    def left(self, change: SchemaChange) -> str:
        """Why a table that is no part of a whole stops: it was one, and its earlier rows are there. Empty if it does not."""
        table = change.table
        if table.kind is not ChangeKind.RENAME or not table.columns:
            return ""
        origin = next((one for one in change.together if one.name == table.other), None)
        if origin is None or not self._rules.wants(origin.schema, origin.table) or not self.takes(origin):
            return ""
        where = ".".join(self._target(origin))
        return f"{origin.name} became {table.name}, and its earlier rows are a part of {where}"

    # ---- settings

    def begin(self, tables: Iterable[TableSchema], number: int) -> Iterator[SchemaChange]:
        """What is told of each whole where the settings begin, from the seq of this number on; before all else."""
        earlier = self._rules.earlier
        assert earlier is not None
        tables = [table for table in tables if not table.is_sequence]
        since = earlier.since
        ending = Position(since.ledger_id, since.entry_id - 1)
        taken = earlier.rules.names_so_far(self._view.names())
        before_wholes = Wholes(earlier.rules, self._view)
        targets = sorted({self._target(table) for table in tables if self.takes(table) and self._wants(table)})
        for place, target in enumerate(targets, number):
            seq = Seq(since.ledger_id, since.entry_id, 0, place).to_bytes()
            one = next(table for table in tables if self.takes(table) and self._target(table) == target)
            try:
                after = self._wholes.at(target, ending)
            except RuleMismatch as error:
                yield self._rules.stopped_at(SchemaChange(one, seq, earlier.table_version), error.message)
                continue
            assert after is not None
            before = self._seen(before_wholes, target, ending)
            if before is None:
                single = [one for one in tables if earlier.rules.wants(one.schema, one.table)]
                single = [one for one in single if earlier.rules.target(one.schema, one.table) == target]
                before = earlier.rules.seen(single[0]) if len(single) == 1 else None
            yield _told(before, after, seq, earlier.table_version, anew=before is None and target in taken)

    def _seen(self, wholes: Wholes, target: Name, position: Position) -> TableSchema | None:
        """None also where it had stopped: nobody was told of it."""
        try:
            return wholes.at(target, position)
        except RuleMismatch:
            return None

    def _wants(self, table: TableSchema) -> bool:
        return self._rules.wants(table.schema, table.table)

    def _target(self, table: TableSchema) -> Name:
        return self._rules.target(table.schema, table.table)


def _told(
    before: TableSchema | None, after: TableSchema, seq: bytes, commit_ts: int, *, anew: bool = False
) -> SchemaChange:
    """A new version of the whole, with the statement for the sink's readers."""
    if before is None:
        query, kind = create_table(after), DdlType.CREATE_TABLE
        if anew:
            query = query.replace("CREATE TABLE IF NOT EXISTS", "CREATE OR REPLACE TABLE", 1)
    else:
        query = alter_table(before, after) or ""
        kind = DdlType.MODIFY_COLUMN if query else DdlType.NONE
    needed = () if before is None else (before,)
    made = replace(after, query=query, ddl_type=kind)
    return SchemaChange(made, seq, commit_ts, before, needed=needed, ready=True)


def position_of(batch: ChangeBatch, row: int) -> Position:
    return Position(int(batch.seq["ledger"][row]), int(batch.seq["entry"][row]))


def rows_between(batch: ChangeBatch, first: Position, until: Position | None = None) -> ChangeBatch:
    """The rows from one position on and before another."""
    some = batch if until is None else rows_before(batch, Seq(*until, 0, 0).to_bytes())
    start = _first_at(some, Seq(*first, 0, 0).to_bytes())
    return some if start == 0 else some.slice(start, len(some))


def rows_before(batch: ChangeBatch, seq: bytes) -> ChangeBatch:
    return batch.slice(0, _first_at(batch, seq))


def _first_at(batch: ChangeBatch, seq: bytes) -> int:
    """The first row at or after a seq."""
    return int(np.searchsorted(_seqs(batch.seq), np.bytes_(seq)))


def _seq(change: SchemaChange) -> bytes:
    return change.seq


def _seqs(seqs: npt.NDArray[np.void]) -> npt.NDArray[np.bytes_]:
    return np.ascontiguousarray(seqs).view("S24")
