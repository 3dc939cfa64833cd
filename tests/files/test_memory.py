"""What only the file system in memory shows: power cuts, killed processes, failing operations."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.errors import StorageFailed
from penstock.files import read_file, replace_file
from penstock.files.memory import DiskFault, MemoryFiles, PowerCut
from penstock.files.unsynced import SECTOR_BYTES

D = Path("/data")


def memory() -> MemoryFiles:
    files = MemoryFiles()
    files.make_directory(D)
    return files


def outcomes(files: MemoryFiles, path: Path, n: int = 300) -> set[bytes | None]:
    """Every content that `path` had in n crashes; None: no such name."""
    found: set[bytes | None] = set()
    for seed in range(n):
        after = files.crash(random.Random(seed))
        found.add(read_file(after, path) if after.exists(path) else None)
    return found


def test_synced_data_under_a_synced_name_survives_every_crash() -> None:
    files = memory()
    file = files.create(D / "a")
    file.append([b"abc"])
    file.datasync()
    files.sync_directory(D)
    assert outcomes(files, D / "a") == {b"abc"}


def test_unsynced_data_may_be_kept_lost_or_zero() -> None:
    files = memory()
    file = files.create(D / "a")
    files.sync_directory(D)
    file.append([b"abc"])
    assert outcomes(files, D / "a") == {b"abc", b"", b"\0\0\0"}


def test_a_synced_file_under_an_unsynced_name_may_be_gone() -> None:
    files = memory()
    file = files.create(D / "a")
    file.append([b"abc"])
    file.datasync()
    assert outcomes(files, D / "a") == {b"abc", None}


def test_a_rename_before_its_data_is_synced_may_leave_an_empty_file() -> None:
    files = memory()
    replace_file(files, D / "a", [b"old"])
    file = files.create(D / "t")
    file.append([b"new"])
    files.rename(D / "t", D / "a")
    files.sync_directory(D)
    assert outcomes(files, D / "a") == {b"new", b"", b"\0\0\0"}


def test_a_rename_is_atomic_and_may_be_lost() -> None:
    files = memory()
    replace_file(files, D / "a", [b"old"])
    file = files.create(D / "t")
    file.append([b"new"])
    file.datasync()
    files.sync_directory(D)
    files.rename(D / "t", D / "a")
    seen = set()
    for seed in range(100):
        after = files.crash(random.Random(seed))
        seen.add((read_file(after, D / "a"), after.exists(D / "t")))
    assert seen == {(b"old", True), (b"new", False)}


def test_a_removed_name_may_come_back_until_the_directory_is_synced() -> None:
    files = memory()
    replace_file(files, D / "a", [b"x"])
    files.remove(D / "a")
    assert outcomes(files, D / "a") == {b"x", None}
    files.sync_directory(D)
    assert outcomes(files, D / "a") == {None}


def test_a_rename_into_a_synced_directory_does_not_bring_the_old_name_back() -> None:
    files = memory()
    files.make_directory(D / "to")
    file = files.create(D / "a")
    file.datasync()
    files.rename(D / "a", D / "to" / "a")
    files.sync_directory(D / "to")
    files.sync_directory(D)
    assert outcomes(files, D / "a") == {None}
    assert outcomes(files, D / "to" / "a") == {b""}


def test_a_torn_overwrite_leaves_whole_sectors_and_durable_neighbours() -> None:
    files = memory()
    file = files.create(D / "a")
    file.append([b"o" * 4 * SECTOR_BYTES])
    file.datasync()
    files.sync_directory(D)
    file.write_at(SECTOR_BYTES // 2, b"n" * 3 * SECTOR_BYTES)
    seen = outcomes(files, D / "a")
    for content in seen:
        assert content is not None and len(content) == 4 * SECTOR_BYTES
        assert content[: SECTOR_BYTES // 2] == b"o" * (SECTOR_BYTES // 2)
        for sector in range(4):
            first, last = max(sector * SECTOR_BYTES, 256), min((sector + 1) * SECTOR_BYTES, 256 + 3 * SECTOR_BYTES)
            assert len(set(content[first:last])) == 1
    assert len(seen) > 4, "tears were tried"


def test_replace_file_is_old_or_new_at_every_power_cut() -> None:
    counting = memory()
    replace_file(counting, D / "a", [b"old"])
    before = counting.operations
    replace_file(counting, D / "a", [b"new" * 500])
    steps = counting.operations - before
    assert steps == 6
    seen = set()
    for step in range(1, steps + 1):
        files = memory()
        replace_file(files, D / "a", [b"old"])
        files.cut_power_at(files.operations + step)
        with pytest.raises(PowerCut):
            replace_file(files, D / "a", [b"new" * 500])
        with pytest.raises(PowerCut):
            files.remove(D / "a")
        seen |= outcomes(files, D / "a", 100)
    assert seen == {b"old", b"new" * 500}


def test_the_model_catches_a_replace_without_syncs() -> None:
    """The canary: the shortcut that the rule forbids must be seen to lose data."""
    files = memory()
    replace_file(files, D / "a", [b"old"])
    file = files.create(D / "t")
    file.append([b"new"])
    files.rename(D / "t", D / "a")
    assert outcomes(files, D / "a") - {b"old", b"new"}


def test_the_same_seed_gives_the_same_crash() -> None:
    files = memory()
    file = files.create(D / "a")
    for i in range(20):
        file.append([bytes([i]) * 700])

    def one(seed: int) -> bytes | None:
        after = files.crash(random.Random(seed))
        return read_file(after, D / "a") if after.exists(D / "a") else None

    assert [one(s) for s in range(50)] == [one(s) for s in range(50)]


def test_kill_keeps_what_was_written_and_frees_locks() -> None:
    files = memory()
    with files.lock(D / "lock"):
        file = files.create(D / "a")
        file.append([b"x"])
        after = files.kill()
    with after.lock(D / "lock"):
        assert read_file(after, D / "a") == b"x"
    assert None in outcomes(after, D / "a"), "killing a process syncs nothing"


# Faults


@pytest.mark.parametrize("fault", list(DiskFault))
def test_the_first_failure_poisons_the_handle(fault: DiskFault) -> None:
    files = memory()
    file = files.create(D / "a")
    file.append([b"ok"])
    files.fail_at(files.operations + 1, fault)
    with pytest.raises(StorageFailed):
        file.append([b"1234"])
    operations: list[Callable[[], None]] = [lambda: file.append([b"x"]), file.datasync, lambda: file.truncate(0)]
    for operation in operations:
        with pytest.raises(StorageFailed):
            operation()
    assert read_file(files, D / "a") == (b"ok12" if fault is DiskFault.SHORT_WRITE else b"ok")


def test_a_retried_sync_lies_as_on_linux() -> None:
    files = memory()
    file = files.create(D / "a")
    files.sync_directory(D)
    file.append([b"x"])
    files.fail_at(files.operations + 1, DiskFault.EIO)
    with pytest.raises(StorageFailed):
        file.datasync()
    again = files.open(D / "a", writable=True)
    again.datasync()
    assert read_file(files, D / "a") == b"x"
    assert outcomes(files, D / "a") == {b""}


def test_a_failed_name_operation_changes_nothing() -> None:
    files = memory()
    replace_file(files, D / "a", [b"x"])
    operations: list[Callable[[], object]] = [
        lambda: files.rename(D / "a", D / "b"),
        lambda: files.remove(D / "a"),
        lambda: files.create(D / "c"),
        lambda: files.sync_directory(D),
    ]
    for operation in operations:
        files.fail_at(files.operations + 1, DiskFault.ENOSPC)
        with pytest.raises(OSError, match="No space"):
            operation()
    assert files.list(D) == ["a"]


def test_the_hook_sees_each_operation() -> None:
    seen: list[tuple[int, str]] = []
    files = MemoryFiles(on_operation=lambda number, name, _path: seen.append((number, name)))
    files.make_directory(D)
    replace_file(files, D / "a", [b"x"])
    names = ["make_directory", "remove", "create", "append", "datasync", "rename", "sync_directory"]
    assert seen == list(enumerate(names, 1))
