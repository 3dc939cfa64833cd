"""The store under a sink's prefix. One kind exists so far: a directory of this machine, through `penstock.files`.

When `put` returns, the object is durable and visible as a whole: it is written under a temporary name in the same
directory (`.…`, which readers ignore), synced, renamed, and the directory is synced. A failed write leaves nothing
under the real name; it is repeated from the start with a new file handle, because a handle whose sync failed must not
be trusted.
"""

from __future__ import annotations

import errno
from pathlib import Path, PurePosixPath
from typing import Protocol

from penstock.errors import BadInput, PenstockError, StorageFailed, Unavailable
from penstock.files import Buffer, Files, read_file, replace_file

# Errors that an operator must repair; any other error of a disk may heal by itself, as a full disk does.
_LASTING = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.ELOOP}


class Store(Protocol):
    """Paths are relative to the prefix, with `/`. Raises `Unavailable` for errors that may heal, `Terminal` for
    others."""

    def put(self, path: str, data: Buffer) -> None:
        """Makes `path` hold exactly these bytes, atomically and durably."""
        ...

    def read(self, path: str) -> bytes | None:
        """The object's bytes, None where there is none."""
        ...

    def exists(self, path: str) -> bool: ...

    def list(self, directory: str) -> list[str]:
        """Names in a directory; empty where there is none."""
        ...


class LocalStore:
    """A directory of this machine."""

    def __init__(self, root: Path, files: Files) -> None:
        self.root = root
        self._files = files
        self._made: set[Path] = set()  # directories known to exist: one per table, version and date in use

    def put(self, path: str, data: Buffer) -> None:
        target = self._resolve(path)
        try:
            if target.parent not in self._made:
                self._files.make_directory(target.parent)
                if len(self._made) > 10_000:
                    self._made.clear()
                self._made.add(target.parent)
            replace_file(self._files, target, [data])
        except (OSError, StorageFailed) as error:
            self._made.discard(target.parent)
            raise _translated(target, error) from error

    def read(self, path: str) -> bytes | None:
        target = self._resolve(path)
        try:
            return read_file(self._files, target)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _translated(target, error) from error

    def exists(self, path: str) -> bool:
        return self._files.exists(self._resolve(path))

    def list(self, directory: str) -> list[str]:
        return self._files.list(self._resolve(directory) if directory else self.root)

    def _resolve(self, path: str) -> Path:
        """The file for `path`. Refuses every path that would lead out of the prefix, whatever names are in it."""
        parts = PurePosixPath(path).parts
        if not parts or path.startswith("/") or any(part in ("..", ".", "") for part in path.split("/")):
            raise BadInput(f"{path!r} is not a path under {self.root}")
        return self.root.joinpath(*parts)


def _translated(path: Path, error: OSError | StorageFailed) -> PenstockError:
    cause = error if isinstance(error, OSError) else error.__cause__
    if isinstance(cause, OSError) and cause.errno in _LASTING:
        return StorageFailed(f"{path}: {cause.strerror}", hint="repair the directory, then start again")
    return Unavailable(f"{path} could not be written or read: {cause or error}", hint="it is tried again by itself")
