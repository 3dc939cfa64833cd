"""Objects as files in one directory of this machine, through `penstock.files`, because obstore's own local store never
syncs.

A put writes under a temporary name (`.…`, which `list` leaves out), syncs, renames, and syncs the directory. A
temporary file that a power cut leaves behind is removed by `delete` of its object.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from pathlib import Path

from penstock.errors import PenstockError, StorageFailed, Unavailable
from penstock.files import Buffer, Files, replace_file
from penstock.objects.store import checked_name, missing_object

# Errors that an operator must repair. All others may heal by themselves, as a full disk does.
_LASTING = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.ELOOP}


class DirectoryObjects:
    """An `ObjectStore`."""

    def __init__(self, url: str, root: Path, files: Files) -> None:
        self.url = url
        self._root = root
        self._files = files

    def put(self, name: str, data: Buffer) -> None:
        path = self._path(name)
        try:
            if not self._files.exists(path.parent):
                self._files.make_directory(path.parent)
            replace_file(self._files, path, [data])
        except (OSError, StorageFailed) as error:
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
        names = self._files.list(self._root / directory)
        return [f"{directory}/{name}" for name in names if not name.startswith(".")]

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
