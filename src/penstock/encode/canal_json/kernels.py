"""Kernels that escape strings and put JSON lines together from constant fragments and the tokens of columns.

Tokens of all columns lie in one arena; row r of column c is `arena[starts[c, r]:starts[c, r + 1]]`.
"""

# ruff: noqa: PLR0917 - compiled kernels take their arrays by place
from __future__ import annotations

from typing import Any

import numpy as np

from penstock.encode.text_kernels import QUOTE, put_null, put_unsigned
from penstock.kernels.compile import kernel
from penstock.kernels.copy import copy_bytes


def _widths(latin1: bool) -> Any:
    """How many bytes each byte takes inside a JSON string."""
    widths = np.ones(256, np.int64)
    widths[:32] = 6
    widths[[8, 9, 10, 12, 13, ord('"'), ord("\\")]] = 2
    if latin1:
        widths[128:] = 2
    return widths


UTF8_WIDTHS = _widths(latin1=False)
LATIN1_WIDTHS = _widths(latin1=True)


@kernel
def escaped_offsets(source: Any, bounds: Any, valid: Any, widths: Any, offsets: Any) -> None:
    """Where each token starts and ends, two quotes included; null takes four bytes."""
    at = 0
    offsets[0] = 0
    for row in range(len(bounds) - 1):
        if len(valid) != 0 and not valid[row]:
            at += 4
        else:
            at += 2
            for place in range(bounds[row], bounds[row + 1]):
                at += widths[source[place]]
        offsets[row + 1] = at


@kernel
def put_escaped(out: Any, at: int, byte: Any, latin1: bool) -> int:
    if byte >= 0x80 and latin1:
        out[at] = 0xC0 | (byte >> 6)
        out[at + 1] = 0x80 | (byte & 0x3F)
        return at + 2
    if byte >= 32 and byte not in (34, 92):
        out[at] = byte
        return at + 1
    out[at] = 92
    short = 0
    if byte in (34, 92):
        short = byte
    elif byte == 8:
        short = 98
    elif byte == 9:
        short = 116
    elif byte == 10:
        short = 110
    elif byte == 12:
        short = 102
    elif byte == 13:
        short = 114
    if short != 0:
        out[at + 1] = short
        return at + 2
    out[at + 1] = 117
    out[at + 2] = 48
    out[at + 3] = 48
    out[at + 4] = 48 + (byte >> 4)
    low = byte & 15
    out[at + 5] = 48 + low if low < 10 else 87 + low
    return at + 6


@kernel
def escape(source: Any, bounds: Any, valid: Any, latin1: bool, offsets: Any, out: Any) -> None:
    """Strings as JSON tokens, into the places that `escaped_offsets` found."""
    for row in range(len(bounds) - 1):
        at = offsets[row]
        if len(valid) != 0 and not valid[row]:
            put_null(out, at)
            continue
        out[at] = QUOTE
        at += 1
        first, last = bounds[row], bounds[row + 1]
        if offsets[row + 1] - offsets[row] == last - first + 2:
            copy_bytes(out, at, source, first, last - first)
            at += last - first
        else:
            for place in range(first, last):
                at = put_escaped(out, at, np.int64(source[place]), latin1)
        out[at] = QUOTE


@kernel
def seqs(values: Any, offsets: Any, out: Any) -> None:
    """Rows of four uint64 as L:E:e:r, at most 63 bytes each."""
    at = 0
    offsets[0] = 0
    for row in range(len(values)):
        for part in range(4):
            if part > 0:
                out[at] = 58
                at += 1
            at = put_unsigned(out, at, values[row, part])
        offsets[row + 1] = at


@kernel
def old_offsets(updates: Any, changed: Any, names: Any, starts: Any, offsets: Any) -> None:
    """Where the `old` token of each row starts and ends. `changed[c, u]` and the tokens count updates only."""
    columns = len(changed)
    taken = np.zeros(columns, np.int64)
    update = 0
    at = 0
    offsets[0] = 0
    for row in range(len(updates)):
        if not updates[row]:
            at += 4
        else:
            at += 4  # [{}]
            listed = 0
            for column in range(columns):
                if changed[column, update]:
                    token = taken[column]
                    at += names[column + 1] - names[column]
                    at += starts[column, token + 1] - starts[column, token]
                    taken[column] = token + 1
                    listed += 1
            if listed > 1:
                at += listed - 1
            update += 1
        offsets[row + 1] = at


@kernel
def old_tokens(
    updates: Any,
    changed: Any,
    names: Any,
    name_bytes: Any,
    starts: Any,
    arena: Any,
    offsets: Any,
    out: Any,
) -> None:
    """`null`, or for an update `[{"changed":"before",…}]`; `name_bytes` holds `"name":` of each column."""
    columns = len(changed)
    taken = np.zeros(columns, np.int64)
    update = 0
    for row in range(len(updates)):
        at = offsets[row]
        if not updates[row]:
            put_null(out, at)
            continue
        out[at] = 91
        out[at + 1] = 123
        at += 2
        listed = False
        for column in range(columns):
            if changed[column, update]:
                if listed:
                    out[at] = 44
                    at += 1
                listed = True
                length = names[column + 1] - names[column]
                copy_bytes(out, at, name_bytes, names[column], length)
                at += length
                token = taken[column]
                length = starts[column, token + 1] - starts[column, token]
                copy_bytes(out, at, arena, starts[column, token], length)
                at += length
                taken[column] = token + 1
        out[at] = 125
        out[at + 1] = 93
        update += 1


@kernel
def lines(fragments: Any, fragment_bytes: Any, starts: Any, arena: Any, out: Any) -> None:
    """Each row: fragment 0, token 0, fragment 1, token 1, … last fragment."""
    columns = len(starts)
    at = 0
    for row in range(starts.shape[1] - 1):
        for column in range(columns + 1):
            first = fragments[column]
            length = fragments[column + 1] - first
            copy_bytes(out, at, fragment_bytes, first, length)
            at += length
            if column < columns:
                first = starts[column, row]
                length = starts[column, row + 1] - first
                copy_bytes(out, at, arena, first, length)
                at += length
