"""All rules of a sink: each change as the sink sees it.

A table that its rules do not fit stops at the sink, in front of the first row or DDL with which they do not: a change of
kind UNKNOWN with the reason stands there, as for every table that is parked. So nothing passes that a rule was meant to
hold back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from penstock.log.position import Position, Seq
from penstock.patterns import matches
from penstock.rules.holds import Hold, hold_of, rules_of
from penstock.rules.images import Images
from penstock.rules.routes import Name, gathers, routed
from penstock.rules.settings import Rule, uses_key
from penstock.rules.sql.rows import NO_SQL, Selection, Sql
from penstock.rules.table_rules import RuleMismatch, TableRules
from penstock.rules.versions import key_fingerprint
from penstock.schema.changes import ChangeBatch, SchemaChange
from penstock.schema.model import ChangeKind, DdlType, TableSchema
from penstock.schema.parking import STOPPED_BY_RULES
from penstock.schema.statements import alter_table, create_table
from penstock.schema.view import SchemaView

Wanted = Callable[[str, str], bool]
Change = ChangeBatch | SchemaChange
Meetings = dict[Name, tuple[Name, ...]]


def everything(_schema: str, _table: str) -> bool:
    return True


class Earlier(NamedTuple):
    """What held before: up to `since`, from where tables have `table_version` if their shape is another."""

    rules: Rules
    since: Position
    table_version: int


class Rules:
    """`wanted`: which tables of the source the sink takes. Rules name tables as the source does, also where a table has
    another name at the sink. `earlier`: the version of the settings before this one; `key_id`: the fingerprint of the key, also
    where the key itself is not known any more. `of`: the rules of a table, in their order. `held`: the tables that stay back
    from where this version of the settings begins, and why. `sql`: what Spark says of `sql:`. Safe to share between threads, if
    that is."""

    def __init__(
        self,
        rules: Sequence[Rule] = (),
        key: str | None = None,
        wanted: Wanted = everything,
        earlier: Earlier | None = None,
        *,
        key_id: str = "",
        held: Iterable[Hold] = (),
        sql: Sql = NO_SQL,
    ) -> None:
        self._rules = tuple(rules)
        self.of = rules_of(rules)
        self.held = {(hold.schema, hold.table): hold.reason for hold in held}
        self._key = (key or "").encode()
        self._key_id = key_id or key_fingerprint(key)
        self._wanted = wanted
        self._sql = sql
        self._bound: dict[TableSchema, TableRules | RuleMismatch] = {}
        self._gathers: dict[Name, bool] = {}
        self._earlier = earlier
        self._versions: dict[TableSchema, int] = {}

    def __bool__(self) -> bool:
        return bool(self._rules)

    @property
    def has_routes(self) -> bool:
        return any(rule.route for rule in self._rules)

    def wants(self, schema: str, table: str) -> bool:
        """Whether the sink takes the table."""
        return self._wanted(schema, table)

    def has_sql(self, name: Name) -> bool:
        """Whether rows of the table go through a SELECT, which only Spark can run."""
        return any(named.rule.sql is not None for named in self.of(name))

    def selection(self, table: TableSchema) -> Selection | None:
        """The SELECT that rows of this version go through; None without one. Raises `RuleMismatch`."""
        return self._rules_of(table).selection() if self.has_sql((table.schema, table.table)) else None

    def target(self, schema: str, table: str) -> Name:
        """The table's name at the sink: of the last rule that has a route for it."""
        routes = [named.rule.route for named in self.of((schema, table)) if named.rule.route]
        return routed(routes[-1], (schema, table)) if routes else (schema, table)

    def gathers(self, name: Name) -> bool:
        """Whether the table is a part of one at the sink, with others (wholes.py)."""
        found = self._gathers.get(name)
        if found is None:
            routing = [named.rule for named in self.of(name) if named.rule.route]
            found = bool(routing) and gathers(routing[-1].table, routing[-1].route or "")
            self._gathers[name] = found
        return found

    @property
    def gathers_any(self) -> bool:
        return any(rule.route and gathers(rule.table, rule.route) for rule in self._rules)

    @property
    def earlier(self) -> Earlier | None:
        return self._earlier

    @property
    def table_version(self) -> int:
        """Of tables whose shape is another where these settings begin; 0 for the first."""
        return 0 if self._earlier is None else self._earlier.table_version

    def table(self, table: TableSchema) -> TableSchema:
        """The version as the sink sees it. Raises `RuleMismatch`."""
        name = (table.schema, table.table)
        version = self.version_of(table)
        if not self.of(name):
            made = replace(table, other=self._other(table)) if table.other and self.has_routes else table
            return made if version == table.version else replace(made, version=version)
        made = self._named(table)
        if not table.columns:
            return made
        bound = self._rules_of(table)
        # What the source's statement says of partitions may speak of columns and values that the sink does not see.
        query = table.query if bound.columns == table.columns and not bound.hides else ""
        return replace(made, columns=bound.columns, query=query, version=version)

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

    def images(self, batch: ChangeBatch) -> tuple[Images, str, int]:
        """As `TableRules.apply`, of a table with rules that fit."""
        return self._rules_of(batch.table).apply(Images.of(batch))

    def rows(self, batch: ChangeBatch) -> tuple[ChangeBatch, SchemaChange | None]:
        """The rows that the sink sees, and what stops the table after them, if something does."""
        table = batch.table
        if not self.of((table.schema, table.table)):
            return (batch if self._earlier is None else replace(batch, table=self.table(table))), None
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

    # ---- versions of the settings

    def shape(self, table: TableSchema) -> object:
        """What makes one version of a table at the sink: its name and columns there, and how values were made. None if the
        sink does not take the table."""
        name = (table.schema, table.table)
        if not self._wanted(*name):
            return None
        if not self.of(name):
            return name, table.columns, (), False
        if self.has_sql(name):  # which columns come out follows from these, and nobody but Spark can say it
            return self.target(*name), table.columns, self._making(name), self.gathers(name)
        try:
            return self.target(*name), self._rules_of(table).columns, self._making(name), self.gathers(name)
        except RuleMismatch as error:
            return error.message

    def treatment(self, table: TableSchema) -> object:
        """The shape, and which rows the sink gets: whatever decides what it has of a table."""
        shape = self.shape(table)
        filters = tuple(named.rule.filter for named in self.of((table.schema, table.table)) if named.rule.filter)
        return None if shape is None else (shape, filters)

    def masks_by_key(self, name: Name) -> bool:
        """Whether a mask of the table needs a key."""
        return uses_key([named.rule for named in self.of(name)])

    def version_of(self, table: TableSchema) -> int:
        """The table's version at the sink: that of the settings by which it got its shape, or of the DDL that made it."""
        earlier = self._earlier
        if earlier is None or not table.columns or table.version >= earlier.table_version:
            return table.version
        found = self._versions.get(table)
        if found is None:
            same = self.shape(table) == earlier.rules.shape(table)
            found = self._versions[table] = earlier.rules.version_of(table) if same else earlier.table_version
        return found

    def begun(self, tables: Iterable[TableSchema], names: Iterable[Name]) -> Iterator[tuple[TableSchema, SchemaChange]]:
        """What the sink's readers have to know where this version of the settings begins: a change for each table whose shape
        is another from here on, with the table. `tables`: those of the source that are in force there; `names`: all that are
        known."""
        earlier = self._earlier
        if earlier is None:
            return
        number = 0
        taken: set[Name] | None = None
        for table in sorted(tables, key=lambda one: (one.schema, one.table)):
            if not table.columns or self.shape(table) is None or self.version_of(table) != earlier.table_version:
                continue
            if self.gathers((table.schema, table.table)):
                continue  # a part of a whole, which begins as one
            taken = taken if taken is not None else earlier.rules.names_so_far(names)
            seq = Seq(earlier.since.ledger_id, earlier.since.entry_id, 0, number).to_bytes()
            number += 1
            yield table, self._begun(table, earlier, seq, taken)

    def _begun(self, table: TableSchema, earlier: Earlier, seq: bytes, taken: set[Name]) -> SchemaChange:
        name = (table.schema, table.table)
        target = self.target(*name)
        try:
            made = self.table(table)
        except RuleMismatch as error:
            return SchemaChange(self._stopped(table, error.message), seq, earlier.table_version)
        stays = earlier.rules.wants(*name) and earlier.rules.target(*name) == target
        before = earlier.rules.seen(table) if stays else None
        if before is not None:
            query = alter_table(before, made) or ""
            kind = DdlType.MODIFY_COLUMN if query else DdlType.NONE
        else:
            query, kind = create_table(made), DdlType.CREATE_TABLE
            if target in taken:
                query = query.replace("CREATE TABLE IF NOT EXISTS", "CREATE OR REPLACE TABLE", 1)
        made = replace(made, query=query, ddl_type=kind, other="", reason="")
        needed = () if before is None else (before,)
        return SchemaChange(made, seq, earlier.table_version, before, needed=needed, ready=True)

    def names_so_far(self, names: Iterable[Name]) -> set[Name]:
        """The names at the sink that these tables of the source have had, by these settings and all before them."""
        names = list(names)
        found = {self.target(*name) for name in names if name[1] and self._wanted(*name)}
        return found if self._earlier is None else found | self._earlier.rules.names_so_far(names)

    def _making(self, name: Name) -> tuple[object, ...]:
        """How the values of the columns are made, in comparable form. Whether a row is there is no part of a shape."""
        found: list[object] = []
        for named in self.of(name):
            rule = named.rule
            if rule.mask or rule.compute:
                keyed = self._key_id if uses_key([rule]) else ""
                masks = {column.lower(): mask for column, mask in rule.mask.items()}
                found.append((tuple(sorted(masks.items())), tuple(rule.compute.items()), keyed))
            if self.has_sql(name):
                found.append((rule.columns, rule.drop, rule.sql))
        return tuple(found)

    # ---- databases

    def sees_database(self, schema: str) -> bool:
        """Whether a DROP DATABASE of the source is one at the sink too: no table of it is elsewhere there."""
        return not any(rule.route and matches(schema, rule.table.partition(".")[0]) for rule in self._rules)

    def _is_target(self, schema: str) -> bool:
        """Whether tables of other databases may be in this one at the sink."""
        return any(rule.route and matches(schema, _pattern_of(rule.route.partition(".")[0])) for rule in self._rules)

    # ---- tables that meet at the sink

    def meetings(self, names: Iterable[Name]) -> Meetings:
        """Which of these tables of the source would be one table at the sink, and were not all routed to be."""
        if not self.has_routes:
            return {}
        by_target: dict[Name, list[Name]] = {}
        for name in names:
            if name[1] and self._wanted(*name):
                by_target.setdefault(self.target(*name), []).append(name)
        met = [same for same in by_target.values() if len(same) > 1 and not all(map(self.gathers, same))]
        return {name: tuple(sorted(same)) for same in met for name in same}

    def met(
        self, name: Name, meetings: Meetings, view: SchemaView, first: Position, last: Position
    ) -> tuple[Position, Name] | None:
        """From where on, between `first` and `last`, another table meets this one at the sink, and which; None if none does."""
        others = [(view.first_in(*other, first, last), other) for other in meetings.get(name, ()) if other != name]
        return min(((at, other) for at, other in others if at is not None), default=None)

    def apart(self, change: Change, other: Name) -> SchemaChange:
        """The change, stopped, because another table meets its own at the sink."""
        name = (change.table.schema, change.table.table)
        pair = " and ".join(sorted(".".join(one) for one in (name, other)))
        return self.stopped_at(change, f"{pair} would both be {'.'.join(self.target(*name))} at the sink")

    # ---- inside

    def _rules_of(self, table: TableSchema) -> TableRules:
        found = self._bound.get(table)
        if found is None:
            name = (table.schema, table.table)
            try:
                if self.has_sql(name) and self.gathers(name):
                    raise RuleMismatch(
                        f"{table.name} has sql, and is one with other tables at the sink: both at once is not possible",
                        hint="compute and filter instead of sql, or a route with {table}",
                    )
                found = TableRules(self.of(name), table, self._key, self._sql)
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

    def held_back(self, change: Change) -> SchemaChange | None:
        """The change, stopped, if its table is held back since before this version of the settings, or was renamed from one
        that is; else None."""
        if not self.held:
            return None
        table = change.table
        reason = self.held.get((table.schema, table.table), "")
        if not reason and table.kind is ChangeKind.RENAME and table.columns:
            reason = next((why for name, why in self.held.items() if ".".join(name) == table.other), "")
        if not reason or not self._wanted(table.schema, table.table):
            return None
        return self.stopped_at(change, reason)

    def stopped_at(self, change: Change, reason: str) -> SchemaChange:
        made = self._stopped(change.table, reason)
        if isinstance(change, SchemaChange):
            return SchemaChange(made, change.seq, change.commit_ts)
        return SchemaChange(made, change.seq[0].tobytes(), int(change.commit_ts[0]))

    def _stopped(self, table: TableSchema, reason: str) -> TableSchema:
        made = self._named(table)
        return replace(made, ddl_type=DdlType.UNKNOWN, query="", other="", reason=f"{STOPPED_BY_RULES}{reason}")

    def _schema_change(self, change: SchemaChange) -> Iterator[SchemaChange]:
        table = change.table
        together = [one for one in change.together if self._wanted(one.schema, one.table)]
        needed = [one for one in change.needed if self._wanted(one.schema, one.table)]
        if not self._rules and self._earlier is None:
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
            self.check_kept(change)
            made = self.table(table)
        except RuleMismatch as error:
            yield SchemaChange(self._stopped(table, error.message), change.seq, change.commit_ts)
            return
        touched = any(self.of((one.schema, one.table)) for one in (table, *together, *needed))
        yield replace(
            change,
            table=made,
            before=self.seen(change.before),
            statement=None if touched else change.statement,
            together=tuple(seen for one in together if (seen := self.seen(one)) is not None),
            needed=tuple(seen for one in needed if (seen := self.seen(one)) is not None),
        )

    def seen(self, table: TableSchema | None) -> TableSchema | None:
        """Another version of a change, None if its rules do not fit: it has stopped, and nobody is told of it."""
        try:
            return None if table is None else self.table(table)
        except RuleMismatch:
            return None

    def check_kept(self, change: SchemaChange) -> None:
        """Raises if a DDL takes away what a rule works on: a column may be gone, or be there under another name."""
        table, origin = change.table, None
        if table.kind is ChangeKind.RENAME and table.other:
            # From a name that the sink does not take, the table begins here, under the rules of its own name.
            known = (one for one in change.needed if one.name == table.other and self._wanted(one.schema, one.table))
            origin = next(known, None)
        hold = hold_of(table, change.before, origin, self.of)
        if hold is not None:
            raise RuleMismatch(hold.reason)


def _pattern_of(route_schema: str) -> str:
    return route_schema.replace("{schema}", "*").replace("{table}", "*")
