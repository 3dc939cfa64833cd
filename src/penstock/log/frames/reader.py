"""Reads frames in large chunks, and finds the end of a file after a crash (docs/formats/frame.md, "Torn tail")."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, Protocol

import google_crc32c

from penstock.files import File
from penstock.log.frames.check import check_chunk
from penstock.log.frames.file_header import FILE_HEADER_BYTES, corruption
from penstock.log.frames.format import (
    HEADER_BYTES,
    MAGIC,
    BadFrame,
    Header,
    decode_header,
    verify_body,
)
from penstock.log.frames.index import FrameIndex

_CHUNK_BYTES_MIN = 128 << 10
_CHUNK_BYTES_MAX = 4 << 20
_SCAN_BYTES = 32 << 10
_INDEX_BYTES = 1 << 20  # stays in the processor's cache between the read and its check


class FrameSource(Protocol):
    """A file, or a ledger in an object store: something with bytes to read."""

    @property
    def path(self) -> Path | str: ...

    def read_at(self, offset: int, size: int) -> bytes: ...


class Frame(NamedTuple):
    """A verified frame; `data` is a view into the chunk that was read."""

    offset: int
    header: Header
    data: memoryview
    changes: bytes


class BadFrameAt(Exception):
    """The bytes at `offset` are not the frame that should be there."""

    def __init__(self, offset: int, reason: str) -> None:
        super().__init__(reason)
        self.offset = offset
        self.reason = reason


def read_frames(file: FrameSource, file_id: int, offset: int, entry_id: int, stop: int) -> Iterator[Frame]:
    """The frames from `offset`, where entry `entry_id` must be, up to byte `stop`. Raises `BadFrameAt`."""
    raw = b""
    base = offset
    chunk = _CHUNK_BYTES_MIN
    while offset < stop:
        at = offset - base
        if len(raw) - at < HEADER_BYTES:
            raw, base, at = file.read_at(offset, min(chunk, stop - offset)), offset, 0
            chunk = min(2 * chunk, _CHUNK_BYTES_MAX)
        try:
            header = decode_header(raw, at, file_id)
            if header.entry_id != entry_id:
                raise BadFrame(f"entry {header.entry_id} stands where {entry_id} should")
            size = header.frame_bytes
            if at + size > len(raw):
                if offset + size > stop:
                    raise BadFrame("the frame reaches over the end")
                raw, base, at = file.read_at(offset, min(max(chunk, size), stop - offset)), offset, 0
                chunk = min(2 * chunk, _CHUNK_BYTES_MAX)
            changes = verify_body(raw, at, header)
        except BadFrame as error:
            raise BadFrameAt(offset, str(error)) from error
        body = at + HEADER_BYTES
        yield Frame(offset, header, memoryview(raw)[body : body + header.data_len], changes)
        offset += size
        entry_id += 1


def scan_frames(
    file: FrameSource, file_id: int, offset: int, entry_id: int, stop: int
) -> Iterator[tuple[int, Header, bytes]]:
    """As `read_frames`, without the data: (offset, header, encoded changes), each verified by its own checksum."""
    raw = b""
    base = offset

    def take(at: int, size: int) -> bytes:
        nonlocal raw, base
        if at < base or at + size > base + len(raw):
            raw, base = file.read_at(at, min(max(size, _SCAN_BYTES), stop - at)), at
        return raw[at - base : at - base + size]

    while offset < stop:
        try:
            header = decode_header(take(offset, HEADER_BYTES), 0, file_id)
            if header.entry_id != entry_id:
                raise BadFrame(f"entry {header.entry_id} stands where {entry_id} should")
            if offset + header.frame_bytes > stop:
                raise BadFrame("the frame reaches over the end")
            changes = b""
            if header.changes_len:
                changes = take(offset + HEADER_BYTES + header.data_len, header.changes_len)
                if google_crc32c.value(changes) != header.changes_crc:
                    raise BadFrame("the checksum of the state changes does not match")
        except BadFrame as error:
            raise BadFrameAt(offset, str(error)) from error
        yield offset, header, changes
        offset += header.frame_bytes
        entry_id += 1


def find_end(file: File, file_id: int, first_entry: int, synced_end: int) -> tuple[int, FrameIndex]:
    """The end of the last whole frame, and an index of all frames.

    Bytes above that end are a torn tail: never acknowledged. Raises `Corruption`, having changed nothing, where bytes do not
    decode that were durable: those below `synced_end`, or below what a whole frame further on names as its synced end.
    """
    index = FrameIndex()
    size = file.size()
    end, reason = _index_frames(file, file_id, first_entry, size, index)
    if end < synced_end:
        raise corruption(file.path, end, f"{reason}, but everything up to byte {synced_end} was durable")
    claim = _later_claim(file, file_id, end, size)
    if claim > end:
        raise corruption(file.path, end, f"{reason}, but a later entry says that all up to byte {claim} was durable")
    return end, index


def rebuild_index(file: FrameSource, file_id: int, entries: int, frames_end: int) -> FrameIndex:
    """The index of a file whose end is known, made by reading it. Raises `Corruption` where the frames end elsewhere."""
    index = FrameIndex()
    end, reason = _index_frames(file, file_id, 0, frames_end, index)
    if end != frames_end or len(index.offsets) != entries:
        raise corruption(file.path, end, reason)
    return index


def _index_frames(file: FrameSource, file_id: int, entry_id: int, stop: int, index: FrameIndex) -> tuple[int, str]:
    """Adds every whole frame of the file up to byte `stop` to the index. Returns where the frames end, and why there."""
    offset = FILE_HEADER_BYTES
    chunk = _CHUNK_BYTES_MIN
    while offset < stop:
        raw = file.read_at(offset, min(chunk, stop - offset))
        table, at, need, reason, more = check_chunk(raw, file_id, entry_id)
        index.add_many(table[:, 0] + offset, table[:, 3], len(table) + more)
        entry_id += len(table)
        offset += at
        if reason:
            return offset, reason
        if offset + need > stop or not raw:
            break
        chunk = max(min(2 * chunk, _INDEX_BYTES), need)
    return offset, "the frame reaches over the end" if offset < stop else "the file ends here"


def _later_claim(file: File, file_id: int, start: int, size: int) -> int:
    """The highest synced end that a whole frame after `start` names; 0 where there is no such frame."""
    highest = 0
    at = start
    while at < size:
        raw = file.read_at(at, min(_CHUNK_BYTES_MAX, size - at))
        if not raw:
            break
        found = raw.find(MAGIC)
        while found >= 0:
            highest = max(highest, _claim(file, file_id, at + found, size))
            found = raw.find(MAGIC, found + 1)
        at += max(len(raw) - len(MAGIC) + 1, 1)
    return highest


def _claim(file: File, file_id: int, offset: int, size: int) -> int:
    try:
        header = decode_header(file.read_at(offset, HEADER_BYTES), 0, file_id)
        if offset + header.frame_bytes > size or header.synced_end > offset:
            return 0
        verify_body(file.read_at(offset, header.frame_bytes), 0, header)
    except BadFrame:
        return 0
    return header.synced_end


def holds_frames(file: File, file_id: int) -> bool:
    """Whether the file starts with a whole frame."""
    try:
        header = decode_header(file.read_at(FILE_HEADER_BYTES, HEADER_BYTES), 0, file_id)
        verify_body(file.read_at(FILE_HEADER_BYTES, header.frame_bytes), 0, header)
    except BadFrame:
        return False
    return True
