"""Which schema a table had at a position of the log: rows are always decoded by this one, never by the newest."""

from __future__ import annotations

import bisect
import json
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from penstock.errors import BadInput
from penstock.log.position import Position
from penstock.schema.model import DdlType, TableSchema


class SchemaAt(NamedTuple):
    """A table version and the position of the entry whose frame carries it."""

    position: Position
    table: TableSchema


class SchemaView:
    """Versions of tables. Each is in force from the position of the entry whose frame carries it.

    Built from the store `schema.history`; small enough to be sent along with a task.
    """

    def __init__(self, schemas: Iterable[tuple[Position, TableSchema]] = ()) -> None:
        self._positions: dict[tuple[str, str], list[Position]] = {}
        self._schemas: dict[tuple[str, str], list[TableSchema]] = {}
        for position, table in schemas:
            self.add(position, table)

    def add(self, position: Position, table: TableSchema) -> None:
        """`table` is in force from `position` on. A second one at the same position replaces the first."""
        key = (table.schema, table.table)
        positions = self._positions.setdefault(key, [])
        schemas = self._schemas.setdefault(key, [])
        at = bisect.bisect_right(positions, position)
        if at and positions[at - 1] == position:
            schemas[at - 1] = table
            return
        positions.insert(at, position)
        schemas.insert(at, table)

    def find(self, schema: str, table: str, position: Position) -> TableSchema | None:
        """The schema in force at `position`; None if the table is not known there or was dropped."""
        found = self._latest(schema, table, position)
        if found is None:
            return None
        since, value = found
        if value.dropped or value.ddl_type is DdlType.DROP_SCHEMA:
            return None
        if table:
            database = self._latest(schema, "", position)
            if database is not None and database[1].ddl_type is DdlType.DROP_SCHEMA and database[0] > since:
                return None
        return value

    def at(self, schema: str, table: str, position: Position) -> TableSchema:
        """As `find`, but raises `BadInput`."""
        found = self.find(schema, table, position)
        if found is None:
            raise BadInput(
                f"the schema of {schema}.{table} at {position} is not in the log",
                hint="set binlog_row_metadata=FULL on the server, or start where its CREATE TABLE is logged",
            )
        return found

    def changed_at(self, position: Position) -> list[TableSchema]:
        """The versions that begin exactly at `position`, databases first."""
        found = []
        for key, positions in self._positions.items():
            i = bisect.bisect_left(positions, position)
            if i < len(positions) and positions[i] == position:
                found.append(self._schemas[key][i])
        return sorted(found, key=lambda table: (table.schema, table.table))

    def items(self) -> Iterator[tuple[Position, TableSchema]]:
        """All versions, by table, ascending."""
        for key, positions in self._positions.items():
            yield from zip(positions, self._schemas[key], strict=True)

    def _latest(self, schema: str, table: str, position: Position) -> tuple[Position, TableSchema] | None:
        positions = self._positions.get((schema, table))
        if not positions:
            return None
        i = bisect.bisect_right(positions, position)
        return (positions[i - 1], self._schemas[schema, table][i - 1]) if i else None

    def to_json(self) -> str:
        return json.dumps([[str(position), table.to_json()] for position, table in self.items()])

    @classmethod
    def from_json(cls, text: str | bytes) -> SchemaView:
        view = cls()
        for position, table in json.loads(text):
            view.add(Position.parse(position), TableSchema.from_json(table))
        return view
