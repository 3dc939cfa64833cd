"""The contract of `files.Files`, on the real file system and in memory."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.errors import StorageFailed, Unavailable
from penstock.files import REAL_FILES, Files, read_file, replace_file
from penstock.files.memory import DiskFault, MemoryFiles
from tests.support.waiting import LIMIT_SECONDS, wait_until


@pytest.fixture(params=["real", "memory"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Files, Path]:
    if request.param == "real":
        return REAL_FILES, tmp_path
    files = MemoryFiles()
    files.make_directory(tmp_path)
    return files, tmp_path


def test_an_open_file_stays_readable_after_it_is_removed(place: tuple[Files, Path]) -> None:
    files, d = place
    file = files.create(d / "a")
    file.append([b"0123456789"])
    files.remove(d / "a")
    assert (file.read_at(2, 3), file.size()) == (b"234", 10)
    file.close()


def test_append_continues_at_the_end_and_reads_stop_there(place: tuple[Files, Path]) -> None:
    files, d = place
    file = files.create(d / "a")
    file.append([b"ab", bytearray(b""), memoryview(b"cd")])
    file.append([b"e"])
    assert file.read_at(0, 100) == b"abcde"
    assert file.read_at(3, 2) == b"de"
    assert file.read_at(9, 2) == b""
    file.close()
    again = files.open(d / "a", writable=True)
    again.append([b"f"])
    again.datasync()
    assert read_file(files, d / "a") == b"abcdef"
    assert again.size() == 6


def test_many_buffers_in_one_append(place: tuple[Files, Path]) -> None:
    files, d = place
    file = files.create(d / "a")
    file.append([bytes([i % 251]) for i in range(3000)])
    assert file.read_at(0, 5000) == bytes(i % 251 for i in range(3000))


def test_write_at_truncate_seek_append_and_preallocate(place: tuple[Files, Path]) -> None:
    files, d = place
    file = files.create(d / "a")
    file.write_at(4, b"x")
    assert file.read_at(0, 10) == b"\0\0\0\0x"
    file.append([b"ab"])  # write_at does not move where appends go
    assert file.read_at(0, 10) == b"ab\0\0x"
    file.truncate(3)
    file.append([b"c"])
    assert file.read_at(0, 10) == b"ab\0c"
    file.truncate(6)
    assert file.size() == 6
    file.preallocate(10)
    file.seek_append(2)
    file.append([b"z"])
    assert file.read_at(0, 10) == b"abzc".ljust(10, b"\0")


def test_names(place: tuple[Files, Path]) -> None:
    files, d = place
    files.make_directory(d / "x" / "y")
    files.make_directory(d / "x" / "y")
    files.create(d / "x" / "b").close()
    files.create(d / "x" / "a").append([b"1"])
    assert files.list(d / "x") == ["a", "b", "y"]
    assert files.list(d / "nothing") == []
    assert files.exists(d / "x") and files.exists(d / "x" / "a") and not files.exists(d / "x" / "c")
    with pytest.raises(FileExistsError):
        files.create(d / "x" / "a")
    with pytest.raises(FileNotFoundError):
        files.open(d / "x" / "c")
    with pytest.raises(FileNotFoundError):
        files.create(d / "nothing" / "a")
    with pytest.raises(FileNotFoundError):
        files.rename(d / "x" / "c", d / "x" / "d")
    with pytest.raises(FileNotFoundError):
        files.sync_directory(d / "nothing")
    files.rename(d / "x" / "a", d / "x" / "b")
    files.remove(d / "x" / "c")
    assert files.list(d / "x") == ["b", "y"]
    assert read_file(files, d / "x" / "b") == b"1"
    files.remove(d / "x" / "b")
    files.sync_directory(d / "x")
    assert files.list(d / "x") == ["y"]


def test_an_open_handle_outlives_its_name(place: tuple[Files, Path]) -> None:
    files, d = place
    file = files.create(d / "a")
    file.append([b"1"])
    files.remove(d / "a")
    assert file.read_at(0, 1) == b"1"


def test_replace_file(place: tuple[Files, Path]) -> None:
    files, d = place
    replace_file(files, d / "a", [b"old"])
    replace_file(files, d / "a", [b"n", b"ew"])
    assert read_file(files, d / "a") == b"new"
    assert files.list(d) == ["a"]


def test_a_read_only_handle_refuses_to_write(place: tuple[Files, Path]) -> None:
    files, d = place
    files.create(d / "a").close()
    with pytest.raises(StorageFailed):
        files.open(d / "a").append([b"x"])
    assert read_file(files, d / "a") == b""


def test_a_closed_handle_refuses(place: tuple[Files, Path]) -> None:
    files, d = place
    file = files.create(d / "a")
    file.close()
    file.close()
    with pytest.raises(OSError):
        file.read_at(0, 1)
    with pytest.raises(StorageFailed):
        file.append([b"x"])


def test_lock_excludes_and_is_released(place: tuple[Files, Path]) -> None:
    files, d = place
    with files.lock(d / "lock"):
        with pytest.raises(Unavailable), files.lock(d / "lock"):
            pass
        assert files.exists(d / "lock")
    with files.lock(d / "lock"):
        pass


def test_a_disk_without_room_ahead_refuses_no_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_room(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", no_room)
    in_memory = MemoryFiles()
    in_memory.make_directory(tmp_path)
    places: tuple[Files, ...] = (REAL_FILES, in_memory)
    for files in places:
        file = files.create(tmp_path / "a")
        if files is in_memory:
            in_memory.fail_at(in_memory.operations + 1, DiskFault.ENOSPC)
        file.preallocate(1 << 20)
        assert file.size() == 0
        file.append([b"written"])
        file.datasync()
        assert file.read_at(0, 10) == b"written"


def test_a_disk_that_fails_to_reserve_has_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "posix_fallocate", broken)
    with pytest.raises(StorageFailed):
        REAL_FILES.create(tmp_path / "a").preallocate(1 << 20)


@pytest.mark.parametrize("leaves", [True, False])
def test_a_forked_child_neither_keeps_a_lock_nor_gives_it_up(tmp_path: Path, leaves: bool) -> None:
    held = REAL_FILES.lock(tmp_path / "lock")
    held.__enter__()
    end, told = os.pipe()
    child = os.fork()
    if not child:
        if leaves:
            held.__exit__(None, None, None)  # as when its interpreter ends
        os.write(told, b"x")
        signal.pause()
    try:
        assert os.read(end, 1) == b"x"
        with pytest.raises(Unavailable, match="in use"), REAL_FILES.lock(tmp_path / "lock"):
            pass
        held.__exit__(None, None, None)
        with REAL_FILES.lock(tmp_path / "lock"):
            pass
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(end)
        os.close(told)


def test_the_lock_of_a_process_that_was_killed_is_free_though_its_child_lives(tmp_path: Path) -> None:
    program = """
import os, signal, sys
from pathlib import Path
from penstock.files import REAL_FILES
held = REAL_FILES.lock(Path(sys.argv[1]))
held.__enter__()
if child := os.fork():
    print(child, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
signal.pause()
"""
    owner = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path / "lock")], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert owner.stdout is not None
    child = int(owner.stdout.readline())
    try:
        owner.wait(LIMIT_SECONDS)

        def is_free() -> bool:  # once the child, which lets go as its first step, had its turn
            with contextlib.suppress(Unavailable), REAL_FILES.lock(tmp_path / "lock"):
                return True
            return False

        wait_until(is_free, "the lock", lambda: None)
    finally:
        os.kill(child, signal.SIGKILL)
        owner.stdout.close()
