"""Whose rows a table has now: its own since it was made or emptied, and those that it had under the names before.

Files stay where they were written. A table that was renamed has its earlier changes under its old name, and a name may have
stood for several tables. So each name is followed through the DDL of the log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from penstock.schema.changes import SchemaChange
from penstock.schema.model import CHARACTER_TYPES, INTEGER_TYPES, ChangeKind, Column, DdlType, TableSchema

Name = tuple[str, str]
_FIRST, _LAST = b"", b"\xff" * 24
_ROWS_MOVED = frozenset({DdlType.DROP_PARTITION, DdlType.TRUNCATE_PARTITION, DdlType.EXCHANGE_PARTITION})


class Span(NamedTuple):
    """The changes under a name after one seq and up to another."""

    name: Name
    after: bytes
    to: bytes = _LAST


class Unclear(NamedTuple):
    """A statement that changed rows without row events, and the columns in which it did; empty: whole rows."""

    statement: str
    columns: frozenset[str] = frozenset()


class Lineage:
    """Takes every DDL in the order of the log. `at_sink`: whether the sink has the rows of a table."""

    def __init__(self, at_sink: Callable[[TableSchema], bool] = lambda _table: True) -> None:
        self._at_sink = at_sink
        self._spans: dict[Name, list[Span]] = {}
        self._unclear: dict[Name, Unclear] = {}
        self._before: dict[Name, list[Span]] = {}  # as the spans were before the statement of `_seq`
        self._unclear_before: dict[Name, Unclear] = {}
        self._seq = b""

    def take(self, change: SchemaChange) -> None:
        """One name of a DDL. Names that a statement trades see each other as they were before it."""
        if change.seq != self._seq:
            self._seq, self._before, self._unclear_before = change.seq, dict(self._spans), dict(self._unclear)
        table = change.table
        name = (table.schema, table.table)
        if table.kind is ChangeKind.DROP_DATABASE:
            for one in [one for one in self._spans if one[0] == table.schema]:
                self._begin(one, change.seq)
        elif table.kind is ChangeKind.RENAME and table.columns:
            came_from = next((one for one in change.together if one.name == table.other), None)
            self._begin(name, change.seq)
            if came_from is None or not self._at_sink(came_from):
                # what it had under a name that the sink does not take is not there
                self._unclear[name] = Unclear(table.query)
            else:
                origin = (came_from.schema, came_from.table)
                earlier = self._before.get(origin, [Span(origin, _FIRST)])
                self._spans[name] = [*(s._replace(to=min(s.to, change.seq)) for s in earlier), *self._spans[name]]
                if origin in self._unclear_before:
                    self._unclear[name] = self._unclear_before[origin]
        elif table.kind in (ChangeKind.CREATE, ChangeKind.DROP, ChangeKind.RENAME) or (
            table.ddl_type is DdlType.TRUNCATE_TABLE
        ):
            self._begin(name, change.seq)
        elif table.ddl_type in _ROWS_MOVED:
            self._unclear[name] = Unclear(table.query)
        else:
            self._alter(name, change)

    def unclear(self, name: Name) -> Unclear | None:
        """The statement that changed rows of the table without row events, if there is one."""
        return self._unclear.get(name)

    def rows(self, name: Name, kept: Callable[[Name], Iterable[pa.Table]]) -> Iterator[pa.Table]:
        """The changes that made the table what it is, in their order; `kept`: all changes under a name."""
        for span in self._spans.get(name, [Span(name, _FIRST)]):
            for table in kept(span.name):
                if span.after == _FIRST and span.to == _LAST:
                    yield table
                    continue
                seq = table.column("_seq").cast(pa.binary())
                inside = pc.and_(
                    pc.greater(seq, pa.scalar(span.after, pa.binary())),
                    pc.less_equal(seq, pa.scalar(span.to, pa.binary())),
                )
                yield table.filter(inside)

    def _alter(self, name: Name, change: SchemaChange) -> None:
        known = self._unclear.get(name)
        columns = {column.name.lower() for column in change.table.columns}
        if known is not None and known.columns and not known.columns & columns:
            del self._unclear[name]  # what was filled is gone again
            known = None
        filled = _filled_columns(change.before, change.table)
        if filled and (known is None or known.columns):
            self._unclear[name] = Unclear(change.table.query, filled | (known.columns if known else frozenset()))

    def _begin(self, name: Name, seq: bytes) -> None:
        self._spans[name] = [Span(name, seq)]
        self._unclear.pop(name, None)


def _filled_columns(before: TableSchema | None, after: TableSchema) -> frozenset[str]:
    """The columns in which rows that were there got values that no change has: of a default, under a new name, or of another
    type."""
    if before is None:
        return frozenset()
    old = {column.name.lower(): column for column in before.columns}
    new = {column.name.lower(): column for column in after.columns}
    renamed = bool(old.keys() - new.keys())
    return frozenset(
        name
        for name, column in new.items()
        if (
            not _same_values(old[name], column)
            if name in old
            else renamed or column.default is not None or not column.nullable
        )
    )


def _same_values(old: Column, new: Column) -> bool:
    """Whether a value is written alike in both columns."""
    for family in (INTEGER_TYPES, CHARACTER_TYPES):
        if old.base_type in family and new.base_type in family:
            return True
    if old.base_type == new.base_type in ("enum", "set"):
        return new.elements[: len(old.elements)] == old.elements
    return old.plain_type == new.plain_type
