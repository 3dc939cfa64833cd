"""Copies values of variable length out of the binlog's bytes, as they are or recoded to UTF-8.

`kernels.walk_rows` has checked `start` and `length`. `offsets` is Arrow's: one element more than there are rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.kernels.compile import kernel
from penstock.kernels.copy import copy_bytes


@kernel
def gather_sizes(length: Any, valid: Any, pad: Any, offsets: Any) -> Any:
    """Arrow offsets of values of these lengths, each at least `pad` long. Returns the total, which may exceed int32."""
    total = np.int64(0)
    for i in range(len(length)):
        offsets[i] = total
        if valid[i]:
            total += max(length[i], pad)
    offsets[len(length)] = total
    return total


@kernel
def gather(buf: Any, start: Any, length: Any, offsets: Any, out: Any) -> Any:
    """Copies the values; the rest up to the next offset is zero."""
    for i in range(len(start)):
        at = np.int64(offsets[i])
        stop = np.int64(offsets[i + 1])
        n = min(np.int64(length[i]), stop - at)
        copy_bytes(out, at, buf, start[i], n)
        for k in range(at + n, stop):
            out[k] = 0


@kernel
def recode_sizes(buf: Any, start: Any, length: Any, table: Any, offsets: Any) -> Any:
    """Offsets of single-byte text as UTF-8. Returns (total, first row with a byte that the charset does not have)."""
    total = np.int64(0)
    for i in range(len(start)):
        offsets[i] = total
        for k in range(start[i], start[i] + length[i]):
            code = table[buf[k]]
            if code < 0x80:
                total += 1
            elif code < 0x800:
                total += 2
            elif code <= 0xFFFF:
                total += 3
            else:
                return total, i
    offsets[len(start)] = total
    return total, -1


@kernel
def recode(buf: Any, start: Any, length: Any, table: Any, out: Any) -> Any:
    """Single-byte text as UTF-8, by the code point of each byte."""
    at = 0
    for i in range(len(start)):
        for k in range(start[i], start[i] + length[i]):
            code = np.int64(table[buf[k]])
            if code < 0x80:
                out[at] = code
                at += 1
            elif code < 0x800:
                out[at] = 0xC0 | code >> 6
                out[at + 1] = 0x80 | code & 0x3F
                at += 2
            else:
                out[at] = 0xE0 | code >> 12
                out[at + 1] = 0x80 | code >> 6 & 0x3F
                out[at + 2] = 0x80 | code & 0x3F
                at += 3
