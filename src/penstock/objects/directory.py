"""Objects as files in one directory of this machine, through `penstock.files`, because obstore's own local store never
syncs.

A put writes under a temporary name (`.…`, which `list` leaves out), syncs, renames, and syncs the directory. A
temporary file that a power cut leaves behind is removed by `delete` of its object. Puts of one name come one after another:
they have the temporary name in common.

`put_if` is atomic among the threads of this process alone: processes that share a directory hold a lock on it.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import threading
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from penstock.errors import PenstockError, StorageFailed, Unavailable
from penstock.files import Buffer, Files, read_file, replace_file
from penstock.objects.store import Found, changed_object, checked_name, missing_object

# Errors that an operator must repair. All others may heal by themselves, as a full disk does.
_LASTING = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.ELOOP}


class DirectoryObjects:
    """An `ObjectStore`."""

    def __init__(self, url: str, root: Path, files: Files) -> None:
        self.url = url
        self._root = root
        self._files = files
        self._putting = threading.Condition()
        self._names_put: set[str] = set()

    def put(self, name: str, data: Buffer) -> None:
        with self._alone(name):
            self._replace(name, [data])

    def put_stream(self, name: str, parts: Iterable[Buffer]) -> None:
        with self._alone(name):
            try:
                self._replace(name, iter(parts))
            except Exception:  # of the disk, or of who makes the parts
                with contextlib.suppress(PenstockError):  # it gives way to the next one of its name
                    self.end_uploads(name)
                raise

    def _replace(self, name: str, buffers: Iterable[Buffer]) -> None:
        path = self._path(name)
        try:
            if not self._files.exists(path.parent):
                self._files.make_directory(path.parent)
            replace_file(self._files, path, buffers)
        except (OSError, StorageFailed) as error:
            raise self._translated(name, error) from error

    @contextlib.contextmanager
    def _alone(self, name: str) -> Iterator[None]:
        with self._putting:
            self._putting.wait_for(lambda: name not in self._names_put)
            self._names_put.add(name)
        try:
            yield
        finally:
            with self._putting:
                self._names_put.discard(name)
                self._putting.notify_all()

    def end_uploads(self, name: str) -> int:
        """A temporary file is not seen by readers, and gives way to the next one of its name. Nobody looks for all of them: who
        writes to a directory holds a lock on it."""
        if not name:
            return 0
        path = self._path(name)
        temporary = path.with_name(f".{path.name}.tmp")
        try:
            if not self._files.exists(temporary):
                return 0
            self._files.remove(temporary)
        except OSError as error:
            raise self._translated(name, error) from error
        return 1

    def put_if(self, name: str, data: Buffer, token: str | None) -> str:
        with self._alone(f"{name}?"):  # no object's name: `put` waits for others of its own
            found = self.read(name)
            if found is not None and found.data == bytes(data):
                self.settle(name)
                return found.token
            if (found.token if found is not None else None) != token:
                raise changed_object(self.url, name, there=found is not None)
            self.put(name, data)
        return _token(bytes(data))

    def settle(self, name: str) -> None:
        """Bytes are synced before they get their name, so it is the name alone that may be lost."""
        directory = self._path(name).parent
        try:
            if self._files.exists(directory):
                self._files.sync_directory(directory)
        except OSError as error:
            raise self._translated(name, error) from error

    def read(self, name: str) -> Found | None:
        try:
            data = read_file(self._files, self._path(name))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._translated(name, error) from error
        return Found(data, _token(data))

    def size(self, name: str) -> int | None:
        try:
            file = self._files.open(self._path(name))
            try:
                return file.size()
            finally:
                file.close()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._translated(name, error) from error

    def get(self, name: str, offset: int, size: int) -> bytes:
        try:
            file = self._files.open(self._path(name))
            try:
                return file.read_at(offset, size)
            finally:
                file.close()
        except FileNotFoundError:
            raise missing_object(self.url, name) from None
        except OSError as error:
            raise self._translated(name, error) from error

    def delete(self, names: Sequence[str]) -> None:
        changed: set[Path] = set()
        for name in names:
            path = self._path(name)
            try:
                if self._files.exists(path.parent):
                    self._files.remove(path)
                    self._files.remove(path.with_name(f".{path.name}.tmp"))
                    changed.add(path.parent)
            except OSError as error:
                raise self._translated(name, error) from error
        for directory in sorted(changed):
            try:
                self._files.sync_directory(directory)
            except OSError as error:
                raise self._translated(directory.name, error) from error

    def list(self, directory: str) -> list[str]:
        checked_name(directory, self.url)
        return sorted(self.walk(directory))

    def walk(self, directory: str = "") -> Iterator[str]:
        root = self._path(directory) if directory else self._root
        try:
            for path in self._files.walk(root):
                if not path.name.startswith("."):
                    yield path.relative_to(self._root).as_posix()
        except OSError as error:
            raise self._translated(directory, error) from error

    def _path(self, name: str) -> Path:
        return self._root / checked_name(name, self.url)

    def _translated(self, name: str, error: OSError | StorageFailed) -> PenstockError:
        cause = error if isinstance(error, OSError) else error.__cause__
        if isinstance(error, PenstockError) and not isinstance(cause, OSError):
            return error  # PowerCut of `MemoryFiles`: not an error of the disk
        if isinstance(cause, OSError) and cause.errno in _LASTING:
            return StorageFailed(f"{self.url}/{name}: {cause.strerror}", hint="repair the directory, then start again")
        return Unavailable(
            f"{self.url}/{name} cannot be used now: {cause or error}", hint="it is tried again by itself"
        )


def _token(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
