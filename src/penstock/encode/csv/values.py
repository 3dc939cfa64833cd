"""A column in its physical form → fields of CSV (docs/types.md has the table).

What TiCDC holds as a string is quoted: text, bytes, decimals, dates and times, JSON, names of ENUM and SET. Integers,
floats, BIT and YEAR stand as they are.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from penstock.encode.names import enum_names, set_names
from penstock.encode.settings import CsvOptions
from penstock.encode.text import (
    BINARIES,
    CHARACTERS,
    FLOATS,
    PLAIN,
    TEMPORAL,
    Bytes,
    Style,
    Text,
    as_strings,
    bytes_text,
    escaped_strings,
    float_text,
    formatted,
    is_text_decimal,
    joined_text,
    quoted_strings,
    text_of,
    vector_text,
)
from penstock.schema.model import INTEGER_TYPES, Column


class Dialect(NamedTuple):
    """How fields are written: what `CsvOptions` say, as kernels need it."""

    quoted: Style
    bare: Style
    delimiter: Bytes
    null: str
    is_hex: bool

    @classmethod
    def of(cls, options: CsvOptions) -> Dialect:
        delimiter = np.frombuffer(options.delimiter.encode(), np.uint8)
        is_hex = options.binary_encoding == "hex"
        return cls(
            Style.of(options.quote, options.null_string),
            Style.of("", options.null_string),
            delimiter,
            options.null_string,
            is_hex,
        )

    def strings(self, values: pa.Array[Any]) -> Text:
        if len(self.quoted.quote):
            return quoted_strings(values, self.quoted)
        return escaped_strings(values, self.delimiter, self.quoted.null)


def fields(column: Column, values: pa.Array[Any], dialect: Dialect) -> Text:
    """Each value as a field, quotes included; the null text for a missing one."""
    base = column.base_type
    if base in INTEGER_TYPES or base in ("bit", "year"):
        return formatted(column, values, dialect.bare)
    if base in FLOATS:
        return text_of(float_text(values), dialect.null)
    if base in TEMPORAL or (base == "decimal" and not is_text_decimal(column, values)):
        return formatted(column, values, dialect.quoted)
    if base in BINARIES and base != "vector":
        return bytes_text(values, dialect.quoted, is_hex=dialect.is_hex)
    return dialect.strings(_strings(column, values))


def _strings(column: Column, values: pa.Array[Any]) -> pa.Array[Any]:
    base = column.base_type
    if base == "enum":
        return enum_names(column, values)
    if base == "set":
        return set_names(column, values)
    if base == "vector":
        return vector_text(column, values)
    if base in CHARACTERS or is_text_decimal(column, values):
        return values
    return as_strings(formatted(column, values, PLAIN), values)  # refuses a type that it does not know


def key_fields(key: list[tuple[Column, pa.Array[Any]]], rows: int, dialect: Dialect) -> Text:
    """The row's key as one string: the value, or `{first, second}` of a key of several columns; null without a key."""
    if not key:
        return dialect.strings(pa.nulls(rows, pa.string()))
    parts = [_key_part(column, values, dialect) for column, values in key]
    if len(parts) == 1:
        return dialect.strings(parts[0])
    return dialect.strings(joined_text("{", joined_text(*parts, separator=", "), "}"))


def _key_part(column: Column, values: pa.Array[Any], dialect: Dialect) -> pa.Array[Any]:
    base = column.base_type
    if base in FLOATS:
        return float_text(values)
    if base in BINARIES and base != "vector":
        return as_strings(bytes_text(values, PLAIN, is_hex=dialect.is_hex), values)
    return _strings(column, values)
