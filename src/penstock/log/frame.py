"""The frame format (docs/formats/frame.md): pack, parse, verify. No I/O."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
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
BODY_BYTES_MAX = (1 << 31) - 1
OP_PUT = 1
OP_TOMBSTONE = 2

_CHANGE = struct.Struct("<QBBHIQII")
_U32 = struct.Struct("<I")
_COPY_BYTES_MAX = 4096  # below this a slice is cheaper than an array over it


class StateChange(NamedTuple):
    """One key of one namespace gets a value, or loses it (`None`)."""

    namespace: int
    key: bytes
    value: bytes | None


class Entry(NamedTuple):
    """What was appended. `data` is a view into a read buffer: keep it only as long as it is needed."""

    position: Position
    data: memoryview
    changes: tuple[StateChange, ...]
    wall_ms: int


class FrameInfo(NamedTuple):
    """An entry without its data: what a reader of state alone needs."""

    position: Position
    data_bytes: int
    changes: tuple[StateChange, ...]
    wall_ms: int


class Header(NamedTuple):
    """A header that decoded."""

    file_id: int
    epoch: int
    entry_id: int
    wall_ms: int
    synced_end: int
    data_len: int
    changes_len: int
    changes_crc: int

    @property
    def frame_bytes(self) -> int:
        return HEADER_BYTES + self.data_len + self.changes_len + TRAILER_BYTES


class BadFrame(Exception):
    """These bytes are not a frame of this file. The reader decides whether that is a torn tail or corruption."""


def crc32c(data: Buffer, crc: int = 0) -> int:
    """CRC32C of any buffer, without a copy of a large one (the library takes no memoryview)."""
    if isinstance(data, bytes):
        return int(google_crc32c.extend(crc, data))
    if len(data) <= _COPY_BYTES_MAX:
        return int(google_crc32c.extend(crc, bytes(data)))
    return int(google_crc32c.extend(crc, np.frombuffer(data, np.uint8)))


def encode_changes(changes: Sequence[StateChange], wall_ms: int) -> bytes:
    parts: list[bytes] = []
    for namespace, key, value in changes:
        if value is None:
            parts += (_CHANGE.pack(namespace, OP_TOMBSTONE, 0, 0, 0, wall_ms, len(key), 0), key)
        else:
            parts += (_CHANGE.pack(namespace, OP_PUT, 0, 0, 0, wall_ms, len(key), len(value)), key, value)
    return b"".join(parts)


def decode_changes(raw: bytes) -> tuple[StateChange, ...]:
    """Raises `BadFrame` where the bytes end in the middle; their checksum is the caller's to verify first."""
    if not raw:
        return ()
    changes: list[StateChange] = []
    at = 0
    while at < len(raw):
        if at + _CHANGE.size > len(raw):
            raise BadFrame("state changes end in the middle")
        namespace, operation, _, _, _, _, key_len, value_len = _CHANGE.unpack_from(raw, at)
        at += _CHANGE.size
        if at + key_len + value_len > len(raw):
            raise BadFrame("state changes end in the middle")
        key = raw[at : at + key_len]
        at += key_len
        if operation == OP_PUT:
            changes.append(StateChange(namespace, key, raw[at : at + value_len]))
        elif operation == OP_TOMBSTONE and value_len == 0:
            changes.append(StateChange(namespace, key, None))
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
    changes: Sequence[StateChange],
) -> tuple[list[Buffer], int]:
    """The buffers of one frame, the caller's own data among them, and their length."""
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
        0,
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
    """The header at `at`. Raises `BadFrame` unless it is one of this file, and `NotSupported` for a newer version."""
    head = raw[at : at + HEADER_BYTES]
    if len(head) < HEADER_BYTES:
        raise BadFrame("the header is cut")
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
    header = Header(*fields[4:])
    if header.file_id != file_id:
        raise BadFrame(f"the frame belongs to file {header.file_id}")
    return header


def verify_body(raw: bytes, at: int, header: Header) -> bytes:
    """The raw changes of the whole frame at `at`. Raises `BadFrame` where the checksum does not match."""
    body = at + HEADER_BYTES
    changes_at = body + header.data_len
    end = changes_at + header.changes_len
    if end + TRAILER_BYTES > len(raw):
        raise BadFrame("the frame is cut")
    if end - at <= _COPY_BYTES_MAX:
        crc = google_crc32c.value(raw[at:end])
    else:
        crc = google_crc32c.value(np.frombuffer(raw, np.uint8, end - at, at))
    if crc != _U32.unpack_from(raw, end)[0]:
        raise BadFrame("the checksum does not match")
    return raw[changes_at:end]


def total_bytes(changes: Iterable[StateChange]) -> int:
    """About how much memory these changes hold while they wait."""
    return sum(_CHANGE.size + len(key) + len(value or b"") for _, key, value in changes)
