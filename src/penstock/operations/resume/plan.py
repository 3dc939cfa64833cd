"""What shall stand for the parked versions of a table, worked out from the log alone.

The definition given stands for the version that the first statement parked. Later statements on the table, which the log
kept, are applied to it in their order: to the table itself, to the name that it was given, to tables made like it. One that
is not understood either parks the table again there, and needs a resumption of its own.

The rows that were held back are then read as whoever delivers them will read them: a definition that does not fit is
refused before anything is changed.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace

from penstock.binlog.types import Flavour
from penstock.capture.resumption import Resumption, does_not_fit
from penstock.entries.decode import decode_entries, statement_of
from penstock.entries.format import parse_entry
from penstock.entries.stores import SCHEMA_HISTORY, SCHEMA_RESUMED
from penstock.errors import BadInput, PenstockError
from penstock.log import LogReader, Position
from penstock.operations.verify.log_replay import LogHistory, read_history
from penstock.schema.catalog import Catalog
from penstock.schema.changes import ChangeBatch
from penstock.schema.ddl import Statement, apply_ddl, is_ddl
from penstock.schema.model import ChangeKind, DdlType, TableSchema
from penstock.schema.view import SchemaView
from penstock.state import StateReader

Name = tuple[str, str]
Define = Callable[[TableSchema, Catalog, bool], TableSchema]
"""(the parked version, the tables in force before it, whether a MariaDB wrote the log) → the table from there on."""


@dataclass(frozen=True, slots=True)
class ResumePlan:
    """`statements` came after the one that parked the table and were applied; `parked_again` is the first that was not
    understood, or why rows of then do not fit, empty if there is none; `rows` were held back and fit. `changes`: everything
    that happened to the name since, also a DROP and what came after it."""

    table: TableSchema
    resumption: Resumption
    statements: tuple[str, ...]
    parked_again: str
    rows: int
    changes: tuple[str, ...]


def plan_resume(reader: LogReader, name: str, define: Define) -> ResumePlan:
    """`name` is `schema.table`. Raises `BadInput` if the table is not parked, or the definition does not fit."""
    history = read_history(reader)
    frames = [
        (position, [table for _, table in found])
        for position, found in itertools.groupby(
            sorted(history.schemas.items(), key=lambda item: item[0]), key=lambda item: item[0]
        )
    ]
    trimmed = _trimmed(reader, history)
    if not any(t.name == name and t.parked for _, tables in frames for t in tables):
        gone = [table for table in trimmed if table.name == name]
        frames[:0] = [(reader.first, [max(gone, key=lambda table: table.version)])] if gone else []
    first = next((i for i, (_, tables) in enumerate(frames) if any(t.name == name and t.parked for t in tables)), None)
    if first is None:
        raise _not_parked(name, history)
    position, tables = frames[first]
    parked = next(table for table in tables if table.name == name and table.parked)
    walk = _Walk(reader, history, _Derived({(parked.schema, parked.table)}))
    for _, earlier in frames[:first]:
        walk.pass_over(earlier)
    table = define(parked, walk.catalog, walk.is_mariadb(position))
    walk.resume_at(tables, parked, table)
    for position, tables in frames[first + 1 :]:
        walk.follow(position, tables)
    rows = _count_rows(reader, history, max(frames[first][0], reader.first), walk.made)
    latest = {}
    for key in {(made.schema, made.table) for made in walk.made}:
        found = history.schemas.find(*key, history.complete_end)
        latest[key] = found.version if found else 0
    keys = {made.key for made in walk.made}
    given_up = [
        replace(walk.made[0], schema=old.schema, table=old.table, version=old.version, query=old.query)
        for old in trimmed
        if (old.schema, old.table) in latest and old.key not in keys
    ]
    resumption = Resumption((*walk.made, *given_up), latest, history.complete_end)
    changes = [table.query for _, tables in frames[first + 1 :] for table in tables if _changes(table, parked)]
    return ResumePlan(walk.made[0], resumption, tuple(walk.statements), walk.parked_again, rows, tuple(changes))


def _changes(later: TableSchema, parked: TableSchema) -> bool:
    """Whether this version means that the name stands for something else from there on."""
    if not later.table:
        return later.schema == parked.schema and later.kind is ChangeKind.DROP_DATABASE
    return (later.schema, later.table) == (parked.schema, parked.table)


def _trimmed(reader: LogReader, history: LogHistory) -> list[TableSchema]:
    """Parked versions that were followed by others before the log's first entry: nobody wanted their rows, which are gone.
    They are resumed with the rest of their table, so that nobody waits for them for ever."""
    if reader.complete:
        return []
    there = {table.key for _, table in history.schemas.items()}
    with closing(StateReader.open(reader)) as state:
        done = {table.key for _, table in state.store(SCHEMA_RESUMED).items()}
        versions = [table for _, table in state.store(SCHEMA_HISTORY).items()]
    return [table for table in versions if table.parked and table.key not in done and table.key not in there]


def _not_parked(name: str, history: LogHistory) -> BadInput:
    found = sorted({table.name for _, table in history.schemas.items() if table.parked})
    return BadInput(
        f"{name} is not parked",
        hint=f"these are: {', '.join(found[:20])}" if found else "no table is: `penstock status` shows them",
    )


class _Derived(set[Name]):
    """The names whose parked versions come from the table that is resumed."""

    def takes(self, table: TableSchema) -> bool:
        names = {".".join(name) for name in self}
        like = table.reason.startswith("like ") and table.reason[5:].partition(":")[0] in names
        if table.parked and ((table.schema, table.table) in self or table.other in names or like):
            self.add((table.schema, table.table))
            return True
        return False


class _Walk:
    """Follows the statements after the parking in a catalog of its own. `made`: what stands for parked versions."""

    def __init__(self, reader: LogReader, history: LogHistory, derived: _Derived) -> None:
        self._reader = reader
        self._derived = derived
        names = {(table.schema, table.table) for _, table in history.schemas.items()}
        folded = {(schema.lower(), table.lower()) for schema, table in names}
        # Capture knew how its server compares names, and the log does not say it. Only names that differ by nothing but
        # case need it.
        self._folds = len(folded) == len(names)
        self.catalog = Catalog(lower_case_table_names=2 if self._folds else 0)
        self.made: list[TableSchema] = []
        self.statements: list[str] = []
        self.parked_again = ""

    def pass_over(self, tables: list[TableSchema]) -> None:
        for table in tables:
            self.catalog.take(table)

    def resume_at(self, tables: list[TableSchema], parked: TableSchema, table: TableSchema) -> None:
        self.pass_over([one for one in tables if one is not parked])
        self._take(replace(table, ddl_type=DdlType.NONE), parked)

    def follow(self, position: Position, tables: list[TableSchema]) -> None:
        waiting = [table for table in tables if self._derived.takes(table)]
        statement = self._statement(position) if waiting else None
        made = {self._folded(m): m for m in apply_ddl(statement, self.catalog, 0)} if statement else {}
        before = {table.name: self.catalog.find(table.schema, table.table) for table in waiting}
        self.pass_over([table for table in tables if table not in waiting])
        for parked in waiting:
            found = made.get(self._folded(parked))
            if found is None and statement is not None:
                same = before[parked.name]  # the statement left the table as it was
                found = replace(same, ddl_type=DdlType.NONE) if same is not None else None
            if found is None or not found.columns:
                self.parked_again = self.parked_again or parked.query or parked.reason
                self.catalog.take(parked)
                continue
            self._take(found, parked)
            if parked.query not in self.statements:
                self.statements.append(parked.query)

    def _take(self, table: TableSchema, parked: TableSchema) -> None:
        made = replace(
            table,
            schema=parked.schema,
            table=parked.table,
            version=parked.version,
            query=parked.query,
            other=parked.other,
            reason="",
        )
        self.made.append(made)
        self.catalog.take(made)

    def _folded(self, table: TableSchema) -> Name:
        """A statement may call a table by another case than the one in which its server stores and logs the name."""
        return (table.schema.lower(), table.table.lower()) if self._folds else (table.schema, table.table)

    def is_mariadb(self, position: Position) -> bool:
        """Whose statements the log has from `position` on."""
        start = max(position, self._reader.first)
        parsed = next((parse_entry(e.data) for e in self._reader.read(start, self._reader.end()) if len(e.data)), None)
        return parsed is None or parsed.header.flavour == Flavour.MARIADB

    def _statement(self, position: Position) -> Statement | None:
        """The DDL of the entry at this position; None if the frame has none. A statement that stands for rows is none: no
        definition gives them back."""
        if position < self._reader.first:
            return None  # what was in force before the log was trimmed: its entry is gone
        entry = next(iter(self._reader.read(position, position)), None)
        if entry is None or not len(entry.data):
            return None
        found = statement_of(parse_entry(entry.data))
        return found if found is not None and is_ddl(found.sql) else None


def _count_rows(reader: LogReader, history: LogHistory, start: Position, made: list[TableSchema]) -> int:
    """Reads every row that was held back. Raises `BadInput` if the definition does not fit them."""
    replaced = {table.key: table for table in made}
    names = {(table.schema, table.table) for table in made}
    view = SchemaView((position, replaced.get(table.key, table)) for position, table in history.schemas.items())
    if start > history.complete_end:
        return 0
    rows = 0
    try:
        entries = reader.read(start, history.complete_end)
        for change in decode_entries(entries, view, lambda s, t: (s, t) in names, history.void):
            if isinstance(change, ChangeBatch) and change.table.key in replaced:
                rows += len(change)
    except PenstockError as error:
        raise does_not_fit(error) from error
    return rows
