"""Which schema a table had at a position of the log: rows are always decoded by this one, never by the newest."""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from penstock.errors import BadInput
from penstock.log.position import Position
from penstock.schema.model import ChangeKind, TableSchema


class SchemaAt(NamedTuple):
    """A table version and the position of the entry whose frame carries it."""

    position: Position
    table: TableSchema


def slot_of(table: TableSchema) -> tuple[str, str, bool]:
    """Of all versions with the same slot, the last one is all that later positions need. A database that was dropped and made
    again has two: its tables are gone."""
    return table.schema, table.table, table.kind is ChangeKind.DROP_DATABASE


class SchemaView:
    """Versions of tables. Each is in force from the position of the entry whose frame carries it.

    Built from the store `schema.history`.
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
        """The version in force at `position`; None if the name is not known there or stands for no table.

        A table may be parked, or be a sequence: then it has no columns.
        """
        found = self._latest(schema, table, position)
        if found is None or found[1].dropped:
            return None
        if table:
            database = self._latest_drop(schema, position)
            if database is not None and database.position > found[0]:
                return None
        return found[1]

    def first_in(self, schema: str, table: str, first: Position, last: Position) -> Position | None:
        """Where, from `first` to `last`, the name stands for a table first; None if it never does."""
        if self.find(schema, table, first) is not None:
            return first
        later = (at for at in self.positions(schema, table) if first < at <= last)
        return next((at for at in later if self.find(schema, table, at) is not None), None)

    def named(self, name: str, position: Position) -> TableSchema | None:
        """As `find`, by `TableSchema.name`, whose point may be one of several."""
        parts = name.split(".")
        pairs = ((".".join(parts[:at]), ".".join(parts[at:])) for at in range(1, len(parts)))
        return next((found for pair in pairs if (found := self.find(*pair, position)) is not None), None)

    def knew(self, schema: str, table: str, position: Position) -> bool:
        """Whether the name has, or had, a version at `position`."""
        return self._latest(schema, table, position) is not None

    def at(self, schema: str, table: str, position: Position) -> TableSchema:
        """As `find`, but raises `BadInput` where rows cannot be read."""
        found = self.find(schema, table, position)
        if found is None or not found.columns:
            raise BadInput(
                f"the schema of {schema}.{table} at {position} is not in the log",
                hint="set binlog_row_metadata=FULL on the server, or start where its CREATE TABLE is logged",
            )
        return found

    def before(self, schema: str, table: str, position: Position) -> TableSchema | None:
        """The version in force just before `position`; as `find`."""
        return self.find(schema, table, Position(position.ledger_id, position.entry_id - 1))

    def version(self, schema: str, table: str, position: Position) -> int:
        """That of the last statement that changed what the name stands for, at or before `position`: also of the one by which it
        went, alone or with its database. 0 if the name is not known there."""
        found = self._latest(schema, table, position)
        if found is None:
            return 0
        database = self._latest_drop(schema, position)
        gone = database is not None and database.position > found[0]
        return database.table.version if database is not None and gone else found[1].version

    def positions(self, schema: str, table: str) -> list[Position]:
        """Where versions of the table begin."""
        return list(self._positions.get((schema, table), ()))

    def changed_at(self, position: Position) -> list[TableSchema]:
        """The versions that begin exactly at `position`, databases first."""
        found = []
        for key, positions in self._positions.items():
            i = bisect.bisect_left(positions, position)
            if i < len(positions) and positions[i] == position:
                found.append(self._schemas[key][i])
        return sorted(found, key=lambda table: (table.schema, table.table))

    def names(self) -> list[tuple[str, str]]:
        """(schema, table) of everything that has a version here, tables that are gone too."""
        return list(self._positions)

    def in_force(self, position: Position) -> list[TableSchema]:
        """The tables at `position`: a version for each name that stands for one."""
        found = (self.find(*name, position) for name in self.names() if name[1])
        return [table for table in found if table is not None]

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

    def _latest_drop(self, schema: str, position: Position) -> SchemaAt | None:
        """By what the database was dropped last, at or before `position`; it may have been made again since."""
        positions = self._positions.get((schema, ""), [])
        for i in range(bisect.bisect_right(positions, position) - 1, -1, -1):
            if self._schemas[schema, ""][i].kind is ChangeKind.DROP_DATABASE:
                return SchemaAt(positions[i], self._schemas[schema, ""][i])
        return None
