"""The frame format (docs/formats/frame.md): encode, decode, verify. No I/O."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

import google_crc32c
import numpy as np

from penstock.errors import BadInput, NotSupported
from penstock.files import Buffer
from penstock.log.position import Position

MAGIC = b"PSF1"
VERSION = 1
HEADER = struct.Struct("<4sBBHQQQQQIII")  # without its own checksum
HEADER_BYTES = HEADER.size + 4
TRAILER_BYTES = 4
FRAME_BYTES_MIN = HEADER_BYTES + TRAILER_BYTES  # without data and changes
BODY_BYTES_MAX = (1 << 31) - 1
MESSAGES_MAX = 1 << 16
MESSAGES_AT = 6  # in the header: two bytes, how many messages less one
OP_PUT = 1
OP_TOMBSTONE = 2
CHANGE = struct.Struct("<QBBHIQII")  # of a state change, before its key and value

_U32 = struct.Struct("<I")
_COPY_BYTES_MAX = 4096  # below this a slice is cheaper than an array over it


class StateChange(NamedTuple):
    """One key of one namespace gets a value, or loses it (`None`).

    `delta` is the ordinal, within the entry, of the record that made the change. `timestamp` is in milliseconds; None stands
    for the time of the frame.
    """

    namespace: int
    key: bytes
    value: bytes | None
    delta: int = 0
    timestamp: int | None = None


Changes = Sequence[StateChange] | bytes  # bytes: encoded already, as they stand in a frame


class Entry(NamedTuple):
    """What was appended. `data` is a view into a read buffer, and keeps all of that buffer in memory."""

    position: Position
    data: memoryview
    changes: tuple[StateChange, ...]
    wall_ms: int
    messages: int = 1  # how many it stands for, as its writer said


class FrameInfo(NamedTuple):
    """An entry without its data, for readers that want only state changes or sizes."""

    position: Position
    data_bytes: int
    changes: tuple[StateChange, ...]
    wall_ms: int
    messages: int = 1


class Header(NamedTuple):
    """The fields of a frame's header, in their order (magic, version, flags and header_crc left out; `messages` last)."""

    file_id: int
    epoch: int
    entry_id: int
    wall_ms: int
    synced_end: int
    data_len: int
    changes_len: int
    changes_crc: int
    messages: int = 1

    @property
    def frame_bytes(self) -> int:
        return HEADER_BYTES + self.data_len + self.changes_len + TRAILER_BYTES


class BadFrame(Exception):
    """These bytes are not a frame of this file. Whoever reads them decides whether that is a torn tail or corruption."""


def crc32c(data: Buffer, crc: int = 0) -> int:
    """CRC32C of any buffer. The library takes no memoryview: a large buffer is wrapped in an array, not copied."""
    if isinstance(data, bytes):
        return int(google_crc32c.extend(crc, data))
    if len(data) <= _COPY_BYTES_MAX:
        return int(google_crc32c.extend(crc, bytes(data)))
    return int(google_crc32c.extend(crc, np.frombuffer(data, np.uint8)))


def encode_changes(changes: Changes, wall_ms: int) -> bytes:
    if isinstance(changes, bytes):
        return changes
    parts: list[bytes] = []
    for namespace, key, value, delta, timestamp in changes:
        at = wall_ms if timestamp is None else timestamp
        if value is None:
            parts += (CHANGE.pack(namespace, OP_TOMBSTONE, 0, 0, delta, at, len(key), 0), key)
        else:
            parts += (CHANGE.pack(namespace, OP_PUT, 0, 0, delta, at, len(key), len(value)), key, value)
    return b"".join(parts)


