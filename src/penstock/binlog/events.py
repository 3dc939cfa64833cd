"""Event headers: splits a buffer of back-to-back events into columns, and checks their CRC32.

`split_events` touches headers only and costs a few nanoseconds per event. `bodies.py` parses the bodies of single
events; `rows.py` decodes many row events at a time.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.binlog.errors import BadChecksum, BadEvent
from penstock.binlog.types import CHECKSUM_BYTES, FLAG_IN_USE, HEADER_BYTES, ROWS_TYPES, EventType
from penstock.kernels.compile import kernel
from penstock.kernels.copy import copy_bytes
from penstock.kernels.crc32 import crc32_of, extend

Buffer = bytes | bytearray | memoryview | npt.NDArray[np.uint8]

HEADER = struct.Struct("<IBIIIH")
_STATEMENT_END = 1  # flag of a row event, after header and table id

_OK, _SHORT_HEADER, _SIZE_TOO_SMALL, _TRUNCATED = range(4)


@dataclass(frozen=True, slots=True)
class EventHeader:
    timestamp: int
    type: int
    server_id: int
    size: int
    end_pos: int
    flags: int


@dataclass(frozen=True, slots=True)
class Events:
    """The headers of a buffer's events in columns. `consumed`: bytes up to the end of the last complete event."""

    offset: npt.NDArray[np.int64]
    size: npt.NDArray[np.uint32]
    type: npt.NDArray[np.uint8]
    flags: npt.NDArray[np.uint16]
    end_pos: npt.NDArray[np.uint32]
    timestamp: npt.NDArray[np.uint32]
    server_id: npt.NDArray[np.uint32]
    consumed: int

    def __len__(self) -> int:
        return len(self.offset)

    def some(self, which: slice | npt.NDArray[np.bool_], consumed: int | None = None) -> Events:
        """Those events alone, in the same buffer; `consumed` stays, unless another is given."""
        return Events(
            self.offset[which],
            self.size[which],
            self.type[which],
            self.flags[which],
            self.end_pos[which],
            self.timestamp[which],
            self.server_id[which],
            self.consumed if consumed is None else consumed,
        )


def as_array(buffer: Buffer) -> npt.NDArray[np.uint8]:
    """The same bytes as a read-only numpy array, without copying."""
    array = buffer if isinstance(buffer, np.ndarray) else np.frombuffer(buffer, dtype=np.uint8)
    if array.flags.writeable:
        array = array.view()
        array.flags.writeable = (
            False  # to numba a read-only array is another type: this way each kernel is compiled once
        )
    return array


def parse_header(buffer: bytes | bytearray | memoryview, offset: int = 0) -> EventHeader:
    """The header at `offset`. Raises `BadEvent` where fewer than 19 bytes are there."""
    if offset < 0 or len(buffer) - offset < HEADER_BYTES:
        raise BadEvent("fewer bytes than an event header", offset=offset)
    timestamp, kind, server_id, size, end_pos, flags = HEADER.unpack_from(buffer, offset)
    return EventHeader(timestamp, kind, server_id, size, end_pos, flags)


def split_events(buffer: Buffer, *, start: int = 0, whole: bool = True) -> Events:
    """The events from `start` to the end of `buffer`.

    With `whole` a last event that is not complete raises `BadEvent`; without it, `consumed` says where that event
    begins, and a reader of a stream continues there. A size below 19 bytes always raises, because the next event
    cannot be found.
    """
    array = as_array(buffer)
    if start < 0 or start > len(array):
        raise BadEvent(f"starts beyond the {len(array)} bytes of the buffer", offset=start)
    count, consumed, status = _count_events(array, start)
    if status == _SIZE_TOO_SMALL:
        size = int.from_bytes(array[consumed + 9 : consumed + 13].tobytes(), "little")
        raise BadEvent(f"its size of {size} is below a header's", offset=consumed, event_type=int(array[consumed + 4]))
    if whole and status == _SHORT_HEADER:
        raise BadEvent("fewer bytes than an event header", offset=consumed)
    if whole and status == _TRUNCATED:
        size = int.from_bytes(array[consumed + 9 : consumed + 13].tobytes(), "little")
        raise BadEvent(
            f"has {size} bytes, but only {len(array) - consumed} are left",
            offset=consumed,
            event_type=int(array[consumed + 4]),
        )
    offset = np.empty(count, np.int64)
    sizes = np.empty(count, np.uint32)
    types = np.empty(count, np.uint8)
    flags = np.empty(count, np.uint16)
    end_pos = np.empty(count, np.uint32)
    timestamp = np.empty(count, np.uint32)
    server_id = np.empty(count, np.uint32)
    _fill_events(array, start, offset, sizes, types, flags, end_pos, timestamp, server_id)
    return Events(offset, sizes, types, flags, end_pos, timestamp, server_id, consumed)


@kernel
def is_rows(kind: Any) -> Any:
    """Whether the decoder reads events of this type as rows: the same set as `ROWS_TYPES`."""
    return (
        EventType.WRITE_ROWS_V1 <= kind <= EventType.DELETE_ROWS_V1
        or EventType.WRITE_ROWS_V2 <= kind <= EventType.DELETE_ROWS_V2
        or kind == EventType.PARTIAL_UPDATE_ROWS
    )


@kernel
def _u32(array: npt.NDArray[np.uint8], at: int) -> Any:
    return (
        np.int64(array[at])
        | np.int64(array[at + 1]) << 8
        | np.int64(array[at + 2]) << 16
        | np.int64(array[at + 3]) << 24
    )


