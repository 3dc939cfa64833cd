"""The disk fails: each operation once, in each way, and for a while. Nothing is lost, nothing else is read, all resumes."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from penstock.clock import SYSTEM_CLOCK, ManualClock
from penstock.delivery.spool import DataItem, Disk, Place, Spool, Wake
from penstock.delivery.spool.spiller import RETRY_SECONDS_MAX
from penstock.errors import StorageFailed, Terminal, Unavailable
from penstock.files import REAL_FILES
from penstock.files.memory import DiskFault, MemoryFiles
from tests.delivery.spool.world import (
    DIRECTORY,
    INCARNATION,
    A,
    B,
    alarm_of,
    body_of,
    data,
    held,
    limits,
    numbers,
    pop_all,
    settle,
    spool_on,
)


class FailingFiles(MemoryFiles):
    """Fails the operations in `failing` as long as they are in it."""

    def __init__(self) -> None:
        super().__init__()
        self.failing: dict[str, DiskFault] = {}

    def count(self, name: str, path: Path) -> DiskFault | None:
        return super().count(name, path) or self.failing.get(name)


def check(spool: Spool, items: list[DataItem[int]]) -> None:
    for item in items:
        assert bytes(spool.load(item)) == body_of(item.dispatcher, item.payload, item.size)


def a_life(files: MemoryFiles) -> tuple[int, int]:
    """Spills, rotates, rewrites, reads back and flushes; checks all bytes and orders. Returns (operations, errors seen)."""
    clock = ManualClock()
    spool = spool_on(files, clock, memory_low_bytes=0, quota_bytes=80_000, high_bytes=80_000, low_bytes=0)
    kept: list[DataItem[int]] = []
    for number in range(8):
        items = [data(10 * number + i, size=2500 if i else 300) for i in range(4)]
        spool.enqueue(A, items)
        spool.enqueue(B, [data(number, dispatcher=B, size=700)])
        settle(spool)
        popped = [item for item in pop_all(spool, A) if isinstance(item, DataItem)]
        assert popped == items
        check(spool, popped)
        kept.append(popped[0])
        spool.flushed(popped[1:])
        settle(spool)
        clock.sleep(RETRY_SECONDS_MAX)
        settle(spool)
        assert spool.segment_bytes <= 80_000
    check(spool, kept)
    spool.flushed(kept)
    others = pop_all(spool, B)
    assert numbers(others) == list(range(8))
    spool.flushed([item for item in others if isinstance(item, DataItem)])
    for _ in range(2):  # a remove that fails is tried again
        settle(spool)
        clock.sleep(RETRY_SECONDS_MAX)
    settle(spool)
    assert (spool.bytes, spool.totals().items, spool.alarm, spool.suppressed) == (0, 0, None, False)
    assert (spool.segment_bytes, files.list(DIRECTORY)) == (0, [])
    assert spool._spiller is not None
    return files.operations, spool._spiller.disk_errors + spool._spiller.failed_deletes


@pytest.mark.parametrize("fault", list(DiskFault))
def test_each_operation_fails_once(fault: DiskFault) -> None:
    operations, _ = a_life(MemoryFiles())
    assert operations > 40
    noticed = 0
    for number in range(2, operations + 1):  # 1 makes the directory: without it there is no spool
        files = MemoryFiles()
        files.fail_at(number, fault)
        noticed += a_life(files)[1]
    assert noticed >= 0.6 * operations


def test_a_spool_without_its_directory_does_not_start() -> None:
    files = MemoryFiles()
    files.fail_at(1, DiskFault.EIO)
    with pytest.raises(StorageFailed, match=f"{DIRECTORY}: cannot be emptied"):
        spool_on(files)


@pytest.mark.parametrize("fault", list(DiskFault))
def test_a_full_disk_suppresses_first_then_refuses_and_everything_resumes(fault: DiskFault) -> None:
    files, clock = FailingFiles(), ManualClock()
    spool = spool_on(files, clock, memory_low_bytes=5 * held(1000), memory_high_bytes=10 * held(1000))
    woken: list[int] = []
    items: list[DataItem[int]] = []

    def publish(number: int) -> None:
        spool.admit()
        items.append(data(number, size=1000))
        spool.stage(items[-1])
        spool.enqueue(A, items[-1:], wake=Wake(lambda: woken.append(number)))
        settle(spool)

    files.failing["append"] = fault
    for number in range(6):
        publish(number)
    assert str(DIRECTORY) in alarm_of(spool)  # an alarm, and wakes are kept back …
    assert spool.suppressed and woken == [0, 1, 2, 3, 4, 5]
    assert {item.place for item in items} == {Place.MEMORY}
    for number in range(6, 11):
        publish(number)  # … and memory holds what still comes
    check(spool, items)
    with pytest.raises(Unavailable, match=f"memory is full, and the disk cannot be used: {DIRECTORY}.*free space"):
        publish(11)  # a clear error only when memory cannot hold it either
    assert spool._spiller is not None
    tries = spool._spiller.disk_errors
    settle(spool)
    assert spool._spiller.disk_errors == tries  # a pause between tries
    clock.sleep(RETRY_SECONDS_MAX)
    settle(spool)
    assert spool._spiller.disk_errors == tries + 1
    files.failing.clear()
    clock.sleep(RETRY_SECONDS_MAX)
    settle(spool)
    assert alarm_of(spool) == ""
    check(spool, items)
    assert woken == [0, 1, 2, 3, 4, 5]  # beside their bodies eleven items are still above memory's low mark …
    spool.flushed(items[:6])
    assert woken == list(range(11))  # … and then all of them wake
    publish(11)
    assert woken[-1] == 11
    check(spool, items[6:])


def test_a_disk_that_fails_only_while_nothing_has_to_be_spilled_is_no_alarm() -> None:
    files, clock = FailingFiles(), ManualClock()
    spool = spool_on(files, clock, memory_low_bytes=2 * held())
    items = [data(n) for n in range(4)]
    spool.enqueue(A, items)
    files.failing["append"] = DiskFault.ENOSPC
    settle(spool)
    assert "No space" in alarm_of(spool)
    assert spool.suppressed
    spool.flushed(items[:3])  # the sink takes it: memory is enough
    assert not spool.suppressed
    clock.sleep(RETRY_SECONDS_MAX)
    settle(spool)
    assert alarm_of(spool) == ""


def test_what_was_written_before_a_failed_write_stays_readable() -> None:
    files, clock = FailingFiles(), ManualClock()
    spool = spool_on(files, clock, memory_low_bytes=0)
    early = [data(n) for n in range(3)]
    spool.enqueue(A, early)
    settle(spool)
    late = [data(n) for n in range(3, 6)]
    spool.enqueue(A, late)
    files.failing["append"] = DiskFault.SHORT_WRITE
    settle(spool)
    assert {item.place for item in early} == {Place.DISK}
    assert {item.place for item in late} == {Place.MEMORY}
    check(spool, early + late)
    half_a_write = spool.segment_bytes - spool.disk_bytes - 24
    assert half_a_write == 3 * 128 // 2  # what a short write has left on the disk counts as taken
    files.failing.clear()
    clock.sleep(RETRY_SECONDS_MAX)
    settle(spool)
    assert {item.place for item in late} == {Place.DISK}
    assert early[0].pointer is not None and late[0].pointer is not None
    assert early[0].pointer.segment is not late[0].pointer.segment  # a poisoned handle is never written again
    check(spool, early + late)


def test_a_file_that_cannot_be_deleted_counts_until_it_is() -> None:
    files, clock = FailingFiles(), ManualClock()
    spool = spool_on(files, clock, memory_low_bytes=0)
    items = [data(n) for n in range(3)]
    spool.enqueue(A, items)
    settle(spool)
    taken = spool.segment_bytes
    files.failing["remove"] = DiskFault.EIO
    spool.flushed(items)
    settle(spool)
    assert (spool.bytes, spool.segment_bytes) == (0, taken)
    spool.enqueue(A, [data(4)])
    settle(spool)  # spilling goes on
    assert spool.alarm is None and spool.segment_bytes == taken + 24 + 128
    files.failing.clear()
    settle(spool)
    clock.sleep(RETRY_SECONDS_MAX)
    settle(spool)
    assert spool.segment_bytes == 24 + 128


def test_a_directory_deleted_from_outside_is_made_again(tmp_path: Path) -> None:
    directory = tmp_path / "run" / "spool"
    spool = Spool(
        limits(memory_low_bytes=0, quota_bytes=80_000, high_bytes=80_000, low_bytes=0),
        disk=Disk(directory, INCARNATION, REAL_FILES),
        clock=SYSTEM_CLOCK,
        background=False,
    )
    early = [data(n, size=11_000) for n in range(2)]
    spool.enqueue(A, early)
    settle(spool)
    shutil.rmtree(tmp_path / "run")
    late = [data(n, size=11_000) for n in range(2, 4)]
    spool.enqueue(A, late)
    settle(spool)
    assert spool.alarm is None
    check(spool, early + late)  # open files are there without their names
    spool.discard_all(Terminal("over"))
    settle(spool)
    assert spool.segment_bytes == 0
    spool.close()


def test_a_read_that_fails_is_an_error_of_its_item_alone() -> None:
    spool = spool_on(memory_low_bytes=0)
    items = [data(n) for n in range(2)]
    spool.enqueue(A, items)
    settle(spool)
    assert items[0].pointer is not None
    items[0].pointer.segment.file.close()
    with pytest.raises(StorageFailed, match="read failed"):
        spool.load(items[0])
    spool.drop(items, Terminal("over"))
    settle(spool)
    assert (spool.bytes, spool.segment_bytes) == (0, 0)


def test_an_alarm_ends_where_nothing_is_left_to_be_spilled() -> None:
    """Memory may stay above its low mark with what items cost beside their bodies, and with items that are never spilled. The
    retry was then due at every moment: the thread turned round for as long as that lasted, and wakes were suppressed."""
    files, clock = FailingFiles(), ManualClock()
    spool = spool_on(files, clock, memory_low_bytes=held(10))
    items = [data(1), data(2, pinned=True)]
    spool.enqueue(A, list(items))
    files.failing["append"] = DiskFault.ENOSPC
    settle(spool)
    assert alarm_of(spool) and spool.suppressed
    assert spool.pop(A) == items
    spool.flushed(items[:1])
    clock.sleep(RETRY_SECONDS_MAX)
    assert spool.memory_bytes > spool.limits.memory_low_bytes
    settle(spool)
    assert spool._spiller is not None and spool._spiller.until_retry() is None
    assert not alarm_of(spool)
