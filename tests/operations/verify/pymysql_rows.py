"""A table's rows by PyMySQL, value by value in Python: slow, simple, and nothing of it is ours but the last step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
from pymysql.connections import Connection

from penstock.errors import NotSupported
from penstock.schema.model import ADDRESS_TYPES, BINARY_TYPES, CHARACTER_TYPES, SPATIAL_TYPES, Column, TableSchema
from penstock.schema.quoting import quoted_name

_INTEGERS = {"tinyint": 8, "smallint": 16, "mediumint": 32, "int": 32, "bigint": 64}
_TEXT = CHARACTER_TYPES | ADDRESS_TYPES | {"json"}
_BYTES = BINARY_TYPES | SPATIAL_TYPES
_DECIMAL_DIGITS_MAX = 38


def rows_by_pymysql(connection: Connection[Any], table: TableSchema) -> list[pa.Array[Any]]:
    """A column for each of the table's, in the order of its key. The session's time zone is UTC."""
    readers = [reader_of(column) for column in table.columns]
    order = ", ".join(quoted_name(table.columns[i].name) for i in table.primary_key)
    expressions = ", ".join(reader[0] for reader in readers)
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {expressions} FROM {quoted_name(table.schema, table.table)} ORDER BY {order}")
        rows = cursor.fetchall()
    return [
        pa.array([None if row[place] is None else convert(row[place]) for row in rows], kind)
        for place, (_, kind, convert) in enumerate(readers)
    ]


def reader_of(column: Column) -> tuple[str, pa.DataType, Callable[[Any], Any]]:
    """The SQL expression, the physical type, and the conversion of one value."""
    name, base = quoted_name(column.name), column.base_type
    if base in _INTEGERS:
        bits = _INTEGERS[base]
        kinds = (
            (pa.uint8, pa.uint16, pa.uint32, pa.uint64) if column.unsigned else (pa.int8, pa.int16, pa.int32, pa.int64)
        )
        return name, kinds[(8, 16, 32, 64).index(bits)](), int
    if base in ("float", "double"):
        # A product with a double is one, with all its digits; MySQL has no CAST for it before 8.0.17.
        return f"{name} * 1e0", pa.float32() if base == "float" else pa.float64(), float
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
    if base == "set":  # a sum is a signed number, or a double: neither holds 64 members
        return f"CAST({name} AS UNSIGNED)", pa.uint64(), int
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
