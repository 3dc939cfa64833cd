"""A column in its physical form → the Arrow type that its Parquet column has (docs/types.md has the table).

Only types that plain `spark.read.parquet` and other engines read alike: unsigned numbers take the next larger signed
type, TIME is text. Values that such a type cannot express become null: zero, partial and impossible dates, the zero
timestamp.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from penstock.encode.calendar import date_days, datetime_micros, timestamp_micros
from penstock.encode.names import element_names
from penstock.encode.text import BINARIES, CHARACTERS, FLOATS, plain_text, unsupported
from penstock.schema.model import Column

UINT64 = pa.decimal128(20, 0)
DATETIME = pa.timestamp("us")
TIMESTAMP = pa.timestamp("us", "UTC")
DECIMAL_DIGITS_MAX = 38  # of decimal128, and of Spark; longer ones are text

_SIGNED: dict[str, pa.DataType] = {"tinyint": pa.int8(), "smallint": pa.int16(), "mediumint": pa.int32(), "int": pa.int32(), "bigint": pa.int64()}  # fmt: skip
_UNSIGNED: dict[str, pa.DataType] = {"tinyint": pa.int16(), "smallint": pa.int32(), "mediumint": pa.int32(), "int": pa.int64(), "bigint": UINT64}  # fmt: skip


def parquet_type(column: Column) -> pa.DataType:
    """The type of the column in every file of the table version: it never depends on the values."""
    base = column.base_type
    if base in _SIGNED:
        return (_UNSIGNED if column.unsigned else _SIGNED)[base]
    if base in FLOATS:
        return pa.float32() if base == "float" else pa.float64()
    if base == "decimal":
        precision, scale = (*(column.arguments or (10,)), 0)[:2]
        return pa.decimal128(precision, scale) if precision <= DECIMAL_DIGITS_MAX else pa.string()
    if base in ("enum", "set") and not column.elements:  # nobody knows them: the number that is stored
        return pa.int32() if base == "enum" else UINT64
    if base == "bit":
        return UINT64 if column.arguments == (64,) else pa.int64()
    if base in CHARACTERS or base in ("time", "enum", "set"):
        return pa.string()
    if base in BINARIES:
        return pa.binary()
    simple: dict[str, pa.DataType] = {
        "year": pa.int16(),
        "date": pa.date32(),
        "datetime": DATETIME,
        "timestamp": TIMESTAMP,
    }
    if base not in simple:
        raise unsupported(column)
    return simple[base]


def parquet_values(column: Column, values: pa.Array[Any]) -> pa.Array[Any]:
    """The column's values in its `parquet_type`."""
    base, target = column.base_type, parquet_type(column)
    if base == "date":
        return date_days(values).view(target)
    if base == "datetime":
        return datetime_micros(values).view(target)
    if base == "timestamp":
        return timestamp_micros(values).view(target)
    if base == "time":
        return plain_text(column, values)
    if base in ("enum", "set") and column.elements:
        return element_names(column, values)
    return values if values.type == target else values.cast(target)
