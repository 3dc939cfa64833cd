"""Values that nobody at the sink may read. A missing value stays missing: that there is none is no secret.

| mask | the value becomes | the column becomes |
|---|---|---|
| hmac-sha256 | HMAC-SHA-256 of its text with `mask_key`, 64 hexadecimal digits | char(64) |
| sha256 | SHA-256 of its text, 64 hexadecimal digits | char(64) |
| redact | `***` | char(3) |
| null | NULL | nullable, its type stays |

The text of a value is what the server prints of it, in UTF-8; of bytes, the bytes themselves.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.encode.text import float_text, is_text_decimal, plain_text, string_data, valid_rows
from penstock.rules.expressions.columns import names_of
from penstock.rules.expressions.types import Array
from penstock.rules.settings import MaskName
from penstock.rules.sha256_kernels import HEX_DIGITS, hmac_sha256_hex, sha256_hex
from penstock.schema.model import Column

REDACTED = "***"


def masked_column(column: Column, mask: MaskName) -> Column:
    """The column as readers of the sink see it."""
    if mask == "null":
        return replace(column, nullable=True, default=None, computed=False)
    width = len(REDACTED) if mask == "redact" else HEX_DIGITS
    return Column(column.name, f"char({width})", column.nullable, column.primary_key, "ascii")


def keeps_rows_apart(mask: MaskName) -> bool:
    """Whether different values stay different, as those of a key must."""
    return mask in ("hmac-sha256", "sha256")


def masked(column: Column, mask: MaskName, values: Array, key: bytes) -> Array:
    """The values of `column`, in its physical form, as those of `masked_column`."""
    if mask == "null" or values.null_count == len(values):
        nothing: Array = pa.nulls(len(values), values.type if mask == "null" else pa.string())
        return nothing
    if mask == "redact":
        redacted: Array = pc.if_else(values.is_valid(), pa.scalar(REDACTED), pa.scalar(None, pa.string()))
        return redacted
    return _hashed(_text(column, values), key if mask == "hmac-sha256" else None)


def _text(column: Column, values: Array) -> Array:
    """What is hashed: strings or binaries."""
    if column.base_type in ("enum", "set") and column.elements:
        return names_of(column, values)
    if pa.types.is_string(values.type) or pa.types.is_binary(values.type) or is_text_decimal(column, values):
        return values
    if pa.types.is_floating(values.type):
        return float_text(values)
    return plain_text(column, values)


def _hashed(values: Array, key: bytes | None) -> Array:
    source, bounds = string_data(values)
    valid = valid_rows(values)
    sizes = np.full(len(values), HEX_DIGITS, np.int32)
    if len(valid):
        sizes[~valid] = 0
    offsets = np.zeros(len(values) + 1, np.int32)
    np.cumsum(sizes, out=offsets[1:])
    out = np.empty(int(offsets[-1]), np.uint8)
    places = bounds.astype(np.int64)
    if key is None:
        sha256_hex(source, places, valid, out)
    else:
        hmac_sha256_hex(key, source, places, valid, out)
    validity: Any = pa.py_buffer(np.packbits(valid, bitorder="little").tobytes()) if len(valid) else None
    return pa.StringArray.from_buffers(
        len(values), pa.py_buffer(offsets.data), pa.py_buffer(out.data), validity, values.null_count
    )
