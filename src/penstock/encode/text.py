"""A column in its physical form (schema/changes.py) → its values as text, without Python per value.

`formatted` writes numbers and times in any `Style`; `json_strings`, `quoted_strings`, `escaped_strings` and `bytes_text`
write strings. `plain_text` gives an Arrow string column, for formats that store a type as text.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.encode.kernels import strings as string_kernels
from penstock.encode.kernels import text as text_kernels
from penstock.errors import BadInput, NotSupported
from penstock.schema.model import ADDRESS_TYPES, BINARY_TYPES, CHARACTER_TYPES, INTEGER_TYPES, SPATIAL_TYPES, Column

Bytes = npt.NDArray[np.uint8]
Offsets = npt.NDArray[np.int64]

INTEGERS = INTEGER_TYPES | {"bit", "enum", "set"}
FRACTIONAL = frozenset({"time", "datetime", "timestamp"})
TEMPORAL = FRACTIONAL | {"date"}
FLOATS = frozenset({"float", "double"})
CHARACTERS = CHARACTER_TYPES | ADDRESS_TYPES | {"json"}
BINARIES = BINARY_TYPES | SPATIAL_TYPES | {"vector", "bytes"}  # bytes: of a string of unknown character set


class Text(NamedTuple):
    """The text of all rows, back to back: row r is `data[offsets[r] : offsets[r + 1]]`."""

    offsets: Offsets  # rows + 1, from 0
    data: Bytes


class Style(NamedTuple):
    """What stands around a value (one byte, or nothing), and in the place of a missing one."""

    quote: Bytes
    null: Bytes

    @classmethod
    def of(cls, quote: str, null: str) -> Style:
        return cls(np.frombuffer(quote.encode(), np.uint8), np.frombuffer(null.encode(), np.uint8))


JSON_STRING, JSON_NUMBER, PLAIN = Style.of('"', "null"), Style.of("", "null"), Style.of("", "")


def unsupported(column: Column) -> NotSupported:
    return NotSupported(
        f"column {column.name} has type {column.mysql_type}, which cannot be encoded",
        hint="leave the table out: source.tables.exclude",
    )


def fraction_digits(column: Column) -> int:
    return column.arguments[0] if column.arguments else 0


def is_text_decimal(column: Column, values: pa.Array[Any]) -> bool:
    """Decimals of more than 38 digits are text already."""
    return column.base_type == "decimal" and pa.types.is_string(values.type)


def plain_text(column: Column, values: pa.Array[Any]) -> pa.Array[Any]:
    """Each value as text, in an Arrow string column; a missing value stays missing."""
    return as_strings(formatted(column, values, PLAIN), values)


def as_strings(text: Text, values: pa.Array[Any]) -> pa.Array[Any]:
    """The text of `values` as an Arrow string column; missing where they are missing."""
    validity = pa.py_buffer(np.packbits(valid_rows(values), bitorder="little").tobytes()) if values.null_count else None
    offsets = pa.py_buffer(text.offsets.astype(np.int32).data)
    return pa.StringArray.from_buffers(len(values), offsets, pa.py_buffer(text.data.data), validity, values.null_count)


def text_of(strings: pa.Array[Any], null: str) -> Text:
    """An Arrow string column as it is, without quotes and escapes."""
    filled: pa.Array[Any] = strings.fill_null(null)
    source, bounds = string_data(filled)
    return Text(bounds.astype(np.int64) - int(bounds[0]), source[bounds[0] : bounds[-1]])


def float_text(values: pa.Array[Any]) -> pa.Array[Any]:
    """The shortest text that reads back as the same number; -0 keeps its sign. JSON reads it too."""
    return pc.cast(values, pa.string())


def joined_text(*parts: Any, separator: str = "") -> pa.Array[Any]:
    """Strings and columns of strings, side by side; missing where one of them is missing."""
    join: Any = pc.binary_join_element_wise
    made: pa.Array[Any] = join(*parts, separator)
    return made


def vector_text(column: Column, values: pa.Array[Any]) -> pa.Array[Any]:
    """`[1,0.5]` of 32-bit floats."""
    if not len(values):
        return pa.array([], pa.string())
    source, bounds = string_data(values)
    if np.any((bounds - bounds[0]) % 4):
        raise BadInput(f"column {column.name} holds a vector that is not made of 32-bit floats")
    floats = pa.array(source[bounds[0] : bounds[-1]].view(np.dtype("<f4")), pa.float32())
    lists: pa.Array[Any] = pa.ListArray.from_arrays(
        pa.array((bounds - bounds[0]) // 4, pa.int32()), pc.cast(floats, pa.string())
    )
    inside = pc.binary_join(lists, ",")
    present = pa.array(valid_rows(values)) if values.null_count else None
    listed = joined_text("[", inside, "]")
    return listed if present is None else pc.if_else(present, listed, pa.scalar(None, pa.string()))


def valid_rows(values: pa.Array[Any]) -> npt.NDArray[np.bool_]:
    """True where there is a value; an empty array if no value is missing."""
    if values.null_count == 0:
        return np.empty(0, np.bool_)
    return np.asarray(values.is_valid().to_numpy(zero_copy_only=False))


def numbers(values: pa.Array[Any]) -> npt.NDArray[Any]:
    """The values of a fixed-width column, without copying; those at missing places mean nothing."""
    dtype = np.dtype(values.type.to_pandas_dtype())
    return _view(values.buffers()[1], dtype, values.offset, len(values))


def string_data(values: pa.Array[Any]) -> tuple[Bytes, npt.NDArray[np.int32]]:
    """The bytes of a column of strings or binaries, and where each value starts and ends in them; without copying."""
    if len(values) == 0:
        return np.empty(0, np.uint8), np.zeros(1, np.int32)
    _, bounds, data = values.buffers()
    source: Bytes = _view(data, np.dtype(np.uint8), 0, data.size if data else 0)
    return source, _view(bounds, np.dtype(np.int32), values.offset, len(values) + 1)


def _view(buffer: pa.Buffer | None, dtype: np.dtype[Any], first: int, count: int) -> npt.NDArray[Any]:
    if buffer is None or count == 0:
        return np.empty(0, dtype)
    return np.frombuffer(memoryview(buffer), dtype, count=count, offset=first * dtype.itemsize)


def formatted(
    column: Column,
    values: pa.Array[Any],
    style: Style,
    *,
    iso: bool = False,
    year_digits: int = 4,
    spare: int = 0,
) -> Text:
    """Numbers, enum and set as their numbers, and times. `iso`: timestamps as ISO 8601 has them. The data's array has
    `spare` bytes more behind what is returned."""
    base, rows, valid = column.base_type, len(values), valid_rows(values)
    offsets: Offsets = np.empty(rows + 1, np.int64)
    fsp = fraction_digits(column) if base in FRACTIONAL else 0

    def sized(width: int) -> Bytes:
        return np.empty(rows * max(width, len(style.null)) + spare, np.uint8)

    if base in INTEGERS or base == "year":
        out = sized(text_kernels.INTEGER_WIDTH)
        text_kernels.integers(numbers(values), valid, *style, year_digits if base == "year" else 0, offsets, out)
    elif base == "decimal":
        out = sized(text_kernels.DECIMAL_WIDTH)
        words = _view(values.buffers()[1], np.dtype(np.uint64), values.offset * 2, rows * 2).reshape(rows, 2)
        text_kernels.decimals(words, values.type.scale, valid, *style, offsets, out)
    elif base == "date":
        out = sized(text_kernels.DATE_WIDTH)
        text_kernels.dates(numbers(values), valid, *style, offsets, out)
    elif base == "datetime":
        out = sized(text_kernels.DATETIME_WIDTH)
        text_kernels.datetimes(numbers(values), fsp, valid, *style, offsets, out)
    elif base == "timestamp":
        out = sized(text_kernels.DATETIME_WIDTH)
        text_kernels.timestamps(numbers(values), fsp, iso, valid, *style, offsets, out)
    elif base == "time":
        out = sized(text_kernels.TIME_WIDTH)
        text_kernels.times(numbers(values), fsp, valid, *style, offsets, out)
    else:
        raise unsupported(column)
    return Text(offsets, out[: offsets[-1]])


def integer_text(values: npt.NDArray[Any], valid: npt.NDArray[np.bool_] | None = None, style: Style = PLAIN) -> Text:
    """Integers of any width."""
    offsets: Offsets = np.empty(len(values) + 1, np.int64)
    out = np.empty(len(values) * max(text_kernels.INTEGER_WIDTH, len(style.null)), np.uint8)
    known = np.empty(0, np.bool_) if valid is None else valid
    text_kernels.integers(np.ascontiguousarray(values), known, *style, 0, offsets, out)
    return Text(offsets, out[: offsets[-1]])


def json_strings(values: pa.Array[Any], *, latin1: bool = False) -> Text:
    """JSON strings, or `null`. With `latin1`, each byte as the character of that number."""
    offsets: Offsets = np.zeros(len(values) + 1, np.int64)
    source, bounds = string_data(values)
    valid = valid_rows(values)
    widths = string_kernels.LATIN1_WIDTHS if latin1 else string_kernels.UTF8_WIDTHS
    string_kernels.escaped_offsets(source, bounds, valid, widths, offsets)
    out = np.empty(offsets[-1], np.uint8)
    string_kernels.escape(source, bounds, valid, latin1, offsets, out)
    return Text(offsets, out)


def quoted_strings(values: pa.Array[Any], style: Style) -> Text:
    """Strings in quotes, a quote inside doubled."""
    offsets: Offsets = np.zeros(len(values) + 1, np.int64)
    source, bounds = string_data(values)
    valid = valid_rows(values)
    string_kernels.doubled_offsets(source, bounds, valid, *style, offsets)
    out = np.empty(offsets[-1], np.uint8)
    string_kernels.doubled(source, bounds, valid, *style, offsets, out)
    return Text(offsets, out)


def escaped_strings(values: pa.Array[Any], delimiter: Bytes, null: Bytes) -> Text:
    """Strings without quotes: a backslash before backslashes and before each character of a delimiter; `\\r`, `\\n`."""
    offsets: Offsets = np.zeros(len(values) + 1, np.int64)
    source, bounds = string_data(values)
    valid = valid_rows(values)
    string_kernels.backslashed_offsets(source, bounds, valid, delimiter, null, offsets)
    out = np.empty(offsets[-1], np.uint8)
    string_kernels.backslashed(source, bounds, valid, delimiter, null, offsets, out)
    return Text(offsets, out)


def bytes_text(values: pa.Array[Any], style: Style, *, is_hex: bool = False) -> Text:
    """Bytes as base64, or as hex."""
    source, bounds = string_data(values)
    return encoded_bytes(source, bounds.astype(np.int64, copy=False), valid_rows(values), style, is_hex=is_hex)


def encoded_bytes(
    source: Bytes, bounds: Offsets, valid: npt.NDArray[np.bool_], style: Style, *, is_hex: bool = False
) -> Text:
    """The same of bytes that are in no Arrow array."""
    offsets: Offsets = np.zeros(len(bounds), np.int64)
    string_kernels.bytes_offsets(bounds, valid, is_hex, *style, offsets)
    out = np.empty(offsets[-1], np.uint8)
    string_kernels.bytes_text(source, bounds, valid, is_hex, *style, offsets, out)
    return Text(offsets, out)
