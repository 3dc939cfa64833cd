"""Large files past the system's cache: the same bytes as on the usual way, whatever the file system makes of it."""

from __future__ import annotations

import errno
import fcntl
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.errors import StorageFailed
from penstock.files import REAL_FILES, File, read_file, replace_file

MIB = 1 << 20
SIZES = (0, 1, 511, 4096, 4097, 2 * MIB - 1, 2 * MIB, 2 * MIB + 1, 5 * MIB + 4096, 7 * MIB + 33)
Write = Callable[[int, memoryview, int], int]

_pwrite = os.pwrite


def is_direct(descriptor: int) -> bool:
    return bool(fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_DIRECT)


def parts_of(data: bytes, seed: int) -> Iterator[memoryview]:
    """The data in pieces of any length."""
    choose, at = random.Random(seed), 0
    while at < len(data):
        size = choose.choice((1, 4096, 70_000, 3 * MIB))
        yield memoryview(data)[at : at + size]
        at += size


@pytest.fixture
def writes(monkeypatch: pytest.MonkeyPatch) -> list[tuple[bool, int]]:
    """Of each write, whether it went past the cache, and how many bytes it had."""
    seen: list[tuple[bool, int]] = []

    def pwrite(descriptor: int, data: memoryview, offset: int) -> int:
        seen.append((is_direct(descriptor), len(data)))
        return _pwrite(descriptor, data, offset)

    monkeypatch.setattr(os, "pwrite", pwrite)
    return seen


def streamed(path: Path) -> File:
    file = REAL_FILES.create(path)
    file.stream()
    return file


@pytest.mark.parametrize("size", SIZES)
def test_a_stream_is_in_the_file_whole(tmp_path: Path, size: int) -> None:
    data = random.Random(size).randbytes(size)
    replace_file(REAL_FILES, tmp_path / "a", parts_of(data, size))
    assert read_file(REAL_FILES, tmp_path / "a") == data
    assert REAL_FILES.list(tmp_path) == ["a"]


def test_whole_blocks_go_past_the_cache_and_the_rest_does_not(tmp_path: Path, writes: list[tuple[bool, int]]) -> None:
    replace_file(REAL_FILES, tmp_path / "a", parts_of(bytes(5 * MIB + 4096 + 33), 1))
    if not writes[0][0]:
        pytest.skip("the file system of the temporary directory has only the usual way")
    assert writes == [(True, 2 * MIB), (True, 2 * MIB), (True, MIB + 4096), (False, 33)]


def test_a_small_stream_goes_the_usual_way(tmp_path: Path, writes: list[tuple[bool, int]]) -> None:
    replace_file(REAL_FILES, tmp_path / "a", parts_of(bytes(MIB), 1))
    assert writes == [(False, MIB)]


def test_a_file_that_is_no_stream_goes_the_usual_way(tmp_path: Path, writes: list[tuple[bool, int]]) -> None:
    replace_file(REAL_FILES, tmp_path / "a", [bytes(3 * MIB)])
    assert writes == []  # `pwritev`


def test_appends_after_the_sync_follow_it(tmp_path: Path) -> None:
    file = streamed(tmp_path / "a")
    file.append([b"x" * 5000])
    file.datasync()
    assert file.size() == 5000
    file.append([b"y"])
    file.datasync()
    file.close()
    assert read_file(REAL_FILES, tmp_path / "a") == b"x" * 5000 + b"y"


def test_a_stream_may_begin_inside_of_a_block(tmp_path: Path) -> None:
    file = REAL_FILES.create(tmp_path / "a")
    file.append([b"head"])
    file.stream()
    file.append([b"x" * 3 * MIB])
    file.datasync()
    file.close()
    assert read_file(REAL_FILES, tmp_path / "a") == b"head" + b"x" * 3 * MIB


def no_direct_writes(descriptor: int, data: memoryview, offset: int) -> int:
    if is_direct(descriptor):
        raise OSError(errno.EINVAL, "Invalid argument")
    return _pwrite(descriptor, data, offset)


def short_writes(descriptor: int, data: memoryview, offset: int) -> int:
    return _pwrite(descriptor, data[: max(1, len(data) // 2 // 512 * 512)], offset)


def odd_writes(descriptor: int, data: memoryview, offset: int) -> int:
    """As a file system that fell back to its cache may answer."""
    fcntl.fcntl(descriptor, fcntl.F_SETFL, fcntl.fcntl(descriptor, fcntl.F_GETFL) & ~os.O_DIRECT)
    return _pwrite(descriptor, data[: min(len(data), 100_001)], offset)


@pytest.mark.parametrize("write", [no_direct_writes, short_writes, odd_writes])
@pytest.mark.parametrize("size", SIZES)
def test_a_file_system_with_ways_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Write, size: int
) -> None:
    monkeypatch.setattr(os, "pwrite", write)
    data = random.Random(size).randbytes(size)
    replace_file(REAL_FILES, tmp_path / "a", parts_of(data, size))
    assert read_file(REAL_FILES, tmp_path / "a") == data


def test_a_file_system_that_knows_only_the_usual_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = fcntl.fcntl

    def refuse(descriptor: int, command: int, argument: int = 0) -> int:
        if command == fcntl.F_SETFL and argument & os.O_DIRECT:
            raise OSError(errno.EINVAL, "Invalid argument")
        return real(descriptor, command, argument)

    monkeypatch.setattr(fcntl, "fcntl", refuse)
    replace_file(REAL_FILES, tmp_path / "a", parts_of(b"z" * 5 * MIB, 1))
    assert read_file(REAL_FILES, tmp_path / "a") == b"z" * 5 * MIB


@pytest.mark.parametrize("size", [100, 3 * MIB])
def test_a_full_disk_poisons_the_handle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    file = streamed(tmp_path / "a")
    with pytest.raises(StorageFailed):
        file.append([bytes(size)])
        file.datasync()
    monkeypatch.undo()
    with pytest.raises(StorageFailed):
        file.append([b"more"])
    with pytest.raises(StorageFailed):
        file.datasync()
    file.close()


def test_a_read_only_stream_is_refused(tmp_path: Path) -> None:
    REAL_FILES.create(tmp_path / "a").close()
    file = REAL_FILES.open(tmp_path / "a")
    file.stream()
    file.append([b"x"])
    with pytest.raises(StorageFailed):
        file.datasync()
    file.close()
    assert read_file(REAL_FILES, tmp_path / "a") == b""
