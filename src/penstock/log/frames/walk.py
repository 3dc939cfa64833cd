"""Every frame of a file, the damaged ones too: for `penstock log inspect` and for reports of damage."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from penstock.log.frames.file_header import FILE_HEADER_BYTES
from penstock.log.frames.format import HEADER_BYTES, MAGIC, BadFrame, Header, decode_changes, decode_header, verify_body
from penstock.log.frames.index import FrameIndex
from penstock.log.frames.reader import FrameSource

_CHUNK_BYTES = 4 << 20
_SECTOR_BYTES = 4096


class _Readable:
    """A file, with zeros in the place of the sectors that the disk refuses to read: what stands around them counts."""

    def __init__(self, file: FrameSource) -> None:
        self._file = file
        self._bad: set[int] = set()  # numbers of sectors: each is tried once

    @property
    def path(self) -> Path | str:
        return self._file.path

    def read_at(self, offset: int, size: int) -> bytes:
        sectors = range(offset // _SECTOR_BYTES, -(-(offset + size) // _SECTOR_BYTES))
        if self._bad.isdisjoint(sectors):
            try:
                return self._file.read_at(offset, size)
            except OSError as error:
                if error.errno != errno.EIO:
                    raise
        parts = []
        for sector in sectors:
            low, high = max(offset, sector * _SECTOR_BYTES), min(offset + size, (sector + 1) * _SECTOR_BYTES)
            parts.append(self._sector(sector, low, high - low))
        return b"".join(parts)

    def _sector(self, sector: int, offset: int, size: int) -> bytes:
        if sector not in self._bad:
            try:
                return self._file.read_at(offset, size)
            except OSError as error:
                if error.errno != errno.EIO:
                    raise
                self._bad.add(sector)
        return bytes(size)


class FrameLine(NamedTuple):
    """One frame; or, with `header` None, bytes that are no frame. `fault` is empty where all checksums match."""

    offset: int
    bytes: int
    header: Header | None
    fault: str


def walk_frames(file: FrameSource, file_id: int, entry_id: int, stop: int) -> Iterator[FrameLine]:
    """Every frame up to byte `stop`; bytes that are no frame, or that the disk refuses to read, are reported, and the walk
    goes on at the next header."""
    file = _Readable(file)
    offset, epoch = FILE_HEADER_BYTES, 0
    while offset < stop:
        try:
            header = decode_header(file.read_at(offset, HEADER_BYTES), 0, file_id)
        except BadFrame as error:
            after = _next_header(file, file_id, offset + 1, stop)
            yield FrameLine(offset, after - offset, None, str(error))
            offset, entry_id = after, -1  # how many entries are lost is not known
            continue
        fault = ""
        if offset + header.frame_bytes > stop:
            yield FrameLine(offset, stop - offset, header, "the frame reaches over the end")
            return
        try:
            decode_changes(verify_body(file.read_at(offset, header.frame_bytes), 0, header))
        except BadFrame as error:
            fault = str(error)
        if not fault and entry_id >= 0 and header.entry_id != entry_id:
            fault = f"entry {header.entry_id} stands where {entry_id} should"
        if not fault and header.epoch < epoch:
            fault = f"epoch {header.epoch} comes after epoch {epoch}"
        yield FrameLine(offset, header.frame_bytes, header, fault)
        offset += header.frame_bytes
        entry_id, epoch = header.entry_id + 1, max(epoch, header.epoch)


def walked_index(file: FrameSource, file_id: int, entries: int, stop: int) -> FrameIndex:
    """The index of a file of which some frames are damaged. An entry that cannot be read has the offset at which the one
    before it ends, so that offsets never fall; its time is that of the one before it."""
    offsets, times = np.empty(entries, np.int64), np.empty(entries, np.int64)
    known, end, wall_ms, messages = 0, FILE_HEADER_BYTES, 0, 0
    for line in walk_frames(file, file_id, 0, stop):
        if line.header is None or line.fault or not known <= line.header.entry_id < entries:
            continue
        entry = line.header.entry_id
        offsets[known:entry], times[known:entry] = end, wall_ms
        offsets[entry], times[entry] = line.offset, line.header.wall_ms
        known, end, wall_ms = entry + 1, line.offset + line.bytes, line.header.wall_ms
        messages += line.header.messages
    offsets[known:], times[known:] = end, wall_ms
    index = FrameIndex()
    index.add_many(offsets, times, messages)
    return index


def _next_header(file: FrameSource, file_id: int, start: int, stop: int) -> int:
    """The offset of the next header of this file that matches its checksum; `stop` where there is none."""
    at = start
    while at < stop:
        raw = file.read_at(at, min(_CHUNK_BYTES, stop - at))
        if len(raw) < len(MAGIC):
            break
        found = raw.find(MAGIC)
        while found >= 0:
            try:
                decode_header(file.read_at(at + found, HEADER_BYTES), 0, file_id)
                return at + found
            except BadFrame:
                found = raw.find(MAGIC, found + 1)
        at += len(raw) - len(MAGIC) + 1
    return stop
