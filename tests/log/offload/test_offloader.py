"""The rounds of an offload: what is copied and moved when, one round at a time."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable

import pytest

from penstock.errors import BadInput, Closed, PenstockError, Unavailable
from penstock.log import (
    LogSettings,
    OffloadInProgress,
    OffloadProgress,
    Position,
)
from penstock.log.offload import format as offload_format
from penstock.objects import DirectoryObjects, open_objects
from tests.log.offload.world import ENTRIES, SETTINGS, URL, OffloadWorld, Puts, payload
from tests.support.waiting import LIMIT_SECONDS, wait_until
from tests.support.worlds import DIRECTORY

pytestmark = pytest.mark.usefixtures("small_blocks")


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


def test_progress_is_reported(world: OffloadWorld) -> None:
    reported: list[OffloadProgress] = []
    world.log.offload(progress=reported.append)
    assert [one.ledger for one in reported if one.bytes == one.bytes_total] == [1, 2, 3]
    assert {one.ledgers for one in reported} == {3}
    assert [one.bytes for one in reported if one.ledger_id == 2] == [0, 512, world.info(2).frames_end]
    assert world.log.statistics().offloading is None


def test_the_log_may_be_closed_while_progress_is_reported(world: OffloadWorld) -> None:
    def close(_: OffloadProgress) -> None:
        world.log.close()

    calling = threading.Thread(target=lambda: ended.append(_error_of(lambda: world.log.offload(progress=close))))
    ended: list[BaseException | None] = []
    calling.daemon = True
    calling.start()
    calling.join(LIMIT_SECONDS)
    assert [type(error) for error in ended] == [Closed]


def _error_of(call: Callable[[], object]) -> BaseException | None:
    try:
        call()
    except Exception as error:
        return error
    return None


def test_it_runs_by_itself_and_stops_at_close() -> None:
    settings = dataclasses.replace(
        SETTINGS, offload_threshold_bytes=0, offload_deletion_lag_seconds=0, maintenance_interval_seconds=60
    )
    world = OffloadWorld(settings)

    def moved() -> bool:
        world.log.trim_soon()  # as an ack does
        return set(world.states().values()) == {"moved"}

    wait_until(moved, "moved ledgers")
    world.check()
    assert world.ledger_files() == [4]
    before = threading.active_count()
    world.log.close()
    assert threading.active_count() < before
    assert not [thread.name for thread in threading.enumerate() if "offload" in thread.name]


def test_a_failed_round_is_reported_and_repeated_after_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    down = True
    put, puts = DirectoryObjects.put, 0

    def sometimes(store: DirectoryObjects, name: str, data: bytes) -> None:
        nonlocal puts
        puts += 1
        if down:
            raise Unavailable("the store does not answer")
        put(store, name, data)

    def until(reached: Callable[[], bool]) -> None:
        wait_until(lambda: reached() or world.log.trim_soon(), "another round")

    monkeypatch.setattr(DirectoryObjects, "put", sometimes)
    world = OffloadWorld(dataclasses.replace(SETTINGS, offload_threshold_bytes=0, maintenance_interval_seconds=60))
    until(lambda: "does not answer" in world.log.statistics().offload_error)
    tried = puts
    for _ in range(20):
        world.log.trim_soon()
        time.sleep(0.005)
    assert puts == tried, "a store that is down is not asked all the time"
    assert world.log.append(payload(ENTRIES)).result() == Position(4, 1), "nothing else waits for it"
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
    closer.join(LIMIT_SECONDS)
    assert len(puts.names) == 2
    world.log = world.open()
    assert world.listed().discarded
    world.log.trim()  # deletes what was discarded
    world.check()
    assert world.objects() == []
