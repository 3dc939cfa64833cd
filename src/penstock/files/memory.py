"""A file system in memory that remembers what is not yet synced, so that a test can cut the power at every operation.

`MemoryFiles` keeps the promises of `files.Files`, and no others:

1. What a handle wrote is visible to every reader at once, and durable only after `datasync` of the file.
2. A name that was made, renamed or removed is durable only after `sync_directory` of its parent, even where the file's
   data is synced. A rename is atomic: both of its names change, or neither.
3. `crash` gives one possible state after a power cut: each operation that was not synced is kept, lost, or (a write)
   torn at sector granularity; what is lost beyond the old end of a file reads as zeros or is not there.
4. The first failure of a handle poisons it, as in `files.RealFile`. After a failed `datasync` what was waiting is lost
   for good though readers still see it, and a later `datasync` through a new handle succeeds: as Linux does it.

Operations that change something are counted from 1: create, append, write_at, truncate, preallocate, datasync,
make_directory, rename, remove, sync_directory. `stop_at(n)` cuts the power at the n-th; `fail_at(n, fault)` fails it.
Thread-safe.
"""

from __future__ import annotations

import contextlib
import errno
import os
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from penstock.errors import StorageFailed, Unavailable
from penstock.files import Buffer, File, Mapped

SECTOR_BYTES = 512


class PowerCut(StorageFailed):
    """The simulated machine is off: this operation and every later one fails. Go on with `crash()`."""


class Fault(Enum):
    """How an operation fails. `SHORT_WRITE`: half of the bytes are written, then the disk is full."""

    EIO = errno.EIO
    ENOSPC = errno.ENOSPC
    SHORT_WRITE = -errno.ENOSPC


@dataclass(frozen=True, slots=True)
class _Write:
    sequence: int
    offset: int
    data: bytes


@dataclass(frozen=True, slots=True)
class _Resize:
    sequence: int
    size: int
    grow_only: bool


_Edit = _Write | _Resize


@dataclass(slots=True)
class _Node:
    """A file apart from its names."""

    content: bytearray = field(default_factory=bytearray)
    durable: bytearray = field(default_factory=bytearray)
    pending: list[_Edit] = field(default_factory=list)

    def copy(self) -> _Node:
        return _Node(bytearray(self.content), bytearray(self.durable), list(self.pending))


@dataclass(frozen=True, slots=True)
class _NameChange:
    """`target` comes to name `node` (None: nothing), and `source`, if any, stops naming anything."""

    sequence: int
    target: Path
    node: _Node | None
    source: Path | None = None


def _apply_edit(content: bytearray, edit: _Edit) -> None:
    if isinstance(edit, _Write):
        end = edit.offset + len(edit.data)
        if edit.offset > len(content):
            content.extend(bytes(edit.offset - len(content)))
        content[edit.offset : end] = edit.data
    elif edit.size > len(content):
        content.extend(bytes(edit.size - len(content)))
    elif not edit.grow_only:
        del content[edit.size :]


