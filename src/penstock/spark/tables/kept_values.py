"""Whether the values that a column has are still the same after a statement gave it another type: the server cuts, rounds and
replaces those that do not fit, and no change tells it. Asked of the values that are there: most statements hurt none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.schema.kept_values import TEXT_BYTES, WHOLE_UNICODE, integer_range, keeps_values
from penstock.schema.model import CHARACTER_TYPES, INTEGER_TYPES, Column

_BYTES = {"tinyblob": (1 << 8) - 1, "blob": (1 << 16) - 1, "mediumblob": (1 << 24) - 1, "longblob": (1 << 32) - 1}
_THREE_BYTES = frozenset({"utf8", "utf8mb3", "ucs2"})
_MICROS_DIGITS = 6


def fit(values: Any, old: Column, new: Column) -> bool:
    """Whether every value of the column is in `new` what it was in `old`, as far as types of the same kind go; `converted`
    (rows.py) judges those of different kinds."""
    if keeps_values(old, new):
        return True
    if values.null_count and not new.nullable:
        return False
    values = values.drop_null()
    if not len(values):
        return True
    base, before = new.base_type, old.base_type
    if new.unsigned and not old.unsigned and pc.min(values).as_py() < 0:
        return False
    if before in INTEGER_TYPES and base in INTEGER_TYPES:
        lowest, highest = integer_range(new)
        found: Any = pc.min_max(values).as_py()
        return bool(lowest <= found["min"] and found["max"] <= highest)
    if base in CHARACTER_TYPES and before in INTEGER_TYPES and "zerofill" in old.mysql_type:
        return False
    if base in CHARACTER_TYPES:
        return _texts_fit(pc.cast(values, pa.string()) if before in INTEGER_TYPES else values, old, new)
    if base in ("enum", "set"):
        return _elements_fit(values, old, new)
    if base in ("datetime", "timestamp"):
        digits = (*new.arguments, 0)[0]
        micros = np.asarray(pc.cast(pc.cast(values, pa.timestamp("us")), pa.int64()).to_numpy())
        return not np.any(micros % 10 ** (_MICROS_DIGITS - digits))
    if pa.types.is_binary(values.type):
        return _bytes_fit(values, new)
    if base == "bit" and before == "bit":
        return bool(pc.max(values).as_py() < 1 << (*new.arguments, 1)[0])
    # The text of a time, or of a decimal with very many digits, has as many digits as its type.
    return not pa.types.is_string(values.type) or old.plain_type == new.plain_type


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
