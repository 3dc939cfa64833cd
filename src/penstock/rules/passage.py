"""What a range of the log passes through on its way to the sink: the rules, and what stops a table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from penstock.log.position import Seq
from penstock.rules.gathering import Gathering, position_of, rows_before, rows_between
from penstock.rules.routes import Name
from penstock.rules.rules import Change, Rules
from penstock.schema.changes import ChangeBatch, SchemaChange
from penstock.schema.model import ChangeKind, DdlType, TableSchema
from penstock.schema.parking import STOPPED_BY_RULES
from penstock.schema.view import SchemaView


class Passage:
    """The changes of one range, in their order. A table that stops has nothing more in the range: what comes after it is read
    again once it can go on, and of tables that meet at the sink nothing may come out of order. Rows of tables that are one
    at the sink wait until `next_group` or `finish` is told: whoever decodes knows when no earlier ones come.

    `names`: all tables of the source; `view`: what they are. `before`: what the range before passed through; a table that
    stopped there stays so. Where a table stops follows from the log alone, and not from where a range ends.
    """

    def __init__(
        self,
        rules: Rules,
        names: Iterable[Name],
        view: SchemaView,
        before: Passage | None = None,
    ) -> None:
        self.rules = rules
        self._gathering = Gathering(rules, view) if rules.gathers_any else None
        self._over = False
        self._names = list(names)
        self._meetings = rules.meetings(self._names)
        self._view = view
        self._stopped: set[Name] = set() if before is None else before._stopped

    def begin(self, tables: Iterable[TableSchema]) -> Iterator[Change]:
        """As `Rules.begun`: before all changes of a range that begins where the rules do."""
        tables = list(tables)
        begun = list(self.rules.begun(tables, self._names))
        for table, change in begun:
            met = SchemaChange(table, change.seq, change.commit_ts)
            yield from self._passed((self._stop(met) or change,))
        if self._gathering is not None and self.rules.earlier is not None:
            yield from self._passed(self._gathering.begin(tables, len(begun)))

    def next_group(self) -> None:
        """What comes from here on lies after all that came before."""
        self._over = True

    def finish(self) -> Iterator[Change]:
        """What still waits. Nothing comes after it."""
        if self._gathering is not None:
            yield from self._passed(self._gathering.over())

    def apply(self, change: Change) -> Iterator[Change]:
        """As `Rules.apply`."""
        gathering = self._gathering
        if gathering is None:
            yield from self._passed(self._shaped(change))
            return
        if self._over:
            yield from self.finish()
            self._over = False
        if not gathering.takes(change.table):
            left = gathering.left(change) if isinstance(change, SchemaChange) else ""
            yield from self._passed((self.rules.stopped_at(change, left),) if left else self._shaped(change))
        elif isinstance(change, SchemaChange) and change.table.parked:
            gathering.stop(change)
        elif isinstance(change, SchemaChange):
            yield from self.finish()
            yield from self._passed(gathering.statement(change))
        else:
            gathering.take(change)

    def _shaped(self, change: Change) -> Iterable[Change]:
        stop = self._stop(change)
        if stop is None:
            return self.rules.apply(change)
        before = rows_before(change, stop.seq) if isinstance(change, ChangeBatch) else None
        return (*self.rules.apply(before), stop) if before is not None and len(before) else (stop,)

    def _stop(self, change: Change) -> SchemaChange | None:
        """What stands from some row of it on in the place of a change of a table that is held back, or meets another one."""
        held = self.rules.held_back(change)
        if held is not None or not self._meetings:
            return held
        if isinstance(change, SchemaChange):
            first = last = Seq.from_bytes(change.seq).position
        else:
            first, last = position_of(change, 0), position_of(change, -1)
        name = (change.table.schema, change.table.table)
        met = self.rules.met(name, self._meetings, self._view, first, last)
        if met is None:
            return None
        at, other = met
        return self.rules.apart(change if isinstance(change, SchemaChange) else rows_between(change, at), other)

    def _passed(self, changes: Iterable[Change]) -> Iterator[Change]:
        for seen in changes:
            name = (seen.table.schema, seen.table.table)
            if name in self._stopped:
                continue
            passed = self._with_stop(seen) if isinstance(seen, SchemaChange) else seen
            if isinstance(passed, SchemaChange) and passed.table.reason.startswith(STOPPED_BY_RULES):
                self._stopped.add(name)
            yield passed

    def _with_stop(self, change: SchemaChange) -> SchemaChange:
        """A table that has stopped stays so under another name: what a rule hid of it would be there in the clear."""
        table = change.table
        if table.kind is not ChangeKind.RENAME or not table.columns or table.reason:
            return change
        if table.other not in {f"{schema}.{name}" for schema, name in self._stopped}:
            return change
        reason = f"{STOPPED_BY_RULES}{table.other} has stopped, and became {table.name}"
        stopped = replace(table, ddl_type=DdlType.UNKNOWN, query="", other="", reason=reason)
        return SchemaChange(stopped, change.seq, change.commit_ts)
