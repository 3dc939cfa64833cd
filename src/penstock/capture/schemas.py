"""Which schema each table has where capture reads now, and the new schemas that a DDL or an unknown table brings.

A new schema is part of the frame from which on it is in force; `record` is called when that frame is appended.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

from penstock.binlog.bodies import FormatDescription, Query
from penstock.binlog.table_map import parse_table_map
from penstock.errors import NotSupported
from penstock.schema.ddl import SchemaDrift, apply_ddl
from penstock.schema.from_table_map import complete_table_map, schema_from_table_map
from penstock.schema.model import DdlType, TableSchema
from penstock.sources.settings import Tables


class SchemaTracker:
    """The schemas in force. `history`: every schema in the log so far, in any order."""

    def __init__(self, tables: Tables | None = None, history: Iterable[TableSchema] = ()) -> None:
        self._tables = tables or Tables()
        self._now: dict[tuple[str, str], TableSchema] = {}
        self._numbers: dict[tuple[str, str], int] = {}
        for table in sorted(history, key=lambda schema: schema.version):
            self.record(table)

    def lookup(self, schema: str, table: str) -> TableSchema | None:
        """The schema in force; None for a table that is not known or not wanted."""
        if not self._tables.matches(schema, table):
            return None
        return self._now.get((schema, table))

    def record(self, table: TableSchema) -> tuple[str, str, int]:
        """`table` is in force from here on. Returns its key in the store `schema.history`."""
        key = (table.schema, table.table)
        number = self._numbers.get(key, 0)
        self._numbers[key] = number + 1
        if table.ddl_type is DdlType.DROP_SCHEMA:
            for known in [k for k in self._now if k[0] == table.schema]:
                del self._now[known]
        elif table.dropped:
            self._now.pop(key, None)
        else:
            self._now[key] = table
        return (*key, number)

    def after_ddl(self, query: Query, version: int) -> tuple[TableSchema, ...]:
        """The schemas of wanted tables that a statement makes. Raises `NotSupported` if a change cannot be followed."""
        made = apply_ddl(
            query.sql, query.schema, version, self.lookup, default_charset=query.database_charset or "utf8mb4"
        )
        return tuple(s for s in made if not s.table or self._tables.matches(s.schema, s.table))

    def after_table_map(self, event: memoryview, fde: FormatDescription, version: int) -> tuple[TableSchema, ...]:
        """The schema of a table whose CREATE or ALTER was never seen; none if the known schema matches."""
        table_map = parse_table_map(event, fde)
        if not self._tables.matches(table_map.schema, table_map.table):
            return ()
        known = self.lookup(table_map.schema, table_map.table)
        if known is not None:
            try:
                complete_table_map(table_map, known)
            except SchemaDrift:
                # Full metadata describes the table completely; without it the new shape cannot be known.
                if not table_map.has_names:
                    raise
            else:
                return ()
        made = schema_from_table_map(table_map, version)
        with contextlib.suppress(NotSupported):
            complete_table_map(table_map, made)  # raises here if our own schema does not match the table map: a bug
        return (made,)
