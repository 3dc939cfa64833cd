"""Takes the events out of the packets of a replication stream, many at once, without a Python call for each event.

A packet is `length u24, sequence u8, payload`; the payload of an event starts with one byte 0. A payload of 2^24 - 1
bytes continues in the next packet. `unpack` stops at the first packet that is not complete or not an event.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from penstock.kernels.compile import kernel
from penstock.kernels.copy import copy_bytes

Bytes = npt.NDArray[np.uint8]

NEED_MORE = 0  # every complete event was taken
NOT_AN_EVENT = 1  # the packet at `consumed` says something else: an error, or the end
_LENGTH_MAX = 0xFFFFFF  # of a packet; the next one continues its payload


@kernel
def unpack(packets: Bytes, have: int, events: Bytes) -> tuple[int, int, int]:
    """Copies events from `packets[:have]` to `events`. Returns (bytes consumed, bytes of events, why it stopped)."""
    at = 0
    out = 0
    while True:
        # One event: a chain of packets. Nothing of it counts unless all of them are there.
        start = at
        to = out
        first = True
        while True:
            if have - at < 4:
                return start, out, NEED_MORE
            length: int = np.int64(packets[at]) | np.int64(packets[at + 1]) << 8 | np.int64(packets[at + 2]) << 16  # type: ignore[assignment]
            if have - at - 4 < length:
                return start, out, NEED_MORE
            begin = at + 4
            size = length
            if first:
                if length == 0 or packets[begin] != 0:
                    return start, out, NOT_AN_EVENT
                begin += 1
                size -= 1
            if to + size > len(events):
                return start, out, NEED_MORE
            copy_bytes(events, to, packets, begin, size)
            to += size
            at += 4 + length
            first = False
            if length < _LENGTH_MAX:
                break
        out = to
