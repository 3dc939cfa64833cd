"""What is trimmed and what is kept; pins, clear, delete."""

from __future__ import annotations

import dataclasses
import random
from pathlib import Path
from typing import Any

import pytest

from penstock.clock import ManualClock
from penstock.errors import BadInput, NotSupported, StorageFailed, Unavailable
from penstock.files.memory import PowerCut
from penstock.log import Cursor, Log, LogReader, LogSettings, Position, Trimmed
from penstock.log.cursors import opening
from penstock.log.ledgers.catalog import LedgerCatalog
from penstock.log.ledgers.holds import cursor_key, pin_key
from penstock.log.ledgers.info import LedgerList
from tests.support.waiting import wait_until
from tests.support.worlds import DIRECTORY, LogInMemory

ZERO = LogSettings(ledger_entries_max=3, preallocate_bytes=1024, retention_seconds=0, maintenance_interval_seconds=0)


def world_of(settings: LogSettings = ZERO, entries: int = 10) -> LogInMemory:
    """By default three sealed ledgers of three entries, and an open one with one."""
    return LogInMemory(settings, entries)


def test_without_cursors_closed_ledgers_are_trimmed_and_the_open_one_stays() -> None:
    world = world_of()
    assert world.log.trim() == [1, 2, 3]
    assert world.ledgers() == world.ledger_files() == [4]
    assert world.log.reader().first == Position(4, 0)
    assert world.log.trim() == []
    world.log.close()


def test_nothing_goes_before_the_first_cursor_where_somebody_is_to_come() -> None:
    world = world_of(dataclasses.replace(ZERO, trim_without_cursors=False))
    world.log.pin("other", Position(3, 0))
    assert world.log.trim() == []
    assert world.ledgers() == [1, 2, 3, 4]
    cursor = world.log.open_cursor("c")
    cursor.mark_delete(Position(2, 2)).result()
    world.reopen()
    assert world.log.trim() == [1, 2]
    world.log.close()


def test_a_ledger_goes_when_the_mark_delete_sits_on_its_last_entry() -> None:
    world = world_of()
    cursor = world.log.open_cursor("c")
    cursor.mark_delete(Position(1, 1)).result()
    assert world.log.trim() == []
    cursor.mark_delete(Position(1, 2)).result()
    world.reopen()
    assert world.log.trim() == [1]
    assert world.ledgers()[0] == 2
    world.log.close()


def test_the_slowest_cursor_counts() -> None:
    world = world_of()
    fast, slow = world.log.open_cursor("fast"), world.log.open_cursor("slow")
    fast.mark_delete(Position(3, 2)).result()
    slow.mark_delete(Position(2, 0)).result()
    world.reopen()
    assert world.log.trim() == [1]
    world.log.open_cursor("slow").mark_delete(Position(2, 2)).result()
    world.reopen()
    assert world.log.trim() == [2]
    world.log.close()


def test_a_pin_keeps_its_position_until_it_goes() -> None:
    world = world_of()
    world.log.pin("checkpoint", Position(2, 2))
    assert world.log.trim() == [1]
    world.reopen()
    assert world.log.pins() == {"checkpoint": Position(2, 2)}
    assert world.log.trim() == []
    world.log.pin("checkpoint", Position(3, 0))
    assert world.log.trim() == [2]
    with pytest.raises(BadInput, match="no entry 2:0 any more"):
        world.log.pin("late", Position(2, 0))
    world.log.unpin("checkpoint")
    assert world.log.trim() == [3, 4]
    world.log.close()


def test_infinite_retention_keeps_everything() -> None:
    world = world_of(dataclasses.replace(ZERO, retention_seconds=None))
    assert world.log.trim() == []
    assert world.ledger_files() == [1, 2, 3, 4]
    world.reopen()
    world.clock.advance(10**9)
    assert world.log.trim() == []
    assert world.ledger_files()[:4] == [1, 2, 3, 4]
    world.log.close()


def test_zero_retention_keeps_only_what_is_needed_across_a_restart() -> None:
    world = world_of()
    cursor = world.log.open_cursor("c")
    cursor.mark_delete(Position(2, 1)).result()
    world.reopen()
    assert world.log.trim() == [1]
    world.log.open_cursor("c").clear_backlog().result()
    world.reopen()
    assert world.log.trim() == [2, 3, 4]
    assert world.ledgers() == world.ledger_files()
    world.log.close()


def test_retention_by_time_across_a_restart() -> None:
    world = world_of(dataclasses.replace(ZERO, retention_seconds=100), entries=3)
    world.clock.advance(60)
    for n in range(3, 7):
        world.log.append(b"%d" % n).result()
    assert world.log.trim() == []
    world.clock.advance(50)
    world.reopen()
    assert world.log.trim() == [1]
    world.clock.advance(60)
    assert world.log.trim() == [2, 3]
    world.log.close()


