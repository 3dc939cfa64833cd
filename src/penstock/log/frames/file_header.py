"""The 64 bytes at the head of every ledger and record log file (docs/formats/ledger.md)."""

from __future__ import annotations

import errno
import struct
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

import google_crc32c

from penstock.errors import Corruption, NotSupported
from penstock.files import File, Files

LEDGER_MAGIC = b"PSL1"
RECORD_LOG_MAGIC = b"PSR1"
FILE_HEADER_BYTES = 64
_VERSION = 1
_HEADER = struct.Struct("<4sBBH16sQQQQ4x")
_U32 = struct.Struct("<I")


class FileHeader(NamedTuple):
    uuid: UUID
    file_id: int
    epoch: int
    created_ms: int
    first_entry: int

    def encode(self, magic: bytes) -> bytes:
        record = _HEADER.pack(
            magic, _VERSION, 0, 0, self.uuid.bytes, self.file_id, self.epoch, self.created_ms, self.first_entry
        )
        return record + _U32.pack(google_crc32c.value(record))


def create_frame_file(files: Files, path: Path, magic: bytes, header: FileHeader, preallocate_bytes: int) -> File:
    """A new file, ready for frames; its header and its name are durable."""
    file = files.create(path)
    if preallocate_bytes > FILE_HEADER_BYTES:
        file.preallocate(preallocate_bytes)
    file.seek_append(0)
    file.append([header.encode(magic)])
    file.datasync()
    files.sync_directory(path.parent)
    return file


def read_file_header(file: File, magic: bytes, uuid: UUID, file_id: int) -> FileHeader:
    """The header. It was durable before anything named the file, so bytes that are not it are `Corruption`."""
    raw = file.read_at(0, FILE_HEADER_BYTES)
    if not _is_whole(raw):
        raise corruption(file.path, 0, "the file header does not match its checksum")
    return _decoded(raw, file.path, magic, uuid, file_id)


def refuse_foreign_file(file: File, magic: bytes, uuid: UUID, file_id: int) -> None:
    """Raises `Corruption` where the header is whole and says that this is another file, `NotSupported` where it has a
    newer version.

    A header that is damaged, or that the disk refuses to read, says nothing, and costs no entry: the caller's list vouches
    for the file, and each frame carries the number of its ledger and checksums of its own.
    """
    try:
        raw = file.read_at(0, FILE_HEADER_BYTES)
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        return
    if _is_whole(raw):
        _decoded(raw, file.path, magic, uuid, file_id)


def _is_whole(raw: bytes) -> bool:
    return len(raw) == FILE_HEADER_BYTES and google_crc32c.value(raw[:-4]) == int(_U32.unpack_from(raw, 60)[0])


def _decoded(raw: bytes, path: Path, magic: bytes, uuid: UUID, file_id: int) -> FileHeader:
    found, version, _, _, raw_uuid, *rest = _HEADER.unpack_from(raw)
    if found != magic:
        raise corruption(path, 0, "the file is of another kind")
    if version != _VERSION:
        raise NotSupported(f"{path} has version {version}", hint="a newer Penstock wrote it: upgrade")
    header = FileHeader(UUID(bytes=raw_uuid), *rest)
    if header.uuid != uuid or header.file_id != file_id:
        raise corruption(path, 0, f"the file belongs to {header.uuid}, number {header.file_id}")
    return header


def has_header(file: File) -> bool:
    """Whether a header was written to its end, where the checksum stands. A damaged header counts as one."""
    raw = file.read_at(0, FILE_HEADER_BYTES)
    if len(raw) < FILE_HEADER_BYTES:
        return False
    return raw[-4:] != bytes(4) or google_crc32c.value(raw[:-4]) == 0


def corruption(path: Path | str, offset: int, what: str) -> Corruption:
    """The error for bytes that were durable and are not what was written. `check.damage` takes the sentence apart again."""
    return Corruption(
        f"{path} is damaged at byte {offset}: {what}",
        hint="nothing was changed; check the disk and restore this file from a copy, then start again",
    )
