"""A column in its physical form (schema/changes.py) → the text of its values in a line.

The form of a value depends on the column's type and never on the value: docs/formats/decode-jsonl.md has the table.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.encode.change_lines import kernels
from penstock.encode.names import element_names
from penstock.encode.text import (
    BINARIES,
    CHARACTERS,
    FLOATS,
    PLAIN,
    Bytes,
    Offsets,
    formatted,
    numbers,
    string_data,
    valid_rows,
)
from penstock.schema.model import Column


class Values(NamedTuple):
    """Row r is `data[starts[r] : starts[r + 1]]`; `valid` is empty if no value is missing, and else false where one is."""

    starts: Offsets
    data: Bytes
    valid: npt.NDArray[np.bool_]
    padded: bool  # 16 bytes more can be read after the data


def is_quoted(column: Column) -> bool:
    """Whether the text of the column's values stands between quotes."""
    base = column.base_type
    if base in ("enum", "set"):
        return bool(column.elements)
    return base in CHARACTERS or base in ("decimal", "date", "time", "datetime", "timestamp")


def value_texts(column: Column, values: pa.Array[Any]) -> Values:
    """The text of each value, without the quotes around it."""
    base = column.base_type
    if base in BINARIES:
        return _base64(values)
    if base in FLOATS:
        return _floats(values)
    if base in ("enum", "set") and column.elements:
        return _strings(element_names(column, values))
    if base in CHARACTERS or pa.types.is_string(values.type):
        return _strings(values)
    text = formatted(column, values, PLAIN, year_digits=0, spare=kernels.SPARE)
    return Values(text.offsets, text.data, valid_rows(values), padded=True)


def _floats(values: pa.Array[Any]) -> Values:
    """The shortest text that reads back as the same number. Infinity and NaN, which no server stores, as strings."""
    texts: Any = pc.cast(values, pa.string())
    finite: Any = pc.is_finite(values)
    if pc.all(finite).as_py() is False:
        texts = pc.if_else(finite, texts, pc.binary_join_element_wise('"', texts, '"', ""))
    if np.any(np.signbit(numbers(values)) & (numbers(values) == 0)):
        texts = pc.if_else(pc.equal(texts, pa.scalar("-0")), "-0.0", texts)  # as an integer it would lose its sign
    data, starts = string_data(texts)
    return Values(starts.astype(np.int64), data, valid_rows(values), padded=False)


def _strings(values: pa.Array[Any]) -> Values:
    data, starts = string_data(values)
    valid = valid_rows(values)
    if not len(values) or not kernels.has_escapes(data, int(starts[0]), int(starts[-1])):
        return Values(starts.astype(np.int64), data, valid, padded=False)
    escaped: Offsets = np.empty(len(values) + 1, np.int64)
    kernels.escaped_starts(data, starts, valid, escaped)
    out = np.empty(escaped[-1] + kernels.SPARE, np.uint8)
    kernels.escape(data, starts, valid, out)
    return Values(escaped, out, valid, padded=True)


def _base64(values: pa.Array[Any]) -> Values:
    data, bounds = string_data(values)
    valid = valid_rows(values)
    size = int(bounds[-1]) - int(bounds[0]) if len(bounds) else 0
    starts: Offsets = np.empty(len(values) + 1, np.int64)
    room = (size + 2 * len(values)) // 3 * 4 + 4 * len(values) + kernels.BASE64_FIXED_BYTES * len(values)
    out = np.empty(room + kernels.SPARE, np.uint8)
    kernels.base64(data, bounds, valid, starts, out)
    return Values(starts, out, valid, padded=True)