def test_retention_by_size_across_a_restart() -> None:
    world = world_of(dataclasses.replace(ZERO, retention_seconds=None, retention_bytes=600))
    sizes = [view.frames_end for view in world.log.reader().ledgers()]
    world.reopen()
    assert sum(sizes[1:]) > 600 >= sum(sizes[2:])
    assert world.log.trim() == [1, 2]
    world.log.close()


def test_a_cursor_keeps_what_retention_does_not() -> None:
    world = world_of(dataclasses.replace(ZERO, retention_bytes=0))
    world.log.open_cursor("c", start=Position(1, 2))
    assert world.log.trim() == [1]
    world.log.close()


def test_a_hold_that_is_made_during_a_trim_wins_or_loses_but_never_points_at_nothing() -> None:
    """The trim has read the holds; before its transaction a pin comes."""
    world = world_of()
    transaction = world.metadata.transaction
    came: list[str] = []

    def racing(operations: object) -> int:
        if not came:
            came.append("pin")
            world.log.pin("p", Position(2, 0))
        return transaction(operations)  # type: ignore[arg-type]

    world.metadata.transaction = racing  # type: ignore[method-assign, assignment]
    assert world.log.trim() == [1]
    assert world.ledgers() == [2, 3, 4]
    world.log.close()


def test_a_pin_that_loses_against_a_trim_is_refused() -> None:
    world = world_of()
    get = world.metadata.get
    came: list[str] = []

    def racing(key: str) -> object:
        found = get(key)
        if key == pin_key("log", "p") and not came:
            came.append("trim")
            world.log.trim()
        return found

    world.metadata.get = racing  # type: ignore[method-assign, assignment]
    with pytest.raises(BadInput, match="no entry 2:0 any more"):
        world.log.pin("p", Position(2, 0))
    assert world.log.pins() == {}
    world.log.close()


def test_a_reader_in_another_process_is_told_what_is_still_there() -> None:
    world = world_of()
    reader = LogReader.open(DIRECTORY, world.files.kill(), world.metadata)  # its files are those of before
    stale = LogReader.open(DIRECTORY, world.files, world.metadata)
    assert [bytes(e.data) for e in stale.read(Position(1, 0), Position(1, 0))] == [b"0"]
    stale.cache.drop(stale.cache_key)
    world.log.trim()
    with pytest.raises(Trimmed, match="it starts at 4:0") as error:
        list(stale.read(Position(1, 0), Position(4, 0)))
    assert error.value.first == Position(4, 0)
    assert [bytes(e.data) for e in stale.read(Position(4, 0), Position(4, 0))] == [b"9"]
    reader.close()
    stale.close()
    world.log.close()


def test_trim_drops_its_entries_from_the_cache() -> None:
    world = world_of()
    reader = world.log.reader()
    assert len(list(reader.read(reader.first, reader.end()))) == 10
    before = reader.cache.bytes
    world.log.trim()
    assert reader.cache.bytes < before
    with pytest.raises(Trimmed):
        list(reader.read(Position(1, 0), Position(1, 0)))
    world.log.close()


def test_a_cursor_that_points_at_a_trimmed_ledger_goes_on_with_the_first_kept_entry() -> None:
    world = world_of()
    cursor = world.log.open_cursor("c")
    world.log.clear()
    world.log.append(b"new").result()
    assert cursor.backlog() == 1
    assert [bytes(entry.data) for entry in cursor.read(10)] == [b"new"]
    world.reopen()
    assert [bytes(e.data) for e in world.log.open_cursor("c").read(10)] == [b"new"]
    world.log.close()


def test_truncate_removes_everything_but_not_under_a_pin() -> None:
    world = world_of()
    world.log.pin("held", Position(2, 0))
    with pytest.raises(BadInput, match="pinned by held"):
        world.log.clear()
    world.log.unpin("held")
    world.log.clear()
    assert world.log.statistics().entries == 0
    position = world.log.append(b"after").result()
    assert [bytes(e.data) for e in world.log.read(world.log.reader().first, position)] == [b"after"]
    world.log.close()


