"""All rules of a sink: each change as the sink sees it.

A table that its rules do not fit stops at the sink, in front of the first row or DDL with which they do not: a change of
kind UNKNOWN with the reason stands there, as for every table that is parked. So nothing passes that a rule was meant to
hold back.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from penstock.rules.images import Images
from penstock.rules.routes import Name, routed
from penstock.rules.settings import Rule
from penstock.rules.table_rules import NamedRule, RuleMismatch, TableRules
from penstock.schema.changes import ChangeBatch, SchemaChange
from penstock.schema.model import ChangeKind, DdlType, TableSchema
from penstock.schema.parking import STOPPED_BY_RULES

Wanted = Callable[[str, str], bool]
Change = ChangeBatch | SchemaChange
Meetings = dict[Name, tuple[Name, ...]]


def everything(_schema: str, _table: str) -> bool:
    return True


class Rules:
    """`wanted`: which tables of the source the sink takes. Rules name tables as the source does, also where a table has
    another name at the sink. Safe to share between threads."""

    def __init__(self, rules: Sequence[Rule] = (), key: str | None = None, wanted: Wanted = everything) -> None:
        self._rules = tuple(NamedRule(f"rule {number} ({rule.table})", rule) for number, rule in enumerate(rules, 1))
        self._key = (key or "").encode()
        self._wanted = wanted
        self._of_table: dict[Name, tuple[NamedRule, ...]] = {}
        self._bound: dict[TableSchema, TableRules | RuleMismatch] = {}

    def __bool__(self) -> bool:
        return bool(self._rules)

    @property
    def has_routes(self) -> bool:
        return any(named.rule.route for named in self._rules)

    def of(self, name: Name) -> tuple[NamedRule, ...]:
        """The rules of a table, in their order."""
        found = self._of_table.get(name)
        if found is None:
            full = ".".join(name)
            found = tuple(named for named in self._rules if name[1] and fnmatch.fnmatchcase(full, named.rule.table))
            self._of_table[name] = found
        return found

    def target(self, schema: str, table: str) -> Name:
        """The table's name at the sink: of the last rule that has a route for it."""
        routes = [named.rule.route for named in self.of((schema, table)) if named.rule.route]
        return routed(routes[-1], (schema, table)) if routes else (schema, table)

    def table(self, table: TableSchema) -> TableSchema:
        """The version as the sink sees it. Raises `RuleMismatch`."""
        name = (table.schema, table.table)
        if not self.of(name):
            return replace(table, other=self._other(table)) if table.other and self.has_routes else table
        made = self._named(table)
        if not table.columns:
            return made
        columns = self._rules_of(table).columns
        # What the source's statement says of partitions may speak of columns that the sink does not see.
        return replace(made, columns=columns, query=table.query if columns == table.columns else "")

    def apply(self, change: Change) -> Iterator[Change]:
        """The change as the sink sees it; nothing, if it sees nothing of it."""
        if isinstance(change, SchemaChange):
            yield from self._schema_change(change)
            return
        rows, stop = self.rows(change)
        if len(rows):
            yield rows
        if stop is not None:
            yield stop

    def rows(self, batch: ChangeBatch) -> tuple[ChangeBatch, SchemaChange | None]:
        """The rows that the sink sees, and what stops the table after them, if something does."""
        table = batch.table
        if not self.of((table.schema, table.table)):
            return batch, None
        try:
            made, rules = self.table(table), self._rules_of(table)
        except RuleMismatch as error:
            reason, stopped, seen = error.message, 0, batch.slice(0, 0)
        else:
            images, reason, stopped = rules.apply(Images.of(batch))
            seen = images.batch(made)
        if not reason:
            return seen, None
        seq, ts = batch.seq[stopped].tobytes(), int(batch.commit_ts[stopped])
        return seen, SchemaChange(self._stopped(table, reason), seq, ts)

    # ---- databases

    def sees_database(self, schema: str) -> bool:
        """Whether a DROP DATABASE of the source is one at the sink too: no table of it is elsewhere there."""
        return not any(
            named.rule.route and fnmatch.fnmatchcase(schema, named.rule.table.partition(".")[0])
            for named in self._rules
        )

    def _is_target(self, schema: str) -> bool:
        """Whether tables of other databases may be in this one at the sink."""
        return any(
            named.rule.route and fnmatch.fnmatchcase(schema, _pattern_of(named.rule.route.partition(".")[0]))
            for named in self._rules
        )

    # ---- tables that meet at the sink

    def meetings(self, names: Iterable[Name]) -> Meetings:
        """Which of these tables of the source would be one table at the sink."""
        if not self.has_routes:
            return {}
        by_target: dict[Name, list[Name]] = {}
        for name in names:
            if name[1] and self._wanted(*name):
                by_target.setdefault(self.target(*name), []).append(name)
        return {name: tuple(sorted(same)) for same in by_target.values() if len(same) > 1 for name in same}

    def passage(self, names: Iterable[Name], exists: Wanted) -> Passage:
        """What a range of the log passes through on its way to the sink. `names`: all tables of the source; `exists`: whether
        a name stands for a table at the end of the range."""
        return Passage(self, self.meetings(names), exists)

    def apart(self, change: Change, meetings: Meetings, exists: Wanted) -> SchemaChange | None:
        """The change, stopped, if another table meets its own at the sink; else None."""
        name = (change.table.schema, change.table.table)
        other = next((one for one in meetings.get(name, ()) if one != name and exists(*one)), None)
        if other is None:
            return None
        pair = " and ".join(sorted(".".join(one) for one in (name, other)))
        made = self._stopped(change.table, f"{pair} would both be {'.'.join(self.target(*name))} at the sink")
        if isinstance(change, SchemaChange):
            return SchemaChange(made, change.seq, change.commit_ts)
        return SchemaChange(made, change.seq[0].tobytes(), int(change.commit_ts[0]))

    # ---- inside

    def _rules_of(self, table: TableSchema) -> TableRules:
        found = self._bound.get(table)
        if found is None:
            try:
                found = TableRules(self.of((table.schema, table.table)), table, self._key)
            except RuleMismatch as error:
                found = error
            self._bound[table] = found
        if isinstance(found, RuleMismatch):
            raise RuleMismatch(found.message, hint=found.hint)
        return found

    def _named(self, table: TableSchema) -> TableSchema:
        schema, name = self.target(table.schema, table.table)
        return replace(table, schema=schema, table=name, other=self._other(table))

    def _other(self, table: TableSchema) -> str:
        """The other table of a rename or copy, by its name at the sink. A name may have several points."""
        parts = table.other.split(".")
        for at in range(1, len(parts)):
            name = (".".join(parts[:at]), ".".join(parts[at:]))
            if self.target(*name) != name:
                return ".".join(self.target(*name))
        return table.other

    def _stopped(self, table: TableSchema, reason: str) -> TableSchema:
        made = self._named(table)
        return replace(made, ddl_type=DdlType.UNKNOWN, query="", other="", reason=f"{STOPPED_BY_RULES}{reason}")

    def _schema_change(self, change: SchemaChange) -> Iterator[SchemaChange]:
        table = change.table
        together = [one for one in change.together if self._wanted(one.schema, one.table)]
        needed = [one for one in change.needed if self._wanted(one.schema, one.table)]
        if not self._rules:
            yield replace(change, together=tuple(together), needed=tuple(needed))
            return
        if not table.table:
            if table.kind is not ChangeKind.DROP_DATABASE or not self._is_target(table.schema):
                yield change
            return
        other = next((one for one in together if one.name == table.other), None)
        if other is not None and self.target(table.schema, table.table) == self.target(other.schema, other.table):
            if not table.columns:
                return  # the new name stops, and both are one table at the sink
            reason = f"{other.name} became {table.name}, and both would be {self._named(table).name} at the sink"
            yield SchemaChange(self._stopped(table, reason), change.seq, change.commit_ts)
            return
        try:
            self._check_kept(change)
            made = self.table(table)
        except RuleMismatch as error:
            yield SchemaChange(self._stopped(table, error.message), change.seq, change.commit_ts)
            return
        touched = any(self.of((one.schema, one.table)) for one in (table, *together, *needed))
        yield replace(
            change,
            table=made,
            before=self._seen(change.before),
            statement=None if touched else change.statement,
            together=tuple(seen for one in together if (seen := self._seen(one)) is not None),
            needed=tuple(seen for one in needed if (seen := self._seen(one)) is not None),
        )

    def _seen(self, table: TableSchema | None) -> TableSchema | None:
        """Another version of a change, None if its rules do not fit: it has stopped, and nobody is told of it."""
        try:
            return None if table is None else self.table(table)
        except RuleMismatch:
            return None

    def _check_kept(self, change: SchemaChange) -> None:
        """Raises if a DDL takes away what a rule works on: a column may be gone, or be there under another name."""
        table = change.table
        if not table.columns or table.parked:
            return
        name, before = (table.schema, table.table), change.before
        if table.kind is ChangeKind.RENAME and table.other:
            # From a name that the sink does not take, the table begins here, under the rules of its own name.
            known = (one for one in change.needed if one.name == table.other and self._wanted(one.schema, one.table))
            origin = next(known, None)
            if origin is not None and _shaping(self.of((origin.schema, origin.table))) != _shaping(self.of(name)):
                raise RuleMismatch(
                    f"{origin.name} became {table.name}, which has other rules; give both names the same rules"
                )
            before = origin
        if before is None or table.kind is ChangeKind.CREATE:
            return
        had, has = ({column.name.lower() for column in one.columns} for one in (before, table))
        for named in self.of(name):
            lost = sorted((named.rule.named_columns() & had) - has)
            if lost:
                raise RuleMismatch(f"{named.name}: {table.name} has no column {lost[0]} any more, which the rule names")


