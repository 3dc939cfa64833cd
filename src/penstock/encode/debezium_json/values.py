"""A column in its physical form → JSON values as Debezium's MySQL connector writes them (docs/types.md has the table).

A date that the calendar does not have is null, and in a NOT NULL column 1970-01-01, as there.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.encode.calendar import date_days, datetime_micros, existing, timestamp_micros
from penstock.encode.names import enum_names, set_names
from penstock.encode.settings import DebeziumJsonOptions
from penstock.encode.text import (
    BINARIES,
    CHARACTERS,
    FLOATS,
    JSON_NUMBER,
    JSON_STRING,
    PLAIN,
    Text,
    as_strings,
    bytes_text,
    encoded_bytes,
    float_text,
    formatted,
    fraction_digits,
    integer_text,
    is_text_decimal,
    joined_text,
    json_strings,
    numbers,
    string_data,
    text_of,
    unsupported,
    valid_rows,
    vector_text,
)
from penstock.errors import BadInput
from penstock.schema.model import BINARY_TYPES, INTEGER_TYPES, SPATIAL_TYPES, Column

SRID_BYTES = 4  # before the WKB, little-endian


def json_values(column: Column, values: pa.Array[Any], options: DebeziumJsonOptions) -> Text:
    base = column.base_type
    if base in INTEGER_TYPES:
        return formatted(column, values, JSON_NUMBER)
    if base in FLOATS:
        text = float_text(values)
        # A reader takes -0 for an integer, and loses the sign.
        return text_of(pc.if_else(pc.equal(text, pa.scalar("-0")), "-0.0", text), "null")
    if base == "decimal":
        return _decimals(column, values, as_text=options.decimal == "string")
    if base in CHARACTERS:
        return json_strings(values)
    if base in BINARY_TYPES:
        return bytes_text(values, JSON_STRING)
    if base in BINARIES:
        return _geometries(column, values) if base in SPATIAL_TYPES else text_of(vector_text(column, values), "null")
    if base == "enum":
        return json_strings(enum_names(column, values))
    if base == "set":
        return json_strings(set_names(column, values))
    if base == "bit":
        return _bits(column, values)
    return _moments(column, values)


def is_milliseconds(column: Column) -> bool:
    """A DATETIME of at most three digits after the point is in milliseconds, others are in microseconds."""
    return fraction_digits(column) <= 3


def _moments(column: Column, values: pa.Array[Any]) -> Text:
    base = column.base_type
    if base in ("year", "time"):
        return _integers(values)
    if base == "date":
        return _integers(_in_column(column, date_days(values)))
    if base == "datetime":
        micros = _in_column(column, datetime_micros(values))
        return _integers(_milliseconds(micros) if is_milliseconds(column) else micros)
    if base == "timestamp":
        return formatted(column, _in_column(column, timestamp_micros(values)), JSON_STRING, iso=True)
    raise unsupported(column)


def _in_column(column: Column, moments: pa.Array[Any]) -> pa.Array[Any]:
    """A column that is never NULL shows the epoch in the place of a date that does not exist."""
    return moments if column.nullable else moments.fill_null(0)


def _milliseconds(micros: pa.Array[Any]) -> pa.Array[Any]:
    """Rounded down, before 1970 too."""
    made: pa.Array[Any] = existing(numbers(micros) // 1000, np.ones(len(micros), np.bool_), micros)
    return made


def _integers(values: pa.Array[Any]) -> Text:
    return integer_text(numbers(values), valid_rows(values), JSON_NUMBER)


def _decimals(column: Column, values: pa.Array[Any], *, as_text: bool) -> Text:
    if is_text_decimal(column, values):
        return json_strings(values) if as_text else text_of(values, "null")
    return formatted(column, values, JSON_STRING if as_text else JSON_NUMBER)


def _bits(column: Column, values: pa.Array[Any]) -> Text:
    """BIT(1) is a boolean; others are their bytes, the lowest first."""
    length = (column.arguments or (1,))[0]
    if length == 1:
        return text_of(pc.if_else(pc.not_equal(values, pa.scalar(0, values.type)), "true", "false"), "null")
    width = (length + 7) // 8
    little = np.ascontiguousarray(numbers(values).astype("<u8").view(np.uint8).reshape(-1, 8)[:, :width]).reshape(-1)
    bounds = np.arange(len(values) + 1, dtype=np.int64) * width
    return encoded_bytes(little, bounds, valid_rows(values), JSON_STRING)


def _geometries(column: Column, values: pa.Array[Any]) -> Text:
    """`{"wkb":"base64","srid":4326}`; a SRID of 0 is null."""
    source, bounds = string_data(values)
    if not len(values):
        return Text(np.zeros(1, np.int64), source)
    places = bounds.astype(np.int64) - bounds[0]
    lengths = np.diff(places)
    present = valid_rows(values) if values.null_count else np.ones(len(values), np.bool_)
    if np.any(present & (lengths < SRID_BYTES)):
        raise BadInput(f"column {column.name} holds a geometry without a SRID")
    data = source[bounds[0] : bounds[-1]]
    heads = places[:-1][present][:, None] + np.arange(SRID_BYTES)
    srid = np.zeros(len(values), np.uint32)
    srid[present] = np.ascontiguousarray(data[heads]).view("<u4").reshape(-1)
    is_wkb = np.ones(len(data), np.bool_)
    is_wkb[heads] = False
    wkb_bounds = np.zeros(len(bounds), np.int64)
    np.cumsum(lengths - np.where(present, SRID_BYTES, 0), out=wkb_bounds[1:])
    wkb = as_strings(encoded_bytes(data[is_wkb], wkb_bounds, valid_rows(values), PLAIN), values)
    srid_text = as_strings(integer_text(srid, srid != 0, JSON_NUMBER), pa.array(srid))
    return text_of(joined_text('{"wkb":"', wkb, '","srid":', srid_text, "}"), "null")
