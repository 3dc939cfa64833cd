"""What belongs to one user alone: the one place that makes directories and files which others on the machine must not
touch, and that looks at the ones which are there before they are used.

The rule: a directory of ours belongs to this user and has mode 0700, a file 0600. On the way to it nobody else can put
another directory, or a link, in its place: every directory above belongs to this user or to root, and others may write
to it only where it is sticky, as /tmp is. What is found otherwise is refused by name, as `BadInput`, and never used.

A process of ours also sets its umask (`private_umask`), so that what libraries and Spark's JVM make is private, too, and
leaves no core dump (`no_core_dumps`).
"""

from __future__ import annotations

import contextlib
import grp
import os
import pwd
import resource
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, cast

from penstock.errors import BadInput

DIRECTORY_MODE = 0o700
FILE_MODE = 0o600
_OTHERS = 0o077
_LINKS_MAX = 40  # as the kernel's own limit
_ACCESS_LIST = "system.posix_acl_access"
_users_umask: int | None = None


def private_umask() -> None:
    """From now on nothing that this process makes can be read by others, unless it asks for it by name."""
    global _users_umask
    previous = os.umask(_OTHERS)
    if _users_umask is None:
        _users_umask = previous


def no_core_dumps() -> None:
    """From now on no crash of this process, or of one that it starts, leaves its memory, and the secrets in it, on a
    disk."""
    _, most = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, most))


def users_umask() -> int:
    """The umask that the user started this process with: for what is meant to be read by others, such as a sink."""
    if _users_umask is not None:
        return _users_umask
    current = os.umask(_OTHERS)  # there is no way to read it without setting it
    os.umask(current)
    return current


def make_private_directory(path: Path) -> bool:
    """Makes the directory and its missing parents, for this user alone, or checks the one that is there.

    A directory of ours that others could look into gets the right mode; True says that this was so. Raises `BadInput`
    where it is not ours, or where others could put another one in its place.
    """
    missing = []
    above = path
    while not above.exists() and not above.is_symlink():
        missing.append(above)
        above = above.parent
    for directory in reversed(missing):
        with contextlib.suppress(FileExistsError):  # somebody else made it meanwhile: it is checked like any other
            directory.mkdir(mode=DIRECTORY_MODE)
    check_private_directory(path)
    if not path.stat().st_mode & _OTHERS:
        return False
    path.chmod(DIRECTORY_MODE)
    return not missing


def check_private_directory(path: Path) -> None:
    """Raises `BadInput` unless the directory is ours, others may not write to it, and nobody but root can replace it.

    It takes one look; what it found true stays true, because nobody else can change it.
    """
    *above, last = _steps(path)
    for step in above:
        _check_step(_status(step, path), step, path)
    found = _status(last, path)
    if not stat.S_ISDIR(found.st_mode):
        raise _refused(path, "is no directory")
    check_owner(path, found)


def check_owner(path: Path, found: os.stat_result) -> None:
    """Raises `BadInput` where `found`, the status of `path`, tells of another owner, or lets others write."""
    if found.st_uid != os.geteuid():
        raise _refused(path, f"belongs to {_user_name(found.st_uid)}")
    if _others_write(path, found):
        raise _refused(path, "can be written to by other users")


def check_not_planted(path: Path) -> None:
    """Raises `BadInput` where just anybody could have put there, or could replace, what the user names and may share: a
    configuration, a certificate, a sink. (A group may own it; what is ours alone has `check_private_directory`.)

    What is not there yet is fine where only its owner can replace it later.
    """
    for step in _steps(path):
        above = step.parent.stat()
        if above.st_mode & stat.S_IWOTH and not above.st_mode & stat.S_ISVTX:
            raise _refused(path, f"can be replaced: everybody can write to {step.parent}")
        try:
            found = step.lstat()
        except OSError:  # whoever uses it learns of that
            return
        if above.st_mode & stat.S_IWOTH and found.st_uid not in (0, os.geteuid()):
            raise _refused(path, f"belongs to {_user_name(found.st_uid)}, in a directory where everybody can make one")
    if found.st_mode & stat.S_IWOTH and not found.st_mode & stat.S_ISVTX:
        raise _refused(path, "can be written to by everybody")


def tighten(directory: Path) -> int:
    """Takes every right of others from all that is below a directory of ours, and tells from how many files. Raises
    `BadInput` for a file of somebody else.

    For a directory that others could look into until now; it must be private itself already.
    """
    changed = 0
    for name, directories, files, descriptor in os.fwalk(directory):
        for entry in (*directories, *files):
            found = os.lstat(entry, dir_fd=descriptor)
            path = Path(name) / entry
            if found.st_uid != os.geteuid():
                raise _refused(path, f"belongs to {_user_name(found.st_uid)}")
            if found.st_mode & _OTHERS and not stat.S_ISLNK(found.st_mode):
                os.chmod(entry, stat.S_IMODE(found.st_mode) & ~_OTHERS, dir_fd=descriptor)
                changed += 1
    return changed


