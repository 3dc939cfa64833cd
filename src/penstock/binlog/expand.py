"""Compressed events → the plain events that they stand for.

| event | what is inside |
|---|---|
| TRANSACTION_PAYLOAD (MySQL, `binlog_transaction_compression`) | a whole transaction, by zstd |
| QUERY_COMPRESSED and the compressed row events (MariaDB, `log_bin_compress`) | the statement or the rows, by zlib |

`expand_events` is for buffers that hold whole events; `plain_events` gives what one event stands for in parts, so that a
transaction of any size needs little memory. Plain events are as a server would have written them: each ends with its
CRC32 where the format has one, although inside a payload there is none.
"""

from __future__ import annotations

import io
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.binlog.bodies import FormatDescription, event_body
from penstock.binlog.errors import BadEvent
from penstock.binlog.events import HEADER, Buffer, Events, as_array, parse_header, split_events, with_checksums
from penstock.binlog.types import CHECKSUM_BYTES, COMPRESSED_TYPES, EVENT_BYTES_MAX, HEADER_BYTES, EventType

PART_BYTES = 4 << 20  # of a payload that are decompressed at a time
EXPANDED_BYTES_MAX = EVENT_BYTES_MAX  # of the plain events that `expand_events` holds at once

_PLAIN_TYPE = {
    EventType.QUERY_COMPRESSED: EventType.QUERY,
    EventType.WRITE_ROWS_COMPRESSED_V1: EventType.WRITE_ROWS_V1,
    EventType.UPDATE_ROWS_COMPRESSED_V1: EventType.UPDATE_ROWS_V1,
    EventType.DELETE_ROWS_COMPRESSED_V1: EventType.DELETE_ROWS_V1,
    EventType.WRITE_ROWS_COMPRESSED: EventType.WRITE_ROWS_V2,
    EventType.UPDATE_ROWS_COMPRESSED: EventType.UPDATE_ROWS_V2,
    EventType.DELETE_ROWS_COMPRESSED: EventType.DELETE_ROWS_V2,
}
_IS_COMPRESSED = np.zeros(256, np.bool_)
_IS_COMPRESSED[list(COMPRESSED_TYPES)] = True

_PAYLOAD_END, _PAYLOAD_SIZE, _PAYLOAD_ALGORITHM, _PAYLOAD_PLAIN_SIZE = range(4)  # fields of a payload's header
_ZSTD, _NO_COMPRESSION = 0, 255


@dataclass(frozen=True, slots=True)
class Expanded:
    """Plain events. `origin[i]`: the index of the event, among those before, that event i was or was in."""

    buffer: npt.NDArray[np.uint8]
    events: Events
    origin: npt.NDArray[np.int64]


def expand_events(buffer: Buffer, events: Events, fde: FormatDescription) -> Expanded:
    """All events of a buffer as plain ones; the same buffer if it holds no compressed one. `events` are back to back.

    Raises `BadEvent` for what cannot be decompressed, and for more than `EXPANDED_BYTES_MAX` plain bytes.
    """
    array = as_array(buffer)
    compressed = np.flatnonzero(_IS_COMPRESSED[events.type])
    if not len(compressed):
        return Expanded(array, events, np.arange(len(events)))
    parts: list[npt.NDArray[np.uint8]] = []
    counts = np.ones(len(events), np.int64)
    done, total = int(events.offset[0]), 0
    for i in compressed.tolist():
        start = int(events.offset[i])
        end = start + int(events.size[i])
        parts.append(array[done:start])
        done = end
        counts[i] = 0
        try:
            for part in plain_events(array[start:end].tobytes(), fde):
                parts.append(np.frombuffer(part, np.uint8))
                counts[i] += len(split_events(part))
                total += len(part)
                if total > EXPANDED_BYTES_MAX:
                    raise BadEvent(f"more than {EXPANDED_BYTES_MAX} bytes when they are decompressed")
        except BadEvent as error:
            raise error.at(start, event_type=int(events.type[i])) from None
    parts.append(array[done : events.consumed])
    joined = as_array(np.concatenate(parts))
    return Expanded(joined, split_events(joined), np.repeat(np.arange(len(events)), counts))


def plain_events(event: bytes, fde: FormatDescription) -> Iterator[bytes]:
    """The plain events that one compressed event stands for, whole ones in parts of about `PART_BYTES`."""
    kind = parse_header(event).type
    if kind == EventType.TRANSACTION_PAYLOAD:
        yield from _payload_events(event, fde)
    elif kind in _PLAIN_TYPE:
        yield _plain_event(event, fde)
    else:
        raise BadEvent("a compressed event was expected here", event_type=kind)


def plain_size(event: bytes, fde: FormatDescription) -> int:
    """How many bytes the events inside a TRANSACTION_PAYLOAD have together, as its header says."""
    return _payload(event, fde)[1]


