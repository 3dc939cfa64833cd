"""The machine's own file system, behind the seam (`penstock.files.seam`)."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from penstock.errors import StorageFailed
from penstock.files.direct import DirectAppender
from penstock.files.private import DIRECTORY_MODE, FILE_MODE
from penstock.files.seam import REPAIR_HINT, Buffer, File, in_use

_IOV_MAX = 1024  # Linux takes at most this many buffers in one pwritev
_SHARED_FILE_MODE, _SHARED_DIRECTORY_MODE = 0o640, 0o750


# Why space cannot be reserved although a write may still succeed.
_NO_ROOM_AHEAD = {errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


class RealFile:
    """A file of the machine's own file system."""

    def __init__(self, path: Path, descriptor: int, end: int) -> None:
        self.path = path
        self._descriptor = descriptor
        self._end = end
        self._direct: DirectAppender | None = None
        self._poisoned: OSError | None = None

    def append(self, buffers: Sequence[Buffer]) -> None:
        self._check()
        views = [memoryview(b).cast("B") for b in buffers if len(b)]
        try:
            if self._direct is not None:
                self._direct.append(views)
                return
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

    def forget_cached(self) -> None:
        if hasattr(os, "posix_fadvise"):
            with contextlib.suppress(OSError):
                os.posix_fadvise(self._descriptor, 0, 0, os.POSIX_FADV_DONTNEED)

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
            if error.errno not in _NO_ROOM_AHEAD:
                self._fail("preallocate", error)

    def stream(self) -> None:
        self._check()
        self._direct = DirectAppender.begin(self._descriptor, self._end)

    def datasync(self) -> None:
        self._check()
        try:
            if self._direct is not None:
                direct, self._direct = self._direct, None
                direct.finish()
                self._end = direct.end
            os.fdatasync(self._descriptor)
        except OSError as error:
            self._fail("fdatasync", error)

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1  # first: the system gives a closed number to the next file
        if descriptor >= 0:
            os.close(descriptor)

    def _check(self) -> None:
        if self._poisoned is not None:
            raise StorageFailed(f"{self.path}: an earlier operation failed: {self._poisoned}", hint=REPAIR_HINT)

    def _fail(self, operation: str, error: OSError) -> None:
        self._poisoned = error
        raise StorageFailed(f"{self.path}: {operation} failed: {error}", hint=REPAIR_HINT) from error


class RealFiles:
    """The machine's own file system. What it makes is for this user alone (`penstock.files.private`).

    With `shared_umask` it is for others, too: a file may be read by its group, less what that umask takes away, whatever
    the umask of this process is. Locks are never shared: whoever can open a lock can hold it.
    """

    def __init__(self, *, shared_umask: int | None = None) -> None:
        self._shared_umask = shared_umask

    def create(self, path: Path) -> File:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)
        if self._shared_umask is not None:
            os.fchmod(descriptor, _SHARED_FILE_MODE & ~self._shared_umask)
        return RealFile(path, descriptor, 0)

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

    def walk(self, directory: Path) -> Iterator[Path]:
        for parent, _, names in os.walk(directory, onerror=_raise_unless_gone):
            for name in names:
                yield Path(parent, name)

    def make_directory(self, path: Path) -> None:
        missing = []
        while not path.exists():
            missing.append(path)
            path = path.parent
        for directory in reversed(missing):
            with contextlib.suppress(FileExistsError):  # made by another process meanwhile
                directory.mkdir(DIRECTORY_MODE)
                if self._shared_umask is not None:
                    directory.chmod(_SHARED_DIRECTORY_MODE & ~self._shared_umask)
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
        while (held := _locked(path)) is None:
            pass  # its last owner removed the file meanwhile: a lock on what has no name keeps nobody out
        try:
            yield
        finally:
            held.release()


_held: set[_Lock] = set()


class _Lock:
    """The open file of a lock. A forked child has it, too, and with it the lock, for as long as it lives: so it lets go at
    once, and a release does not only close the file."""

    def __init__(self, path: Path) -> None:
        self.descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, FILE_MODE)
        self._process = os.getpid()
        _held.add(self)

    def release(self) -> None:
        """In a forked child the lock stays its parent's. Releasing again does nothing."""
        _held.discard(self)
        descriptor, self.descriptor = self.descriptor, -1
        if descriptor >= 0:
            if self._process == os.getpid():
                with contextlib.suppress(OSError):
                    fcntl.flock(descriptor, fcntl.LOCK_UN)
            os.close(descriptor)


def _let_go_in_child() -> None:
    for held in list(_held):
        held.release()


os.register_at_fork(after_in_child=_let_go_in_child)


def _locked(path: Path) -> _Lock | None:
    """The lock, held; None where the name does not lead to the locked file any more."""
    lock = _Lock(path)
    try:
        fcntl.flock(lock.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(lock.descriptor), path.lstat()):
                return lock
    except BlockingIOError as error:
        lock.release()
        raise in_use(path) from error
    except BaseException:
        lock.release()
        raise
    lock.release()
    return None


REAL_FILES = RealFiles()


def _raise_unless_gone(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error