def open_private(path: Path, mode: str) -> IO[bytes]:
    """Opens a file of ours as the builtin `open` does, in a binary mode. A new one is for this user alone, a link is not
    followed, and a file of somebody else is refused."""

    def opener(name: str, flags: int) -> int:
        return os.open(name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, FILE_MODE)

    file: IO[bytes] = open(path, mode, opener=opener)  # noqa: SIM115
    try:
        check_owner(path, os.fstat(file.fileno()))
    except BaseException:
        file.close()
        raise
    return file


def write_private(path: Path, text: str, *, executable: bool = False) -> None:
    """Makes `path` a file of this user alone with this text, and replaces what was there. Not durable."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.unlink(missing_ok=True)
    with open_private(temporary, "xb") as file:
        file.write(text.encode())
        os.fchmod(file.fileno(), DIRECTORY_MODE if executable else FILE_MODE)
    temporary.rename(path)


def clear_private(directory: Path, keep: Callable[[Path], bool] = lambda _: False) -> None:
    """Removes everything in a directory of ours, except files that `keep` wants; nothing where there is no such
    directory. Links are removed, and never followed."""
    with contextlib.suppress(FileNotFoundError):
        for entry in list(directory.iterdir()):
            if entry.is_dir() and not entry.is_symlink():
                clear_private(entry, keep)
                with contextlib.suppress(OSError):  # something in it is kept
                    entry.rmdir()
            elif not keep(entry):
                entry.unlink(missing_ok=True)


def remove_private(directory: Path) -> None:
    """Removes a directory of ours with all that is in it; nothing where there is none, or where it is not ours."""
    with contextlib.suppress(BadInput, OSError):
        check_private_directory(directory)
        shutil.rmtree(directory)


def _steps(path: Path) -> Iterator[Path]:
    """Each name that the system meets on the way to `path`, links and what they lead to included. `path` itself, or
    what it leads to, is the last."""
    here = Path("/")
    waiting = list(reversed(path.absolute().parts[1:]))
    links = 0
    yield here
    while waiting:
        name = waiting.pop()
        step = here.parent if name == ".." else here / name
        yield step
        if step.is_symlink():
            links += 1
            if links > _LINKS_MAX:
                raise _refused(path, "is a link that leads nowhere")
            target = step.readlink()
            here = Path("/") if target.is_absolute() else here
            waiting += [part for part in reversed(target.parts) if part != "/"]
        else:
            here = step


def _status(step: Path, path: Path) -> os.stat_result:
    try:
        return step.lstat()
    except OSError as error:
        raise _refused(path, f"cannot be reached: {error}") from error


def _check_step(found: os.stat_result, step: Path, path: Path) -> None:
    """Raises `BadInput` where somebody else could put another directory in the place of what stands in `step`."""
    if found.st_uid not in (0, os.geteuid()):
        raise _refused(path, f"can be replaced: {step} belongs to {_user_name(found.st_uid)}")
    if stat.S_ISDIR(found.st_mode) and _others_write(step, found) and not found.st_mode & stat.S_ISVTX:
        raise _refused(path, f"can be replaced: other users can write to {step}")


def _others_write(path: Path, found: os.stat_result) -> bool:
    if found.st_mode & stat.S_IWOTH:
        return True
    # Of a file with an access control list the group's bits tell what the list may give, to whomever it names.
    return bool(found.st_mode & stat.S_IWGRP) and (_has_list(path) or not _is_own_group(found.st_gid))


def _has_list(path: Path) -> bool:
    if not hasattr(os, "getxattr"):
        return False
    try:
        os.getxattr(path, _ACCESS_LIST, follow_symlinks=False)
    except OSError:  # it has none, or the file system knows none
        return False
    return True


def _is_own_group(group: int) -> bool:
    """True for the group that many systems make for each user, with no other member: writing as it is writing as us."""
    try:
        user, found = pwd.getpwuid(os.geteuid()), grp.getgrgid(group)
    except KeyError:
        return False
    if found.gr_name != user.pw_name or not set(found.gr_mem) <= {user.pw_name}:
        return False
    return all(other.pw_uid in (0, user.pw_uid) for other in pwd.getpwall() if other.pw_gid == group)


def _user_name(user: int) -> str:
    try:
        return f"the user {pwd.getpwuid(user).pw_name}"
    except KeyError:
        return f"the user {user}"


def _refused(path: Path, why: str) -> BadInput:
    return BadInput(
        f"{path} is not used: it {why}",
        hint="another user could read or replace what is in it; use a directory of your own, or mend its owner and mode",
    )


def memory_file(name: str) -> IO[bytes] | None:
    """A file without a place on a disk, which this user's processes can open through this one's /proc; None where the
    system lacks either."""
    if not hasattr(os, "memfd_create"):
        return None
    file = os.fdopen(os.memfd_create(name), "wb")
    if not Path(f"/proc/{os.getpid()}/fd/{file.fileno()}").is_file():
        file.close()
        return None
    os.fchmod(file.fileno(), FILE_MODE)
    return file


def overflow_file(memory_bytes: int) -> IO[bytes]:
    """A file without a name, in memory up to so many bytes and then in the system's place for temporary files."""
    return cast(IO[bytes], tempfile.SpooledTemporaryFile(memory_bytes))


def unnamed_file(directory: Path) -> IO[bytes]:
    """A file in the directory that has no name: it is gone with the process, however that ends."""
    return cast(IO[bytes], tempfile.TemporaryFile(dir=directory))
