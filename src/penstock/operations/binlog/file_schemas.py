"""The tables in force while files are read: from their DDL, from what the user says, else from the table maps alone.

Nothing is parked here: a reader of files who does not know a table's columns shows them as `@1`, `@2`, ….
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from penstock.binlog.bodies import FormatDescription
from penstock.binlog.table_map import TableMap, parse_table_map
from penstock.capture.schemas import SchemaTracker, is_sequence_map
from penstock.errors import BadInput
from penstock.schema.from_table_map import complete_table_map, schema_without_names
from penstock.schema.model import DdlType, SchemaDrift, TableSchema


class FileSchemas(SchemaTracker):
    """`given`: the tables at the start of the first file. `note` is told, once for each table, where one does not fit."""

    def __init__(self, given: Iterable[TableSchema], note: Callable[[str], None]) -> None:
        super().__init__(history=given)
        self._given = {(table.schema, table.table) for table in given}
        self._note = note

    def follows(self, schema: str, table: str) -> bool:
        """Everything in a file is looked at, the server's own tables too."""
        return True

    def record(self, table: TableSchema) -> tuple[str, str, int]:
        return super().record(unparked(table))

    def after_table_map(self, event: memoryview, fde: FormatDescription, version: int) -> tuple[TableSchema, ...]:
        table_map = parse_table_map(event, fde)
        known = self.lookup(table_map.schema, table_map.table)
        if known is not None:
            if known.is_sequence:
                return ()
            fitting = self._fitting(known, table_map, version)
            if fitting is not None:
                return fitting
        if is_sequence_map(table_map):
            return (TableSchema(table_map.schema, table_map.table, version, (), "", DdlType.CREATE_SEQUENCE),)
        made = schema_without_names(table_map, version)
        complete_table_map(table_map, made)
        return (made,)

    def _fitting(self, known: TableSchema, table_map: TableMap, version: int) -> tuple[TableSchema, ...] | None:
        """None if the table's rows are not those of the schema that is known."""
        try:
            complete_table_map(table_map, known)
        except SchemaDrift as error:
            self._say(known, error)
            return None
        if (known.schema, known.table) == (table_map.schema, table_map.table):
            return ()
        return (replace(known, schema=table_map.schema, table=table_map.table, version=version),)

    def _say(self, known: TableSchema, error: BadInput) -> None:
        key = (known.schema, known.table)
        if key in self._given:
            self._given.discard(key)
            self._note(
                f"{known.name}: what --schema or --server says does not fit its rows, and is not used ({error.message})"
            )


def unparked(table: TableSchema) -> TableSchema:
    """In place of a parked table, none: its next table map tells what its rows have."""
    return replace(table, ddl_type=DdlType.DROP_TABLE, columns=()) if table.parked else table