@kernel
def _count_events(array: npt.NDArray[np.uint8], start: int) -> tuple[int, int, int]:
    at = start
    count = 0
    end = len(array)
    while at < end:
        if end - at < HEADER_BYTES:
            return count, at, _SHORT_HEADER
        size = _u32(array, at + 9)
        if size < HEADER_BYTES:
            return count, at, _SIZE_TOO_SMALL
        if size > end - at:
            return count, at, _TRUNCATED
        at += size
        count += 1
    return count, at, _OK


@kernel
def _fill_events(  # noqa: PLR0917
    array: npt.NDArray[np.uint8],
    start: int,
    offset: npt.NDArray[np.int64],
    size: npt.NDArray[np.uint32],
    kind: npt.NDArray[np.uint8],
    flags: npt.NDArray[np.uint16],
    end_pos: npt.NDArray[np.uint32],
    timestamp: npt.NDArray[np.uint32],
    server_id: npt.NDArray[np.uint32],
) -> None:
    at = start
    for i in range(len(offset)):
        bytes_here = _u32(array, at + 9)
        offset[i] = at
        timestamp[i] = _u32(array, at)
        kind[i] = array[at + 4]
        server_id[i] = _u32(array, at + 5)
        size[i] = bytes_here
        end_pos[i] = _u32(array, at + 13)
        flags[i] = np.uint16(array[at + 17]) | np.uint16(array[at + 18]) << 8
        at += bytes_here


def maps_in_force(data: npt.NDArray[np.uint8]) -> list[bytes]:
    """The TABLE_MAP events since the last statement ended; none if the next event begins a statement.

    These table maps are in force after the events: the next part of a split transaction must start with them.
    """
    events = split_events(data)
    rows = np.isin(events.type, list(ROWS_TYPES))
    flags = np.zeros(len(events), np.uint8)
    flags[rows] = data[events.offset[rows] + HEADER_BYTES + 6]
    ended = np.flatnonzero(rows & (flags & _STATEMENT_END != 0))
    first = int(ended[-1]) + 1 if len(ended) else 0
    maps = np.flatnonzero(events.type[first:] == EventType.TABLE_MAP) + first
    return [
        data[o : o + s].tobytes() for o, s in zip(events.offset[maps].tolist(), events.size[maps].tolist(), strict=True)
    ]


def verify_checksums(buffer: Buffer, events: Events) -> None:
    """Raises `BadChecksum` at the first event whose last four bytes are not the CRC32 of the rest.

    Call it only where the format description says CRC32. The IN_USE flag of a format description is not part of its
    CRC: the server clears the flag in place when it closes the file.
    """
    bad = int(_first_bad_crc(as_array(buffer), events.offset, events.size, events.type))
    if bad >= 0:
        raise BadChecksum(
            "its checksum does not match; the binlog is damaged here",
            offset=int(events.offset[bad]),
            event_type=int(events.type[bad]),
        )


def checksum_matches(event: bytes | bytearray | memoryview) -> bool:
    """Whether the last four bytes of one event are its CRC32."""
    size = len(event)
    if size < HEADER_BYTES + CHECKSUM_BYTES:
        return False
    crc = zlib.crc32(event[: size - CHECKSUM_BYTES])
    if event[4] == EventType.FORMAT_DESCRIPTION and event[17] & FLAG_IN_USE:
        cleared = bytearray(event[: size - CHECKSUM_BYTES])
        cleared[17] &= ~FLAG_IN_USE & 0xFF
        crc = zlib.crc32(cleared)
    return crc == int.from_bytes(event[size - CHECKSUM_BYTES :], "little")


@kernel
def _first_bad_crc(
    array: npt.NDArray[np.uint8],
    offset: npt.NDArray[np.int64],
    size: npt.NDArray[np.uint32],
    kind: npt.NDArray[np.uint8],
) -> int:
    for i in range(len(offset)):
        if size[i] < HEADER_BYTES + CHECKSUM_BYTES:
            return i
        at = offset[i]
        end = at + np.int64(size[i]) - CHECKSUM_BYTES
        crc = crc32_of(array, at, end)
        if kind[i] == EventType.FORMAT_DESCRIPTION and array[at + 17] & FLAG_IN_USE:
            header = array[at : at + HEADER_BYTES].copy()
            header[17] &= np.uint8(0xFF - FLAG_IN_USE)
            crc = ~extend(extend(np.uint32(0xFFFFFFFF), header, 0, HEADER_BYTES), array, at + HEADER_BYTES, end)
        if np.uint32(crc) != np.uint32(_u32(array, end)):
            return i
    return -1


def with_checksums(buffer: Buffer, events: Events) -> bytes:
    """The events of a buffer with a CRC32 at the end of each, which they did not have."""
    out = np.empty(events.consumed + CHECKSUM_BYTES * len(events), np.uint8)
    _add_crcs(as_array(buffer), events.offset, events.size, out)
    return out.tobytes()


@kernel
def _add_crcs(array: Any, offset: Any, size: Any, out: Any) -> None:
    at = np.int64(0)
    for i in range(len(offset)):
        plain = np.int64(size[i])
        copy_bytes(out, at, array, offset[i], plain)
        _put_u32(out, at + 9, plain + CHECKSUM_BYTES)
        _put_u32(out, at + plain, np.int64(crc32_of(out, at, at + plain)))
        at += plain + CHECKSUM_BYTES


@kernel
def _put_u32(out: Any, at: Any, value: Any) -> None:
    for k in range(4):
        out[at + k] = (value >> (8 * k)) & 0xFF
