"""Whether the values that a column has are still the same after a statement gave it another type: the server cuts, rounds and
replaces those that do not fit, and no change tells it. Asked of the values that are there: most statements hurt none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.encode.parquet.columns import parquet_type
from penstock.schema.kept_values import TEXT_BYTES, WHOLE_UNICODE, integer_range, keeps_values
from penstock.schema.model import CHARACTER_TYPES, INTEGER_TYPES, Column

_BYTES = {"tinyblob": (1 << 8) - 1, "blob": (1 << 16) - 1, "mediumblob": (1 << 24) - 1, "longblob": (1 << 32) - 1}
_THREE_BYTES = frozenset({"utf8", "utf8mb3", "ucs2"})
_FLOATS = frozenset({"float", "double"})
_NUMBERS = INTEGER_TYPES | _FLOATS | {"decimal", "bit", "year"}
_MICROS_DIGITS = 6


def fit(values: Any, old: Column, new: Column) -> bool:
    """Whether every value of the column is in `new` what it was in `old`, as far as that is certain."""
    if keeps_values(old, new):
        return True
    if values.null_count and not new.nullable:
        return False
    values = values.drop_null()
    if not len(values):
        return True
    if _is_number(values.type):
        return _numbers_fit(values, old, new)
    base = new.base_type
    if base in _NUMBERS:
        return False
    if base in CHARACTER_TYPES:
        return _texts_fit(values, old, new)
    if base in ("enum", "set"):
        return _elements_fit(values, old, new)
    if base in ("datetime", "timestamp"):
        return base == old.base_type and _moments_fit(values, new)
    if pa.types.is_binary(values.type):
        return _bytes_fit(values, new)
    # The text of a time has as many digits as its type.
    return not pa.types.is_string(values.type) or old.plain_type == new.plain_type


def _is_number(kind: pa.DataType) -> bool:
    return pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)


def _numbers_fit(values: Any, old: Column, new: Column) -> bool:
    """A cast finds those that have too many digits for a decimal. Bits and years become texts in ways of their own."""
    base, before = new.base_type, old.base_type
    lowest, highest = pc.min(values).as_py(), pc.max(values).as_py()
    if new.unsigned and lowest < 0:
        return False
    if base in INTEGER_TYPES and not pa.types.is_floating(values.type):
        low, high = integer_range(new)
        return bool(low <= lowest and highest <= high)
    if base in CHARACTER_TYPES:
        plain = before in INTEGER_TYPES and "zerofill" not in old.mysql_type
        return plain and _texts_fit(pc.cast(values, pa.string()), old, new)
    if base == "bit":
        return before == "bit" and bool(highest < 1 << (*new.arguments, 1)[0])
    if base == "decimal":
        return pa.types.is_decimal(parquet_type(new)) and not pa.types.is_floating(values.type)
    return base == "json" or (base in _FLOATS and before in _FLOATS)


def _moments_fit(values: Any, new: Column) -> bool:
    digits = (*new.arguments, 0)[0]
    micros = np.asarray(pc.cast(pc.cast(values, pa.timestamp("us")), pa.int64()).to_numpy())
    return not np.any(micros % 10 ** (_MICROS_DIGITS - digits))


def _texts_fit(values: Any, old: Column, new: Column) -> bool:
    if not pa.types.is_string(values.type):
        return True
    if new.charset != old.charset and not in_charset(values, new.charset):
        return False
    if new.base_type == "char" and pc.any(pc.ends_with(values, " ")).as_py():
        return False
    if new.base_type in TEXT_BYTES:
        return bool(pc.max(pc.binary_length(values)).as_py() <= TEXT_BYTES[new.base_type])
    return bool(pc.max(pc.utf8_length(values)).as_py() <= (*new.arguments, 1)[0])


def in_charset(values: Any, charset: str | None) -> bool:
    """Whether texts have only characters of which it is certain that a character set has them."""
    if charset in WHOLE_UNICODE:
        return True
    if charset in _THREE_BYTES:
        return not pc.any(pc.match_substring_regex(values, r"[\x{10000}-\x{10FFFF}]")).as_py()
    return bool(pc.all(pc.string_is_ascii(values)).as_py())


def _elements_fit(values: Any, old: Column, new: Column) -> bool:
    """An element that is gone becomes the empty text; those of a set are told in the order of the type."""
    if not pa.types.is_string(values.type) or not new.elements:
        return False
    known = pa.array(["", *new.elements])
    if new.base_type == "set" and old.base_type == "set":
        order = {element: number for number, element in enumerate(new.elements)}
        distinct = [text.split(",") for text in pc.unique(values).to_pylist() if text]
        numbers = [[order.get(part, -1) for part in parts] for parts in distinct]
        return all(-1 not in one and one == sorted(one) for one in numbers)
    return bool(pc.all(pc.is_in(values, known)).as_py())


def _bytes_fit(values: Any, new: Column) -> bool:
    lengths: Any = pc.min_max(pc.binary_length(values)).as_py()
    room = _BYTES.get(new.base_type) or (*new.arguments, 1)[0]
    filled = new.base_type == "binary" and lengths["min"] < room  # with zeros, at the end
    return bool(lengths["max"] <= room and not filled)