def _apply_torn(content: bytearray, write: _Write, rng: random.Random) -> None:
    """Keeps some of the write's sectors. The file may or may not have grown over those that were lost."""
    if not write.data:
        return
    end = write.offset + len(write.data)
    if rng.random() < 0.5 and end > len(content):
        content.extend(bytes(end - len(content)))
    boundaries = [write.offset, *range((write.offset // SECTOR_BYTES + 1) * SECTOR_BYTES, end, SECTOR_BYTES), end]
    if rng.random() < 0.5:  # the usual tear: a prefix
        kept = set(range(rng.randrange(len(boundaries))))
    else:
        kept = {i for i in range(len(boundaries) - 1) if rng.random() < 0.5}
    for i in sorted(kept & set(range(len(boundaries) - 1))):
        first, last = boundaries[i], boundaries[i + 1]
        _apply_edit(content, _Write(0, first, write.data[first - write.offset : last - write.offset]))


def _apply_name(names: dict[Path, _Node], change: _NameChange) -> None:
    if change.source is not None:
        names.pop(change.source, None)
    if change.node is None:
        names.pop(change.target, None)
    else:
        names[change.target] = change.node


class MemoryFile:
    """A handle of `MemoryFiles`."""

    def __init__(self, files: MemoryFiles, path: Path, node: _Node, *, writable: bool) -> None:
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

    def map(self) -> Mapped:
        return self.read_at(0, self.size())

    def truncate(self, size: int) -> None:
        self._resize("truncate", size, grow_only=False)
        self._end = size

    def seek_append(self, offset: int) -> None:
        self._end = offset

    def preallocate(self, size: int) -> None:
        self._resize("preallocate", size, grow_only=True)

    def datasync(self) -> None:
        with self._operation("datasync") as fault:
            if fault is not None:
                self._node.pending.clear()  # the kernel marks the pages clean: no later sync brings them back
                self._fail("fdatasync", fault)
            self._files.cut_before()
            for edit in self._node.pending:
                _apply_edit(self._node.durable, edit)
            self._node.pending.clear()

    def close(self) -> None:
        self._closed = True

    def _write(self, operation: str, offset: int, data: bytes) -> None:
        with self._operation(operation) as fault:
            if fault is Fault.SHORT_WRITE:
                self._edit(_Write(self._files.operations, offset, data[: len(data) // 2]))
            if fault is not None:
                self._fail("write", fault)
            self._edit(_Write(self._files.operations, offset, data))
            self._files.cut_before()

    def _resize(self, operation: str, size: int, *, grow_only: bool) -> None:
        with self._operation(operation) as fault:
            if fault is not None:
                self._fail(operation, fault)
            self._edit(_Resize(self._files.operations, size, grow_only))
            self._files.cut_before()

    def _edit(self, edit: _Edit) -> None:
        if isinstance(edit, _Write) and not edit.data:
            return
        _apply_edit(self._node.content, edit)
        self._node.pending.append(edit)

    @contextlib.contextmanager
    def _operation(self, name: str) -> Iterator[Fault | None]:
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

    def _fail(self, operation: str, fault: Fault) -> None:
        self._poisoned = _os_error(fault, self.path)
        raise StorageFailed(f"{self.path}: {operation} failed: {self._poisoned}") from self._poisoned


class MemoryFiles:
    """See the module. `on_operation(number, name, path)` is called for each counted operation before it happens, and may
    ask for `crash` states of that moment; it may be set at any time."""

    def __init__(self, on_operation: Callable[[int, str, Path], None] | None = None) -> None:
        self.mutex = threading.RLock()
        self.operations = 0
        self.is_cut = False
        self.on_operation = on_operation
        self._stop_at: int | None = None
        self._faults: dict[int, Fault] = {}
        self._names: dict[Path, _Node] = {}
        self._durable_names: dict[Path, _Node] = {}
        self._name_changes: list[_NameChange] = []
        self._directories: set[Path] = {Path("/"), Path()}
        self._locked: set[Path] = set()

    # What a test asks for.

    def stop_at(self, operation: int) -> None:
        """Cuts the power at the given operation: it may have happened or not, and `PowerCut` is raised from it on."""
        self._stop_at = operation

    def fail_at(self, operation: int, fault: Fault) -> None:
        """Fails the given operation once."""
        self._faults[operation] = fault

    def cut(self) -> None:
        """Cuts the power now."""
        with self.mutex:
            self.is_cut = True

    def crash(self, rng: random.Random) -> MemoryFiles:
        """A state that the disk may be in after a power cut now. `self` is left as it is: ask as often as you like."""
        with self.mutex:
            keep = self._choose(rng)
            names = dict(self._durable_names)
            for change in self._name_changes:
                if keep(change.sequence) is _Fate.KEPT:
                    _apply_name(names, change)
            copies: dict[int, _Node] = {}
            for node in names.values():
                if id(node) not in copies:
                    content = bytearray(node.durable)
                    for edit in node.pending:
                        fate = keep(edit.sequence)
                        if fate is _Fate.KEPT:
                            _apply_edit(content, edit)
                        elif fate is _Fate.TORN and isinstance(edit, _Write):
                            _apply_torn(content, edit, rng)
                    copies[id(node)] = _Node(content, bytearray(content))
            after = MemoryFiles()
            after._directories = set(self._directories)
            after._names = {path: copies[id(node)] for path, node in names.items()}
            after._durable_names = dict(after._names)
            return after

    def kill(self) -> MemoryFiles:
        """The state after kill -9 of the process: everything written is there, unsynced as it was; locks are free."""
        with self.mutex:
            copies: dict[int, _Node] = {}

            def copy(node: _Node) -> _Node:
                return copies.setdefault(id(node), node.copy())

            after = MemoryFiles()
            after.operations = self.operations
            after._directories = set(self._directories)
            after._names = {path: copy(node) for path, node in self._names.items()}
            after._durable_names = {path: copy(node) for path, node in self._durable_names.items()}
            after._name_changes = [
                _NameChange(c.sequence, c.target, c.node and copy(c.node), c.source) for c in self._name_changes
            ]
            return after

    # files.Files

    def create(self, path: Path) -> File:
        path = _plain(path)
        with self._operation("create", path):
            self._check_parent(path)
            if path in self._names or path in self._directories:
                raise _error(errno.EEXIST, path)
            node = _Node()
            self._change_name(_NameChange(self.operations, path, node))
            self.cut_before()
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
        with self.mutex:  # as text, which a path keeps: its parts would be made again for each of them
            found = {
                name[size:]
                for name in map(str, (*self._names, *self._directories))
                if name.startswith(prefix) and "/" not in name[size:]
            }
            return sorted(found - {"", "."})

    def make_directory(self, path: Path) -> None:
        path = _plain(path)
        with self._operation("make_directory", path):
            for directory in (path, *path.parents):
                if directory in self._names:
                    raise _error(errno.EEXIST if directory == path else errno.ENOTDIR, directory)
            self.cut_before()
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
                self._change_name(_NameChange(self.operations, target, self._names[source], source))
            self.cut_before()

    def remove(self, path: Path) -> None:
        path = _plain(path)
        with self._operation("remove", path):
            if path in self._directories:
                raise _error(errno.EISDIR, path)
            if path in self._names:
                self._change_name(_NameChange(self.operations, path, None))
            self.cut_before()

    def sync_directory(self, path: Path) -> None:
        path = _plain(path)
        with self._operation("sync_directory", path):
            if path not in self._directories:
                raise _error(errno.ENOTDIR if path in self._names else errno.ENOENT, path)
            self.cut_before()
            waiting: list[_NameChange] = []
            for change in self._name_changes:
                if change.target.parent == path:
                    _apply_name(self._durable_names, change)
                    if change.source is not None:  # what made the source's name is past
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
            if path in self._locked:
                raise Unavailable(
                    f"{path.parent} is in use by another process", hint="stop it first, or use another directory"
                )
            if path not in self._names:
                self._change_name(_NameChange(self.operations, path, _Node()))
            self._locked.add(path)
        try:
            yield
        finally:
            with self.mutex:
                self._locked.discard(path)

    # What handles ask for, under the mutex.

    def count(self, name: str, path: Path) -> Fault | None:
        """Counts an operation; its fault, if a test asked for one. Raises `PowerCut` where the power is off."""
        self._check_power()
        self.operations += 1
        if self.on_operation is not None:
            self.on_operation(self.operations, name, path)
        return self._faults.pop(self.operations, None)

    def cut_before(self) -> None:
        """Called where the operation's effect is noted but nothing more is durable: the moment of a power cut."""
        if self.operations == self._stop_at:
            self.is_cut = True
        self._check_power()

    @contextlib.contextmanager
    def _operation(self, name: str, path: Path) -> Iterator[None]:
        with self.mutex:
            fault = self.count(name, path)
            if fault is not None:
                raise _os_error(fault, path)
            yield

    def _check_power(self) -> None:
        if self.is_cut:
            raise PowerCut("the power is off")

    def _check_parent(self, path: Path) -> None:
        if path.parent not in self._directories:
            raise _error(errno.ENOENT, path)

    def _change_name(self, change: _NameChange) -> None:
        _apply_name(self._names, change)
        self._name_changes.append(change)

    def _choose(self, rng: random.Random) -> Callable[[int], _Fate]:
        """The fate of each unsynced operation: all, none, a prefix in time with its last one torn, or any mixture."""
        nodes = {id(n): n for n in [*self._durable_names.values(), *(c.node for c in self._name_changes if c.node)]}
        edits: set[int] = {e.sequence for n in nodes.values() for e in n.pending}
        sequences = sorted(edits | {c.sequence for c in self._name_changes})
        mode = rng.random()
        if mode < 0.1:
            fates = dict.fromkeys(sequences, _Fate.KEPT)
        elif mode < 0.2:
            fates = dict.fromkeys(sequences, _Fate.LOST)
        elif mode < 0.6:
            end = rng.randrange(len(sequences) + 1)
            fates = {s: _Fate.KEPT if i < end else _Fate.LOST for i, s in enumerate(sequences)}
            if end < len(sequences):
                fates[sequences[end]] = _Fate.TORN
        else:
            fates = {s: rng.choice(_FATES) for s in sequences}
        return fates.__getitem__


class _Fate(Enum):
    KEPT = 1
    LOST = 2
    TORN = 3


_FATES = tuple(_Fate)


def _plain(path: Path) -> Path:
    """Without `..`: there are no links here."""
    return Path(os.path.normpath(path)) if ".." in path.parts else path


def _error(code: int, path: Path) -> OSError:
    return OSError(code, os.strerror(code), str(path))


def _os_error(fault: Fault, path: Path) -> OSError:
    return _error(abs(fault.value), path)
