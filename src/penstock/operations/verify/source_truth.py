"""What the source holds now, table by table, as physical columns: the demo's plan, or a server's own tables.

A server's rows are read with SELECT, by other code than the binlog decoder, so that an error of the decoder shows: that of
the initial load, which reads texts where the decoder reads binary forms. Characters come as UTF-8, by the server's own
tables and not by ours.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol, Self

import numpy as np
import pyarrow as pa

from penstock.errors import BadInput, NotSupported, PenstockError
from penstock.operations.config.model import Config
from penstock.schema.changes import OP_INSERT, SEQ_DTYPE, ChangeBatch
from penstock.schema.model import CHARACTER_TYPES, Column, TableSchema
from penstock.schema.quoting import quoted_name
from penstock.sources.position import SourcePosition
from penstock.sources.settings import DemoSettings, ServerSettings

if TYPE_CHECKING:
    from pymysql.connections import Connection

    from penstock.sources.mysql.load.columns import ColumnForm, Values

CHUNK_ROWS = 65_536
CHUNK_BYTES = 8 << 20  # of a chunk as the server sends it, but for its last row
_WRITE_TIMEOUT_SECONDS = 600  # what the server waits for us, while a chunk is compared


class SourceTruth(Protocol):
    """The source's tables now. A context manager: it opens what it needs, and closes it at the end.

    `position`, once it is open: the source has no row of a later one to show. None if it does not tell. `had_rows`: tables may
    have had rows before anything was logged of them.
    """

    position: SourcePosition | None
    had_rows: bool

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...

    def chunks(self, table: TableSchema) -> Iterator[ChangeBatch]:
        """The table's rows now, as inserts in physical columns, in the order of its key, some at a time."""
        ...


def source_truth(config: Config) -> SourceTruth | None:
    """What the configured source holds; None if it has no tables of its own (binlog files)."""
    source = config.source
    if isinstance(source, DemoSettings):
        return DemoTruth(source)
    if isinstance(source, ServerSettings):
        return ServerTruth(source)
    return None


class DemoTruth:
    """The tables that the demo source plans, computed without reading a byte of its binlog."""

    def __init__(self, source: DemoSettings) -> None:
        from penstock.sources.demo.truth import demo_truth

        self.position: SourcePosition | None = None
        self.had_rows = False
        self._tables = demo_truth(source)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def chunks(self, table: TableSchema) -> Iterator[ChangeBatch]:
        rows = self._tables[table.name].rows
        for start in range(0, rows.num_rows, CHUNK_ROWS):
            columns = rows.slice(start, CHUNK_ROWS)
            yield inserts(table, [columns.column(c.name).combine_chunks() for c in table.columns])


class ServerTruth:
    """The server's tables, selected in one consistent snapshot; in another one, with its own `position`, after a table that was
    not read to its end."""

    def __init__(self, source: ServerSettings) -> None:
        self.position: SourcePosition | None = None
        self.had_rows = True
        self._source = source
        self._connection: Any = None

    def __enter__(self) -> Self:
        self._connect()
        return self

    def _connect(self) -> None:
        from penstock.sources.mysql.connection import connect, rows
        from penstock.sources.mysql.family import family_of

        self._connection = connect(self._source)
        for statement in (
            "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ",
            "SET time_zone = '+00:00', sql_mode = ''",
            f"SET net_write_timeout = {_WRITE_TIMEOUT_SECONDS}",
            "START TRANSACTION WITH CONSISTENT SNAPSHOT",
        ):
            rows(self._connection, statement)
        self.position = None
        with contextlib.suppress(PenstockError):  # who may only select can compare all the same
            family = family_of(self._connection)
            self.position = family.now(self._connection, family.identity(self._connection))

    def __exit__(self, *_: object) -> None:
        if self._connection.open:
            self._connection.close()

    def chunks(self, table: TableSchema) -> Iterator[ChangeBatch]:
        """Raises `SourceError` where the user may not select from the table."""
        from penstock.sources.mysql.connection import translate_errors

        if not self._connection.open:
            self._connect()
        grant = f"GRANT SELECT ON {quoted_name(table.schema, table.table)} TO the user {self._source.user}"
        with translate_errors(
            f"cannot read {table.name}", denied=f"{grant}, or leave this comparison out (--no-source)"
        ):
            yield from select_chunks(self._connection, table)


def select_chunks(connection: Connection[Any], table: TableSchema) -> Iterator[ChangeBatch]:
    """Every row of the table, as inserts; their seqs are all zero, because they have no place in the log. The session's time
    zone is UTC, and its texts come as utf8mb4.

    One statement, whose answer is read as it comes: InnoDB keeps rows in the order of the primary key, so nothing is sorted,
    and neither side holds more than a chunk.
    """
    from penstock.sources.mysql.load.result import Space, select_pieces

    forms = [_form(column) for column in table.columns]
    expressions = ", ".join(form.expression for form in forms)
    order = ", ".join(quoted_name(table.columns[i].name) for i in table.primary_key)
    statement = f"SELECT {expressions} FROM {quoted_name(table.schema, table.table)}"
    for piece in select_pieces(
        connection, f"{statement} ORDER BY {order}" if order else statement, CHUNK_BYTES, Space()
    ):
        columns = [
            _read(table, column, form, values)
            for column, form, values in zip(table.columns, forms, piece.columns, strict=True)
        ]
        for start in range(0, piece.count, CHUNK_ROWS):
            yield inserts(table, [column.slice(start, CHUNK_ROWS) for column in columns])


def _read(table: TableSchema, column: Column, form: ColumnForm, values: Values) -> pa.Array[Any]:
    from penstock.binlog.rows.arrays import BadValue

    try:
        return form.read(values)
    except BadValue as error:
        raise BadInput(
            f"{table.name}, column {column.name}: the source has {error}",
            hint="leave this comparison out (--no-source), and tell us",
        ) from error


def inserts(table: TableSchema, columns: list[pa.Array[Any]]) -> ChangeBatch:
    """Current rows as inserts, so that an encoder takes them."""
    count = len(columns[0]) if columns else 0
    return ChangeBatch(
        table,
        np.full(count, OP_INSERT, dtype=np.uint8),
        np.zeros(count, dtype=SEQ_DTYPE),
        np.zeros(count, dtype=np.uint64),
        [pa.nulls(count, column.type) for column in columns],
        columns,
    )


def physical_type(column: Column) -> pa.DataType:
    """The type in which rows of the source have this column. Raises `NotSupported`."""
    from penstock.sources.mysql.load.columns import Values

    none = Values(np.empty(0, np.uint8), np.empty(0, np.int64), np.empty(0, np.int32))
    kind: pa.DataType = _form(column).read(none).type
    return kind


def _form(column: Column) -> ColumnForm:
    """How a column is selected and read: as for a load, but for characters, which the server makes UTF-8."""
    from penstock.sources.mysql.load.columns import column_form

    utf8 = column.base_type in CHARACTER_TYPES
    try:
        return column_form(replace(column, charset="utf8mb4") if utf8 else column)
    except NotSupported:
        raise NotSupported(
            f"column {column.name}: {column.mysql_type} cannot be compared with the source yet"
        ) from None
