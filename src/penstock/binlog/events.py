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

Buffer = bytes | bytearray | memoryview | npt.NDArray[np.uint8]

HEADER = struct.Struct("<IBIIIH")
_CRC_KERNEL_BYTES_MAX = 2048  # of an event: zlib is faster on larger ones, even with a call for each
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
    array = as_array(buffer)
    large = events.size > _CRC_KERNEL_BYTES_MAX
    bad = int(_first_bad_crc(array, events.offset, events.size, events.type, _TABLES, _CRC_KERNEL_BYTES_MAX))
    for i in np.flatnonzero(large):
        if 0 <= bad < i:
            break
        at, size = int(events.offset[i]), int(events.size[i])
        if not checksum_matches(array[at : at + size].data):
            bad = int(i)
            break
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


def _crc_tables() -> npt.NDArray[np.uint32]:
    """Tables of the slicing-by-8 method: entry [k, b] is the CRC of byte b followed by k zero bytes."""
    tables = np.empty((8, 256), np.uint32)
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0xEDB88320 if crc & 1 else 0)
        tables[0, byte] = crc
    for k in range(1, 8):
        previous = tables[k - 1]
        tables[k] = (previous >> np.uint32(8)) ^ tables[0][previous & np.uint32(0xFF)]
    return tables


_TABLES = _crc_tables()


@kernel
def _first_bad_crc(  # noqa: PLR0917
    array: npt.NDArray[np.uint8],
    offset: npt.NDArray[np.int64],
    size: npt.NDArray[np.uint32],
    kind: npt.NDArray[np.uint8],
    tables: npt.NDArray[np.uint32],
    bytes_max: int,
) -> int:
    for i in range(len(offset)):
        if size[i] > bytes_max:
            continue
        if size[i] < HEADER_BYTES + CHECKSUM_BYTES:
            return i
        at = offset[i]
        end = at + np.int64(size[i]) - CHECKSUM_BYTES
        crc = np.uint32(0xFFFFFFFF)
        if kind[i] == EventType.FORMAT_DESCRIPTION:  # byte by byte through the header, with the IN_USE flag cleared
            for k in range(at, at + HEADER_BYTES):
                byte = array[k]
                if k == at + 17:
                    byte = byte & np.uint8(0xFF - FLAG_IN_USE)
                crc = (crc >> np.uint32(8)) ^ tables[0, (crc ^ np.uint32(byte)) & np.uint32(0xFF)]
            at += HEADER_BYTES
        while end - at >= 8:
            low = crc ^ np.uint32(_u32(array, at))
            crc = (
                tables[7, low & np.uint32(0xFF)]
                ^ tables[6, (low >> np.uint32(8)) & np.uint32(0xFF)]
                ^ tables[5, (low >> np.uint32(16)) & np.uint32(0xFF)]
                ^ tables[4, low >> np.uint32(24)]
                ^ tables[3, array[at + 4]]
                ^ tables[2, array[at + 5]]
                ^ tables[1, array[at + 6]]
                ^ tables[0, array[at + 7]]
            )
            at += 8
        while at < end:
            crc = (crc >> np.uint32(8)) ^ tables[0, (crc ^ np.uint32(array[at])) & np.uint32(0xFF)]
            at += 1
        if (crc ^ np.uint32(0xFFFFFFFF)) != np.uint32(_u32(array, end)):
            return i
    return -1
