"""Truncating a log: what goes, what stays, which holds refuse it, and what readers and a crash see of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.errors import BadInput
from penstock.log import Log, LogReader, LogSettings, Position
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
