"""What the source holds now, table by table, as physical columns: the demo's plan, or a server's own tables.

A server's rows are read with SELECT, by other code than the binlog decoder, so that an error of the decoder shows.
Temporal values are selected as text, and enum, set and bit as numbers, because the MySQL driver would lose zero dates
and empty values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol, Self

import numpy as np
import pyarrow as pa

from penstock.errors import NotSupported
from penstock.operations.config.model import Config
from penstock.schema.changes import OP_INSERT, SEQ_DTYPE, ChangeBatch
from penstock.schema.model import BINARY_TYPES, CHARACTER_TYPES, SPATIAL_TYPES, Column, TableSchema
from penstock.schema.quoting import quoted_name
from penstock.sources.settings import DemoSettings, ServerSettings

_INTEGERS = {"tinyint": 8, "smallint": 16, "mediumint": 32, "int": 32, "bigint": 64}
_TEXT = CHARACTER_TYPES | {"json"}
_BYTES = BINARY_TYPES | SPATIAL_TYPES
_DECIMAL_DIGITS_MAX = 38
CHUNK_ROWS = 65_536
_WRITE_TIMEOUT_SECONDS = 600  # what the server waits for us, while a chunk is compared


class SourceTruth(Protocol):
    """The source's tables now. A context manager: it opens what it needs, and closes it at the end."""

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
    """The server's tables, selected in one consistent snapshot."""

    def __init__(self, source: ServerSettings) -> None:
        self._source = source
        self._connection: Any = None

    def __enter__(self) -> Self:
        from penstock.sources.mysql.connection import connect, rows

        self._connection = connect(self._source)
        for statement in (
            "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ",
            "SET time_zone = '+00:00'",
            f"SET net_write_timeout = {_WRITE_TIMEOUT_SECONDS}",
            "START TRANSACTION WITH CONSISTENT SNAPSHOT",
        ):
            rows(self._connection, statement)
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def chunks(self, table: TableSchema) -> Iterator[ChangeBatch]:
        """Raises `SourceError` where the user may not select from the table."""
        from penstock.sources.mysql.connection import translate_errors

        grant = f"GRANT SELECT ON {quoted_name(table.schema, table.table)} TO the user {self._source.user}"
        with translate_errors(
            f"cannot read {table.name}", denied=f"{grant}, or leave this comparison out (--no-source)"
        ):
            yield from select_chunks(self._connection, table)


class Connection(Protocol):
    """What is needed of a PyMySQL connection."""

    def cursor(self, cursor: Any = None) -> Any: ...


def select_chunks(connection: Connection, table: TableSchema) -> Iterator[ChangeBatch]:
    """Every row of the table, as inserts; their seqs are all zero, because they have no place in the log.

    One statement, whose answer is read as it comes: InnoDB keeps rows in the order of the primary key, so nothing is sorted,
    and neither side holds more than a chunk.
    """
    from pymysql.cursors import SSCursor

    readers = [_reader(column) for column in table.columns]
    expressions = ", ".join(reader[0] for reader in readers)
    order = ", ".join(quoted_name(table.columns[i].name) for i in table.primary_key)
    statement = f"SELECT {expressions} FROM {quoted_name(table.schema, table.table)}"
    with connection.cursor(SSCursor) as cursor:
        cursor.execute(f"{statement} ORDER BY {order}" if order else statement)
        while rows := cursor.fetchmany(CHUNK_ROWS):
            columns: list[pa.Array[Any]] = []
            for (_, kind, convert), values in zip(readers, zip(*rows, strict=True), strict=True):
                columns.append(pa.array([None if value is None else convert(value) for value in values], kind))
            yield inserts(table, columns)


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
    return _reader(column)[1]


def _reader(column: Column) -> tuple[str, pa.DataType, Callable[[Any], Any]]:
    """The SQL expression, the physical type, and the conversion of one value."""
    name, base = quoted_name(column.name), column.base_type
    if base in _INTEGERS:
        bits = _INTEGERS[base]
        kinds = (
            (pa.uint8, pa.uint16, pa.uint32, pa.uint64) if column.unsigned else (pa.int8, pa.int16, pa.int32, pa.int64)
        )
        return name, kinds[(8, 16, 32, 64).index(bits)](), int
    if base in ("float", "double"):
        return f"CAST({name} AS DOUBLE)", pa.float32() if base == "float" else pa.float64(), float
    if base == "decimal":
        precision, scale = (*column.arguments, 10, 0)[:2] if len(column.arguments) != 1 else (column.arguments[0], 0)
        if precision > _DECIMAL_DIGITS_MAX:
            return f"CAST({name} AS CHAR)", pa.string(), _text
        return name, pa.decimal128(precision, scale), lambda value: value
    if base == "bit":
        return f"{name} + 0", pa.uint64(), int
    if base == "year":
        return f"{name} + 0", pa.int16(), int
    if base == "enum":
        return f"{name} + 0", pa.uint16(), int
    if base == "set":
        return f"{name} + 0", pa.uint64(), int
    if base in _TEXT:
        return name, pa.string(), _text
    if base in _BYTES:
        return name, pa.binary(), lambda value: value.encode() if isinstance(value, str) else bytes(value)
    parsers: dict[str, tuple[pa.DataType, Callable[[str], int]]] = {
        "date": (pa.int32(), _packed_date),
        "datetime": (pa.int64(), _packed_datetime),
        "timestamp": (pa.int64(), _epoch_microseconds),
        "time": (pa.int64(), _microseconds),
    }
    if base in parsers:
        kind, parse = parsers[base]
        return f"CAST({name} AS CHAR)", kind, lambda value: parse(_text(value))
    raise NotSupported(f"column {column.name}: {column.mysql_type} cannot be compared with the source yet")


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _packed_date(text: str) -> int:
    year, month, day = (int(part) for part in text.split("-"))
    return year << 9 | month << 5 | day


def _packed_datetime(text: str) -> int:
    date, _, time = text.partition(" ")
    year, month, day = (int(part) for part in date.split("-"))
    hour, minute, second, micro = _clock(time)
    return ((year * 13 + month) << 22 | day << 17 | hour << 12 | minute << 6 | second) << 24 | micro


def _epoch_microseconds(text: str) -> int:
    """The connection's time zone is UTC."""
    if text.startswith("0000-00-00"):
        return 0
    return int(np.datetime64(text.replace(" ", "T"), "us").astype(np.int64))


def _microseconds(text: str) -> int:
    hour, minute, second, micro = _clock(text.lstrip("-"))
    value = ((hour * 60 + minute) * 60 + second) * 1_000_000 + micro
    return -value if text.startswith("-") else value


def _clock(text: str) -> tuple[int, int, int, int]:
    whole, _, fraction = text.partition(".")
    hour, minute, second = (int(part) for part in whole.split(":"))
    return hour, minute, second, int(fraction.ljust(6, "0")) if fraction else 0
