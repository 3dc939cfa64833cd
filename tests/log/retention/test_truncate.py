"""Truncating a log: what goes, what stays, which holds refuse it, and what readers and a crash see of it."""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.clock import ManualClock
from penstock.errors import BadInput, OutcomeUnknown, StorageFailed, Unavailable
from penstock.log import Cursor, Log, LogReader, LogSettings, LogState, Position, Terminated
from penstock.log.cursors.table import CursorTable
from penstock.log.frames.end_file import EndFile
from penstock.log.ledgers.info import LedgerInfo, ledger_path
from penstock.log.retention.truncate import Truncator
from penstock.operations.log.verify import verify_log

SETTINGS = LogSettings(ledger_entries_max=4, preallocate_bytes=4096)


def filled(directory: Path, count: int = 10) -> tuple[Log, list[Position]]:
    log = Log.open(directory, SETTINGS)
    return log, [log.append(b"%d" % number).result() for number in range(count)]


def read(reader: LogReader) -> list[bytes]:
    return [bytes(entry.data) for entry in reader.read(reader.first, reader.end())]


@pytest.mark.parametrize("kept", range(1, 11))
def test_everything_after_the_position_goes(tmp_path: Path, kept: int) -> None:
    log, positions = filled(tmp_path / "log")
    outside = LogReader.open(tmp_path / "log")
    assert len(read(outside)) == 10  # it holds the list of before
    log.truncate(positions[kept - 1])
    expected = [b"%d" % number for number in range(kept)]
    assert log.end() == positions[kept - 1] == outside.end()
    assert read(log.reader()) == read(outside) == expected
    assert sum(view.entries for view in outside.ledgers()) == kept
    after = log.append(b"after").result()
    assert after > positions[-1] or kept == 10
    assert read(outside) == [*expected, b"after"]
    log.close()
    assert verify_log(tmp_path / "log").faults == []
    again = Log.open(tmp_path / "log", SETTINGS)
    assert read(again.reader()) == [*expected, b"after"]
    again.close()
    outside.close()


def test_all_of_it_may_go(tmp_path: Path) -> None:
    log, positions = filled(tmp_path / "log", 6)
    log.truncate(Position(positions[0].ledger_id, -1))
    assert log.end().entry_id == -1
    assert read(log.reader()) == []
    log.append(b"new").result()
    log.close()
    with Log.open(tmp_path / "log") as again:
        assert read(again.reader()) == [b"new"]


def test_a_cursor_or_pin_beyond_it_objects(tmp_path: Path) -> None:
    log, positions = filled(tmp_path / "log")
    cursor = log.open_cursor("c")
    cursor.mark_delete(positions[6]).result()
    cursor.close()  # publishes where it stands
    log.pin("mine", positions[8])
    with pytest.raises(BadInput, match="pin mine"):
        log.truncate(positions[4])
    assert len(read(log.reader())) == 10
    log.truncate(positions[6], own=["mine"])
    with pytest.raises(BadInput, match="cursor c"):
        log.truncate(positions[4], own=["mine"])
    log.truncate(positions[4], force=True)
    log.append(b"next").result()
    cursor = log.open_cursor("c")
    assert [bytes(entry.data) for entry in cursor.read(10)] == [b"next"]
    log.close()


def test_a_position_that_is_not_there_is_refused(tmp_path: Path) -> None:
    log, positions = filled(tmp_path / "log")
    with pytest.raises(BadInput, match="no entry 1:77"):
        log.truncate(Position(1, 77))
    log.truncate(positions[-1])  # nothing is after it
    assert len(read(log.reader())) == 10
    log.close()


def test_acks_of_entries_that_went_do_not_count(tmp_path: Path) -> None:
    log, positions = filled(tmp_path / "log")
    cursor = log.open_cursor("c")
    cursor.ack_each([positions[1], positions[6], positions[8]]).result()
    log.truncate(positions[5])
    log.append(b"next").result()
    assert cursor.backlog() == 6
    assert [bytes(entry.data) for entry in cursor.read(10)] == [b"0", b"2", b"3", b"4", b"5", b"next"]
    log.close()
    with Log.open(tmp_path / "log", SETTINGS) as again:
        cursor = again.open_cursor("c")
        assert cursor.backlog() == 6
        assert [bytes(entry.data) for entry in cursor.read(10)] == [b"0", b"2", b"3", b"4", b"5", b"next"]


def test_a_cursor_that_is_open_objects_where_it_really_stands(tmp_path: Path) -> None:
    log, positions = filled(tmp_path / "log")
    cursor = log.open_cursor("c")
    cursor.mark_delete(positions[9]).result(5)  # its registration lags: it is written when a ledger is passed
    with pytest.raises(BadInput, match=f"cursor c \\({positions[9]}\\)"):
        log.truncate(positions[4])
    log.truncate(positions[4], force=True)
    assert cursor.mark_delete_position == positions[4]
    log.append(b"next").result(5)
    log.close()
    with Log.open(tmp_path / "log", SETTINGS) as again:
        assert [bytes(entry.data) for entry in again.open_cursor("c").read(10)] == [b"next"]


