"""Offload: behaviour 27 and around it. On a disk in memory, in a directory, and in a real S3 server."""

from __future__ import annotations

import contextlib
import dataclasses
import random
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import BadInput, Corruption, Fenced, PenstockError, StorageFailed, Unavailable
from penstock.files.memory import DiskFault, PowerCut
from penstock.log import (
    Cursor,
    Log,
    LogReader,
    LogSettings,
    OffloadInProgress,
    OffloadProgress,
    Position,
)
from penstock.log.ledgers.info import LedgerInfo, LedgerList
from penstock.log.offload import format as offload_format
from penstock.objects import DirectoryObjects, open_objects
from tests.support.files import OtherProcessFiles
from tests.support.worlds import DIRECTORY, LogInMemory

URL = "file:///objects"
SETTINGS = LogSettings(
    ledger_entries_max=3,
    preallocate_bytes=1024,
    maintenance_interval_seconds=0,
    offload_url=URL,
    offload_deletion_lag_seconds=100,
    offload_part_bytes=512,
)
ENTRIES = 10


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offload_format, "BLOCK_BYTES", 256)


def payload(number: int) -> bytes:
    return b"%d|" % number + bytes([number % 251]) * (150 + 40 * (number % 5))


class OffloadWorld(LogInMemory):
    """Three sealed ledgers of three entries and an open one with one; every sealed one has two or three parts."""

    def __init__(self, settings: LogSettings = SETTINGS, entries: int = ENTRIES) -> None:
        super().__init__(settings, entries, payload)

    def listed(self) -> LedgerList:
        found = self.metadata.get("log/log")
        assert found is not None
        return LedgerList.decode(found.value)

    def info(self, ledger_id: int) -> LedgerInfo:
        return next(info for info in self.listed().ledgers if info.id == ledger_id)

    def states(self) -> dict[int, str]:
        return {info.id: info.offload.state if info.offload else "" for info in self.listed().ledgers if info.sealed}

    def objects(self) -> list[str]:
        return open_objects(URL, self.files).list(str(self.log.uuid))

    def attempts(self) -> set[str]:
        return {name.rpartition("/")[2].split("-")[1].split(".")[0] for name in self.objects()}

    def check(self, first: int = 0, entries: int = ENTRIES) -> None:
        """Every entry is there, for the owner, and for a process that only reads; nothing is in the store that nobody names."""
        for reader in (self.log.reader(), LogReader.open(DIRECTORY, OtherProcessFiles(self.files), self.metadata)):
            found = [bytes(entry.data) for entry in reader.read(reader.first, reader.end())]
            assert found == [payload(number) for number in range(first, entries)]
            sizes = [info.data_bytes for info in reader.scan(reader.first, reader.end())]
            assert sizes == [len(payload(number)) for number in range(first, entries)]
        reader.close()
        named = {info.offload.attempt for info in self.listed().ledgers if info.offload}
        assert self.attempts() == named, "objects that nobody names"


@pytest.fixture
def world() -> Iterator[OffloadWorld]:
    made = OffloadWorld()
    yield made
    with contextlib.suppress(PenstockError):
        made.log.close()


def move(world: OffloadWorld) -> None:
    """Every sealed ledger is in the object store alone."""
    world.log.offload()
    world.clock.advance(101)
    world.log.offload()
    assert set(world.states().values()) == {"moved"}


# -- the order ---------------------------------------------------------------------------------------------------


def test_copied_then_moved_after_the_lag_and_read_all_along(world: OffloadWorld) -> None:
    assert world.log.offload() == [1, 2, 3]
    assert world.states() == {1: "copied", 2: "copied", 3: "copied"}
    assert world.ledger_files() == [1, 2, 3, 4]
    world.check()
    world.clock.advance(99)
    assert world.log.offload() == []
    assert world.ledger_files() == [1, 2, 3, 4], "the lag is not over"
    world.clock.advance(2)
    world.log.offload()
    assert world.states() == {1: "moved", 2: "moved", 3: "moved"}
    assert world.ledger_files() == [4]
    world.check()
    world.reopen()
    world.check()
    statistics = world.log.statistics()
    assert (statistics.offloaded_ledgers, statistics.discarded, statistics.offload_failures) == (3, 0, 0)
    assert statistics.offloaded_bytes == sum(world.info(number).frames_end for number in (1, 2, 3))