def _payload(event: bytes, fde: FormatDescription) -> tuple[int, int, memoryview]:
    """The algorithm, the number of plain bytes and the compressed bytes of a payload."""
    body = event_body(event, fde)
    fields: dict[int, int] = {}
    at = 0
    while True:
        kind, at = _packed(body, at)
        if kind == _PAYLOAD_END:
            break
        length, at = _packed(body, at)
        if length > len(body) - at:
            raise BadEvent("cut in its header")
        fields[kind] = _packed(body, at)[0]
        at += length
    size = fields.get(_PAYLOAD_SIZE, len(body) - at)
    algorithm = fields.get(_PAYLOAD_ALGORITHM, _NO_COMPRESSION)
    if size != len(body) - at:
        raise BadEvent(f"its header says {size} compressed bytes, but there are {len(body) - at}")
    if algorithm not in (_ZSTD, _NO_COMPRESSION):
        raise BadEvent(f"the compression {algorithm} is not known")
    return algorithm, fields.get(_PAYLOAD_PLAIN_SIZE, size), body[at:]


def _packed(data: memoryview, at: int) -> tuple[int, int]:
    """A length-encoded integer, and the offset after it."""
    if at >= len(data):
        raise BadEvent("cut in its header")
    width = {252: 2, 253: 3, 254: 8}.get(data[at], 0)
    if width == 0:
        return data[at], at + 1
    if at + 1 + width > len(data):
        raise BadEvent("cut in its header")
    return int.from_bytes(data[at + 1 : at + 1 + width], "little"), at + 1 + width


def _payload_events(event: bytes, fde: FormatDescription) -> Iterator[bytes]:
    algorithm, size, data = _payload(event, fde)
    stream: Any = io.BytesIO(data)
    if algorithm == _ZSTD:
        stream = pa.CompressedInputStream(pa.BufferReader(pa.py_buffer(data)), "zstd")
    rest = b""  # the beginning of an event that is not complete
    wanted, read = PART_BYTES, 0
    while True:
        try:
            more = stream.read(wanted)
        except OSError as error:
            raise BadEvent(f"its payload cannot be decompressed: {error}") from None
        read += len(more)
        if read > size or (not more and read != size):
            raise BadEvent(f"its header says {size} plain bytes, but there are {'more' if read > size else read}")
        part = rest + more
        events = split_events(part, whole=not more)
        if np.any(_IS_COMPRESSED[events.type]):
            raise BadEvent("a compressed event inside a compressed one")
        if len(events):
            yield with_checksums(part, events) if fde.trailer_bytes else part[: events.consumed]
        if not more:
            return
        rest = part[events.consumed :]
        # An event that is larger than a part is read to its end at once, so that nothing is copied twice.
        missing = HEADER.unpack_from(rest)[3] - len(rest) if len(rest) >= HEADER_BYTES else 0
        # One that claims to be larger than the rest of the payload gets no memory for it, and is refused at the end.
        wanted = max(PART_BYTES, min(missing, size - read))


def _plain_event(event: bytes, fde: FormatDescription) -> bytes:
    """A compressed event of MariaDB as a plain one."""
    header = parse_header(event)
    kind = _PLAIN_TYPE[EventType(header.type)]
    body = event_body(event, fde)
    head = _query_head(body, fde) if kind == EventType.QUERY else _rows_head(body, kind, fde)
    plain = bytes(body[:head]) + _inflated(body[head:])
    size = HEADER_BYTES + len(plain) + fde.trailer_bytes
    new = HEADER.pack(header.timestamp, kind, header.server_id, size, header.end_pos, header.flags) + plain
    return new + zlib.crc32(new).to_bytes(CHECKSUM_BYTES, "little") if fde.trailer_bytes else new


def _query_head(body: memoryview, fde: FormatDescription) -> int:
    """How many bytes of a query stand before its statement: thread, times, status variables, schema and its NUL."""
    if len(body) < 13:
        raise BadEvent("too short")
    post_header = max(13, fde.post_header_bytes(EventType.QUERY))
    return post_header + int.from_bytes(body[11:13], "little") + body[8] + 1


def _rows_head(body: memoryview, kind: int, fde: FormatDescription) -> int:
    """How many bytes of a row event stand before its rows: table id, flags, extra data, bitmaps of the columns."""
    at = fde.table_id_bytes + 2
    if kind >= EventType.WRITE_ROWS_V2:
        at += int.from_bytes(body[at : at + 2], "little")
    columns, at = _packed(body, at)
    images = 2 if kind in (EventType.UPDATE_ROWS_V1, EventType.UPDATE_ROWS_V2) else 1
    return at + images * ((columns + 7) // 8)


def _inflated(data: memoryview) -> bytes:
    """What a compressed block of MariaDB holds: a byte for the algorithm and the width of the length, the length, zlib."""
    if len(data) < 2 or data[0] & 0xF0 != 0x80 or not 1 <= data[0] & 7 <= 4:
        raise BadEvent("its compressed part does not begin as one")
    width = data[0] & 7
    size = int.from_bytes(data[1 : 1 + width], "big")
    if size > EVENT_BYTES_MAX:
        raise BadEvent(f"{size} bytes inside are more than an event may have (EVENT_BYTES_MAX, {EVENT_BYTES_MAX})")
    inflater = zlib.decompressobj()
    try:
        plain = inflater.decompress(data[1 + width :], size + 1)
    except zlib.error as error:
        raise BadEvent(f"its compressed part cannot be decompressed: {error}") from None
    if len(plain) != size or not inflater.eof:
        raise BadEvent(f"its compressed part is not of {size} bytes")
    return plain
