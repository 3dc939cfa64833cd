"""Objects are deleted with their ledgers: by trim, truncate, and the deletion of the log."""

from __future__ import annotations

import dataclasses
import random

import pytest

from penstock.errors import Unavailable
from penstock.files.memory import PowerCut
from penstock.log import (
    Log,
    Position,
)
from penstock.objects import DirectoryObjects, open_objects
from tests.log.offload.world import ENTRIES, SETTINGS, URL, OffloadWorld, drop_cache, move, payload
from tests.support.worlds import DIRECTORY

pytestmark = pytest.mark.usefixtures("small_blocks")


def test_trim_and_truncate_delete_objects(world: OffloadWorld) -> None:
    world.log.close()
    world.settings = dataclasses.replace(SETTINGS, retention_seconds=0)
    world.log = world.open()
    cursor = world.log.open_cursor("c")
    move(world)
    cursor.mark_delete(Position(1, 2)).result()
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
