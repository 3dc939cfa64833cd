"""File systems for tests: locks that do not hold, the view of another process, counted reads."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

from penstock.files import File, RealFiles
from penstock.files.memory import MemoryFiles

_FILE_HEADER_BYTES = 64


class UnlockedFiles(RealFiles):
    """A real file system whose locks do not hold, as some network file systems: only the epoch keeps two owners apart."""

    @contextlib.contextmanager
    def lock(self, path: Path) -> Iterator[None]:
        yield


class OtherProcessFiles:
    """A disk in memory as another process sees it that holds no lock. Caches, which belong to a `Files`, are its own."""

    def __init__(self, files: MemoryFiles) -> None:
        self._files = files

    def __getattr__(self, name: str) -> object:
        return getattr(self._files, name)

    @contextlib.contextmanager
    def lock(self, path: Path) -> Iterator[None]:
        yield


class CountingFiles(RealFiles):
    """Counts the bytes that are read and the reads of ledgers' frames, and may make the latter slow."""

    def __init__(self) -> None:
        super().__init__()
        self.frame_reads = 0
        self.bytes_read = 0
        self.frame_read_seconds = 0.0

    def open(self, path: Path, *, writable: bool = False) -> File:
        file = super().open(path, writable=writable)
        read_at = file.read_at

        def counted(offset: int, size: int) -> bytes:
            if path.suffix == ".log" and offset >= _FILE_HEADER_BYTES:
                self.frame_reads += 1
                time.sleep(self.frame_read_seconds)
            raw = read_at(offset, size)
            self.bytes_read += len(raw)
            return raw

        file.read_at = counted  # type: ignore[method-assign]
        return file
