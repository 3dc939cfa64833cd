"""A process beside the one under test: it shares the machine's disk and metadata store with it, and nothing in memory."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from penstock.files import Files
from penstock.metadata import MemoryMetadata


class ProcessFiles:
    """The machine's files as one process sees them. What is kept in memory for a file system, such as caches and the logs
    that are open, is kept for this one alone. Without `locks` the file system forgets locks, as some do."""

    def __init__(self, files: Files, *, locks: bool) -> None:
        self._files = files
        self._locks = locks

    @contextlib.contextmanager
    def lock(self, path: Path) -> Iterator[None]:
        with self._files.lock(path) if self._locks else contextlib.nullcontext():
            yield

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._files, name)
        setattr(self, name, found)  # asked once
        return found


class Process:
    """What a process has of its own: a view of the files, and a handle on the metadata store."""

    def __init__(self, files: Files, metadata: MemoryMetadata, *, locks: bool = True) -> None:
        self.files: Any = ProcessFiles(files, locks=locks)
        self.metadata = metadata.handle()
