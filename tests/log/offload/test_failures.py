"""What goes wrong during an offload: another owner, a failing disk or metadata store, a trim, a power cut."""

from __future__ import annotations

import contextlib
import dataclasses
import random

import pytest

from penstock.errors import Fenced, OutcomeUnknown, PenstockError, StorageFailed, Unavailable
from penstock.files.memory import DiskFault, PowerCut
from penstock.log import (
    Cursor,
    Log,
    Position,
)
from tests.log.offload.world import ENTRIES, SETTINGS, OffloadWorld, Puts, move, payload
from tests.support.files import OtherProcessFiles
from tests.support.worlds import DIRECTORY

pytestmark = pytest.mark.usefixtures("small_blocks")


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
        # The put that was under way while the new owner cleaned up may leave its object, and no other.
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
    """Every operation of the disk under the log and the store fails once: nothing is lost or left, and a retry works."""
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


@pytest.mark.parametrize("unknown", [False, True])
def test_the_metadata_store_fails_at_each_change(unknown: bool) -> None:
    """A failing metadata store deletes no data: neither the local file nor objects that the list may name."""
    for change in range(1, 30):
        world = OffloadWorld()
        counted = 0
        failed = False

        def fail(change: int = change) -> None:
            nonlocal counted, failed
            counted += 1
            if counted == change:
                failed = True
                raise (OutcomeUnknown if unknown else Unavailable)("the metadata store does not answer")

        if unknown:
            world.metadata.after_write = fail
        else:
            world.metadata.before_write = fail
        with contextlib.suppress(Unavailable, OutcomeUnknown):
            world.log.offload()
            world.clock.advance(101)
            world.log.offload()
        world.metadata.before_write = world.metadata.after_write = lambda: None
        if unknown:
            world.kill(random.Random(change))
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
                cursor.mark_delete(Position(2, 2)).result()
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


def test_a_truncation_during_an_offload_and_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    world = OffloadWorld()

    def truncate(number: int) -> None:
        if number == 4:  # of the second ledger
            world.log.truncate(Position(2, 0))

    with monkeypatch.context() as patch:
        Puts(patch, truncate)
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