def test_a_delete_that_fails_is_tried_again() -> None:
    world = world_of()
    remove = world.files.remove

    def refuse(path: Path) -> None:
        if path.name.startswith("ledger-"):
            raise OSError(5, "Input/output error")
        remove(path)

    world.files.remove = refuse  # type: ignore[method-assign]
    assert world.log.trim() == [1, 2, 3]
    statistics = world.log.statistics()
    assert (statistics.deleting, statistics.failed_deletes) == (3, 3)
    assert world.ledger_files() == [1, 2, 3, 4]
    world.files.remove = remove  # type: ignore[method-assign]
    world.log.trim()
    assert world.ledger_files() == [4]
    assert world.log.statistics().deleting == 0
    world.log.close()


@pytest.mark.parametrize("seed", range(4))
def test_the_power_is_cut_at_every_operation_of_a_trim(seed: int) -> None:
    """What is listed is there; what is gone is not listed; the next open finishes the trim."""
    for operation in range(1, 40):
        world = world_of()
        world.log.pin("p", Position(3, 1))

        def power(world: LogInMemory = world) -> None:
            if world.files.power_is_off:
                raise PowerCut("the power is off")

        world.metadata.before_write = power
        world.files.cut_power_at(world.files.operations + operation)
        try:
            world.log.trim()
            finished = not world.files.power_is_off
        except (PowerCut, StorageFailed, Unavailable):
            finished = False
        after = world.files.crash(random.Random(f"{seed} {operation}"))
        metadata = world.metadata.copy()
        metadata.before_write = lambda: None
        log = Log.open(DIRECTORY, ZERO, after, ManualClock(), metadata)
        reader = log.reader()
        found = [bytes(e.data) for e in reader.read(reader.first, reader.end())]
        assert found[-4:] == [b"6", b"7", b"8", b"9"]
        listed = LedgerList.decode(metadata.get("log/log").value)  # type: ignore[union-attr]
        assert not listed.deleting
        on_disk = {int(name[7:23]) for name in after.list(DIRECTORY) if name.startswith("ledger-")}
        assert on_disk == {info.id for info in listed.ledgers}
        log.close()
        if finished:
            break
    else:
        pytest.fail("the trim never finished")


def test_minimum_and_maximum_age_of_a_ledger() -> None:
    settings = dataclasses.replace(
        ZERO, retention_seconds=None, ledger_age_min_seconds=10, ledger_age_max_seconds=60, ledger_idle_max_seconds=30
    )
    world = world_of(settings, entries=5)
    assert world.ledgers() == [1], "a full ledger that is too young goes on"
    world.clock.advance(11)
    assert world.log.append(b"x").result().ledger_id == 2
    world.clock.advance(20)
    world.log.append(b"y").result()
    world.clock.advance(20)
    world.log.append(b"z").result()
    world.log.maintain()
    assert world.ledgers() == [1, 2]
    world.clock.advance(21)  # 61 s old
    world.log.maintain()
    assert world.ledgers() == [1, 2, 3]
    world.log.append(b"only").result()
    world.clock.advance(31)  # idle
    world.log.maintain()
    assert world.ledgers() == [1, 2, 3, 4]
    world.clock.advance(1000)
    world.log.maintain()
    assert world.ledgers() == [1, 2, 3, 4], "an empty ledger is not rolled"
    world.log.close()


def test_deleting_a_log_takes_cursors_pins_and_metadata_with_it_and_a_cut_resumes() -> None:
    finished = False
    for operation in range(1, 60):
        world = world_of()
        world.log.open_cursor("c").mark_delete(Position(1, 1)).result()
        world.log.pin("p", Position(1, 0))
        world.log.close()
        old = world.metadata.get("log/log")
        assert old is not None

        def power(world: LogInMemory = world) -> None:
            if world.files.power_is_off:
                raise PowerCut("the power is off")

        world.metadata.before_write = power
        world.files.cut_power_at(world.files.operations + operation)
        try:
            Log.delete(DIRECTORY, world.files, world.clock, world.metadata)
            finished = not world.files.power_is_off
        except PowerCut:
            finished = False
        files, metadata = world.files.crash(random.Random(operation)), world.metadata.copy()
        metadata.before_write = lambda: None
        started = metadata.get("log/log")
        if started is None or started.version > old.version:  # it had begun: the next open is of a new log
            log = Log.open(DIRECTORY, ZERO, files, ManualClock(), metadata)
            assert log.uuid != LedgerList.decode(old.value).uuid
            assert log.statistics().entries == 0
            assert metadata.children("cursor/") == metadata.children("pin/") == []
            left = [path.name for path in files._names if path.suffix in {".rlog", ".current"}]
            assert not left, "record logs of its cursors are still there"
            log.append(b"new").result()
            Cursor.open(log.reader(), Path("/s/cursors"), "c", files=files).close()
            log.close()
        if finished:
            break
    assert finished


