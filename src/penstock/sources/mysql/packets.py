"""Takes the events out of the packets of a replication stream, many at once, without a Python call for each event.

A packet is `length u24, sequence u8, payload`; the payload of an event starts with one byte 0. A payload of 2^24 - 1
bytes continues in the next packet. `unpack` stops at the first event that is not complete, or at a packet that is not
an event.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from penstock.binlog.types import EVENT_BYTES_MAX, HEADER_BYTES
from penstock.kernels.compile import kernel
from penstock.kernels.copy import copy_bytes

Bytes = npt.NDArray[np.uint8]

NEED_MORE = 0  # every complete event was taken
NOT_AN_EVENT = 1  # the packet at `consumed` says something else: an error, or the end
TOO_LARGE = 2  # the event at `consumed` is above EVENT_BYTES_MAX
_LENGTH_MAX = 0xFFFFFF  # of a packet; the next one continues its payload
_PACKET_HEADER_BYTES = 4


@kernel
def _little(packets: Bytes, at: int, width: int) -> int:
    value = np.int64(0)
    for k in range(width):
        value |= np.int64(packets[at + k]) << (8 * k)
    return value  # type: ignore[return-value]


@kernel
def unpack(packets: Bytes, have: int, events: Bytes) -> tuple[int, int, int]:
    """Copies events from `packets[:have]` to `events`. Returns (bytes consumed, bytes of events, why it stopped).

    Nothing of an event is copied before all its packets are there, so an event that arrives in many pieces costs as
    much as its bytes and no more. `events` must be at least as long as `packets`.
    """
    at = 0
    out = 0
    while True:
        start = at
        size = -1  # without the byte 0
        while True:
            if have - at < _PACKET_HEADER_BYTES:
                return start, out, NEED_MORE
            length = _little(packets, at, 3)
            body = at + _PACKET_HEADER_BYTES
            if at == start and (length == 0 or (have > body and packets[body] != 0)):
                return (start, out, NOT_AN_EVENT) if have - body >= length else (start, out, NEED_MORE)
            if (
                at == start
                and have - body > HEADER_BYTES
                and length > HEADER_BYTES
                and _little(packets, body + 10, 4) > EVENT_BYTES_MAX
            ):
                return start, out, TOO_LARGE
            size += length
            if size > EVENT_BYTES_MAX:
                return start, out, TOO_LARGE
            at = body + length
            if have < at:
                return start, out, NEED_MORE
            if length < _LENGTH_MAX:
                break
        at = start
        first = 1
        while True:
            length = _little(packets, at, 3)
            copy_bytes(events, out, packets, at + _PACKET_HEADER_BYTES + first, length - first)
            out += length - first
            at += _PACKET_HEADER_BYTES + length
            first = 0
            if length < _LENGTH_MAX:
                break
