"""What is ours is for this user alone, and what others could have made or could replace is refused by name."""

from __future__ import annotations

import grp
import os
import pwd
import shutil
import stat
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.errors import BadInput
from penstock.files import REAL_FILES, RealFiles, replace_file
from penstock.files import private as module
from penstock.files.private import (
    check_not_planted,
    check_private_directory,
    clear_private,
    make_private_directory,
    open_private,
    remove_private,
    tighten,
    write_private,
)
from tests.support.second_user import SECOND_USER, needs_second_user


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


@pytest.fixture
def home() -> Iterator[Path]:
    """A directory of ours that everybody can look into, with an umask that gives everything away."""
    previous = os.umask(0)
    directory = Path(tempfile.mkdtemp())
    directory.chmod(0o755)
    yield directory
    os.umask(previous)
    shutil.rmtree(directory)


def test_directories_and_files_are_for_this_user_alone_whatever_the_umask_is(home: Path) -> None:
    assert not make_private_directory(home / "a" / "b")
    REAL_FILES.make_directory(home / "c" / "d")
    REAL_FILES.create(home / "c" / "file").close()
    replace_file(REAL_FILES, home / "c" / "replaced", [b"x"])
    with REAL_FILES.lock(home / "c" / "lock"):
        pass
    open_private(home / "c" / "log", "ab").close()
    write_private(home / "c" / "text", "x")
    write_private(home / "c" / "program", "x", executable=True)
    made = {path.relative_to(home).as_posix(): mode(path) for path in home.rglob("*")}
    directories = ("a", "a/b", "c", "c/d", "c/program")
    assert made == {name: 0o700 if name in directories else 0o600 for name in made}
    assert len(made) == 10


@pytest.mark.parametrize(
    ("umask", "file", "directory"), [(0o022, 0o640, 0o750), (0o027, 0o640, 0o750), (0o077, 0o600, 0o700)]
)
def test_what_is_shared_follows_the_users_umask_and_a_lock_is_never_shared(
    home: Path, umask: int, file: int, directory: int
) -> None:
    os.umask(0o077)  # of our own process
    files = RealFiles(shared_umask=umask)
    files.make_directory(home / "sink" / "table")
    replace_file(files, home / "sink" / "table" / "file", [b"x"])
    with files.lock(home / "sink" / "lock"):
        pass
    assert mode(home / "sink") == mode(home / "sink" / "table") == directory
    assert mode(home / "sink" / "table" / "file") == file
    assert mode(home / "sink" / "lock") == 0o600


def test_a_directory_of_ours_that_was_open_is_tightened_and_it_is_told(home: Path) -> None:
    (home / "state" / "log").mkdir(parents=True)
    (home / "state" / "log" / "1").touch()
    (home / "state" / "link").symlink_to("/etc/passwd")
    (home / "state").chmod(0o755)
    assert make_private_directory(home / "state")
    assert tighten(home / "state") == 2
    assert not make_private_directory(home / "state")
    assert tighten(home / "state") == 0
    assert (mode(home / "state"), mode(home / "state" / "log"), mode(home / "state" / "log" / "1")) == (
        0o700,
        0o700,
        0o600,
    )
    assert mode(Path("/etc/passwd")) & 0o044, "the link was not followed"


