"""A column in its physical form → the Arrow type that its Parquet column has (docs/types.md has the table).

Only types that plain `spark.read.parquet` and other engines read alike: unsigned numbers take the next larger signed
type, TIME is text. Values that such a type cannot express become null: zero, partial and impossible dates, the zero
timestamp.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.encode.parquet import kernels
from penstock.encode.text import BINARIES, CHARACTERS, FLOATS, numbers, plain_text, unsupported, valid_rows
from penstock.errors import BadInput
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
        days, exists = np.empty(len(values), np.int32), np.empty(len(values), np.bool_)
        kernels.calendar_dates(numbers(values), days, exists)
        return _where(days, exists, values, pa.int32()).view(target)
    if base == "datetime":
        micros, exists = np.empty(len(values), np.int64), np.empty(len(values), np.bool_)
        kernels.calendar_datetimes(numbers(values), micros, exists)
        return _where(micros, exists, values, pa.int64()).view(target)
    if base == "timestamp":
        micros = numbers(values).astype(np.int64, copy=False)
        return _where(micros, micros != 0, values, pa.int64()).view(target)
    if base == "time":
        return plain_text(column, values)
    if base == "enum":
        if (pc.max(values).as_py() or 0) > len(column.elements):
            raise BadInput(f"column {column.name} holds an ordinal that {column.mysql_type} does not have")
        return pa.array(["", *column.elements], pa.string()).take(values)
    if base == "set":
        return _set_names(column, values)
    return values if values.type == target else values.cast(target)


def _where(
    data: npt.NDArray[np.generic], exists: npt.NDArray[np.bool_], values: pa.Array[Any], kind: pa.DataType
) -> pa.Array[Any]:
    if values.null_count:
        exists = exists & valid_rows(values)
    return pa.array(data, kind, mask=~exists)


def _set_names(column: Column, values: pa.Array[Any]) -> pa.Array[Any]:
    if (pc.max(values).as_py() or 0) >> len(column.elements):
        raise BadInput(f"column {column.name} holds a member that {column.mysql_type} does not have")
    names = [element.encode() for element in column.elements]
    bounds = np.zeros(len(names) + 1, np.int64)
    np.cumsum([len(name) for name in names], out=bounds[1:])
    masks, valid = numbers(values), valid_rows(values)
    offsets = np.empty(len(values) + 1, np.int32)
    kernels.set_offsets(masks, valid, bounds, offsets)
    out = np.empty(offsets[-1], np.uint8)
    kernels.set_names(masks, valid, bounds, np.frombuffer(b"".join(names), np.uint8), offsets, out)
    validity = pa.py_buffer(np.packbits(valid, bitorder="little").tobytes()) if values.null_count else None
    return pa.StringArray.from_buffers(
        len(values), pa.py_buffer(offsets.data), pa.py_buffer(out.data), validity, values.null_count
    )
