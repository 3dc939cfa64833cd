"""A column in its physical form (schema/changes.py) → its values as text, without Python per value.

`json_tokens` gives `"value"` or `null` for each row; `plain_text` gives an Arrow string column, for formats that store
a type as text.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.encode import text_kernels
from penstock.errors import NotSupported
from penstock.schema.model import BINARY_TYPES, CHARACTER_TYPES, INTEGER_TYPES, SPATIAL_TYPES, Column

Bytes = npt.NDArray[np.uint8]
Offsets = npt.NDArray[np.int64]

INTEGERS = INTEGER_TYPES | {"bit", "enum", "set"}
FRACTIONAL = frozenset({"time", "datetime", "timestamp"})
FLOATS = frozenset({"float", "double"})
CHARACTERS = CHARACTER_TYPES | {"json"}
BINARIES = BINARY_TYPES | SPATIAL_TYPES


class Text(NamedTuple):
    """The text of all rows, back to back: row r is `data[offsets[r] : offsets[r + 1]]`."""

    offsets: Offsets  # rows + 1, from 0
    data: Bytes


def unsupported(column: Column) -> NotSupported:
    return NotSupported(
        f"column {column.name} has type {column.mysql_type}, which cannot be encoded",
        hint="leave the table out: source.tables.exclude",
    )


def fraction_digits(column: Column) -> int:
    return column.arguments[0] if column.arguments else 0


def json_tokens(column: Column, values: pa.Array[Any]) -> Text:
    """Each value as a JSON string, or `null`."""
    base = column.base_type
    if base in FLOATS:
        # Arrow prints the shortest text that reads back as the same number; -0 keeps its sign.
        return _strings(pc.cast(values, pa.string()), latin1=False)
    if base in CHARACTERS or (base == "decimal" and pa.types.is_string(values.type)):
        return _strings(values, latin1=False)
    if base in BINARIES:
        return _strings(values, latin1=True)
    return _formatted(column, values, quote=True)


def plain_text(column: Column, values: pa.Array[Any]) -> pa.Array[Any]:
    """Each value as text, in an Arrow string column; a missing value stays missing."""
    text = _formatted(column, values, quote=False)
    validity = pa.py_buffer(np.packbits(valid_rows(values), bitorder="little").tobytes()) if values.null_count else None
    offsets = pa.py_buffer(text.offsets.astype(np.int32).data)
    return pa.StringArray.from_buffers(len(values), offsets, pa.py_buffer(text.data.data), validity, values.null_count)


def valid_rows(values: pa.Array[Any]) -> npt.NDArray[np.bool_]:
    """True where there is a value; an empty array if no value is missing."""
    if values.null_count == 0:
        return np.empty(0, np.bool_)
    return np.asarray(values.is_valid().to_numpy(zero_copy_only=False))


def numbers(values: pa.Array[Any]) -> npt.NDArray[Any]:
    """The values of a fixed-width column, without copying; those at missing places mean nothing."""
    dtype = np.dtype(values.type.to_pandas_dtype())
    return _view(values.buffers()[1], dtype, values.offset, len(values))


def _view(buffer: pa.Buffer | None, dtype: np.dtype[Any], first: int, count: int) -> npt.NDArray[Any]:
    if buffer is None or count == 0:
        return np.empty(0, dtype)
    return np.frombuffer(memoryview(buffer), dtype, count=count, offset=first * dtype.itemsize)


def _formatted(column: Column, values: pa.Array[Any], *, quote: bool) -> Text:
    base, rows, valid = column.base_type, len(values), valid_rows(values)
    offsets: Offsets = np.empty(rows + 1, np.int64)
    fsp = fraction_digits(column) if base in FRACTIONAL else 0
    if base in INTEGERS or base == "year":
        out = np.empty(rows * text_kernels.INTEGER_WIDTH, np.uint8)
        text_kernels.integers(numbers(values), valid, quote, 4 if base == "year" else 0, offsets, out)
    elif base == "decimal":
        out = np.empty(rows * text_kernels.DECIMAL_WIDTH, np.uint8)
        words = _view(values.buffers()[1], np.dtype(np.uint64), values.offset * 2, rows * 2).reshape(rows, 2)
        text_kernels.decimals(words, values.type.scale, valid, quote, offsets, out)
    elif base == "date":
        out = np.empty(rows * text_kernels.DATE_WIDTH, np.uint8)
        text_kernels.dates(numbers(values), valid, quote, offsets, out)
    elif base == "datetime":
        out = np.empty(rows * text_kernels.DATETIME_WIDTH, np.uint8)
        text_kernels.datetimes(numbers(values), fsp, valid, quote, offsets, out)
    elif base == "timestamp":
        out = np.empty(rows * text_kernels.DATETIME_WIDTH, np.uint8)
        text_kernels.timestamps(numbers(values), fsp, valid, quote, offsets, out)
    elif base == "time":
        out = np.empty(rows * text_kernels.TIME_WIDTH, np.uint8)
        text_kernels.times(numbers(values), fsp, valid, quote, offsets, out)
    else:
        raise unsupported(column)
    return Text(offsets, out[: offsets[-1]])


def _strings(values: pa.Array[Any], *, latin1: bool) -> Text:
    offsets: Offsets = np.empty(len(values) + 1, np.int64)
    if len(values) == 0:
        offsets[0] = 0
        return Text(offsets, np.empty(0, np.uint8))
    _, bounds_buffer, data = values.buffers()
    bounds = _view(bounds_buffer, np.dtype(np.int32), values.offset, len(values) + 1)
    source = _view(data, np.dtype(np.uint8), 0, data.size if data else 0)
    valid = valid_rows(values)
    widths = text_kernels.LATIN1_WIDTHS if latin1 else text_kernels.UTF8_WIDTHS
    text_kernels.escaped_offsets(source, bounds, valid, widths, offsets)
    out = np.empty(offsets[-1], np.uint8)
    text_kernels.escape(source, bounds, valid, latin1, offsets, out)
    return Text(offsets, out)
