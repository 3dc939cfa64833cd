"""The cursors of a log in one process: opened once however many ask, listed, deleted, expired."""

from __future__ import annotations

import dataclasses
import threading
from pathlib import Path

import pytest

from penstock.clock import ManualClock
from penstock.errors import BadInput, StorageFailed, Unavailable
from penstock.log import Cursor, CursorTable, Log, LogReader
from penstock.log.cursors.registry import Registered
from tests.log.cursors.support import SETTINGS, at, values
from tests.support.waiting import LIMIT_SECONDS


def test_open_is_idempotent_and_shared(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads that open a cursor at the same time share one recovery."""
    recoveries = []
    real = Cursor.open

    def slow(*args: object, **kwargs: object) -> Cursor:
        recoveries.append(threading.current_thread())
        together.wait(LIMIT_SECONDS)
        return real(*args, **kwargs)  # type: ignore[arg-type]

    together = threading.Event()
    monkeypatch.setattr(Cursor, "open", slow)
    got: list[Cursor] = []
    threads = [threading.Thread(target=lambda: got.append(log.open_cursor("c"))) for _ in range(8)]
    for thread in threads:
        thread.start()
    together.set()
    for thread in threads:
        thread.join(LIMIT_SECONDS)
    assert len(got) == 8
    assert len({id(cursor) for cursor in got}) == 1
    assert len(recoveries) == 1
    assert log.open_cursor("c", "latest") is got[0]
    assert got[0].backlog() == 14


def test_a_failed_open_fails_all_and_the_next_one_works(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Cursor, "open", lambda *_, **__: (_ for _ in ()).throw(Unavailable("not now")))
        with pytest.raises(Unavailable):
            log.open_cursor("c")
    assert log.open_cursor("c").backlog() == 14


def test_list_and_delete(log: Log, tmp_path: Path) -> None:
    log.open_cursor("a").mark_delete(at("2:1")).result()
    log.open_cursor("b", "latest")
    assert [(info.name, info.open_here) for info in log.cursors()] == [("a", True), ("b", True), ("keep", False)]
    log.delete_cursor("a")
    assert [info.name for info in log.cursors()] == ["b", "keep"]
    assert not list((tmp_path / "log" / "cursors").glob("a[.-]*"))
    assert log.open_cursor("a").mark_delete_position == at("1:-1")  # a new one
    with pytest.raises(BadInput):
        log.delete_cursor("nobody")
    reader = LogReader.open(tmp_path / "log")
    elsewhere = CursorTable(reader)
    elsewhere.open("far")
    with pytest.raises(Unavailable):
        log.delete_cursor("far")
    with pytest.raises(Unavailable):
        log.open_cursor("far")
    elsewhere.close()
    log.delete_cursor("far")
    reader.close()


@pytest.mark.parametrize("name", ["../up", "", "a/b", "x" * 201])
def test_a_name_stays_in_its_directory(log: Log, name: str) -> None:
    with pytest.raises(BadInput):
        log.open_cursor(name)
    assert [info.name for info in log.cursors()] == ["keep"]


def test_expiry_happens_on_demand_and_spares_active_cursors(tmp_path: Path) -> None:
    clock = ManualClock()
    log = Log.open(tmp_path / "log", SETTINGS, clock=clock)
    log.append(b"0").result()
    for name in ("idle", "reads", "open", "acks"):
        log.open_cursor(name)
    for name in ("idle", "reads", "acks"):
        log.open_cursor(name).close()
    clock.advance(3600)
    reads = log.open_cursor("reads")
    assert values(reads) == [0]
    assert reads.last_active_ms == clock.wall_ms()
    reads.close()
    acks = log.open_cursor("acks")
    acks.ack(at("1:0")).result()
    acks.close()
    clock.advance(10)
    assert log.expire_cursors(7200) == []
    assert log.expire_cursors(1800) == ["idle"]
    assert [info.name for info in log.cursors()] == ["acks", "open", "reads"]
    log.close()


def test_the_maintenance_expires_cursors_where_the_settings_say_so(tmp_path: Path) -> None:
    clock = ManualClock()
    settings = dataclasses.replace(SETTINGS, cursor_inactive_seconds_max=1800.0, maintenance_interval_seconds=0)
    log = Log.open(tmp_path / "log", settings, clock=clock)
    log.append(b"0").result()
    log.open_cursor("open")
    for name in ("idle", "busy"):
        log.open_cursor(name).close()
    clock.advance(1200)
    busy = log.open_cursor("busy")
    busy.ack(at("1:0")).result()
    busy.close()
    generations = sorted(path.name for path in (tmp_path / "log" / "cursors").glob("*.rlog"))
    log.maintain()
    assert [info.name for info in log.cursors()] == ["busy", "idle", "open"]
    assert sorted(path.name for path in (tmp_path / "log" / "cursors").glob("*.rlog")) == generations, "only looked at"
    clock.advance(1200)
    log.maintain()
    assert [info.name for info in log.cursors()] == ["busy", "open"]
    log.close()
    never = Log.open(tmp_path / "log", SETTINGS, clock=clock)
    clock.advance(10**7)
    never.maintain()
    assert [info.name for info in never.cursors()] == ["busy", "open"]
    never.close()


@pytest.mark.parametrize("closed", [True, False])
def test_a_cursor_that_is_used_while_others_are_looked_at_does_not_expire(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, closed: bool
) -> None:
    clock = ManualClock()
    with Log.open(tmp_path / "log", SETTINGS, clock=clock) as log:
        positions = [log.append(b"%d" % n).result() for n in range(3)]
        log.open_cursor("c").close()
        log.expire_cursors(1800)
        clock.advance(3600)
        is_unused, opened = CursorTable._is_unused, []

        def used_then(table: CursorTable, known: Registered, seconds: float) -> bool:
            unused = is_unused(table, known, seconds)
            cursor = log.open_cursor("c")  # as another thread may, while the records of thousands are read
            cursor.mark_delete(positions[1]).result()
            if closed:
                cursor.close()
            opened.append(cursor)
            return unused

        monkeypatch.setattr(CursorTable, "_is_unused", used_then)
        assert log.expire_cursors(1800) == []
        assert len(opened) == 1
        assert opened[0].failed is closed
        assert log.open_cursor("c").mark_delete_position == positions[1]


def test_a_cursor_that_cannot_be_deleted_holds_up_neither_the_others_nor_the_trim(tmp_path: Path) -> None:
    clock = ManualClock()
    settings = dataclasses.replace(SETTINGS, cursor_inactive_seconds_max=1800.0)
    with Log.open(tmp_path / "log", settings, clock=clock) as log:
        used = log.open_cursor("used")
        for n in range(8):
            log.append(b"%d" % n).result()
        for name in ("bad", "idle"):
            log.open_cursor(name, "latest").close()
        log.maintain()
        lock = tmp_path / "log" / "cursors" / "bad.lock"
        lock.unlink()
        lock.mkdir()  # as wrong as a file of another user's
        clock.advance(3600)
        used.clear_backlog().result()
        used.close()
        used = log.open_cursor("used")
        with pytest.raises(StorageFailed, match="cursor bad"):
            log.maintain()
        assert [info.name for info in log.cursors()] == ["bad", "used"]
        assert log.reader().first == at("3:0")
        lock.rmdir()
        log.maintain()
        assert [info.name for info in log.cursors()] == ["used"]


WEEK = 7 * 86400.0


def test_a_step_of_the_clock_expires_nothing(tmp_path: Path) -> None:
    clock = ManualClock()
    settings = dataclasses.replace(SETTINGS, cursor_inactive_seconds_max=WEEK, maintenance_interval_seconds=0)
    log = Log.open(tmp_path / "log", settings, clock=clock)
    log.append(b"0").result(5)
    log.open_cursor("sink").close()
    for days in (8, -16, 8):
        clock.jump(days * 86400)
        log.maintain()
        assert [info.name for info in log.cursors()] == ["sink"]
    clock.advance(WEEK)
    log.maintain()
    assert log.cursors() == []
    log.close()


def test_time_without_use_adds_up_over_restarts(tmp_path: Path) -> None:
    clock = ManualClock()
    settings = dataclasses.replace(SETTINGS, cursor_inactive_seconds_max=WEEK, maintenance_interval_seconds=0)
    log = Log.open(tmp_path / "log", settings, clock=clock)
    log.append(b"0").result(5)
    for name in ("idle", "daily"):
        log.open_cursor(name).close()
    for day in range(7):
        assert [info.name for info in log.cursors()] == ["daily", "idle"], day
        log.maintain()
        clock.advance(86400)
        daily = log.open_cursor("daily")
        daily.read(1)
        daily.close()
        if day == 3:
            clock.jump(-365 * 86400)  # what the cursors did last was in the future, as they have it
        log.maintain()
        if day < 6:
            log.close()
            clock.jump(86400)  # nobody looks meanwhile: it does not count
            log = Log.open(tmp_path / "log", settings, clock=clock)
            daily = log.open_cursor("daily")
            daily.clear_backlog().result(5)
            daily.close()
    assert [info.name for info in log.cursors()] == ["daily"]
    log.close()


def test_a_late_withdrawal_leaves_the_cursor_of_the_same_name_that_came_after(log: Log) -> None:
    old = log.open_cursor("c")
    old.close()
    new = log.open_cursor("c")
    old.withdraw()
    assert log.open_cursor("c") is new
    assert new.backlog() == 14
