"""Addresses of Unix sockets: short, however long the path of their directory is, and in a directory of ours alone.

An address has room for about a hundred bytes, a path for four thousand. So the system is given the first of these that
fits:

1. the path itself;
2. the directory by its open descriptor, `/proc/<pid>/fd/<number>/<name>`. Only processes of the same user can go through
   another one's descriptors, and only as long as that process lives;
3. where there is no such /proc: a directory with a random name in `XDG_RUNTIME_DIR` or in the system's temporary
   directory. A link in the real directory leads to it (`remove_short_directory` removes both).

No name that others could guess is ever used outside of the real directory.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

from penstock.errors import BadInput
from penstock.files.private import check_owner, check_private_directory, remove_private

ADDRESS_BYTES_MAX = 100  # sun_path holds 108 bytes with its terminator on Linux, 104 on macOS
_LINK = "sockets"
_DESCRIPTORS = Path("/proc/self/fd")


class SocketDirectory:
    """An open directory for sockets. Its addresses hold until `close`, in every process of this user.

    Raises `BadInput` unless the directory is ours and nobody else may write to it. Only root may use one of `anybody`: to
    ask somebody's processes, never to serve there.
    """

    def __init__(self, directory: Path, *, anybody: bool = False) -> None:
        self.path = directory.absolute()
        self._descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        found = os.fstat(self._descriptor)
        self.owner = found.st_uid
        try:
            if not (anybody and os.geteuid() == 0):
                check_owner(self.path, found)
        except BaseException:
            self.close()
            raise

    def short_path(self, name_bytes: int) -> Path:
        """The directory by a name that leaves room for a socket's name of `name_bytes`."""
        room = ADDRESS_BYTES_MAX - name_bytes - 1
        if len(os.fsencode(self.path)) <= room:
            return self.path
        if _DESCRIPTORS.is_dir():
            return Path(f"/proc/{os.getpid()}/fd/{self._descriptor}")
        return _short_directory(self.path, room)

    def address(self, name: str) -> str:
        return os.fspath(self.short_path(len(os.fsencode(name))) / name)

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> SocketDirectory:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def remove_short_directory(directory: Path) -> None:
    """Removes the directory that stands for this one, if there is one, and the link to it."""
    link = directory / _LINK
    with contextlib.suppress(OSError):
        remove_private(link.readlink())
        link.unlink()


def _short_directory(directory: Path, room: int) -> Path:
    link = directory / _LINK
    if not link.is_symlink():
        made = Path(tempfile.mkdtemp(prefix="penstock-", dir=_runtime_directory()))
        try:
            link.symlink_to(made)
        except FileExistsError:  # another process of this run made one meanwhile
            made.rmdir()
    found = link.readlink()
    check_private_directory(found)
    if len(os.fsencode(found)) > room:
        raise BadInput(f"{found} is too long for a socket", hint="set TMPDIR to a short path")
    return found


def _runtime_directory() -> Path | None:
    """`XDG_RUNTIME_DIR` if it is ours; None stands for the system's temporary directory."""
    named = os.environ.get("XDG_RUNTIME_DIR", "")
    if not os.path.isabs(named):  # noqa: PTH117
        return None
    try:
        check_private_directory(Path(named))
    except BadInput:
        return None
    return Path(named)
