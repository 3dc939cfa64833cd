"""A file whose descriptor is closed while it is not used: idle record logs must not hold thousands of them.

A file of records is released only after a sync: an error of data that is not on the disk yet would be lost with the
descriptor. A file that failed once is never opened again by this owner: a sync that is tried again may report success
for data that was lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from penstock.errors import StorageFailed, fresh
from penstock.files import Buffer, File, Files


class IdleFile:
    """A `files.File`. Used by one thread at a time."""

    def __init__(self, files: Files, file: File, end: int = 0) -> None:
        self.path: Path = file.path
        self._files = files
        self._file: File | None = file
        self._end = end
        self._failed: StorageFailed | None = None
        self._closed = False

    def release(self) -> None:
        """Closes the descriptor; the next use opens the file again."""
        if self._file is not None and self._failed is None:
            self._file.close()
            self._file = None

    def append(self, buffers: Sequence[Buffer]) -> None:
        try:
            self._opened().append(buffers)
        except StorageFailed as error:
            self._failed = error
            raise
        self._end += sum(map(len, buffers))

    def write_at(self, offset: int, data: Buffer) -> None:
        try:
            self._opened().write_at(offset, data)
        except StorageFailed as error:
            self._failed = error
            raise

    def stream(self) -> None:
        self._opened().stream()

    def datasync(self) -> None:
        try:
            self._opened().datasync()
        except StorageFailed as error:
            self._failed = error
            raise

    def truncate(self, size: int) -> None:
        self._opened().truncate(size)
        self._end = size

    def preallocate(self, size: int) -> None:
        self._opened().preallocate(size)

    def seek_append(self, offset: int) -> None:
        self._opened().seek_append(offset)
        self._end = offset

    def read_at(self, offset: int, size: int) -> bytes:
        return self._opened().read_at(offset, size)

    def size(self) -> int:
        return self._opened().size()

    def forget_cached(self) -> None:
        self._opened().forget_cached()

    def close(self) -> None:
        self._closed = True
        if self._file is not None:
            self._file.close()
            self._file = None

    def _opened(self) -> File:
        if self._failed is not None and self._file is None:
            raise fresh(self._failed)
        if self._file is None:
            if self._closed:
                raise StorageFailed(f"{self.path} is closed")
            self._file = self._files.open(self.path, writable=True)
            self._file.seek_append(self._end)
        return self._file
