"""Kernels that put lines together from constant fragments and the tokens of columns.

The tokens of all columns are in one buffer: that of row r and column c is `arena[starts[c, r]:starts[c, r + 1]]`.
"""

# ruff: noqa: PLR0917 - compiled kernels take their arrays by place
from __future__ import annotations

from typing import Any

import numpy as np

from penstock.encode.kernels.strings import NULL
from penstock.encode.kernels.text import COLON, COMMA, put_all, put_unsigned
from penstock.kernels.compile import kernel
from penstock.kernels.copy import copy_bytes


@kernel
def seqs(values: Any, offsets: Any, out: Any) -> None:
    """Each row of four uint64 as the text of a seq, L:E:e:r: at most 63 bytes."""
    at = 0
    offsets[0] = 0
    for row in range(len(values)):
        for part in range(4):
            if part > 0:
                out[at] = COLON
                at += 1
            at = put_unsigned(out, at, values[row, part])
        offsets[row + 1] = at


@kernel
def object_offsets(rows: Any, chosen: Any, ends: Any, names: Any, starts: Any, offsets: Any) -> None:
    """Where the token of each row starts and ends. `chosen[c, k]`: whether column c is in the k-th object.

    The tokens of column c are those of the objects that it is in, in order; `names` bounds `"name":` of each column.
    """
    columns = len(chosen)
    taken = np.zeros(columns, np.int64)
    k = 0
    at = 0
    offsets[0] = 0
    for row in range(len(rows)):
        if not rows[row]:
            at += 4  # null
        else:
            at += len(ends[0]) + len(ends[1])
            listed = 0
            for column in range(columns):
                if chosen[column, k]:
                    token = taken[column]
                    at += names[column + 1] - names[column]
                    at += starts[column, token + 1] - starts[column, token]
                    taken[column] = token + 1
                    listed += 1
            if listed > 1:
                at += listed - 1
            k += 1
        offsets[row + 1] = at


@kernel
def objects(
    rows: Any,
    chosen: Any,
    ends: Any,
    names: Any,
    name_bytes: Any,
    starts: Any,
    arena: Any,
    offsets: Any,
    out: Any,
) -> None:
    """`{"chosen":"value",…}` between the two `ends` where `rows` is true, else `null`; `name_bytes` holds `"name":` of
    each column."""
    columns = len(chosen)
    taken = np.zeros(columns, np.int64)
    k = 0
    for row in range(len(rows)):
        at = offsets[row]
        if not rows[row]:
            put_all(out, at, NULL)
            continue
        at = put_all(out, at, ends[0])
        listed = False
        for column in range(columns):
            if chosen[column, k]:
                if listed:
                    out[at] = COMMA
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
        put_all(out, at, ends[1])
        k += 1


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