def test_a_cursor_of_another_process_objects_where_its_records_say(tmp_path: Path) -> None:
    log, positions = filled(tmp_path / "log")
    reader = LogReader.open(tmp_path / "log")
    cursor = Cursor.open(reader, tmp_path / "log" / "cursors", "c")
    cursor.mark_delete(positions[7]).result(5)
    with pytest.raises(BadInput, match="cursor c"):
        log.truncate(positions[4])
    cursor.close()
    reader.close()
    log.close()


def test_acks_of_entries_that_went_are_refused(tmp_path: Path) -> None:
    log, positions = filled(tmp_path / "log")
    cursor = log.open_cursor("c")
    assert len(cursor.read(20)) == 10
    cursor.ack(positions[0]).result(5)
    log.truncate(positions[4])
    for position in positions[5:]:
        with pytest.raises(BadInput, match="is not in the log"):
            cursor.ack(position)
    for position in positions[:5]:
        cursor.ack(position).result(5)
    assert cursor.mark_delete_position == log.end() == positions[4]
    log.close()
    with Log.open(tmp_path / "log", SETTINGS) as again:
        assert again.open_cursor("c").mark_delete_position == positions[4]


def test_a_cursor_beyond_the_end_is_set_back_with_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The cursor of another process acks an entry in the moment in which a truncation removes it."""
    log, positions = filled(tmp_path / "log")
    reader = LogReader.open(tmp_path / "log")
    cursor = Cursor.open(reader, tmp_path / "log" / "cursors", "c")
    assert len(cursor.read(20)) == 10
    cursor.ack_each([positions[0], positions[5], positions[9]]).result(5)
    log.truncate(positions[4])
    cursor.mark_delete(positions[9]).result(5)  # it has not looked since
    assert cursor.read(10) == []
    assert cursor.mark_delete_position == positions[4]  # it has looked now
    with pytest.raises(BadInput, match="is not in the log"):
        cursor.ack(positions[6])
    cursor.close()
    reader.close()
    log.append(b"next").result(5)
    again = log.open_cursor("c")
    assert again.mark_delete_position == positions[4]
    assert f"was at {positions[9]}, which a truncation of the log removed" in caplog.text
    assert [bytes(entry.data) for entry in again.read(10)] == [b"next"]
    log.close()


@pytest.mark.parametrize("look", [False, True])
def test_a_reader_elsewhere_never_serves_what_went(tmp_path: Path, look: bool) -> None:
    """Even where the end went back and on again before the reader looked."""
    log, positions = filled(tmp_path / "log")
    log.roll()
    outside = LogReader.open(tmp_path / "log")
    if look:
        assert len(read(outside)) == 10
    else:
        outside.ledgers()
    log.truncate(positions[4])
    for text in (b"a", b"b", b"c"):
        log.append(text).result(5)
    expected = [*(b"%d" % number for number in range(5)), b"a", b"b", b"c"]
    assert [bytes(e.data) for e in outside.read(positions[0], outside.end())] == expected
    assert read(log.reader()) == expected
    with pytest.raises(BadInput, match="beyond the durable end"):
        list(outside.read(positions[9], positions[9]))
    outside.close()
    log.close()


def test_sizes_and_times_are_those_of_what_is_kept(tmp_path: Path) -> None:
    clock = ManualClock()
    log = Log.open(tmp_path / "log", LogSettings(maintenance_interval_seconds=0), clock=clock)
    begin = clock.wall_ms()
    positions = []
    for _ in range(200):
        positions.append(log.append(bytes(100)).result(5))
        clock.advance(1)
    log.roll()
    cursor, reader = log.open_cursor("c"), log.reader()
    assert cursor.backlog_bytes() == 20_000
    assert reader.find_by_time(begin + 100_000) == positions[100]
    log.truncate(positions[49])
    assert (cursor.backlog(), cursor.backlog_bytes()) == (50, 5_000)
    assert reader.find_by_time(begin + 100_000) == positions[49]
    log.close()


def test_the_end_of_a_terminated_log_stays(tmp_path: Path) -> None:
    log, positions = filled(tmp_path / "log")
    log.terminate()
    with pytest.raises(Terminated, match="its end stays"):
        log.truncate(positions[4])
    assert len(read(log.reader())) == 10
    log.close()
    with Log.open(tmp_path / "log", SETTINGS) as again, pytest.raises(Terminated, match="its end stays"):
        again.truncate(positions[4])


def test_a_crash_between_the_list_and_the_slot_leaves_the_new_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, positions = filled(tmp_path / "log")
    monkeypatch.setattr(log._appender.ledgers, "rewind_end", lambda last: None)
    log.truncate(positions[4])
    outside = LogReader.open(tmp_path / "log")
    assert outside.end() == positions[4]
    assert len(read(outside)) == 5
    outside.close()
    monkeypatch.undo()
    log.close()


def failing_after(works: int) -> Callable[..., None]:
    """An `EndFile.publish` that fails after a number of calls."""
    publish, calls = EndFile.publish, itertools.count(1)

    def failing(end_file: EndFile, *told: Any) -> None:
        if next(calls) > works:
            raise StorageFailed("no space")
        publish(end_file, *told)

    return failing


def test_a_truncation_that_no_reader_would_learn_of_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, positions = filled(tmp_path / "log", 8)
    log.roll()
    outside = LogReader.open(tmp_path / "log")
    monkeypatch.setattr(EndFile, "publish", failing_after(0))
    with pytest.raises(StorageFailed, match="no space"):
        log.truncate(positions[3])
    assert (log.state, len(read(outside)), len(read(log.reader()))) == (LogState.OPEN, 8, 8)
    monkeypatch.undo()
    log.append(b"goes on").result(5)
    log.truncate(positions[3])
    assert len(read(outside)) == 4
    outside.close()
    log.close()


def test_a_truncation_that_readers_could_not_be_told_of_stops_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The list is shorter already, and the slot cannot be written any more: nothing is claimed, and the next open tells."""
    log, positions = filled(tmp_path / "log", 8)
    log.roll()
    outside = LogReader.open(tmp_path / "log")
    outside.ledgers()
    monkeypatch.setattr(EndFile, "publish", failing_after(1))
    with pytest.raises(OutcomeUnknown, match="could not be told: no space"):
        log.truncate(positions[3])
    assert log.state is LogState.STOPPED
    with pytest.raises(OutcomeUnknown):
        log.append(b"refused").result(5)
    monkeypatch.undo()
    log.close()
    with Log.open(tmp_path / "log", SETTINGS) as again:
        assert read(again.reader()) == read(outside) == [b"0", b"1", b"2", b"3"]
    outside.close()


