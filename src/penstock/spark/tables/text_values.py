"""Values as the text formats write them → the Arrow type that docs/types.md has for the column in Spark.

Times go through the physical form of the decoder, so that a date which the calendar does not have is null here as it is in
Parquet. What only debezium-json changes (numbers for days, base64 for bits) is undone.
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.encode.calendar import datetime_micros
from penstock.encode.names import element_names
from penstock.encode.parquet.columns import TIMESTAMP, parquet_type, parquet_values
from penstock.encode.settings import CsvOptions, FormatOptions
from penstock.encode.text import BINARIES, fraction_digits, plain_text
from penstock.schema.model import SPATIAL_TYPES, Column

_MILLISECOND_DIGITS = 3


def typed_values(column: Column, values: pa.Array[Any], format_name: str, options: FormatOptions) -> pa.Array[Any]:
    """The values of a column of `FileFormat.rows` in the type that the column has in Parquet. Raises `pa.ArrowInvalid` or
    `ValueError` for text that is no such value."""
    if format_name == "debezium-json":
        return _debezium(column, values)
    if column.base_type in BINARIES:
        if format_name == "canal-json":
            return _each(values, lambda text: text.encode("latin-1"))
        if column.base_type == "vector":
            return _each(values, _vector)
        as_hex = isinstance(options, CsvOptions) and options.binary_encoding == "hex"
        return _each(values, bytes.fromhex if as_hex else base64.b64decode)
    if column.base_type in ("enum", "set") and column.elements and format_name == "canal-json":
        return element_names(column, values.cast(pa.uint16() if column.base_type == "enum" else pa.uint64()))
    return plain_values(column, values)


def plain_values(column: Column, values: pa.Array[Any]) -> pa.Array[Any]:
    """Values as the server prints them: enum and set by their names."""
    base = column.base_type
    if base == "date":
        return parquet_values(column, _packed_date(values))
    if base == "datetime":
        return parquet_values(column, _packed_datetime(values))
    if base == "timestamp":
        return datetime_micros(_packed_datetime(values)).view(TIMESTAMP)
    if base == "time":
        return values
    return values.cast(parquet_type(column))


def _debezium(column: Column, values: pa.Array[Any]) -> pa.Array[Any]:
    base, target = column.base_type, parquet_type(column)
    if base == "date":
        return values.cast(pa.int32()).view(target)
    if base == "datetime":
        number = values.cast(pa.int64())
        micros = pc.multiply(number, 1000) if fraction_digits(column) <= _MILLISECOND_DIGITS else number
        return micros.view(target)
    if base == "time":
        return plain_text(column, values.cast(pa.int64()))
    if base == "bit":
        if column.arguments in ((), (1,)):
            return pc.equal(values, pa.scalar("true")).cast(target)
        return _each(values, lambda text: int.from_bytes(base64.b64decode(text), "little"), pa.uint64()).cast(target)
    if base in SPATIAL_TYPES:
        return _each(values, _geometry)
    if base == "vector":
        return _each(values, _vector)
    if base in BINARIES:
        return _each(values, base64.b64decode)
    return plain_values(column, values)


def _each(values: pa.Array[Any], convert: Callable[[str], Any], kind: pa.DataType | None = None) -> pa.Array[Any]:
    """Bytes in text: rare, and no kernel undoes it. The rows of a text format are read in Python anyway."""
    return pa.array([None if text is None else convert(text) for text in values.to_pylist()], kind or pa.binary())


def _vector(text: str) -> bytes:
    numbers = json.loads(text)
    return struct.pack(f"<{len(numbers)}f", *numbers)


def _geometry(text: str) -> bytes:
    value = json.loads(text)
    return struct.pack("<I", value["srid"] or 0) + base64.b64decode(value["wkb"])


def _packed_date(values: pa.Array[Any]) -> pa.Array[Any]:
    year, month, day = (_digits(values, *span) for span in ((0, 4), (5, 7), (8, 10)))
    return _with_nulls(year << 9 | month << 5 | day, values, pa.int32())


def _packed_datetime(values: pa.Array[Any]) -> pa.Array[Any]:
    """Of `2024-05-01 12:00:00.123`, also with a T between and a Z behind."""
    spans = ((0, 4), (5, 7), (8, 10), (11, 13), (14, 16), (17, 19))
    year, month, day, hour, minute, second = (_digits(values, *span) for span in spans)
    rest = pc.utf8_rtrim(pc.utf8_slice_codeunits(values, 20, 26), characters="Z")
    micros = _digits(pc.utf8_rpad(rest, 6, "0"), 0, 6)
    clock = day << 17 | hour << 12 | minute << 6 | second
    return _with_nulls(((year * 13 + month) << 22 | clock) << 24 | micros, values, pa.int64())


def _digits(values: pa.Array[Any], start: int, stop: int) -> Any:
    part = pc.utf8_slice_codeunits(values, start, stop).fill_null("0")
    return np.asarray(part.cast(pa.int64()).to_numpy(zero_copy_only=False))


def _with_nulls(numbers: Any, values: pa.Array[Any], kind: pa.DataType) -> pa.Array[Any]:
    missing = np.asarray(values.is_null().to_numpy(zero_copy_only=False))
    return pa.array(numbers, pa.int64(), mask=missing).cast(kind)
