"""The disk: spilling, reading back, rotation, deletion, rewriting; the races that can happen between them."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from pathlib import Path

import pytest

from penstock.clock import SYSTEM_CLOCK
from penstock.delivery.payload import dispatcher_id
from penstock.delivery.spool import DataItem, Disk, Place, Spool, background
from penstock.delivery.spool.items import ITEM_BYTES
from penstock.delivery.spool.segment_format import parse_name
from penstock.errors import Closed, Corruption, Terminal
from penstock.files import REAL_FILES, Buffer, File
from penstock.files.memory import MemoryFiles
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
    pop_all,
    settle,
    spool_on,
)
from tests.support.waiting import LIMIT_SECONDS, wait_until


def data_items(spool: Spool, dispatcher: str = A) -> list[DataItem[int]]:
    return [item for item in pop_all(spool, dispatcher) if isinstance(item, DataItem)]


def check(spool: Spool, items: list[DataItem[int]]) -> None:
    for item in items:
        assert bytes(spool.load(item)) == body_of(item.dispatcher, item.payload, item.size)


def segments_in(files: MemoryFiles) -> list[str]:
    return [name for name in files.list(DIRECTORY) if parse_name(name)]


def test_the_oldest_payloads_are_spilled_first_until_memory_is_low() -> None:
    spool = spool_on(memory_low_bytes=300 * ITEM_BYTES + 5000)
    items = [data(n) for n in range(300)]
    spool.enqueue(A, items)
    settle(spool)
    places = [item.place for item in items]
    assert spool.memory_bytes <= spool.limits.memory_low_bytes
    on_disk = places.count(Place.DISK)
    assert 250 <= on_disk < 300
    assert places == [Place.DISK] * on_disk + [Place.MEMORY] * (300 - on_disk)
    check(spool, items)


def test_age_decides_across_shards() -> None:
    """A write takes the oldest items of the shard with the oldest item."""
    spool = spool_on(memory_low_bytes=11 * ITEM_BYTES + 500)
    young = [data(n, dispatcher=B, at=100.0 + n) for n in range(5)]
    old = [data(n, at=float(n)) for n in range(6)]
    spool.enqueue(B, young)
    spool.enqueue(A, old)
    assert spool.step()
    assert {item.place for item in old} == {Place.DISK}
    assert {item.place for item in young} == {Place.MEMORY}
    assert not spool.step()


def test_what_a_writer_holds_is_spilled_too() -> None:
    """Most of what waits is in the growing files of dispatchers, not in queues."""
    spool = spool_on(memory_low_bytes=0)
    spool.enqueue(A, [data(n) for n in range(5)])
    popped = data_items(spool)
    settle(spool)
    assert [item.place for item in popped] == [Place.DISK] * 5
    check(spool, popped)
    spool.flushed(popped)
    settle(spool)
    assert (spool.bytes, spool.segment_bytes) == (0, 0)


class WatchedFiles(MemoryFiles):
    """Calls back before each append to a segment, and after it."""

    before: object = None
    after: object = None

    def create(self, path: Path) -> File:
        file = super().create(path)
        append = file.append

        def watched(buffers: Sequence[Buffer]) -> None:
            if callable(self.before):
                self.before()
            append(buffers)
            if callable(self.after):
                self.after()

        file.append = watched  # type: ignore[method-assign]
        return file


def test_the_pointer_is_set_only_after_the_whole_record_is_written() -> None:
    files = WatchedFiles()
    spool = spool_on(files, memory_low_bytes=0)
    items = [data(n) for n in range(3)]
    spool.enqueue(A, items)
    seen: list[tuple[Place, bool, bool, int]] = []

    def look() -> None:
        seen.extend((i.place, i.pointer is None, i.body is not None, spool.disk_bytes) for i in items)
        check(spool, items)  # a reader has the body all the while

    files.before = files.after = look
    settle(spool)
    assert len(seen) == 4 * 3  # the file's header and one write, before and after each
    assert set(seen) == {(Place.SPILLING, True, True, 0)}
    assert [item.pointer is not None for item in items] == [True] * 3
    check(spool, items)


def test_spilling_moves_bytes_from_the_memory_account_to_that_of_the_disk() -> None:
    spool = spool_on(memory_low_bytes=0)
    spool.enqueue(A, [data(n, size=1000) for n in range(3)])
    assert (spool.memory_bytes, spool.disk_bytes) == (3 * held(1000), 0)
    settle(spool)
    assert (spool.memory_bytes, spool.disk_bytes) == (3 * ITEM_BYTES, 3 * 1028)
    assert spool.totals().spilled_bytes == 3000


def test_an_item_that_was_let_go_while_it_was_written_gets_no_pointer() -> None:
    files = WatchedFiles()
    spool = spool_on(files, memory_low_bytes=0)
    items = [data(n) for n in range(3)]
    spool.enqueue(A, items)
    files.before = lambda: spool.flushed(items[:1])
    files.after = lambda: spool.drop(items[1:2], Terminal("over"))
    settle(spool)
    assert [item.place for item in items] == [Place.GONE, Place.GONE, Place.DISK]
    assert (spool.disk_bytes, spool.memory_bytes) == (128, ITEM_BYTES)
    check(spool, items[2:])
    spool.flushed(items[2:])
    settle(spool)
    assert (spool.bytes, spool.segment_bytes, segments_in(files)) == (0, 0, [])


def test_a_segment_is_freed_only_after_the_remote_confirmed() -> None:
    files = MemoryFiles()
    spool = spool_on(files, memory_low_bytes=0)
    spool.enqueue(A, [data(n) for n in range(3)])
    settle(spool)
    popped = data_items(spool)
    assert len(list(spool.bodies(popped))) == 3
    settle(spool)
    assert len(segments_in(files)) == 1  # read, and on the way to the sink: not confirmed
    check(spool, popped)  # a second try reads it again
    spool.flushed(popped[:2])
    settle(spool)
    assert len(segments_in(files)) == 1
    spool.flushed(popped[2:])
    settle(spool)
    assert segments_in(files) == []
    with pytest.raises(Closed):
        spool.load(popped[0])


def test_what_is_read_back_is_bounded_and_not_kept() -> None:
    spool = spool_on(memory_low_bytes=0, read_back_bytes=150, clock=SYSTEM_CLOCK)
    spool.enqueue(A, [data(n) for n in range(2)])
    spool.enqueue(B, [data(n, dispatcher=B) for n in range(2)])
    settle(spool)
    mine, others = data_items(spool), data_items(spool, B)
    before = spool.memory_bytes
    entered = threading.Event()

    def read_others() -> None:
        for _ in spool.bodies(others):
            entered.set()

    thread = threading.Thread(target=read_others)
    bodies = spool.bodies(mine)
    assert len(next(bodies)) == 100
    assert spool.memory_bytes == before + 100
    thread.start()
    assert not entered.wait(0.2)  # 100 more would be above 150
    assert len(list(bodies)) == 1
    assert entered.wait(LIMIT_SECONDS)
    thread.join()
    assert spool.memory_bytes == before
    assert [item.body for item in (*mine, *others)] == [None] * 4
    assert spool.totals().read_back_bytes == 400
    spool.enqueue(A, [data(9, size=1000)])
    settle(spool)
    assert [len(body) for body in spool.bodies(data_items(spool))] == [1000]  # more than all of it: alone


def test_a_stream_of_bodies_has_one_of_them_in_memory_at_a_time() -> None:
    spool = spool_on(memory_low_bytes=0)
    spool.enqueue(A, [data(n) for n in range(50)])
    settle(spool)
    popped = data_items(spool)
    before = spool.memory_bytes
    for number, body in enumerate(spool.bodies(popped)):
        assert bytes(body) == body_of(A, number, 100)
        assert spool.memory_bytes == before + 100
    assert spool.memory_bytes == before


def test_segments_rotate_and_a_released_one_is_deleted() -> None:
    files = MemoryFiles()
    spool = spool_on(files, memory_low_bytes=0, quota_bytes=80_000, high_bytes=80_000, low_bytes=0)
    for n in range(30):
        spool.enqueue(A, [data(n, size=1000)])
        settle(spool)
    items = data_items(spool)
    assert len(segments_in(files)) == 3  # an eighth of the quota each, and an item over
    assert spool.totals().rotations == 3
    spool.flushed(items[:10])
    settle(spool)
    assert len(segments_in(files)) == 2
    check(spool, items[10:])
    spool.flushed(items[10:])
    settle(spool)
    assert (segments_in(files), spool.segment_bytes) == ([], 0)


def test_nearly_empty_segments_are_rewritten_so_that_the_quota_bounds_the_real_disk() -> None:
    """Of each segment one small item stays: elsewhere, 4,640 bytes held 2.5 GiB of files that way."""
    files = MemoryFiles()
    quota = 200_000
    spool = spool_on(files, memory_low_bytes=0, quota_bytes=quota, high_bytes=quota, low_bytes=0)
    kept: list[DataItem[int]] = []
    most = 0
    for n in range(60):
        spool.enqueue(A, [data(2 * n, size=100), *(data(2 * n + 1, size=6000) for _ in range(4))])
        settle(spool)
        most = max(most, spool.segment_bytes)
        small, *large = data_items(spool)
        kept.append(small)
        spool.flushed(large)
        settle(spool)
        assert spool.alarm is None
    assert most <= quota
    assert spool.disk_bytes == 60 * 128
    assert spool.segment_bytes <= 5 * spool.disk_bytes + 2 * spool.limits.segment_bytes
    assert spool.totals().rewritten_segments > 10
    check(spool, kept)
    spool.flushed(kept)
    settle(spool)
    assert (spool.bytes, segments_in(files)) == (0, [])


def test_where_the_quota_leaves_no_room_half_empty_segments_are_rewritten_too() -> None:
    quota = 80_000
    spool = spool_on(memory_low_bytes=0, quota_bytes=quota, high_bytes=quota, low_bytes=0)
    kept: list[DataItem[int]] = []
    for n in range(70):
        spool.enqueue(A, [data(n, size=1000)])
        settle(spool)
        items = data_items(spool)
        if n % 2:
            spool.flushed(items)
        else:
            kept += items
        assert spool.segment_bytes <= quota
    assert spool.alarm is None
    assert spool.totals().rewritten_segments > 0
    check(spool, kept)


def test_the_quota_is_reached_and_everything_resumes_when_the_sink_takes_some() -> None:
    quota = 40_000
    spool = spool_on(memory_low_bytes=5000, memory_high_bytes=20_000, quota_bytes=quota, high_bytes=quota, low_bytes=0)
    items = [data(n, size=1000, overhead=0) for n in range(60)]
    spool.enqueue(A, items)
    settle(spool)
    assert spool.segment_bytes <= quota - spool.limits.segment_bytes
    assert "of 40000 bytes" in alarm_of(spool)
    assert spool.suppressed
    spool.flushed(items[:30])
    settle(spool)
    assert alarm_of(spool) == ""
    assert spool.memory_bytes <= 5000
    check(spool, items[30:])


def test_a_reader_keeps_a_segment_that_is_rewritten_under_it() -> None:
    spool = spool_on(memory_low_bytes=0)
    items = [data(n) for n in range(10)]
    spool.enqueue(A, items)
    settle(spool)
    assert spool._spiller is not None and items[0].pointer is not None
    segment = items[0].pointer.segment
    read = segment.file.read_at

    def rewritten_meanwhile(offset: int, size: int) -> bytes:
        segment.file.read_at = read  # type: ignore[method-assign]
        assert spool._spiller is not None
        assert spool._spiller._rewrite(segment)
        assert not segment.deleted
        return read(offset, size)

    segment.file.read_at = rewritten_meanwhile  # type: ignore[method-assign]
    check(spool, items[:1])
    assert items[0].pointer.segment is not segment
    settle(spool)
    assert segment.deleted
    check(spool, items)


def test_an_item_that_is_let_go_while_its_segment_is_rewritten_stays_gone() -> None:
    files = WatchedFiles()
    spool = spool_on(files, memory_low_bytes=0)
    items = [data(n) for n in range(10)]
    spool.enqueue(A, items)
    settle(spool)
    assert spool._spiller is not None and items[0].pointer is not None
    segment = items[0].pointer.segment
    files.before = lambda: spool.flushed(items[2:5])
    assert spool._spiller._rewrite(segment)
    files.before = None
    settle(spool)
    assert segment.deleted
    check(spool, [*items[:2], *items[5:]])
    assert spool.disk_bytes == 7 * 128
    spool.discard_all(Terminal("over"))
    settle(spool)
    assert (spool.bytes, spool.segment_bytes) == (0, 0)


def test_the_directory_is_emptied_at_start_and_at_the_end_of_segments_only(tmp_path: Path) -> None:
    left = tmp_path / "00-0000000001-aaaaaaaa.seg"
    foreign = tmp_path / "notes.txt"
    left.write_bytes(b"of a dead process")
    foreign.write_bytes(b"mine")
    spool = Spool(
        limits(memory_low_bytes=0), disk=Disk(tmp_path, INCARNATION, REAL_FILES), clock=SYSTEM_CLOCK, background=False
    )
    assert sorted(p.name for p in tmp_path.iterdir()) == ["notes.txt"]
    spool.enqueue(A, [data(0)])
    settle(spool)
    (segment,) = [p for p in tmp_path.iterdir() if p != foreign]
    assert segment.stat().st_mode & 0o077 == 0  # rows are for nobody else
    spool.close()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["notes.txt"]


@pytest.mark.parametrize("what", ["payload", "length", "dispatcher", "magic", "cut off", "other record"])
def test_a_damaged_record_is_an_error_never_other_bytes(what: str, tmp_path: Path) -> None:
    spool = Spool(
        limits(memory_low_bytes=0), disk=Disk(tmp_path, INCARNATION, REAL_FILES), clock=SYSTEM_CLOCK, background=False
    )
    items = [data(n) for n in range(3)]
    spool.enqueue(A, items)
    settle(spool)
    (path,) = tmp_path.iterdir()
    content = bytearray(path.read_bytes())
    first, second = (item.pointer.offset for item in items[:2] if item.pointer is not None)
    if what == "other record":
        content[first:second] = content[second : second + second - first]
        content[first + 28 + 5] ^= 1
    elif what == "cut off":
        del content[first + 50 :]
    else:
        content[first + {"payload": 60, "length": 4, "dispatcher": 9, "magic": 0}[what]] ^= 1
    path.write_bytes(content)
    with pytest.raises(Corruption, match=str(path)):
        spool.load(items[0])
    if what != "cut off":
        check(spool, items[1:])
        assert spool._spiller is not None and items[0].pointer is not None
        assert not spool._spiller._rewrite(items[0].pointer.segment)  # is not copied either
        check(spool, items[1:])
    spool.close()


def test_threads_that_enqueue_spill_read_rewrite_and_flush_at_once(tmp_path: Path) -> None:
    """Everything at once on a real disk: each body is read as it was written, in order, and nothing is left."""
    quota = 4 << 20
    spool = Spool(
        limits(
            memory_low_bytes=100_000,
            memory_high_bytes=400_000,
            quota_bytes=quota,
            high_bytes=quota,
            low_bytes=quota // 2,
        ),
        disk=Disk(tmp_path, INCARNATION, REAL_FILES),
        read_back_bytes=100_000,
    )
    identities = [dispatcher_id("f", "s", str(i)) for i in range(12)]
    count = 150
    delivered: dict[str, list[int]] = {identity: [] for identity in identities}
    errors: list[BaseException] = []

    def produce(identity: str) -> None:
        for number in range(count):
            spool.admit(always=True)
            spool.enqueue(identity, [data(number, dispatcher=identity, size=300 + 37 * (number % 50))])

    def write(mine: list[str]) -> None:
        held_back: dict[str, list[DataItem[int]]] = {identity: [] for identity in mine}
        try:
            while any(len(delivered[identity]) < count for identity in mine):
                for identity in mine:
                    batch = held_back[identity]
                    batch += [item for item in spool.pop(identity, items_max=7) if isinstance(item, DataItem)]
                    ended = batch and batch[-1].payload == count - 1
                    if len(batch) >= 20 or ended:
                        for item, body in zip(batch, spool.bodies(batch), strict=True):
                            assert bytes(body) == body_of(identity, item.payload, item.size)
                        delivered[identity] += [item.payload for item in batch]
                        spool.flushed(batch)
                        batch.clear()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=produce, args=(identity,)) for identity in identities[:6]]
    threads += [threading.Thread(target=lambda: deque(map(produce, identities[6:])))]
    threads += [threading.Thread(target=write, args=(identities[i::3],)) for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT_SECONDS)
    assert errors == []
    assert delivered == {identity: list(range(count)) for identity in identities}
    assert spool.totals().spilled_bytes > 0
    wait_until(lambda: spool.segment_bytes == 0, "deletion of the segments", spool.totals)
    assert (spool.bytes, spool.totals().items) == (0, 0)
    spool.close()
    assert list(tmp_path.iterdir()) == []


def test_a_stager_waits_for_no_spiller_that_has_nothing_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many small items: what they cost beside their bodies stays in memory. Each of them waited for seconds."""
    monkeypatch.setattr(background, "ADMIT_SECONDS_MAX", LIMIT_SECONDS)
    disk = Disk(DIRECTORY, INCARNATION, MemoryFiles())
    narrow = limits(memory_low_bytes=0, memory_high_bytes=ITEM_BYTES)
    spool = Spool(narrow, disk=disk, clock=SYSTEM_CLOCK, name="raw", background=True)
    for number in range(5):
        spool.stage(data(number))
    admitted = threading.Thread(target=spool.admit, daemon=True)
    admitted.start()
    admitted.join(LIMIT_SECONDS / 4)
    assert not admitted.is_alive()
    assert spool.memory_bytes > narrow.memory_high_bytes and spool.disk_bytes > 0
    spool.close()