@pytest.mark.parametrize("bits", [0o777, 0o757, 0o775])
def test_a_directory_that_others_may_write_to_is_refused(
    home: Path, bits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_is_own_group", lambda _: False)
    make_private_directory(home / "a" / "b")
    for spoilt in (home, home / "a", home / "a" / "b"):
        spoilt.chmod(bits)
        with pytest.raises(BadInput, match="other users") as error:
            make_private_directory(home / "a" / "b")
        assert str(spoilt) in str(error.value)
        assert error.value.hint
        spoilt.chmod(0o755)
    (home / "a").chmod(0o1777)
    check_private_directory(home / "a" / "b")


def test_the_group_that_has_only_this_user_counts_as_this_user(home: Path) -> None:
    make_private_directory(home / "a")
    os.chown(home, -1, os.getegid())
    home.chmod(0o775)
    if module._is_own_group(os.getegid()):
        check_private_directory(home / "a")
    else:
        with pytest.raises(BadInput):
            check_private_directory(home / "a")


@needs_second_user
def test_what_another_user_made_first_is_refused(home: Path) -> None:
    """He who makes the name first must not own what we put there."""
    home.chmod(0o1777)
    (home / "a").mkdir(mode=0o700)
    os.chown(home / "a", SECOND_USER, SECOND_USER)
    for path in (home / "a", home / "a" / "below"):
        with pytest.raises(BadInput, match=r"belongs to the user (nobody|65534)"):
            make_private_directory(path)
    assert mode(home / "a") == 0o700
    remove_private(home / "a")
    assert (home / "a").exists()


@needs_second_user
@pytest.mark.parametrize("owner", [SECOND_USER, 0])
def test_a_link_is_followed_only_where_nobody_else_made_it(home: Path, owner: int) -> None:
    make_private_directory(home / "real")
    home.chmod(0o1777)
    (home / "one").symlink_to("two")
    (home / "two").symlink_to(home / "real")
    os.chown(home / "two", owner, owner, follow_symlinks=False)
    if owner == SECOND_USER:
        with pytest.raises(BadInput, match=r"can be replaced: .*/two belongs to"):
            make_private_directory(home / "one")
    else:
        make_private_directory(home / "one")
    assert not list((home / "real").iterdir())


def test_what_is_no_directory_is_refused(home: Path) -> None:
    (home / "file").touch()
    (home / "gone").symlink_to(home / "nowhere")
    (home / "loop").symlink_to(home / "loop")
    for name in ("file", "gone", "loop"):
        with pytest.raises(BadInput, match=f"{home}/{name} is not used"):
            make_private_directory(home / name)
    assert not (home / "nowhere").exists()


@needs_second_user
def test_a_file_of_somebody_else_is_not_written_to(home: Path) -> None:
    (home / "target").touch()
    (home / "link").symlink_to(home / "target")
    with pytest.raises(OSError, match="symbolic links"):
        open_private(home / "link", "ab")
    with pytest.raises(OSError, match="symbolic links"), REAL_FILES.lock(home / "link"):
        pass
    os.chown(home / "target", SECOND_USER, SECOND_USER)
    with pytest.raises(BadInput, match="belongs to"):
        open_private(home / "target", "ab")
    (home / "state").mkdir()
    shutil.copy(home / "target", home / "state")
    os.chown(home / "state" / "target", SECOND_USER, SECOND_USER)
    with pytest.raises(BadInput, match="belongs to"):
        tighten(home / "state")


def test_clearing_keeps_what_is_wanted_and_follows_no_link(home: Path) -> None:
    (home / "run" / "spark" / "tmp").mkdir(parents=True)
    (home / "outside").mkdir()
    (home / "outside" / "precious").touch()
    for name in ("a.pid", "a.log", "spark/spark.log", "spark/tmp/library.so"):
        (home / "run" / name).touch()
    (home / "run" / "link").symlink_to(home / "outside")
    clear_private(home / "run", keep=lambda path: path.suffix == ".log")
    left = sorted(path.relative_to(home / "run").as_posix() for path in (home / "run").rglob("*"))
    assert left == ["a.log", "spark", "spark/spark.log"]
    assert (home / "outside" / "precious").exists()
    clear_private(home / "nowhere")
    (home / "run").chmod(0o700)
    remove_private(home / "run")
    assert not (home / "run").exists()


@pytest.mark.skipif(not hasattr(os, "setxattr"), reason="this system has no such lists")
@pytest.mark.parametrize("spoilt", ["way", "way/state"])
def test_an_access_list_that_names_another_user_is_seen(
    home: Path, spoilt: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The group's bits then stand for everybody whom the list names, not for the group of that number."""
    monkeypatch.setattr(module, "_is_own_group", lambda _: True)
    make_private_directory(home / "way" / "state")
    (home / spoilt).chmod(0o770)
    check_private_directory(home / "way" / "state")
    nobody = 0xFFFFFFFF
    entries = [(0x01, 7, nobody), (0x02, 7, SECOND_USER), (0x04, 0, nobody), (0x10, 7, nobody), (0x20, 0, nobody)]
    text = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)
    try:
        os.setxattr(home / spoilt, "system.posix_acl_access", text)
    except OSError as error:
        pytest.skip(f"this file system keeps no such lists: {error}")
    with pytest.raises(BadInput, match="other users"):
        check_private_directory(home / "way" / "state")


def test_a_group_that_is_another_users_first_one_is_not_our_own(monkeypatch: pytest.MonkeyPatch) -> None:
    me = pwd.struct_passwd(("me", "x", os.geteuid(), 4_242, "", "/", "/bin/sh"))
    him = pwd.struct_passwd(("him", "x", os.geteuid() + 1, 4_242, "", "/", "/bin/sh"))
    monkeypatch.setattr(pwd, "getpwuid", lambda _: me)
    monkeypatch.setattr(grp, "getgrgid", lambda _: grp.struct_group(("me", "x", 4_242, [])))
    for everybody, own in (([me], True), ([me, him], False)):
        monkeypatch.setattr(pwd, "getpwall", lambda everybody=everybody: everybody)
        assert module._is_own_group(4_242) is own


def test_what_only_its_owner_can_replace_is_not_planted(home: Path) -> None:
    """A sink or a configuration may be shared: with a group, or in a directory where everybody makes his own."""
    (home / "sink").mkdir()
    for bits in (0o755, 0o775, 0o1777):
        (home / "sink").chmod(bits)
        check_not_planted(home / "sink")
        check_not_planted(home / "sink" / "not" / "there")
    (home / "sink").chmod(0o777)
    for path in (home / "sink", home / "sink" / "table"):
        with pytest.raises(BadInput, match="everybody"):
            check_not_planted(path)


@needs_second_user
def test_what_anybody_could_have_planted_is_refused(home: Path) -> None:
    home.chmod(0o1777)
    (home / "file").touch(0o644)
    check_not_planted(home / "file")
    (home / "file").chmod(0o666)
    with pytest.raises(BadInput, match="written to by everybody"):
        check_not_planted(home / "file")
    (home / "file").chmod(0o644)
    (home / "link").symlink_to(home / "file")
    check_not_planted(home / "link")
    for planted in (home / "link", home / "file"):
        os.chown(planted, SECOND_USER, SECOND_USER, follow_symlinks=False)
        with pytest.raises(BadInput, match="where everybody can make one"):
            check_not_planted(home / "link")
        os.chown(planted, os.geteuid(), -1, follow_symlinks=False)


def test_a_crash_leaves_no_memory_on_the_disk() -> None:
    code = """
import resource
from penstock.process import ChildProcess
resource.setrlimit(resource.RLIMIT_CORE, resource.getrlimit(resource.RLIMIT_CORE)[1:] * 2)
ChildProcess("test")
raise SystemExit(resource.getrlimit(resource.RLIMIT_CORE)[0])
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