def test_a_close_publishes_the_end_that_could_not_be_published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log, positions = filled(tmp_path / "log", 2)
    outside = LogReader.open(tmp_path / "log")
    outside.ledgers()
    monkeypatch.setattr(EndFile, "publish", failing_after(0))
    last = log.append(b"durable").result(5)
    assert outside.end() == positions[-1]
    monkeypatch.undo()
    log.close()
    assert outside.end() == last
    outside.close()


def test_a_close_that_cannot_publish_the_end_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log, _ = filled(tmp_path / "log", 2)
    monkeypatch.setattr(EndFile, "publish", failing_after(0))
    last = log.append(b"durable").result(5)
    with pytest.raises(StorageFailed, match="no space"):
        log.close()
    monkeypatch.undo()
    with Log.open(tmp_path / "log", SETTINGS) as again:
        assert again.end() == last


@pytest.mark.parametrize("seed", range(6))
def test_any_order_of_appends_truncations_acks_and_restarts(tmp_path: Path, seed: int) -> None:
    """A reader elsewhere, a cursor here and one elsewhere see what a list would hold, whatever came before they look."""
    rng = random.Random(seed)
    log = Log.open(tmp_path / "log", SETTINGS)
    outside = LogReader.open(tmp_path / "log")
    kept: list[tuple[Position, bytes]] = []
    acked: set[Position] = set()
    for step in range(120):
        kind = rng.choice(["append", "append", "append", "roll", "truncate", "ack", "look", "look", "reopen"])
        if kind == "append":
            data = b"%d" % step
            kept.append((log.append(data).result(5), data))
        elif kind == "roll":
            log.roll()
        elif kind == "truncate" and kept:
            at = rng.randrange(len(kept))
            log.truncate(kept[at][0], force=True)
            went = {position for position, _ in kept[at + 1 :]}
            del kept[at + 1 :]
            acked -= went
            for position in went:
                with pytest.raises(BadInput):
                    log.open_cursor("c").ack(position)
        elif kind == "ack" and kept:
            position, _ = rng.choice(kept)
            log.open_cursor("c").ack(position).result(5)
            acked.add(position)
        elif kind == "look" and kept:
            assert [(e.position, bytes(e.data)) for e in outside.read(kept[0][0], outside.end())] == kept
            assert outside.end() == log.end() == kept[-1][0]
        elif kind == "reopen":
            log.close()
            log = Log.open(tmp_path / "log", SETTINGS)
        cursor = log.open_cursor("c")
        assert cursor.backlog() == len(kept) - len(acked)
        assert all(cursor.is_acked(position) == (position in acked) for position, _ in kept)
    outside.close()
    log.close()