def test_the_maintenance_thread_trims_after_a_roll_by_itself(tmp_path: Path) -> None:
    settings = LogSettings(ledger_entries_max=2, retention_seconds=0, maintenance_interval_seconds=30)
    log = Log.open(tmp_path / "log", settings)

    for n in range(9):
        log.append(b"%d" % n).result()
    wait_until(lambda: len(list((tmp_path / "log").glob("ledger-*"))) == 1, "trim")
    log.close()


def test_clear_heeds_a_pin_made_at_the_last_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log.open(tmp_path / "log", LogSettings(maintenance_interval_seconds=0))
    first, *_ = [log.append(b"%d" % number).result(5) for number in range(5)]
    seal_all = log._appender.ledgers.seal_all

    def pinned_meanwhile() -> None:
        log.pin("late", first)
        seal_all()

    monkeypatch.setattr(log._appender.ledgers, "seal_all", pinned_meanwhile)
    with pytest.raises(BadInput, match="pinned by late"):
        log.clear()
    assert log.statistics().entries == 5
    log.close()


def test_clear_says_where_it_cannot_remove_the_open_ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log.open(tmp_path / "log", LogSettings(maintenance_interval_seconds=0))
    for number in range(5):
        log.append(b"%d" % number).result(5)
    monkeypatch.setattr(log._appender.ledgers, "roll", lambda: False)  # the metadata store does not answer
    with pytest.raises(Unavailable, match="no new ledger"):
        log.clear()
    monkeypatch.undo()
    log.clear()
    assert log.statistics().entries == 0
    log.terminate()
    log.clear()  # nothing is open: there is nothing to roll
    log.close()


def test_an_entry_from_the_future_does_not_stop_retention(tmp_path: Path) -> None:
    clock = ManualClock()
    settings = LogSettings(retention_seconds=60, maintenance_interval_seconds=0)
    log = Log.open(tmp_path / "log", settings, clock=clock)
    decade = 10 * 365 * 86400
    clock.jump(decade)
    log.append(b"written while the clock was wrong").result(5)
    log.roll()
    clock.jump(-decade)
    assert log.trim() == []  # it may be of this moment
    for _ in range(3):
        log.append(b"x").result(5)
        log.roll()
        clock.advance(50)
    assert log.trim() == [1, 2, 3]  # the first one is no younger than the second
    clock.advance(20)
    assert log.trim() == [4]
    log.close()


def test_an_entry_from_the_past_takes_no_others_with_it(tmp_path: Path) -> None:
    clock = ManualClock()
    settings = LogSettings(retention_seconds=60, maintenance_interval_seconds=0)
    log = Log.open(tmp_path / "log", settings, clock=clock)
    for step in (0, -86400, 86400):
        clock.jump(step)
        log.append(b"x").result(5)
        log.roll()
    assert log.trim() == []
    log.close()


def test_a_registration_of_a_later_format_is_refused_by_name_and_never_trimmed_past() -> None:
    world = world_of()
    world.log.open_cursor("later").close()
    key = cursor_key(world.log.name, "later")
    found = world.log.metadata.get(key)
    assert found is not None
    world.log.metadata.put(key, b'{"format": 2, "anything": "else"}', found.version)
    with pytest.raises(NotSupported, match="format 2"):
        world.log.trim()
    assert world.log.reader().first == Position(1, 0)


def test_of_two_trims_at_the_same_time_one_finds_nothing_left(monkeypatch: pytest.MonkeyPatch) -> None:
    world = world_of()
    change, others = LedgerCatalog.change, [world.log.trim]
    found: list[list[int]] = []

    def after_another(catalog: LedgerCatalog, *arguments: Any) -> LedgerList:
        if others:
            found.append(others.pop()())
        return change(catalog, *arguments)

    monkeypatch.setattr(LedgerCatalog, "change", after_another)
    assert world.log.trim() == []
    assert found == [[1, 2, 3]]
    assert world.ledgers() == world.ledger_files() == [4]
    world.log.close()


def test_a_cursor_whose_deletion_a_crash_interrupted_keeps_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    world = world_of()
    world.log.open_cursor("reader").mark_delete(Position(3, 2)).result()
    world.log.open_cursor("gone")

    def crash(*_: object) -> None:
        raise PowerCut("here")

    with monkeypatch.context() as before_the_last_step:
        before_the_last_step.setattr(opening, "forget", crash)
        with pytest.raises(PowerCut):
            world.log.delete_cursor("gone")
    world.reopen()
    assert [cursor.name for cursor in world.log.cursors()] == ["reader"]
    assert world.log.trim() == [1, 2, 3]
    assert world.log.open_cursor("gone").mark_delete_position == Position(4, -1)  # a new one
    world.log.close()
