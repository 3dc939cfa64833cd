"""Whose rows a table has now: its own since it was made or emptied, and those that it had under the names before.

Files stay where they were written. A table that was renamed has its earlier changes under its old name, and a name may have
stood for several tables. So each name is followed through the DDL of the log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from penstock.schema.changes import ChangeBatch, SchemaChange, unlogged_columns
from penstock.schema.ddl.session import Statement
from penstock.schema.ddl.tokens import Unreadable
from penstock.schema.kept_values import keeps_values, made_anew
from penstock.schema.model import ChangeKind, DdlType, TableSchema

Name = tuple[str, str]
_FIRST, _LAST = b"", b"\xff" * 24
_STATEMENT_MAX = 120
_ROWS_MOVED = frozenset({DdlType.DROP_PARTITION, DdlType.TRUNCATE_PARTITION, DdlType.EXCHANGE_PARTITION})


class Span(NamedTuple):
    """The changes under a name after one seq and up to another."""

    name: Name
    after: bytes
    to: bytes = _LAST


class Unclear(NamedTuple):
    """Why what the files have of a table is not what it holds, and the columns in which it may not be; empty: whole rows."""

    reason: str
    columns: frozenset[str] = frozenset()

    def and_also(self, other: Unclear | None) -> Unclear:
        """Both together; the first reason is told."""
        if other is None or not self.columns:
            return self
        return Unclear(self.reason, self.columns | other.columns) if other.columns else other


def _by_statement(query: str, columns: frozenset[str] = frozenset()) -> Unclear:
    return Unclear(f"{query[:_STATEMENT_MAX]!r} changed rows without row events", columns)


class Lineage:
    """Takes every DDL in the order of the log. `at_sink`: whether the sink has the rows of a table."""

    def __init__(self, at_sink: Callable[[TableSchema], bool] = lambda _table: True) -> None:
        self._at_sink = at_sink
        self._spans: dict[Name, list[Span]] = {}
        self._unclear: dict[Name, Unclear] = {}
        self._gone: dict[Name, frozenset[str]] = {}  # columns that a table lost, and of which files still have values
        # As all three were before the statement of `_seq`.
        self._before: tuple[dict[Name, list[Span]], dict[Name, Unclear], dict[Name, frozenset[str]]] = ({}, {}, {})
        self._seq = b""

    def take(self, change: SchemaChange) -> None:
        """One name of a DDL. Names that a statement trades see each other as they were before it."""
        if change.seq != self._seq:
            self._seq, self._before = change.seq, (dict(self._spans), dict(self._unclear), dict(self._gone))
        table = change.table
        name = (table.schema, table.table)
        if table.kind is ChangeKind.DROP_DATABASE:
            for one in [one for one in self._spans if one[0] == table.schema]:
                self._begin(one, change.seq)
        elif table.kind is ChangeKind.RENAME and table.columns:
            self._rename(name, change)
        elif table.kind in (ChangeKind.CREATE, ChangeKind.DROP, ChangeKind.RENAME) or (
            table.ddl_type is DdlType.TRUNCATE_TABLE
        ):
            self._begin(name, change.seq)
        elif table.ddl_type in _ROWS_MOVED:
            self._unclear[name] = _by_statement(table.query)
        else:
            self._alter(name, change)

    def take_rows(self, batch: ChangeBatch) -> None:
        """Changes of a table, between the statements: the server may have logged them without all of their columns."""
        unlogged = unlogged_columns(batch)
        if unlogged:
            reason = "rows were logged without all of their columns (binlog_row_image)"
            self._tell((batch.table.schema, batch.table.table), Unclear(reason, unlogged))

    def recovered(self, name: Name, until: bytes) -> None:
        """The sink has the rows up to `until` from before a recovery: which of them are before a statement that made or emptied
        the table their seqs do not tell."""
        if any(span.after != _FIRST and span.after <= until for span in self._spans.get(name, ())):
            self._unclear[name] = Unclear(
                "a statement made or emptied it just before the flow was recovered from the sink"
            )

    def begins_here(self, name: Name) -> bool:
        """Whether a statement that was taken made or emptied the table, and not under a name before."""
        spans = self._spans.get(name, ())
        return len(spans) > 0 and spans[0].after != _FIRST

    def begins_after(self, name: Name, seq: bytes) -> bool:
        """Whether all changes that made the table what it is come after `seq`."""
        return all(span.after > seq for span in self.spans(name))

    def spans(self, name: Name) -> list[Span]:
        """The names that the table has had, and when; in order."""
        return self._spans.get(name, [Span(name, _FIRST)])

    def unclear(self, name: Name) -> Unclear | None:
        """Why the files do not tell the table's rows, if they do not."""
        return self._unclear.get(name)

    def rows(self, name: Name, kept: Callable[[Name], Iterable[pa.Table]]) -> Iterator[pa.Table]:
        """The changes that made the table what it is, in their order; `kept`: all changes under a name."""
        for span in self.spans(name):
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

    def _rename(self, name: Name, change: SchemaChange) -> None:
        """The table under its new name; the statement may alter it as well."""
        table = change.table
        spans, unclear, gone = self._before
        came_from = next((one for one in change.together if one.name == table.other), None)
        self._begin(name, change.seq)
        if came_from is None or not self._at_sink(came_from):
            # what it had under a name that the sink does not take is not there
            self._unclear[name] = _by_statement(table.query)
            return
        origin = (came_from.schema, came_from.table)
        earlier = spans.get(origin, [Span(origin, _FIRST)])
        self._spans[name] = [*(s._replace(to=min(s.to, change.seq)) for s in earlier), *self._spans[name]]
        if origin in unclear:
            self._unclear[name] = unclear[origin]
        if origin in gone:
            self._gone[name] = gone[origin]
        was = next((one for one in change.needed if one.name == came_from.name and one.columns), None)
        self._alter(name, replace(change, before=was))

    def _alter(self, name: Name, change: SchemaChange) -> None:
        table, before = change.table, change.before
        columns = {column.name.lower() for column in table.columns}
        known = self._unclear.get(name)
        if known is not None and known.columns and not known.columns & columns:
            del self._unclear[name]  # what was filled is gone again
        if before is None:
            return
        lost = {column.name.lower() for column in before.columns} - columns
        gone = self._gone[name] = self._gone.get(name, frozenset()) | lost
        if before.columns and _key(before) != _key(table):
            self._unclear[name] = Unclear(f"{table.query[:_STATEMENT_MAX]!r} made another key")
        elif filled := _filled_columns(change, gone):
            self._tell(name, _by_statement(table.query, filled))

    def _tell(self, name: Name, found: Unclear) -> None:
        known = self._unclear.get(name)
        self._unclear[name] = found if known is None else known.and_also(found)

    def _begin(self, name: Name, seq: bytes) -> None:
        self._spans[name] = [Span(name, seq)]
        self._unclear.pop(name, None)
        self._gone.pop(name, None)


def _key(table: TableSchema) -> list[str]:
    return [table.columns[i].name.lower() for i in table.primary_key]


def _filled_columns(change: SchemaChange, gone: frozenset[str]) -> frozenset[str]:
    """The columns in which rows that were there may have got values that no change has, in lower case. `gone`: columns that
    the table had before and lost, whose values are still in its files. Where it is not certain that a column kept its
    values, it counts as filled."""
    before, after = change.before, change.table
    if before is None:
        return frozenset()
    old = {column.name.lower(): column for column in before.columns}
    new = {column.name.lower(): column for column in after.columns}
    renamed = bool(old.keys() - new.keys())
    filled = {
        name
        for name, column in new.items()
        if (
            not keeps_values(old[name], column)
            if name in old
            else renamed or name in gone or column.default is not None or not column.nullable
        )
    }
    return frozenset(filled | (_made_anew(change.statement) & new.keys()))


def _made_anew(statement: Statement | None) -> set[str]:
    try:
        return set() if statement is None else made_anew(statement.tokens)
    except Unreadable:
        return set()
