# ruff: noqa: PLR0917 - kernels take many arrays
"""Kernels that copy values of variable length out of the binlog's bytes, as they are or recoded to UTF-8.

`places` is what `walk_rows` filled: where the length of each value stands, in `width` bytes, with the value after it;
negative where there is none. `offsets` is Arrow's: one element more than there are rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.binlog.charset_tables import NONE
from penstock.binlog.rows.values import le
from penstock.kernels.compile import kernel
from penstock.kernels.copy import copy_bytes


@kernel
def gather_sizes(buf: Any, places: Any, width: Any, pad: Any, offsets: Any) -> Any:
    """Arrow offsets of the values, each at least `pad` long. Returns the total, which may exceed int32."""
    total = np.int64(0)
    for i in range(len(places)):
        offsets[i] = total
        if places[i] >= 0:
            total += max(np.int64(le(buf, places[i], width)), pad)
    offsets[len(places)] = total
    return total


@kernel
def gather(buf: Any, places: Any, width: Any, offsets: Any, out: Any) -> Any:
    """Copies the values; the rest up to the next offset is zero."""
    for i in range(len(places)):
        if places[i] < 0:
            continue
        at = np.int64(offsets[i])
        stop = np.int64(offsets[i + 1])
        n = min(np.int64(le(buf, places[i], width)), stop - at)
        copy_bytes(out, at, buf, places[i] + width, n)
        for k in range(at + n, stop):
            out[k] = 0


@kernel
def _character(buf: Any, at: Any, end: Any, single: Any, double: Any, triple: Any) -> Any:
    """(code point, bytes) of the character at `at`; NONE if the charset has none there."""
    code = single[buf[at]]
    if code != NONE or len(double) == 0:
        return code, 1
    if buf[at] == 0x8F and len(triple) and at + 2 < end:
        return triple[np.int64(buf[at + 1]) << 8 | np.int64(buf[at + 2])], 3
    if at + 1 < end:
        return double[np.int64(buf[at]) << 8 | np.int64(buf[at + 1])], 2
    return code, 1


@kernel
def recode_sizes(buf: Any, places: Any, width: Any, single: Any, double: Any, triple: Any, offsets: Any) -> Any:
    """Offsets of text as UTF-8, by a `CharsetTable`. Returns (total, first row with bytes that it does not have)."""
    total = np.int64(0)
    for i in range(len(places)):
        offsets[i] = total
        if places[i] < 0:
            continue
        at = np.int64(places[i]) + width
        end = at + np.int64(le(buf, places[i], width))
        while at < end:
            code, taken = _character(buf, at, end, single, double, triple)
            if code == NONE:
                return total, i
            total += 1 if code < 0x80 else 2 if code < 0x800 else 3
            at += taken
    offsets[len(places)] = total
    return total, -1


@kernel
def recode(buf: Any, places: Any, width: Any, single: Any, double: Any, triple: Any, out: Any) -> Any:
    """The text as UTF-8, all of whose characters the charset has."""
    to = 0
    for i in range(len(places)):
        if places[i] < 0:
            continue
        at = np.int64(places[i]) + width
        end = at + np.int64(le(buf, places[i], width))
        while at < end:
            found, taken = _character(buf, at, end, single, double, triple)
            code = np.int64(found)
            at += taken
            if code < 0x80:
                out[to] = code
                to += 1
            elif code < 0x800:
                out[to] = 0xC0 | code >> 6
                out[to + 1] = 0x80 | code & 0x3F
                to += 2
            else:
                out[to] = 0xE0 | code >> 12
                out[to + 1] = 0x80 | code >> 6 & 0x3F
                out[to + 2] = 0x80 | code & 0x3F
                to += 3
