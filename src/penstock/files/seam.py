"""What Penstock asks of a file system (`Files`, `File`), and what can be built on that alone.

Every durable file is opened, written, synced, renamed and removed through a `Files`, so that a test can put
`penstock.files.memory.MemoryFiles` in its place and cut the power at every operation. The rules:

1. Data is durable after `datasync` of its file; a name is durable after `sync_directory` of its parent directory.
2. The first failed write or sync poisons the handle, which raises `StorageFailed` from then on: after a failed fsync,
   Linux reports the next one as successful although the data never reached the disk.
3. A small file is changed with `replace_file` only: temporary name, write, sync, rename, sync of the directory.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

from penstock.errors import StorageFailed, Unavailable

Buffer = bytes | bytearray | memoryview
REPAIR_HINT = "free space or repair the disk, then start again: what was acknowledged is safe"
_WRITE_AGAIN_BYTES = 4 << 20


class File(Protocol):
    """An open file. Writers append; readers read at offsets."""

    path: Path

    def append(self, buffers: Sequence[Buffer]) -> None:
        """Writes all bytes at the end of what was written, whatever short writes happen on the way."""
        ...

    def write_at(self, offset: int, data: Buffer) -> None: ...

    def read_at(self, offset: int, size: int) -> bytes:
        """At most `size` bytes from `offset`; fewer only at the end of the file."""
        ...

    def size(self) -> int: ...

    def forget_cached(self) -> None:
        """The next reads come from the disk, and not from what the system keeps in memory of the file. Best effort."""
        ...

    def truncate(self, size: int) -> None:
        """Shortens the file, or extends it with zeros, to `size` bytes; later appends go to the new end."""
        ...

    def seek_append(self, offset: int) -> None:
        """Sets where the next append writes (for a pre-allocated file)."""
        ...

    def preallocate(self, size: int) -> None:
        """Reserves `size` bytes so that syncs need not update the file's size. Best effort: where the disk has no room for
        so much, nothing is reserved and nothing has failed. Whether there is room is for the writes to say."""
        ...

    def stream(self) -> None:
        """What is appended from here on, up to the next `datasync`, is much, and nobody reads it soon: it need not go through
        the system's cache. Until that sync it may not be in the file yet, and only `append` may be called. Best effort."""
        ...

    def datasync(self) -> None:
        """Returns once everything written is on the disk. The first failure poisons the handle."""
        ...

    def close(self) -> None: ...


class Files(Protocol):
    """What Penstock asks of a file system."""

    def create(self, path: Path) -> File:
        """A new file, for writing and reading; the name must be free."""
        ...

    def open(self, path: Path, *, writable: bool = False) -> File: ...

    def exists(self, path: Path) -> bool: ...

    def list(self, directory: Path) -> list[str]:
        """Sorted names; empty where there is no such directory."""
        ...

    def walk(self, directory: Path) -> Iterator[Path]:
        """Every file below the directory, at any depth, in any order; none where there is no such directory."""
        ...

    def make_directory(self, path: Path) -> None:
        """Makes the directory and its missing parents, durably; does nothing where it exists."""
        ...

    def rename(self, source: Path, target: Path) -> None:
        """Atomic, and replaces a file at `target`; durable after `sync_directory` of the parent."""
        ...

    def remove(self, path: Path) -> None:
        """Removes the file; does nothing where there is none. Durable after `sync_directory` of the parent."""
        ...

    def sync_directory(self, path: Path) -> None: ...

    def lock(self, path: Path) -> contextlib.AbstractContextManager[None]:
        """An exclusive lock between processes; raises `Unavailable` where another one holds it."""
        ...


@contextlib.contextmanager
def typed_errors(what: str) -> Iterator[None]:
    """Turns an `OSError` of the block into `StorageFailed`, for operations on names and directories: there is no handle
    that would do so."""
    try:
        yield
    except OSError as error:
        raise StorageFailed(f"{what}: {error}", hint=REPAIR_HINT) from error


def in_use(lock: Path) -> Unavailable:
    """The error of `Files.lock` where another process holds the lock."""
    return Unavailable(f"{lock.parent} is in use by another process", hint="stop it first, or use another directory")


def read_file(files: Files, path: Path) -> bytes:
    """The whole file. Raises `FileNotFoundError`."""
    file = files.open(path)
    try:
        return file.read_at(0, file.size())
    finally:
        file.close()


def replace_file(files: Files, path: Path, buffers: Iterable[Buffer]) -> None:
    """Makes `path` hold exactly these bytes, atomically and durably: either the old or the new content survives. What is no
    sequence is written as it comes: a large file, as a stream."""
    temporary = path.with_name(f".{path.name}.tmp")
    files.remove(temporary)
    file = files.create(temporary)
    try:
        if isinstance(buffers, Sequence):
            file.append(buffers)
        else:
            file.stream()
            for one in buffers:
                file.append([one])
        file.datasync()
    finally:
        file.close()
    files.rename(temporary, path)
    files.sync_directory(path.parent)


def write_again(file: File, start: int, end: int) -> None:
    """Writes the bytes from `start` to `end` once more, as they read now, so that the next sync brings them to the
    disk.

    After a failed sync the kernel marks the pages clean: they still read as written and a later sync succeeds, but they
    never reach the disk. A new owner that relies on bytes whose sync it did not see calls this before its own sync.
    """
    while start < end:
        data = file.read_at(start, min(end - start, _WRITE_AGAIN_BYTES))
        if not data:
            return
        file.write_at(start, data)
        start += len(data)
