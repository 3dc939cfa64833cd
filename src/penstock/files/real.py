"""The one seam to the file system.

Every durable file of Penstock is opened, written, synced, renamed and removed through a `Files`, so that a test can
replace it by `penstock.files.memory.MemoryFiles`, which models what is not yet synced, and cut the power at every
operation. Rules that the rooms above follow:

1. Data is durable after `datasync` of its file; a name is durable after `sync_directory` of its parent.
2. The first failed sync poisons the handle: it raises `StorageFailed` from then on (a retried fsync lies).
3. `replace_file` is the only way to change a small file: temporary name, write, sync, rename, directory sync.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import mmap
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

from penstock.errors import StorageFailed, Unavailable

Buffer = bytes | bytearray | memoryview
Mapped = bytes | mmap.mmap  # a slice of either is bytes
_IOV_MAX = 1024
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

    def map(self) -> Mapped:
        """The whole file to read from, as it is now; for files that are never changed. Stays after `close` and `remove`."""
        ...

    def truncate(self, size: int) -> None:
        """Cuts or extends to `size` bytes; later appends go to the new end."""
        ...

    def seek_append(self, offset: int) -> None:
        """Sets where the next append writes (for a pre-allocated file)."""
        ...

    def preallocate(self, size: int) -> None:
        """Reserves `size` bytes so that syncs need not update the file's size. Best effort."""
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

    def make_directory(self, path: Path) -> None:
        """Makes the directory and its parents durable; fine if it is there."""
        ...

    def rename(self, source: Path, target: Path) -> None:
        """Atomic; durable after `sync_directory` of the parent."""
        ...

    def remove(self, path: Path) -> None:
        """Fine if it is not there."""
        ...

    def sync_directory(self, path: Path) -> None: ...

    def lock(self, path: Path) -> contextlib.AbstractContextManager[None]:
        """An exclusive lock between processes; raises `Unavailable` where another one holds it."""
        ...


@contextlib.contextmanager
def typed_errors(what: str) -> Iterator[None]:
    """What the file system says where no handle is there to say it (names, directories), as `StorageFailed`."""
    try:
        yield
    except OSError as error:
        raise StorageFailed(
            f"{what}: {error}", hint="free space or repair the disk, then start again: what was acknowledged is safe"
        ) from error


def read_file(files: Files, path: Path) -> bytes:
    """The whole file. Raises `FileNotFoundError`."""
    file = files.open(path)
    try:
        return file.read_at(0, file.size())
    finally:
        file.close()


def replace_file(files: Files, path: Path, buffers: Sequence[Buffer]) -> None:
    """Makes `path` hold exactly these bytes, atomically and durably: either the old or the new content survives."""
    temporary = path.with_name(f".{path.name}.tmp")
    files.remove(temporary)
    file = files.create(temporary)
    try:
        file.append(buffers)
        file.datasync()
    finally:
        file.close()
    files.rename(temporary, path)
    files.sync_directory(path.parent)


def write_again(file: File, start: int, end: int) -> None:
    """Writes what the file shows from `start` to `end` once more, so that the next sync really carries it.

    After a failed sync the kernel calls the pages clean: they are still read, a later sync succeeds, and they never reach
    the disk. Whoever takes over bytes that it did not see synced calls this before its own sync.
    """
    while start < end:
        data = file.read_at(start, min(end - start, _WRITE_AGAIN_BYTES))
        if not data:
            return
        file.write_at(start, data)
        start += len(data)


class RealFile:
    """A file of the machine's own file system."""

    def __init__(self, path: Path, descriptor: int, end: int) -> None:
        self.path = path
        self._descriptor = descriptor
        self._end = end
        self._poisoned: OSError | None = None

    def append(self, buffers: Sequence[Buffer]) -> None:
        self._check()
        views = [memoryview(b).cast("B") for b in buffers if len(b)]
        try:
            while views:
                written = os.pwritev(self._descriptor, views[:_IOV_MAX], self._end)
                self._end += written
                while views and written >= len(views[0]):
                    written -= len(views.pop(0))
                if written:
                    views[0] = views[0][written:]
        except OSError as error:
            self._fail("write", error)

    def write_at(self, offset: int, data: Buffer) -> None:
        self._check()
        view = memoryview(data).cast("B")
        try:
            while view:
                written = os.pwrite(self._descriptor, view, offset)
                offset += written
                view = view[written:]
        except OSError as error:
            self._fail("write", error)

    def read_at(self, offset: int, size: int) -> bytes:
        first = os.pread(self._descriptor, size, offset)
        if len(first) == size or not first:
            return first
        parts = [first]
        have = len(first)
        while have < size and (more := os.pread(self._descriptor, size - have, offset + have)):
            parts.append(more)
            have += len(more)
        return b"".join(parts)

    def size(self) -> int:
        return os.fstat(self._descriptor).st_size

    def map(self) -> Mapped:
        if not self.size():
            return b""  # an empty mapping is refused by the kernel
        return mmap.mmap(self._descriptor, 0, access=mmap.ACCESS_READ)

    def truncate(self, size: int) -> None:
        self._check()
        try:
            os.ftruncate(self._descriptor, size)
        except OSError as error:
            self._fail("truncate", error)
        self._end = size

    def seek_append(self, offset: int) -> None:
        self._end = offset

    def preallocate(self, size: int) -> None:
        self._check()
        try:
            os.posix_fallocate(self._descriptor, 0, size)
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):
                self._fail("preallocate", error)

    def datasync(self) -> None:
        self._check()
        try:
            os.fdatasync(self._descriptor)
        except OSError as error:
            self._fail("fdatasync", error)

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _check(self) -> None:
        if self._poisoned is not None:
            raise StorageFailed(
                f"{self.path}: an earlier operation failed: {self._poisoned}",
                hint="free space or repair the disk, then start again: what was acknowledged is safe",
            )

    def _fail(self, operation: str, error: OSError) -> None:
        self._poisoned = error
        raise StorageFailed(
            f"{self.path}: {operation} failed: {error}",
            hint="free space or repair the disk, then start again: what was acknowledged is safe",
        ) from error


class RealFiles:
    """The machine's own file system."""

    def create(self, path: Path) -> File:
        return RealFile(path, os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o640), 0)

    def open(self, path: Path, *, writable: bool = False) -> File:
        descriptor = os.open(path, (os.O_RDWR if writable else os.O_RDONLY) | os.O_CLOEXEC)
        return RealFile(path, descriptor, os.fstat(descriptor).st_size)

    def exists(self, path: Path) -> bool:
        return path.exists()

    def list(self, directory: Path) -> list[str]:
        try:
            return sorted(os.listdir(directory))
        except FileNotFoundError:
            return []

    def make_directory(self, path: Path) -> None:
        missing = []
        while not path.exists():
            missing.append(path)
            path = path.parent
        for directory in reversed(missing):
            directory.mkdir(exist_ok=True)
            self.sync_directory(directory.parent)

    def rename(self, source: Path, target: Path) -> None:
        os.replace(source, target)  # noqa: PTH105

    def remove(self, path: Path) -> None:
        path.unlink(missing_ok=True)

    def sync_directory(self, path: Path) -> None:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    @contextlib.contextmanager
    def lock(self, path: Path) -> Iterator[None]:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise Unavailable(
                    f"{path.parent} is in use by another process", hint="stop it first, or use another directory"
                ) from error
            yield
        finally:
            os.close(descriptor)


REAL_FILES = RealFiles()