def test_a_cursor_that_was_moved_by_force_stays_open_only_where_it_was(tmp_path: Path) -> None:
    log, positions = filled(tmp_path / "log")
    reader = LogReader.open(tmp_path / "log")
    cursor = Cursor.open(reader, tmp_path / "log" / "cursors", "c")
    cursor.mark_delete(positions[7]).result(5)
    cursor.close()
    here = log.open_cursor("here")
    here.mark_delete(positions[8]).result(5)
    log.truncate(positions[4], force=True)
    cursor = Cursor.open(reader, tmp_path / "log" / "cursors", "c")
    assert cursor.mark_delete_position == here.mark_delete_position == positions[4]
    assert not here.failed
    cursor.close()
    reader.close()
    log.close()


def test_a_cursor_that_another_process_has_open_cannot_be_moved(tmp_path: Path) -> None:
    """Forced or not: its owner would go on beyond the end. Nothing is removed, and no other cursor is moved."""
    with Log.open(tmp_path / "log", SETTINGS) as log, LogReader.open(tmp_path / "log") as reader:
        positions = [log.append(b"%d" % number).result() for number in range(8)]
        first = log.open_cursor("a-first")
        first.clear_backlog().result()
        theirs = CursorTable(reader, tmp_path / "log" / "cursors")
        theirs.open("theirs").clear_backlog().result()
        with pytest.raises(Unavailable, match="cursor theirs of log log cannot be moved: another process has it open"):
            log.truncate(positions[2], force=True)
        assert log.end() == positions[-1]
        assert first.mark_delete_position == positions[-1]
        theirs.close()
        log.truncate(positions[2], force=True)
        assert log.end() == positions[2]
        assert first.backlog() == 0


def test_what_another_thread_changes_meanwhile_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A truncation looks at the list, reads the ledger, then changes the list: by then it may be another one."""
    settings = LogSettings(ledger_entries_max=4, retention_bytes=0, maintenance_interval_seconds=0)
    log = Log.open(tmp_path / "log", settings)
    positions = [log.append(b"%d" % number).result() for number in range(14)]
    log.pin("keep", positions[4])
    sealed_at = Truncator._sealed_at
    trimmed: list[int] = []

    def others() -> None:
        log.set_properties({"set": "meanwhile"})
        trimmed.extend(log.trim())

    def slow(self: Truncator, info: LedgerInfo, entries: int) -> LedgerInfo:
        if not trimmed:
            other = threading.Thread(target=others)
            other.start()
            other.join()
        return sealed_at(self, info, entries)

    monkeypatch.setattr(Truncator, "_sealed_at", slow)
    log.truncate(positions[9])
    assert trimmed == [1]
    assert log.properties() == {"set": "meanwhile"}
    assert read(log.reader()) == [b"%d" % number for number in range(4, 10)]
    log.close()
    assert verify_log(tmp_path / "log").faults == []


def test_a_skipped_entry_still_counts_as_a_message(tmp_path: Path) -> None:
    settings = LogSettings(preallocate_bytes=0, maintenance_interval_seconds=0)
    with Log.open(tmp_path / "log", settings) as log:
        positions = [log.append(b"%05d" % n, messages=3 if n == 8 else 1).result() for n in range(16)]
        log.roll()
        path = ledger_path(tmp_path / "log", 1)
        raw = bytearray(path.read_bytes())
        raw[64 + 73 * 3 + 4] ^= 0xFF
        path.write_bytes(raw)
        log.skip(1)
        assert log.statistics().messages == 18
        log.truncate(positions[8])
        assert log.statistics().messages == 9 + 2


def test_a_truncation_that_is_refused_moves_no_cursor(tmp_path: Path) -> None:
    log, positions = filled(tmp_path / "log")
    cursor = log.open_cursor("c")
    cursor.mark_delete(positions[8]).result()
    with pytest.raises(BadInput, match="no entry"):
        log.truncate(Position(positions[0].ledger_id, 77), force=True)
    assert cursor.mark_delete_position == positions[8]
    log.terminate()
    with pytest.raises(Terminated):
        log.truncate(positions[0], force=True)
    assert cursor.mark_delete_position == positions[8]
    log.close()


def test_who_opens_a_cursor_while_it_is_moved_by_force_keeps_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, positions = filled(tmp_path / "log")
    with log.open_cursor("c") as cursor:
        cursor.mark_delete(positions[8]).result()
    reset, came = Cursor.reset, []

    def reset_beside(self: Cursor, position: Position | str) -> Any:
        came.append(log.open_cursor("c"))
        return reset(self, position)

    monkeypatch.setattr(Cursor, "reset", reset_beside)
    log.truncate(positions[2], force=True)
    assert came[0].mark_delete_position == positions[2]
    assert came[0].backlog() == 0
    log.close()