def decode_changes(raw: bytes, wall_ms: int | None = None) -> tuple[StateChange, ...]:
    """The changes of a frame that was written at `wall_ms`: a change with that very timestamp gets `timestamp=None`.

    The caller has verified the checksum. Raises `BadFrame` where the bytes end in the middle of a change.
    """
    if not raw:
        return ()
    changes: list[StateChange] = []
    at = 0
    while at < len(raw):
        if at + CHANGE.size > len(raw):
            raise BadFrame("state changes end in the middle")
        namespace, operation, _, _, delta, when, key_len, value_len = CHANGE.unpack_from(raw, at)
        timestamp = None if when == wall_ms else when
        at += CHANGE.size
        if at + key_len + value_len > len(raw):
            raise BadFrame("state changes end in the middle")
        key = raw[at : at + key_len]
        at += key_len
        if operation == OP_PUT:
            changes.append(StateChange(namespace, key, raw[at : at + value_len], delta, timestamp))
        elif operation == OP_TOMBSTONE and value_len == 0:
            changes.append(StateChange(namespace, key, None, delta, timestamp))
        else:
            raise NotSupported(f"state operation {operation} is not known", hint="a newer Penstock wrote it: upgrade")
        at += value_len
    return tuple(changes)


def encode_frame(  # noqa: PLR0917 (the hot path: keywords cost)
    file_id: int,
    epoch: int,
    entry_id: int,
    wall_ms: int,
    synced_end: int,
    data: Sequence[Buffer],
    changes: Changes,
    messages: int = 1,
) -> tuple[list[Buffer], int]:
    """The buffers of one frame, the caller's data among them uncopied, and their length together."""
    raw_changes = encode_changes(changes, wall_ms) if changes else b""
    data_len = 0
    for buffer in data:
        data_len += len(buffer)
    if data_len + len(raw_changes) > BODY_BYTES_MAX:
        raise BadInput(f"an entry of {data_len} bytes is too large", hint=f"at most {BODY_BYTES_MAX} bytes")
    changes_crc = google_crc32c.value(raw_changes) if raw_changes else 0
    head = HEADER.pack(
        MAGIC,
        VERSION,
        0,
        messages - 1,
        file_id,
        epoch,
        entry_id,
        wall_ms,
        synced_end,
        data_len,
        len(raw_changes),
        changes_crc,
    )
    head += _U32.pack(google_crc32c.value(head))
    crc = google_crc32c.value(head)
    buffers: list[Buffer] = [head]
    for buffer in data:
        crc = crc32c(buffer, crc)
        buffers.append(buffer)
    if raw_changes:
        crc = google_crc32c.extend(crc, raw_changes)
        buffers.append(raw_changes)
    buffers.append(_U32.pack(crc))
    return buffers, HEADER_BYTES + data_len + len(raw_changes) + TRAILER_BYTES


def decode_header(raw: bytes, at: int, file_id: int) -> Header:
    """The header at `at`. Raises `BadFrame` unless it is a header of this file, `NotSupported` for a newer version."""
    head = raw[at : at + HEADER_BYTES]
    if len(head) < HEADER_BYTES:
        raise BadFrame("the header is incomplete")
    if head[:4] != MAGIC:
        raise BadFrame("no frame starts here")
    if google_crc32c.value(head[:-4]) != _U32.unpack_from(head, HEADER.size)[0]:
        raise BadFrame("the header's checksum does not match")
    fields = HEADER.unpack_from(head)
    if fields[1] != VERSION or fields[2] != 0:
        raise NotSupported(
            f"frame version {fields[1]} with flags {fields[2]:#x} is not known",
            hint="a newer Penstock wrote it: upgrade",
        )
    header = Header._make((*fields[4:], fields[3] + 1))
    if header.file_id != file_id:
        raise BadFrame(f"the frame belongs to file {header.file_id}")
    return header


def verify_body(raw: bytes, at: int, header: Header) -> bytes:
    """Verifies the whole frame at `at` and returns its encoded changes. Raises `BadFrame` where the checksum differs."""
    body = at + HEADER_BYTES
    changes_at = body + header.data_len
    end = changes_at + header.changes_len
    if end + TRAILER_BYTES > len(raw):
        raise BadFrame("the frame is incomplete")
    if end - at <= _COPY_BYTES_MAX:
        crc = google_crc32c.value(raw[at:end])
    else:
        crc = google_crc32c.value(np.frombuffer(raw, np.uint8, end - at, at))
    if crc != _U32.unpack_from(raw, end)[0]:
        raise BadFrame("the checksum does not match")
    return raw[changes_at:end]


def total_bytes(changes: Changes) -> int:
    """About how much memory these changes take while they wait to be written."""
    if isinstance(changes, bytes):
        return len(changes)
    return sum(CHANGE.size + len(change.key) + len(change.value or b"") for change in changes)
