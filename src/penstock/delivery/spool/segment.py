"""The segments of one spool: appending records, reading one, deleting files.

One thread at a time appends, compacts and deletes (the spiller). `Segment.live`, `live_bytes` and `readers` belong to the
lock of the segment's shard; reads take place outside it, with `readers` keeping the file open.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.delivery.spool.segment_format import (
    FILE_HEADER_BYTES,
    RECORD_HEADER_BYTES,
    SegmentName,
    file_header,
    parse_name,
    payload_of,
)
from penstock.errors import Corruption, StorageFailed
from penstock.files import Buffer, File, Files

if TYPE_CHECKING:
    from penstock.delivery.spool.items import DataItem, DiskPointer

SPACE_HINT = "free space on the disk of state_dir; nothing is lost, the rows are still in the log"


@dataclass(slots=True, eq=False)
class Segment:
    """One file. `size` is what it takes on disk, also after a short write; it is closed when `sealed`."""

    path: Path
    shard: int
    file: File
    size: int = 0
    sealed: bool = False
    readable: bool = True  # False once a record of it did not match: it is not rewritten any more
    used: bool = False  # an item has pointed into it
    sparse: bool = False  # noted for rewriting
    deleted: bool = False
    readers: int = 0
    live: dict[int, DataItem[Any]] = field(default_factory=dict)  # by offset
    live_bytes: int = 0

    @property
    def dead_bytes(self) -> int:
        return self.size - self.live_bytes

    def read(self, pointer: DiskPointer, dispatcher: bytes) -> memoryview:
        """The payload behind a pointer: one `pread`, and every field checked."""
        what = f"{self.path} at {pointer.offset}"
        return payload_of(self.read_record(pointer), dispatcher, pointer.length, what)

    def read_record(self, pointer: DiskPointer) -> bytes:
        wanted = RECORD_HEADER_BYTES + pointer.length
        try:
            record = self.file.read_at(pointer.offset, wanted)
        except OSError as error:
            raise StorageFailed(f"{self.path} at {pointer.offset}: read failed: {error}", hint=SPACE_HINT) from error
        if len(record) != wanted:
            raise Corruption(f"{self.path} at {pointer.offset}: the file ends after {len(record)} of {wanted} bytes")
        return record


def delete_segments(files: Files, directory: Path) -> int:
    """Deletes the segments in a directory that no process uses, and nothing else there. Returns their number."""
    names = [name for name in files.list(directory) if parse_name(name) is not None]
    for name in names:
        files.remove(directory / name)
    return len(names)


class Segments:
    """All segment files of one spool. `bytes` is what they take of the real disk, deleted ones that are still there
    included."""

    def __init__(self, directory: Path, files: Files, incarnation: str, segment_bytes: int) -> None:
        self.directory = directory
        self.segment_bytes = segment_bytes
        self.rotations = 0
        self.deleted = 0
        self._files = files
        self._incarnation = incarnation
        self._next = 1
        self._open: dict[int, Segment] = {}
        self._all: set[Segment] = set()
        self._counting = threading.Lock()
        self._bytes = 0

    @property
    def bytes(self) -> int:
        return self._bytes

    @property
    def count(self) -> int:
        return len(self._all)

    def clean(self) -> int:
        """Deletes the segments that an earlier process left, and returns their number. Other files stay."""
        try:
            self._files.make_directory(self.directory)
            return delete_segments(self._files, self.directory)
        except OSError as error:
            raise StorageFailed(f"{self.directory}: cannot be emptied: {error}", hint=SPACE_HINT) from error

    def append(self, shard: int, buffers: Sequence[Buffer], size: int) -> tuple[Segment, int]:
        """Writes the bytes of whole records to the shard's open segment; returns it and their offset.

        After a failure the segment is closed: what was written before is still readable, and the next call makes a new one.
        """
        segment = self._open.get(shard)
        if segment is None:
            segment = self._create(shard)
        offset = segment.size
        try:
            segment.file.append(buffers)
        except StorageFailed:
            self._grow(segment, self._length_of(segment))
            self.seal(segment)
            raise
        self._grow(segment, offset + size)
        if segment.size >= self.segment_bytes:
            self.seal(segment)
        return segment, offset

    def seal(self, segment: Segment) -> None:
        """Nothing more is appended to it."""
        if not segment.sealed:
            segment.sealed = True
            self.rotations += 1
            self._open.pop(segment.shard, None)

    def delete(self, segment: Segment) -> None:
        """Removes the file. Raises `StorageFailed` where that fails: its bytes still count, and the call comes again."""
        try:
            self._files.remove(segment.path)
        except OSError as error:
            raise StorageFailed(f"{segment.path}: remove failed: {error}", hint=SPACE_HINT) from error
        segment.deleted = True
        with contextlib.suppress(OSError):
            segment.file.close()
        self._grow(segment, 0)
        with self._counting:
            self._all.discard(segment)
        self.deleted += 1

    def known(self) -> Iterable[Segment]:
        with self._counting:
            return tuple(self._all)

    def _create(self, shard: int) -> Segment:
        name = SegmentName(shard, self._next, self._incarnation)
        self._next += 1  # also after a failure: a name is never tried twice
        path = self.directory / str(name)
        try:
            self._files.make_directory(self.directory)  # it may have been deleted under us
            file = self._files.create(path)
        except OSError as error:
            raise StorageFailed(f"{path}: create failed: {error}", hint=SPACE_HINT) from error
        segment = Segment(path, shard, file)
        with self._counting:
            self._all.add(segment)
        try:
            file.append([file_header(shard, bytes.fromhex(self._incarnation))])
        except StorageFailed:
            segment.sealed = True
            self._grow(segment, self._length_of(segment))
            raise
        self._grow(segment, FILE_HEADER_BYTES)
        self._open[shard] = segment
        return segment

    @staticmethod
    def _length_of(segment: Segment) -> int:
        """What a failed write has left on the disk."""
        try:
            return max(segment.size, segment.file.size())
        except OSError:
            return segment.size

    def _grow(self, segment: Segment, size: int) -> None:
        with self._counting:
            self._bytes += size - segment.size
            segment.size = size