def test_the_objects_put_together_are_the_file(world: OffloadWorld) -> None:
    file = world.files.open(DIRECTORY / f"ledger-{2:016d}.log")
    before = file.read_at(0, file.size())
    world.log.offload()
    info = world.info(2)
    assert info.offload is not None
    store = open_objects(URL, world.files)
    names = offload_format.object_names(world.log.uuid, 2, info.offload.attempt, info.offload.parts)
    assert info.offload.parts > 1
    raw = b"".join(store.get(name, 0, 10_000) for name in names[1:])
    index = offload_format.OffloadIndex.decode(store.get(names[0], 0, 100_000), "")
    assert raw + index.footer == before


def test_the_threshold_keeps_the_newest_bytes_local(world: OffloadWorld) -> None:
    newest = world.info(3).frames_end
    assert world.log.offload(keep_bytes=newest) == [1, 2]
    assert world.log.offload(keep_bytes=newest) == []
    assert world.log.offload(keep_bytes=newest - 1) == [3]


def test_progress_is_told(world: OffloadWorld) -> None:
    told: list[OffloadProgress] = []
    world.log.offload(progress=told.append)
    assert [one.ledger for one in told if one.bytes == one.bytes_total] == [1, 2, 3]
    assert {one.ledgers for one in told} == {3}
    assert [one.bytes for one in told if one.ledger_id == 2] == [0, 512, world.info(2).frames_end]
    assert world.log.statistics().offloading is None


def test_it_runs_by_itself_and_stops_at_close() -> None:
    settings = dataclasses.replace(
        SETTINGS, offload_threshold_bytes=0, offload_deletion_lag_seconds=0, maintenance_interval_seconds=60
    )
    world = OffloadWorld(settings)
    deadline = time.monotonic() + 10
    while set(world.states().values()) != {"moved"} and time.monotonic() < deadline:
        time.sleep(0.01)
        world.log.trim_soon()  # as an ack does
    world.check()
    assert world.ledger_files() == [4]
    before = threading.active_count()
    world.log.close()
    assert threading.active_count() < before
    assert not [thread.name for thread in threading.enumerate() if "offload" in thread.name]


