"""Kernels over the packets of a result set (text protocol): rows out of packets, values out of rows.

A packet is `length u24, sequence u8, payload`; a payload of 2^24 - 1 bytes continues in the next packet. A row is its
values one after the other, each with a length before it: one byte below 251, or 0xfc, 0xfd, 0xfe and 2, 3, 8 bytes; 0xfb
is NULL. The rows end with a packet of fewer than nine bytes that begins with 0xfe, or with an error, 0xff.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.kernels.compile import kernel
from penstock.kernels.copy import copy_bytes

NEED_MORE = 0  # every complete row was taken
END = 1  # the rows are over
ERROR = 2  # the packet at `consumed` is an error
ENOUGH = 3  # as many bytes of rows as wanted
_HEADER_BYTES = 4
_LENGTH_MAX = 0xFFFFFF
_END_BYTES_MAX = 9
_NULL = 0xFB


@kernel
def _length(packets: Any, at: Any) -> Any:
    return np.int64(packets[at]) | np.int64(packets[at + 1]) << 8 | np.int64(packets[at + 2]) << 16


@kernel
def take_rows(packets: Any, have: Any, out: Any, used: Any, enough: Any) -> Any:
    """Copies the rows in `packets[:have]` to `out[used:]`, which has room for all of them, without their packets. Returns
    (bytes consumed, bytes of `out` used, rows, why it stopped)."""
    at = np.int64(0)
    count = 0
    while True:
        if used >= enough:
            return at, used, count, ENOUGH
        end = at  # of the row, over all its packets
        while True:
            if have - end < _HEADER_BYTES:
                return at, used, count, NEED_MORE
            length = _length(packets, end)
            end += _HEADER_BYTES + length
            if have < end:
                return at, used, count, NEED_MORE
            if length < _LENGTH_MAX:
                break
        first = packets[at + _HEADER_BYTES] if end - at > _HEADER_BYTES else 0
        if first == 0xFF:
            return at, used, count, ERROR
        if first == 0xFE and end - at < _END_BYTES_MAX + _HEADER_BYTES:
            return end, used, count, END
        while at < end:
            length = _length(packets, at)
            copy_bytes(out, used, packets, at + _HEADER_BYTES, length)
            used += length
            at += _HEADER_BYTES + length
        count += 1


@kernel
def locate_values(rows: Any, used: Any, starts: Any, lengths: Any) -> Any:
    """For each row and column, where its value is in `rows[:used]` and how long; a length of -1 is NULL. Returns whether the
    bytes are exactly as many rows as the arrays have."""
    columns, count = starts.shape
    at = np.int64(0)
    for row in range(count):
        for column in range(columns):
            if at >= used:
                return False
            first = rows[at]
            at += 1
            if first == _NULL:
                starts[column, row] = 0
                lengths[column, row] = -1
                continue
            length = np.int64(first)
            if first > _NULL:
                width = 2 if first == 0xFC else 3 if first == 0xFD else 8
                if at + width > used:
                    return False
                length = np.int64(0)
                for k in range(width):
                    length |= np.int64(rows[at + k]) << (8 * k)
                at += width
            if length < 0 or at + length > used:
                return False
            starts[column, row] = at
            lengths[column, row] = length
            at += length
    return at == used
