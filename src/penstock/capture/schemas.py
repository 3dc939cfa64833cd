"""Which schema each table has where capture reads now, and the versions that a DDL or an unknown table brings.

A new version is part of the frame from which on it is in force; `record` is called when that frame is appended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

from penstock.binlog.bodies import FormatDescription, Query
from penstock.binlog.table_map import TableMap, parse_table_map
from penstock.capture.transactions.classify import tables_changed
from penstock.errors import BadInput
from penstock.schema.catalog import SYSTEM_SCHEMAS, Catalog
from penstock.schema.ddl import Statement, apply_ddl, tables_arrived
from penstock.schema.ddl.values_hidden import without_values
from penstock.schema.from_table_map import complete_table_map, schema_from_table_map
from penstock.schema.model import ChangeKind, DdlType, SchemaDrift, TableSchema
from penstock.schema.parking import ROWS_MISSING, Parking, VersionKey, parkings, resumed
from penstock.sources.settings import Tables

_SEQUENCE_COLUMNS = (
    "next_not_cached_value",
    "minimum_value",
    "maximum_value",
    "start_value",
    "increment",
    "cache_size",
    "cycle_option",
    "cycle_count",
)


class Arrival(NamedTuple):
    """A table that came under a followed name from one that nobody followed: whether the log has its definition, and whether it
    is hidden until it does."""

    known: bool
    hidden: bool


class SchemaTracker:
    """The tables in force. `history`: every version in the log so far, in any order; `resumptions`: what stands for those
    of them that were parked and resumed.

    Tables that are not wanted are tracked too if their database holds wanted ones: an online schema change fills a table
    of another name and renames it. Nothing that happens elsewhere is looked at.
    """

    def __init__(
        self,
        tables: Tables | None = None,
        history: Iterable[TableSchema] = (),
        resumptions: Mapping[VersionKey, TableSchema] | None = None,
        *,
        lower_case_table_names: int = 0,
    ) -> None:
        self._tables = tables or Tables()
        self._catalog = Catalog(lower_case_table_names=lower_case_table_names)
        self._numbers: dict[tuple[str, str], int] = {}
        self._parked: dict[VersionKey, TableSchema] = {}
        self._hidden: set[tuple[str, str]] = set()
        self._arrived: dict[tuple[str, str], Arrival] = {}
        # Whether a table that comes under this name from where nobody followed it is loaded; whoever loads tables says so.
        self.loads_arrivals: Callable[[str, str], bool] = lambda _schema, _table: False
        self.statements = 0  # that were looked at: whoever asks the server for a table compares it before and after
        for table in sorted(history, key=lambda schema: schema.version):
            self.record(resumed(table, resumptions or {}))

    def compare_names(self, lower_case_table_names: int) -> None:
        """Names are compared as the server with this setting does."""
        self._catalog.compare_names(lower_case_table_names)

    def follows(self, schema: str, table: str) -> bool:
        """Whether the table's changes are wanted; never those of the server's own tables."""
        return (
            schema.lower() not in SYSTEM_SCHEMAS
            and (schema, table) not in self._hidden
            and self._tables.matches(schema, table)
        )

    def is_chosen(self, schema: str, table: str) -> bool:
        """As `follows`, also of a table that is hidden."""
        return schema.lower() not in SYSTEM_SCHEMAS and self._tables.matches(schema, table)

    def hide(self, schema: str, table: str) -> None:
        """The table is not followed until `show`: its rows are in the log, but nobody reads them without a version of it."""
        self._hidden.add((schema, table))

    def show(self, schema: str, table: str) -> None:
        self._hidden.discard((schema, table))

    def follows_some(self, schema: str) -> bool:
        """Whether changes of any table of this database may be wanted."""
        return schema.lower() not in SYSTEM_SCHEMAS and self._tables.matches_database(schema)

    def lookup(self, schema: str, table: str) -> TableSchema | None:
        """The version in force; None for a table that is not known or not wanted."""
        return self._catalog.find(schema, table) if self._tables.matches(schema, table) else None

    def in_force(self, schema: str, table: str) -> TableSchema | None:
        """The version in force, wanted or not."""
        return self._catalog.find(schema, table)

    def record(self, table: TableSchema) -> tuple[str, str, int]:
        """`table` is in force from here on. Returns its key in the store `schema.history`."""
        key = (table.schema, table.table)
        number = self._numbers.get(key, 0)
        self._numbers[key] = number + 1
        self._catalog.take(table)
        if table.parked:
            self._parked[table.key] = table
        return (*key, number)

    def parkings(self) -> list[Parking]:
        """The wanted tables that are parked, or were when their rows came, and that nobody resumed."""
        return parkings(table for table in self._parked.values() if self.follows(table.schema, table.table))

    def is_parked(self, key: VersionKey) -> bool:
        """Whether this version waits for somebody who resumes it."""
        return key in self._parked

    def resume(self, table: TableSchema) -> None:
        """`table` stands for the parked version of the same key; from here on too, if that one is in force."""
        del self._parked[table.key]
        found = self._catalog.find(table.schema, table.table)
        if found is not None and found.key == table.key:
            self._catalog.take(table)

    def after_ddl(self, query: Query, commit_ts: int) -> tuple[TableSchema, ...]:
        """What the statement changes: a version for each name whose table, or database, is another one afterwards.

        Empty if nothing that is tracked changes; then the statement need not be kept. Never raises for what the
        statement says: where nobody understands it, each table that it may touch gets a version that is `parked`.
        Nothing is in force before `record`.
        """
        self.statements += 1
        statement = Statement.of(query)
        made = apply_ddl(statement, self._catalog, commit_ts)
        self._note_arrivals(made, tables_arrived(statement, self._catalog))
        return tuple(table for table in made if self._is_tracked(table))

    def _note_arrivals(self, made: Iterable[TableSchema], unknown: Iterable[tuple[str, str]]) -> None:
        """A rename may give a followed name to a table that nobody followed: the log lacks the rows that it brings."""
        for table in made:
            renamed = table.kind is ChangeKind.RENAME and table.columns
            if renamed and not self._tables.matches(*table.other.split(".", 1)):
                self._arrive((table.schema, table.table), known=True)
        for name in unknown:
            self._arrive(name, known=False)

    def _arrive(self, name: tuple[str, str], *, known: bool) -> None:
        if self.is_chosen(*name) and self.loads_arrivals(*name):
            # Hidden until its definition is known; not where the name stood for another table before: rows of a name that
            # stands for none are an error for every reader. Then its first table map tells its shape, or parks it.
            hidden = not known and name not in self._numbers
            self._arrived[name] = Arrival(known, hidden)
            if hidden:
                self.hide(*name)

    @property
    def has_arrivals(self) -> bool:
        return bool(self._arrived)

    def take_arrivals(self) -> dict[tuple[str, str], Arrival]:
        """The followed names that got tables of which the log lacks rows, since the last call."""
        arrived, self._arrived = self._arrived, {}
        return arrived

    def after_rows_statement(self, query: Query, version: int) -> tuple[TableSchema, ...] | None:
        """A statement that changes rows was logged instead of the rows: each followed table that it changes is parked. None
        where nobody can tell which tables it changes.

        So is one that is parked for another reason: a definition gives back what that took, but no rows. The statement is kept
        without its values: it is shown to people, and to them a mask may hide what is in a row."""
        changed = tables_changed(query.sql, query.schema, query.sql_mode)
        if not changed or any(not one.table and self.follows_some(one.schema or "") for one in changed):
            return None
        named = [self._catalog.stored(one.schema or "", one.table) for one in changed if one.table]
        shown = without_values(query.sql, query.sql_mode)
        return tuple(
            TableSchema(schema, table, version, (), shown, DdlType.UNKNOWN, reason=ROWS_MISSING)
            for schema, table in dict.fromkeys(named)
            if self.follows(schema, table)
            and not ((known := self._catalog.find(schema, table)) and known.parked and known.reason == ROWS_MISSING)
        )

    def after_table_map(self, event: memoryview, fde: FormatDescription, version: int) -> tuple[TableSchema, ...]:
        """The version of a table whose CREATE or ALTER was never seen; none if the known schema matches.

        A table whose shape cannot be told, or whose columns cannot be read, is parked.
        """
        table_map = parse_table_map(event, fde)
        if not self.follows(table_map.schema, table_map.table):
            return ()
        known = self._catalog.find(table_map.schema, table_map.table)
        if known is not None and (known.parked or known.is_sequence):
            return ()
        try:
            return self._seen(table_map, known, version)
        except BadInput as error:
            name = (table_map.schema, table_map.table)
            return (TableSchema(*name, version, (), "", DdlType.UNKNOWN, reason=str(error)),)

    @staticmethod
    def _seen(table_map: TableMap, known: TableSchema | None, version: int) -> tuple[TableSchema, ...]:
        if known is not None:
            try:
                complete_table_map(table_map, known)
            except SchemaDrift:
                # Full metadata describes the table completely; without it the new shape cannot be known.
                if not table_map.has_names:
                    raise
            else:
                if (known.schema, known.table) == (table_map.schema, table_map.table):
                    return ()
                return (replace(known, schema=table_map.schema, table=table_map.table, version=version),)
        if is_sequence_map(table_map):
            return (TableSchema(table_map.schema, table_map.table, version, (), "", DdlType.CREATE_SEQUENCE),)
        made = schema_from_table_map(table_map, version)
        complete_table_map(table_map, made)
        return (replace(made, charset=known.charset) if known else made,)

    def _is_tracked(self, table: TableSchema) -> bool:
        return self._tables.matches(table.schema, table.table) or self._tables.matches_database(table.schema)


def is_sequence_map(table_map: TableMap) -> bool:
    """Whether the table map is that of a sequence of MariaDB, whose rows are nobody's."""
    return tuple(column.name for column in table_map.columns) == _SEQUENCE_COLUMNS