def test_a_round_that_fails_is_told_and_made_again_after_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    down = True
    put, puts = DirectoryObjects.put, 0

    def sometimes(store: DirectoryObjects, name: str, data: bytes) -> None:
        nonlocal puts
        puts += 1
        if down:
            raise Unavailable("the store does not answer")
        put(store, name, data)

    def until(reached: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 10
        while not reached() and time.monotonic() < deadline:
            world.log.trim_soon()
            time.sleep(0.005)
        assert reached()

    monkeypatch.setattr(DirectoryObjects, "put", sometimes)
    world = OffloadWorld(dataclasses.replace(SETTINGS, offload_threshold_bytes=0, maintenance_interval_seconds=60))
    until(lambda: "does not answer" in world.log.statistics().offload_error)
    tried = puts
    for _ in range(20):
        world.log.trim_soon()
        time.sleep(0.005)
    assert puts == tried, "a store that is down is not asked all the time"
    assert world.log.append(payload(ENTRIES)).result(5) == Position(4, 1), "nothing else waits for it"
    down = False
    world.clock.advance(31)
    until(lambda: world.log.statistics().offloaded_ledgers == 3)
    until(lambda: not world.log.statistics().offload_error)
    world.check(entries=ENTRIES + 1)
    world.log.close()


def test_without_a_threshold_nothing_is_copied_by_itself() -> None:
    world = OffloadWorld(dataclasses.replace(SETTINGS, offload_threshold_bytes=None))
    world.log.maintain()
    assert set(world.states().values()) == {""}
    world.log.close()


def test_settings_that_make_no_sense() -> None:
    with pytest.raises(BadInput, match="offload_url"):
        LogSettings(offload_threshold_bytes=5)
    with pytest.raises(BadInput, match="no URL"):
        LogSettings(offload_url="somewhere")
    world = OffloadWorld(dataclasses.replace(SETTINGS, offload_url=None))
    with pytest.raises(BadInput, match="where ledgers go to"):
        world.log.offload()
    world.log.offload(URL)
    world.check()
    world.log.close()


class Puts:
    """Calls `before` with the number of each put from now on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, before: Callable[[int], None]) -> None:
        self.names: list[str] = []
        put = DirectoryObjects.put

        def counted(store: DirectoryObjects, name: str, data: bytes) -> None:
            self.names.append(name)
            before(len(self.names))
            put(store, name, data)

        monkeypatch.setattr(DirectoryObjects, "put", counted)


def test_one_at_a_time(world: OffloadWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    refused: list[Exception] = []

    def again(number: int) -> None:
        if number == 2:
            with pytest.raises(OffloadInProgress) as error:
                world.log.offload()
            refused.append(error.value)

    Puts(monkeypatch, again)
    assert world.log.offload() == [1, 2, 3]
    assert len(refused) == 1
    world.check()


def test_closing_stops_it_before_the_next_put(world: OffloadWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    closer = threading.Thread(target=world.log.close)

    def close(number: int) -> None:
        if number == 2:
            closer.start()
            while not world.log._retention._offloader._closing:
                time.sleep(0.001)

    puts = Puts(monkeypatch, close)
    with pytest.raises(PenstockError, match="closes"):
        world.log.offload()
    closer.join(10)
    assert len(puts.names) == 2
    world.log = world.open()
    assert world.listed().discarded
    world.log.trim()  # deletes what was discarded
    world.check()
    assert world.objects() == []


# -- conflict, failure of each part, trim during it, metadata failures ---------------------------------------------


def test_another_owner_comes_during_an_offload(monkeypatch: pytest.MonkeyPatch) -> None:
    for at in range(1, 5):
        world = OffloadWorld()
        new: list[Log] = []

        def take_over(number: int, world: OffloadWorld = world, at: int = at, new: list[Log] = new) -> None:
            if number == at:
                new.append(
                    Log.open(DIRECTORY, world.settings, OtherProcessFiles(world.files), world.clock, world.metadata)
                )

        with monkeypatch.context() as patch:
            puts = Puts(patch, take_over)
            with pytest.raises(Fenced):
                world.log.offload()
            assert len(puts.names) == at, "it went on after it was deposed"
        (owner,) = new
        assert "uploading" not in world.states().values(), "the new owner gives up what the old one began"
        with contextlib.suppress(PenstockError):
            world.log.close()
        world.log = owner
        owner.trim()
        # A put that was under way when the new owner cleaned up may be left, and one alone.
        named = {info.offload.attempt for info in world.listed().ledgers if info.offload}
        strays = [name for name in world.objects() if not any(attempt in name for attempt in named)]
        assert len(strays) <= 1
        owner.offload()
        reader = owner.reader()
        assert [bytes(entry.data) for entry in reader.read(reader.first, reader.end())] == list(
            map(payload, range(ENTRIES))
        )
        owner.close()
        Log.delete(DIRECTORY, world.files, world.clock, world.metadata)
        assert world.objects() == [], "the deletion of the log finds strays too"


def test_every_operation_fails_once() -> None:
    """Of the disk under the object store and the log: nothing is lost, nothing is left, and the next try works."""
    failed = 0
    for operation in range(1, 200):
        world = OffloadWorld()
        before = world.files.operations
        world.files.fail_at(before + operation, DiskFault.EIO)
        try:
            world.log.offload()
        except (Unavailable, StorageFailed):
            failed += 1
            assert world.log.statistics().offload_failures == 1
        if world.files.operations < before + operation:
            break
        assert "uploading" not in world.states().values()
        world.log.offload()
        assert set(world.states().values()) == {"copied"}
        world.log.trim()
        world.check()
        move(world)
        assert world.ledger_files() == [4]
        world.check()
        world.log.close()
    else:
        pytest.fail("it never came to an end")
    assert failed > 30


@pytest.mark.parametrize("answer_is_lost", [False, True])
def test_the_metadata_store_fails_at_each_change(answer_is_lost: bool) -> None:
    """A metadata failure deletes no data: neither the local file nor objects that the list may mean."""
    for change in range(1, 30):
        world = OffloadWorld()
        counted = 0
        failed = False

        def fail(change: int = change) -> None:
            nonlocal counted, failed
            counted += 1
            if counted == change:
                failed = True
                raise Unavailable("the metadata store does not answer")

        if answer_is_lost:
            world.metadata.after_write = fail
        else:
            world.metadata.before_write = fail
        with contextlib.suppress(Unavailable):
            world.log.offload()
            world.clock.advance(101)
            world.log.offload()
        world.metadata.before_write = world.metadata.after_write = lambda: None
        for info in world.listed().ledgers:
            assert info.is_offloaded or info.id in world.ledger_files()
        move(world)
        world.check()
        world.log.close()
        if not failed:
            return
    pytest.fail("it never came to an end")


def test_a_trim_during_an_offload(monkeypatch: pytest.MonkeyPatch) -> None:
    for at in range(1, 5):
        world = OffloadWorld(dataclasses.replace(SETTINGS, retention_seconds=0))
        cursor = world.log.open_cursor("c")

        def trim(number: int, world: OffloadWorld = world, cursor: Cursor = cursor, at: int = at) -> None:
            if number == at:
                cursor.mark_delete(Position(2, 2)).result(5)
                cursor.close()
                assert world.log.trim() == [1, 2]
                assert world.listed().discarded, "an attempt under way is left until it has stopped"

        with monkeypatch.context() as patch:
            puts = Puts(patch, trim)
            assert world.log.offload()[-1:] == [3]
        assert {name.split("/")[1].split("-")[0] for name in puts.names[at:]} == {f"{3:016d}"}, "it went on for nothing"
        assert list(world.states()) == [3]
        assert not world.listed().discarded
        world.check(first=6)
        world.log.close()


def test_a_cut_during_an_offload_and_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    world = OffloadWorld()

    def cut(number: int) -> None:
        if number == 4:  # of the second ledger
            world.log.truncate(Position(2, 0))

    with monkeypatch.context() as patch:
        Puts(patch, cut)
        assert world.log.offload() == [1]
    world.check(entries=4)
    world.log.offload()
    world.check(entries=4)
    move(world)
    world.log.truncate(Position(2, 0))
    world.check(entries=4)
    world.log.truncate(Position(1, 1))
    assert world.states() == {1: "moved"}
    world.check(entries=2)
    world.reopen()
    world.check(entries=2)
    assert world.log.reader().find_by_time(1 << 60) == Position(1, 1)
    world.log.close()


# -- crashes -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_the_power_is_cut_at_every_operation(seed: int) -> None:
    rng = random.Random(seed)
    for operation in range(1, 400):
        world = OffloadWorld()
        before = world.files.operations
        world.files.cut_power_at(before + operation)
        done = True
        try:
            world.log.offload()
            world.clock.advance(101)
            world.log.offload()
        except PowerCut:
            done = False
        crashed, world.metadata = world.files.crash(rng), world.metadata.copy()
        with contextlib.suppress(PenstockError):
            world.log.close()
        world.files = crashed
        world.log = world.open()
        world.log.trim()
        world.check()
        move(world)
        assert not {1, 2, 3} & set(world.ledger_files()), "a local file that counts for nothing is left"
        world.check()
        world.log.close()
        if done:
            return
    pytest.fail("it never came to an end")


# -- reads -------------------------------------------------------------------------------------------------------


def harm(world: OffloadWorld, number: int, *, local: bool = False, part: int = 0, offset: int | None = None) -> None:
    """Flips a bit of a ledger's local file, or of a part; without an offset removes it."""
    path = DIRECTORY / f"ledger-{number:016d}.log"
    if not local:
        offload = world.info(number).offload
        assert offload is not None
        names = offload_format.object_names(world.log.uuid, number, offload.attempt, offload.parts)
        path = Path("/objects") / names[part + 1]
    if offset is None:
        world.files.remove(path)
    else:
        node = world.files._names[path]
        node.content[offset] ^= 4
        node.durable[:] = node.content


def drop_cache(world: OffloadWorld) -> None:
    world.log.reader().cache.drop(world.log.uuid)


@pytest.mark.parametrize("offset", [None, 3, 70, 300, 700])
def test_a_damaged_local_file_is_read_from_the_objects(world: OffloadWorld, offset: int | None) -> None:
    world.log.offload()
    drop_cache(world)
    harm(world, 2, local=True, offset=offset)
    world.check()
    cursor = world.log.open_cursor("c")
    assert [bytes(entry.data) for entry in cursor.read(100)] == list(map(payload, range(ENTRIES)))


@pytest.mark.parametrize("harmed", [(0, None), (0, 10), (1, 200), (1, None), (-1, None), (-1, 5)])
def test_damaged_objects_are_read_from_the_local_file_and_never_let_it_go(
    world: OffloadWorld, harmed: tuple[int, int | None]
) -> None:
    part, offset = harmed
    world.log.offload()
    harm(world, 2, part=part, offset=offset)
    drop_cache(world)
    reader = world.log.reader()
    assert [bytes(entry.data) for entry in reader.read(reader.first, reader.end())] == list(
        map(payload, range(ENTRIES))
    )
    world.clock.advance(101)
    with pytest.raises(Corruption, match="ledger 2"):
        world.log.offload()
    assert world.ledger_files() == [2, 4], "the only good copy was let go"
    assert world.states() == {1: "moved", 2: "", 3: "moved"}
    world.check()
    assert world.log.offload() == [2]
    world.check()
    move(world)
    world.check()


@pytest.mark.parametrize(("part", "offset"), [(0, None), (0, 90), (1, 200), (-1, None), (-1, 0)])
def test_damage_without_another_copy_is_a_typed_error_that_names_the_object(
    world: OffloadWorld, part: int, offset: int | None
) -> None:
    move(world)
    harm(world, 2, part=part, offset=offset)
    world.reopen()  # without what it knew of the index
    reader = LogReader.open(DIRECTORY, OtherProcessFiles(world.files), world.metadata)
    for read in (reader.read, reader.scan):
        with pytest.raises(Corruption, match=rf"file:///objects/{world.log.uuid}/{2:016d}-") as error:
            list(read(Position(1, 0), Position(3, 2)))  # type: ignore[operator]
        assert "missing" in str(error.value) if offset is None else "damaged" in str(error.value)
    assert [bytes(e.data) for e in reader.read(Position(3, 0), Position(3, 2))] == list(map(payload, range(6, 9)))
    reader.close()
    assert world.states() == {1: "moved", 2: "moved", 3: "moved", 4: ""}, "nothing was changed"


def test_every_flip_of_an_object_is_detected_or_harmless(world: OffloadWorld) -> None:
    """Entries are read back the same, or the damage is named; and what is read is never anything else."""
    move(world)
    world.log.close()
    rng = random.Random(6)
    paths = [Path("/objects") / name for name in world.objects()]
    detected = 0
    for number in range(400):
        files = world.files.kill()
        node = files._names[paths[number % len(paths)]]
        if number % 10:
            node.content[rng.randrange(len(node.content))] ^= 1 << rng.randrange(8)
        else:
            del node.content[rng.randrange(len(node.content)) :]
        reader = LogReader.open(DIRECTORY, files, world.metadata)
        try:
            found = [bytes(entry.data) for entry in reader.read(reader.first, reader.end())]
            assert found == list(map(payload, range(ENTRIES)))
        except Corruption as error:
            detected += 1
            assert paths[number % len(paths)].name in str(error)
        finally:
            reader.close()
    assert detected == 400, "every byte of every object is under a checksum that a whole read looks at"


def test_a_store_that_does_not_answer_is_transient(world: OffloadWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    move(world)
    asked = 0

    def down(*_: object) -> bytes:
        nonlocal asked
        asked += 1
        raise Unavailable("the store does not answer")

    with monkeypatch.context() as patch:
        patch.setattr(DirectoryObjects, "get", down)
        drop_cache(world)
        with pytest.raises(Unavailable, match="does not answer") as error:
            list(world.log.read(Position(2, 0), Position(2, 2)))
        assert error.value.transient
        assert asked == world.settings.read_attempts_max
        world.log.append(payload(ENTRIES)).result(5)
        assert next(world.log.read(world.log.end(), world.log.end())).position == world.log.end()
    world.check(entries=ENTRIES + 1)


def test_each_copy_is_asked_several_times(world: OffloadWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    world.log.offload()
    harm(world, 2, local=True, offset=100)
    get, left = DirectoryObjects.get, world.settings.read_attempts_max - 1

    def sometimes(*arguments: Any) -> bytes:
        nonlocal left
        if left:
            left -= 1
            raise Unavailable("the store does not answer")
        return get(*arguments)

    monkeypatch.setattr(DirectoryObjects, "get", sometimes)
    drop_cache(world)
    assert [bytes(e.data) for e in world.log.read(Position(2, 0), Position(2, 2))] == list(map(payload, range(3, 6)))
    assert left == 0


def test_an_index_that_the_list_does_not_mean_is_refused(world: OffloadWorld) -> None:
    """Whole by its own checksum, and of this very attempt, but not the one that was put."""
    move(world)
    offload = world.info(2).offload
    assert offload is not None
    store = open_objects(URL, world.files)
    name = offload_format.index_name(world.log.uuid, 2, offload.attempt)
    index = offload_format.OffloadIndex.decode(store.get(name, 0, 10_000), "")
    store.put(name, index._replace(checksums=[1, *index.checksums[1:]]).encode())
    world.reopen()
    drop_cache(world)
    with pytest.raises(Corruption, match="not the index that the ledger list means"):
        list(world.log.read(Position(2, 0), Position(2, 2)))


def test_both_copies_fail_and_the_error_names_both(world: OffloadWorld) -> None:
    world.log.offload()
    harm(world, 2, local=True, offset=100)
    harm(world, 2, part=0, offset=100)
    drop_cache(world)
    with pytest.raises(Corruption) as error:
        list(world.log.read(Position(2, 0), Position(2, 2)))
    assert "/s/log/ledger-" in str(error.value)
    assert "file:///objects/" in str(error.value)


def test_a_reader_in_another_process_goes_on_while_ledgers_move(world: OffloadWorld) -> None:
    reader = LogReader.open(DIRECTORY, OtherProcessFiles(world.files), world.metadata)
    entries = reader.read(reader.first, reader.end())
    assert bytes(next(entries).data) == payload(0)
    move(world)
    assert [bytes(entry.data) for entry in entries] == list(map(payload, range(1, ENTRIES)))
    reader.close()


def test_cursors_and_searches_over_moved_ledgers(world: OffloadWorld) -> None:
    reader = LogReader.open(DIRECTORY, OtherProcessFiles(world.files), world.metadata)
    cursor = Cursor.open(reader, Path("/s/cursors"), "c", files=world.files)
    move(world)
    assert [bytes(entry.data) for entry in cursor.read(4)] == list(map(payload, range(4)))
    cursor.ack(Position(1, 1)).result(5)
    assert cursor.backlog() == ENTRIES - 1
    assert cursor.backlog_bytes() == sum(len(payload(n)) for n in range(ENTRIES) if n != 1)
    assert reader.find_newest(lambda entry: int(bytes(entry.data).split(b"|")[0]) <= 5) == Position(2, 2)
    assert reader.find_by_time(1 << 60) == world.log.end()
    assert reader.nth(7) == Position(3, 1)
    cursor.close()
    reader.close()


def test_reads_of_a_moved_ledger_are_cached(world: OffloadWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    move(world)
    drop_cache(world)
    list(world.log.read(Position(1, 0), Position(3, 2)))

    def refused(*_: object) -> bytes:
        raise AssertionError("it was asked again")

    monkeypatch.setattr(DirectoryObjects, "get", refused)
    list(world.log.read(Position(1, 0), Position(3, 2)))


def test_a_ledger_without_a_footer_gets_one_in_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    world = OffloadWorld(entries=2)
    world.kill()  # recovery seals it in the list alone
    assert not world.info(1).footer
    for number in range(2, ENTRIES):
        world.log.append(payload(number)).result(5)
    move(world)
    world.check()
    drop_cache(world)

    def refused(*_: object) -> None:
        raise AssertionError("its frames are read to find its index")

    monkeypatch.setattr("penstock.log.offload.ledger.rebuild_index", refused)
    reader = LogReader.open(DIRECTORY, OtherProcessFiles(world.files), world.metadata)
    assert bytes(next(reader.read(Position(1, 1), Position(1, 1))).data) == payload(1)
    reader.close()
    world.log.close()


def test_a_damaged_local_file_is_not_copied_and_the_others_are(world: OffloadWorld) -> None:
    harm(world, 2, local=True, offset=200)
    with pytest.raises(Corruption, match="ledger-0000000000000002"):
        world.log.offload()
    assert world.states() == {1: "copied", 2: "", 3: "copied"}
    assert world.log.statistics().offload_failures == 1
    assert len(world.attempts()) == 2


# -- trim, truncate, delete ----------------------------------------------------------------------------------------


def test_trim_and_truncate_delete_objects(world: OffloadWorld) -> None:
    world.log.close()
    world.settings = dataclasses.replace(SETTINGS, retention_seconds=0)
    world.log = world.open()
    cursor = world.log.open_cursor("c")
    move(world)
    cursor.mark_delete(Position(1, 2)).result(5)
    world.reopen()
    assert world.log.trim() == [1]
    assert not world.listed().discarded
    world.check(first=3)
    world.log.clear()
    assert world.objects() == []


def test_deletes_that_fail_are_tried_again(world: OffloadWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    world.log.close()
    world.settings = dataclasses.replace(SETTINGS, retention_seconds=0)
    world.log = world.open()
    move(world)

    def down(*_: object) -> None:
        raise Unavailable("the store does not answer")

    with monkeypatch.context() as patch:
        patch.setattr(DirectoryObjects, "delete", down)
        assert world.log.trim() == [1, 2, 3, 4]
        assert len(world.listed().discarded) == 4
        assert world.log.statistics().failed_deletes == 4
        assert world.log.statistics().discarded == 4
        world.kill()
    assert len(world.objects()) > 3
    assert world.log.trim() == []
    assert not world.listed().discarded
    assert world.objects() == []


def test_deleting_a_log_deletes_its_objects_and_a_crash_inside_it_resumes() -> None:
    rng = random.Random(7)
    for operation in range(1, 100):
        world = OffloadWorld()
        world.log.offload(keep_bytes=world.info(3).frames_end)
        world.clock.advance(101)
        world.log.offload()
        uuid = world.log.uuid
        world.log.close()
        before = world.files.operations
        world.files.cut_power_at(before + operation)
        done = True
        try:
            Log.delete(DIRECTORY, world.files, world.clock, world.metadata)
        except PowerCut:
            done = False
        crashed = world.files.crash(rng)
        Log.delete(DIRECTORY, crashed, world.clock, world.metadata)
        assert open_objects(URL, crashed).list(str(uuid)) == []
        assert not world.metadata.children("")
        if done:
            return
    pytest.fail("it never came to an end")


def test_a_log_is_not_forgotten_while_its_objects_cannot_be_deleted(
    world: OffloadWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    move(world)
    uuid = world.log.uuid
    world.log.close()

    def down(*_: object) -> None:
        raise Unavailable("the store does not answer")

    with monkeypatch.context() as patch:
        patch.setattr(DirectoryObjects, "delete", down)
        with pytest.raises(Unavailable):
            Log.delete(DIRECTORY, world.files, world.clock, world.metadata)
        with pytest.raises(Unavailable):
            world.open()
    world.log = world.open()  # finishes the deletion, and begins anew
    assert world.log.uuid != uuid
    assert open_objects(URL, world.files).list(str(uuid)) == []


def test_a_url_may_change_between_offloads(world: OffloadWorld) -> None:
    world.log.offload("file:///first", keep_bytes=world.info(3).frames_end)
    world.log.offload("file:///second")
    world.clock.advance(101)
    world.log.offload()
    assert world.states() == {1: "moved", 2: "moved", 3: "moved"}
    reader = world.log.reader()
    drop_cache(world)
    assert [bytes(entry.data) for entry in reader.read(reader.first, reader.end())] == list(
        map(payload, range(ENTRIES))
    )


# -- directories and S3 ------------------------------------------------------------------------------------------


@pytest.fixture(params=["directory", pytest.param("s3", marks=pytest.mark.s3)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "s3":
        return str(request.getfixturevalue("s3_url"))
    return (tmp_path / "objects").as_uri()


def test_the_whole_way_on_a_real_store(url: str, tmp_path: Path) -> None:
    settings = LogSettings(
        ledger_entries_max=40,
        maintenance_interval_seconds=0,
        offload_url=url,
        offload_deletion_lag_seconds=0,
        offload_part_bytes=512 << 10,
        retention_seconds=0,
    )
    directory = tmp_path / "log"
    rng = random.Random(3)
    data = [rng.randbytes(rng.randrange(30_000)) for _ in range(150)]
    with Log.open(directory, settings) as log:
        cursor = log.open_cursor("c")
        for entry in data:
            log.append(entry)
        log.append(b"last").result(10)
        assert log.offload() == [1, 2, 3]
        log.offload()
        assert [path.name for path in directory.glob("ledger-*")] == [f"ledger-{4:016d}.log"]
        log.reader().cache.drop(log.uuid)
        assert [bytes(entry.data) for entry in log.read(Position(1, 0), log.end())][:-1] == data
        reader = LogReader.open(directory)
        assert [bytes(entry.data) for entry in reader.read(Position(2, 7), Position(3, 9))] == data[47:90]
        assert [info.data_bytes for info in reader.scan(reader.first, Position(3, 39))] == [
            len(one) for one in data[:120]
        ]
        assert len(open_objects(url).list(str(log.uuid))) > 6
        cursor.mark_delete(Position(1, 39)).result(10)
        cursor.close()
        assert log.trim() == [1]
        assert len({name.split("-")[-2] for name in open_objects(url).list(str(log.uuid))}) >= 2
        assert [bytes(entry.data) for entry in reader.read(reader.first, Position(3, 39))] == data[40:120]
        reader.close()
        uuid = log.uuid
    Log.delete(directory)
    assert open_objects(url).list(str(uuid)) == []


@pytest.mark.s3
def test_a_store_that_goes_away_in_the_middle(s3_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from penstock.objects.remote import RemoteObjects

    settings = LogSettings(ledger_entries_max=3, maintenance_interval_seconds=0, offload_url=s3_url,
                           offload_deletion_lag_seconds=0, offload_part_bytes=256)  # fmt: skip
    with Log.open(tmp_path / "log", settings) as log:
        for number in range(ENTRIES):
            log.append(payload(number)).result(10)
        put, puts = RemoteObjects.put, 0

        def cut_off(store: RemoteObjects, name: str, data: bytes) -> None:
            nonlocal puts
            puts += 1
            if puts == 4:
                raise Unavailable("the connection is gone")
            put(store, name, data)

        with monkeypatch.context() as patch:
            patch.setattr(RemoteObjects, "put", cut_off)
            with pytest.raises(Unavailable, match="connection is gone"):
                log.offload()
        assert open_objects(s3_url).list(str(log.uuid)) == [], "what was put is deleted again"
        assert log.offload() == [1, 2, 3]
        log.offload()
        log.reader().cache.drop(log.uuid)
        assert [bytes(entry.data) for entry in log.read(Position(1, 0), log.end())] == list(
            map(payload, range(ENTRIES))
        )
