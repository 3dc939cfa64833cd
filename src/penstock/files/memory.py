"""A file system in memory that remembers what is not yet synced, so that a test can cut the power at every operation.

`MemoryFiles` keeps the promises of `files.Files`, and no others:

1. What a handle wrote is visible to every reader at once, and durable only after `datasync` of the file.
2. A name that was made, renamed or removed is durable only after `sync_directory` of its parent, even where the file's
   data is synced. A rename is atomic: both of its names change, or neither.
3. `crash` gives one possible state after a power cut: each unsynced operation is kept, lost, or (a write) torn
   (`penstock.files.unsynced`).
4. The first failure of a handle poisons it, as in `files.RealFile`. After a failed `datasync` the unsynced data of the
   file is lost for good although readers still see it, and a later `datasync` through a new handle succeeds, as on
   Linux.

Operations that change something are counted from 1: create, append, write_at, truncate, preallocate, datasync,
make_directory, rename, remove, sync_directory. `cut_power_at(n)` cuts the power at the n-th; `fail_at(n, fault)` fails
it. Thread-safe.
"""

from __future__ import annotations

import contextlib
import errno
import os
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from pathlib import Path

from penstock.errors import StorageFailed
from penstock.files.seam import Buffer, File, in_use
from penstock.files.unsynced import (
    Edit,
    NameChange,
    Node,
    Resize,
    Write,
    after_power_cut,
    apply_edit,
    apply_name,
)


class PowerCut(StorageFailed):
    """The simulated machine is off: this operation and every later one fails. Go on with `crash()`."""


class DiskFault(Enum):
    """How an operation fails: with this `errno`. `SHORT_WRITE`: half of the bytes are written, then the disk is
    full."""

    EIO = errno.EIO
    ENOSPC = errno.ENOSPC
    SHORT_WRITE = -errno.ENOSPC