class Passage:
    """The changes of one range, in their order. A table that stops has nothing more in the range: what comes after it is read
    again once it can go on, and of tables that meet at the sink nothing may come out of order."""

    def __init__(self, rules: Rules, meetings: Meetings, exists: Wanted) -> None:
        self._rules = rules
        self._meetings = meetings
        self._exists = exists
        self._stopped: set[Name] = set()

    def apply(self, change: Change) -> Iterator[Change]:
        """As `Rules.apply`."""
        apart = self._rules.apart(change, self._meetings, self._exists) if self._meetings else None
        for seen in self._rules.apply(change) if apart is None else (apart,):
            name = (seen.table.schema, seen.table.table)
            if name in self._stopped:
                continue
            if isinstance(seen, SchemaChange) and seen.table.reason.startswith(STOPPED_BY_RULES):
                self._stopped.add(name)
            yield seen


def _shaping(rules: Sequence[NamedRule]) -> list[dict[str, object]]:
    """What the rules do to rows, whatever tables they are for."""
    shapes = [named.rule.model_dump(exclude={"table", "route"}, exclude_defaults=True) for named in rules]
    return [shape for shape in shapes if shape]


def _pattern_of(route_schema: str) -> str:
    return route_schema.replace("{schema}", "*").replace("{table}", "*")
