"""Reads of offloaded ledgers: from whichever copy is good; damage is named, never read."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import Corruption, Unavailable
from penstock.log import (
    Cursor,
    LogReader,
    Position,
)
from penstock.log.offload import format as offload_format
from penstock.objects import DirectoryObjects, open_objects
from tests.log.offload.world import ENTRIES, URL, OffloadWorld, drop_cache, harm, move, payload
from tests.support.files import OtherProcessFiles
from tests.support.worlds import DIRECTORY

pytestmark = pytest.mark.usefixtures("small_blocks")


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
    world.reopen()  # so that no index is in memory
    reader = LogReader.open(DIRECTORY, OtherProcessFiles(world.files), world.metadata)
    for read in (reader.read, reader.scan):
        with pytest.raises(Corruption, match=rf"file:///objects/{world.log.uuid}/{2:016d}-") as error:
            list(read(Position(1, 0), Position(3, 2)))  # type: ignore[operator]
        assert "missing" in str(error.value) if offset is None else "damaged" in str(error.value)
    assert [bytes(e.data) for e in reader.read(Position(3, 0), Position(3, 2))] == list(map(payload, range(6, 9)))
    reader.close()
    assert world.states() == {1: "moved", 2: "moved", 3: "moved", 4: ""}, "nothing was changed"


def test_every_flip_of_an_object_is_detected_or_harmless(world: OffloadWorld) -> None:
    """Reads give the entries that were appended, or name the damaged object; they never give anything else."""
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
        world.log.append(payload(ENTRIES)).result()
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
    """An index of this very attempt that matches its own checksum, but is not the one that was put."""
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
    cursor.ack(Position(1, 1)).result()
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
        world.log.append(payload(number)).result()
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
