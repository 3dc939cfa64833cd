"""Takes the packets of a replication stream apart: many events at once, back to back, without one Python call an event.

A packet is `length u24, sequence u8, payload`; an event's payload starts with one byte 0. A payload of 2^24 - 1 bytes goes on
in the next packet. `unpack` stops at the first packet that is not whole or not an event.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from penstock.kernels.compile import kernel

Bytes = npt.NDArray[np.uint8]

NEED_MORE = 0  # everything whole was taken
NOT_AN_EVENT = 1  # the packet at `consumed` says something else: an error, or the end


@kernel
def unpack(packets: Bytes, have: int, events: Bytes) -> tuple[int, int, int]:
    """Copies events from `packets[:have]` to `events`: (bytes consumed, bytes of events, why it stopped)."""
    at = 0
    out = 0
    while True:
        # One event: a chain of packets, all of which must be there.
        start = at
        to = out
        first = True
        while True:
            if have - at < 4:
                return start, out, 0
            length: int = np.int64(packets[at]) | np.int64(packets[at + 1]) << 8 | np.int64(packets[at + 2]) << 16  # type: ignore[assignment]
            if have - at - 4 < length:
                return start, out, 0
            begin = at + 4
            size = length
            if first:
                if length == 0 or packets[begin] != 0:
                    return start, out, 1
                begin += 1
                size -= 1
            if to + size > len(events):
                return start, out, 0
            for k in range(size):
                events[to + k] = packets[begin + k]
            to += size
            at += 4 + length
            first = False
            if length < 0xFFFFFF:
                break
        out = to