class MemoryFile:
    """A handle of `MemoryFiles`."""

    def __init__(self, files: MemoryFiles, path: Path, node: Node, *, writable: bool) -> None:
        self.path = path
        self._files = files
        self._node = node
        self._writable = writable
        self._end = len(node.content)
        self._closed = False
        self._poisoned: OSError | None = None

    def append(self, buffers: Sequence[Buffer]) -> None:
        data = b"".join(bytes(b) for b in buffers)
        self._write("append", self._end, data)
        self._end += len(data)

    def write_at(self, offset: int, data: Buffer) -> None:
        self._write("write_at", offset, bytes(data))

    def read_at(self, offset: int, size: int) -> bytes:
        with self._files.mutex:
            self._check_open()
            return bytes(self._node.content[offset : offset + size])

    def size(self) -> int:
        with self._files.mutex:
            self._check_open()
            return len(self._node.content)

    def forget_cached(self) -> None:
        pass

    def truncate(self, size: int) -> None:
        with self._operation("truncate") as fault:
            if fault is not None:
                self._fail("truncate", fault)
            self._edit(Resize(self._files.operations, size, grow_only=False))
            self._files.cut_power_if_due()
        self._end = size

    def seek_append(self, offset: int) -> None:
        self._end = offset

    def preallocate(self, size: int) -> None:
        with self._operation("preallocate") as fault:
            if fault is DiskFault.EIO:
                self._fail("preallocate", fault)
            if fault is None:
                self._edit(Resize(self._files.operations, size, grow_only=True))
            self._files.cut_power_if_due()

    def stream(self) -> None:
        pass

    def datasync(self) -> None:
        with self._operation("datasync") as fault:
            if fault is not None:
                self._node.pending.clear()  # the kernel marks the pages clean: no later sync brings them back
                self._fail("fdatasync", fault)
            self._files.cut_power_if_due()
            for edit in self._node.pending:
                apply_edit(self._node.durable, edit)
            self._node.pending.clear()

    def close(self) -> None:
        self._closed = True

    def _write(self, operation: str, offset: int, data: bytes) -> None:
        with self._operation(operation) as fault:
            if fault is DiskFault.SHORT_WRITE:
                self._edit(Write(self._files.operations, offset, data[: len(data) // 2]))
            if fault is not None:
                self._fail("write", fault)
            self._edit(Write(self._files.operations, offset, data))
            self._files.cut_power_if_due()

    def _edit(self, edit: Edit) -> None:
        if isinstance(edit, Write) and not edit.data:
            return
        apply_edit(self._node.content, edit)
        self._node.pending.append(edit)

    @contextlib.contextmanager
    def _operation(self, name: str) -> Iterator[DiskFault | None]:
        with self._files.mutex:
            if self._poisoned is not None:
                raise StorageFailed(f"{self.path}: an earlier operation failed: {self._poisoned}")
            fault = self._files.count(name, self.path)
            if self._closed or not self._writable:
                self._poisoned = OSError(errno.EBADF, os.strerror(errno.EBADF))
                raise StorageFailed(f"{self.path}: {name} failed: {self._poisoned}") from self._poisoned
            yield fault

    def _check_open(self) -> None:
        if self._closed:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), str(self.path))

    def _fail(self, operation: str, fault: DiskFault) -> None:
        self._poisoned = _os_error(fault, self.path)
        raise StorageFailed(f"{self.path}: {operation} failed: {self._poisoned}") from self._poisoned


class MemoryFiles:
    """See the module's docstring. `on_operation(number, name, path)` is called before each counted operation and may
    ask for `crash` states of that moment; it may be set at any time."""

    def __init__(self, on_operation: Callable[[int, str, Path], None] | None = None) -> None:
        self.mutex = threading.RLock()
        self.operations = 0
        self.power_is_off = False
        self.on_operation = on_operation
        self._power_cut_at: int | None = None
        self._faults: dict[int, DiskFault] = {}
        self._names: dict[Path, Node] = {}
        self._durable_names: dict[Path, Node] = {}
        self._name_changes: list[NameChange] = []
        self._directories: set[Path] = {Path("/"), Path()}
        self._locked: dict[int, Node] = {}  # by identity: a name that was removed and made again is another file

    # Called by tests.

    def cut_power_at(self, operation: int) -> None:
        """Cuts the power at the given operation: it may or may not have happened, and it and every later one raise
        `PowerCut`."""
        self._power_cut_at = operation

    def fail_at(self, operation: int, fault: DiskFault) -> None:
        """Fails the given operation once."""
        self._faults[operation] = fault

    def cut_power(self) -> None:
        """Cuts the power now."""
        with self.mutex:
            self.power_is_off = True

    def crash(self, rng: random.Random) -> MemoryFiles:
        """One state that the disk may be in after a power cut now. `self` stays as it is: ask as often as you like."""
        with self.mutex:
            after = MemoryFiles()
            after._directories = set(self._directories)
            after._names = after_power_cut(self._durable_names, self._name_changes, rng)
            after._durable_names = dict(after._names)
            return after

    def kill(self) -> MemoryFiles:
        """The state after kill -9 of the process: everything written is there, unsynced as it was; locks are free."""
        with self.mutex:
            copies: dict[int, Node] = {}

            def copy(node: Node) -> Node:
                return copies.setdefault(id(node), node.copy())

            after = MemoryFiles()
            after.operations = self.operations
            after._directories = set(self._directories)
            after._names = {path: copy(node) for path, node in self._names.items()}
            after._durable_names = {path: copy(node) for path, node in self._durable_names.items()}
            after._name_changes = [
                NameChange(c.sequence, c.target, c.node and copy(c.node), c.source) for c in self._name_changes
            ]
            return after

    # The protocol `files.Files`.

    def create(self, path: Path) -> File:
        path = _plain(path)
        with self._operation("create", path):
            self._check_parent(path)
            if path in self._names or path in self._directories:
                raise _error(errno.EEXIST, path)
            node = Node()
            self._change_name(NameChange(self.operations, path, node))
            self.cut_power_if_due()
            return MemoryFile(self, path, node, writable=True)

    def open(self, path: Path, *, writable: bool = False) -> File:
        path = _plain(path)
        with self.mutex:
            self._check_power()
            if path in self._directories:
                raise _error(errno.EISDIR, path)
            if path not in self._names:
                raise _error(errno.ENOENT, path)
            return MemoryFile(self, path, self._names[path], writable=writable)

    def exists(self, path: Path) -> bool:
        path = _plain(path)
        with self.mutex:
            return path in self._names or path in self._directories

    def list(self, directory: Path) -> list[str]:
        prefix = f"{_plain(directory)}/".replace("//", "/").removeprefix("./")
        size = len(prefix)
        with self.mutex:  # compared as text, which a Path keeps; `.parent` would make a new Path for each name
            found = {
                name[size:]
                for name in map(str, (*self._names, *self._directories))
                if name.startswith(prefix) and "/" not in name[size:]
            }
            return sorted(found - {"", "."})

    def walk(self, directory: Path) -> Iterator[Path]:
        prefix = f"{_plain(directory)}/".replace("//", "/").removeprefix("./")
        with self.mutex:
            found = [path for path in self._names if str(path).startswith(prefix)]
        yield from found

    def make_directory(self, path: Path) -> None:
        path = _plain(path)
        with self._operation("make_directory", path):
            for directory in (path, *path.parents):
                if directory in self._names:
                    raise _error(errno.EEXIST if directory == path else errno.ENOTDIR, directory)
            self.cut_power_if_due()
            self._directories.update((path, *path.parents))

    def rename(self, source: Path, target: Path) -> None:
        source, target = _plain(source), _plain(target)
        with self._operation("rename", target):
            self._check_parent(target)
            if source not in self._names:
                raise _error(errno.ENOENT, source)
            if target in self._directories:
                raise _error(errno.EISDIR, target)
            if source != target:
                self._change_name(NameChange(self.operations, target, self._names[source], source))
            self.cut_power_if_due()

    def remove(self, path: Path) -> None:
        path = _plain(path)
        with self._operation("remove", path):
            if path in self._directories:
                raise _error(errno.EISDIR, path)
            if path in self._names:
                self._change_name(NameChange(self.operations, path, None))
            self.cut_power_if_due()

    def sync_directory(self, path: Path) -> None:
        path = _plain(path)
        with self._operation("sync_directory", path):
            if path not in self._directories:
                raise _error(errno.ENOTDIR if path in self._names else errno.ENOENT, path)
            self.cut_power_if_due()
            waiting: list[NameChange] = []
            for change in self._name_changes:
                if change.target.parent == path:
                    apply_name(self._durable_names, change)
                    if change.source is not None:  # the change that made the source's name no longer matters
                        waiting = [c for c in waiting if c.target != change.source]
                else:
                    waiting.append(change)
            self._name_changes = waiting

    @contextlib.contextmanager
    def lock(self, path: Path) -> Iterator[None]:
        path = _plain(path)
        with self.mutex:
            self._check_power()
            self._check_parent(path)
            if path not in self._names:
                self._change_name(NameChange(self.operations, path, Node()))
            node = self._names[path]
            if id(node) in self._locked:
                raise in_use(path)
            self._locked[id(node)] = node
        try:
            yield
        finally:
            with self.mutex:
                self._locked.pop(id(node), None)

    # Called by handles, which hold the mutex.

    def count(self, name: str, path: Path) -> DiskFault | None:
        """Counts an operation and returns its fault, if a test asked for one. Raises `PowerCut` if the power is off."""
        self._check_power()
        number = self.operations = self.operations + 1
        if self.on_operation is not None:
            self.on_operation(number, name, path)  # may do operations of its own, as another process
            self._check_power()
        return self._faults.pop(number, None)

    def cut_power_if_due(self) -> None:
        """Cuts the power if a test asked for it at this operation. Called after the operation's effect is recorded as
        unsynced and before anything becomes durable."""
        if self.operations == self._power_cut_at:
            self.power_is_off = True
        self._check_power()

    @contextlib.contextmanager
    def _operation(self, name: str, path: Path) -> Iterator[None]:
        with self.mutex:
            fault = self.count(name, path)
            if fault is not None:
                raise _os_error(fault, path)
            yield

    def _check_power(self) -> None:
        if self.power_is_off:
            raise PowerCut("the power is off")

    def _check_parent(self, path: Path) -> None:
        if path.parent not in self._directories:
            raise _error(errno.ENOENT, path)

    def _change_name(self, change: NameChange) -> None:
        apply_name(self._names, change)
        self._name_changes.append(change)


def _plain(path: Path) -> Path:
    """The path without `..`, which means nothing else where there are no links."""
    return Path(os.path.normpath(path)) if ".." in path.parts else path


def _error(code: int, path: Path) -> OSError:
    return OSError(code, os.strerror(code), str(path))


def _os_error(fault: DiskFault, path: Path) -> OSError:
    return _error(abs(fault.value), path)
