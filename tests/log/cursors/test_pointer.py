"""A cursor and the metadata store: what trim keeps for it, and what it does while the store is away or has lost it."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from penstock.clock import ManualClock
from penstock.errors import BadInput, Unavailable
from penstock.files.memory import MemoryFiles
from penstock.log import Cursor, Log, LogReader, Position, wait_all
from penstock.metadata import MemoryMetadata
from tests.log.cursors.support import SETTINGS, at, values
from tests.support.waiting import LIMIT_SECONDS, wait_until


def test_trim_leaves_what_a_cursor_needs_and_follows_it(log: Log) -> None:
    """Only a durable mark-delete counts, and it is published in time."""
    assert log.trim() == []
    keep = log.open_cursor("keep")
    slow = log.open_cursor("slow")
    keep.mark_delete(at("4:0")).result()
    slow.mark_delete(at("2:2")).result()
    keep.close()
    slow.close()
    assert log.trim() == [1, 2]
    assert values(log.open_cursor("slow"), 1) == [6]
    fresh = log.open_cursor("fresh", "earliest")
    assert values(fresh, 1) == [6]


def test_a_reset_holds_trim_back_before_it_is_made(log: Log) -> None:
    keep = log.open_cursor("keep")
    keep.mark_delete(at("4:2")).result()
    keep.close()
    keep = log.open_cursor("keep")
    keep.reset(at("2:0")).result()
    log.trim()
    assert values(keep, 2) == [3, 4]
    keep.mark_delete(at("3:2")).result()
    keep.close()
    log.trim()
    assert log.reader().first == at("4:0")
    keep = log.open_cursor("keep")
    keep.reset(at("1:0")).result()  # trimmed: the first that is there
    assert values(keep, 1) == [9]


def test_a_cursor_made_at_the_moment_of_a_trim(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cursor's start is chosen, then a trim changes the list: the registration conflicts, and chooses again."""
    log.delete_cursor("keep")
    real = Cursor.open.__globals__["open_durable"].__globals__["start_position"]
    trims: list[list[int]] = []

    def start_position(reader: LogReader, start: object) -> Position:
        chosen: Position = real(reader, start)
        if not trims:
            trims.append(log.trim())
        return chosen

    monkeypatch.setattr("penstock.log.cursors.opening.start_position", start_position)
    cursor = log.open_cursor("c", "earliest")
    assert trims == [[1, 2, 3, 4]]
    assert cursor.mark_delete_position == at("5:-1")
    assert values(cursor) == [12, 13]
    assert log.trim() == []


def test_a_cursor_in_a_trimmed_ledger_goes_on_with_the_first_that_is_there(log: Log) -> None:
    """An open one, a closed one and one that is not durable."""
    keep = log.open_cursor("keep")
    memory = log.open_cursor("m", "earliest", durable=False)
    closed = log.open_cursor("closed")
    closed.ack(at("1:1")).result()
    closed.close()
    log.clear()
    log.append(b"14").result()
    for cursor in (keep, memory, log.open_cursor("closed")):
        assert values(cursor) == [14], cursor.name
        assert cursor.backlog() == 1
        cursor.mark_delete(log.end()).result()
        assert cursor.backlog() == 0


def test_empty_ledgers_are_skipped(tmp_path: Path) -> None:
    """A log that was opened and closed without appends has gaps in the numbers of its ledgers."""
    for number in range(4):
        log = Log.open(tmp_path / "log", SETTINGS)
        cursor = log.open_cursor("c")
        if number % 2:
            log.append(b"%d" % number).result()
        log.close()
    log = Log.open(tmp_path / "log", SETTINGS)
    cursor = log.open_cursor("c")
    first, second = cursor.read()
    assert first.position.ledger_id + 1 < second.position.ledger_id
    cursor.ack(second.position).result()
    cursor.ack(first.position).result()
    assert cursor.mark_delete_position == second.position
    assert cursor.backlog() == 0
    log.append(b"5").result()
    assert values(cursor) == [5]
    log.close()


def test_a_cursor_whose_registration_is_lost_is_adopted_where_it_is(log: Log) -> None:
    cursor = log.open_cursor("c")
    cursor.mark_delete(at("2:1")).result()
    for n in range(3):
        cursor.ack(Position(3, n % 3)).result()
    cursor.close()
    key = "cursor/log/c"
    found = log.metadata.get(key)
    assert found is not None
    log.metadata.delete(key, found.version)  # as if the metadata came from an older copy
    again = log.open_cursor("c", "latest")
    assert values(again, 2) == [5, 9]
    assert [(info.name, info.mark_delete) for info in log.cursors()] == [("c", at("2:1")), ("keep", at("1:-1"))]


def test_the_pointer_in_the_metadata_is_never_ahead_of_what_is_durable() -> None:
    """Trim relies on it. The sync of the acks is held up: until then nothing may be published."""
    gate = threading.Event()
    gate.set()

    def hold(_number: int, operation: str, path: Path) -> None:
        if operation == "datasync" and path.suffix == ".rlog":
            gate.wait(LIMIT_SECONDS)

    log = Log.open(Path("/s/log"), SETTINGS, MemoryFiles(hold), ManualClock(), MemoryMetadata())
    wait_all([log.append(b"%d" % n) for n in range(8)])
    cursor = log.open_cursor("c")
    cursor.mark_delete(at("1:2")).result()
    gate.clear()
    waiting = [cursor.mark_delete(at("2:2")), cursor.ack(at("3:0"))]
    assert cursor.mark_delete_position == at("1:2")
    cursor._acks._pointer.publish(cursor._acks._current)  # type: ignore[union-attr]
    assert log.cursors()[0].mark_delete == at("1:2")
    assert log.trim() == [1]
    gate.set()
    wait_all(waiting)
    assert cursor.mark_delete_position == at("3:0")
    cursor.close()
    assert log.cursors()[0].mark_delete == at("3:0")
    assert log.trim() == [2]
    log.close()


class DownMetadata(MemoryMetadata):
    """A store that does not answer while `away` is set."""

    away = False

    def down(self) -> None:
        if self.away:
            raise Unavailable("the metadata store is away")


def test_acks_and_reads_work_while_the_metadata_store_is_away() -> None:
    metadata = DownMetadata()
    metadata.before_write = metadata.down
    log = Log.open(Path("/s/log"), SETTINGS, MemoryFiles(), ManualClock(), metadata)
    wait_all([log.append(b"%d" % n) for n in range(8)])
    cursor = log.open_cursor("c")
    metadata.away = True
    assert len(cursor.read()) == 8
    cursor.mark_delete(at("2:2")).result()
    cursor.ack(at("3:1")).result()
    assert cursor.mark_delete_position == at("2:2")
    with pytest.raises(Unavailable):
        cursor.reset(at("1:0"))
    assert cursor.mark_delete_position == at("2:2")
    assert cursor.backlog() == 1
    metadata.away = False
    cursor.close()
    assert log.cursors()[0].mark_delete == at("2:2")
    log.close()


def test_of_two_resets_on_their_way_the_first_does_not_lift_the_hold_of_the_second(log: Log) -> None:
    """Else a position from between the two is published, and trim takes what the second one wants to read."""
    keep = log.open_cursor("keep")
    keep.mark_delete(at("4:2")).result()
    pointer = keep._acks._pointer
    assert pointer is not None
    wait_until(lambda: pointer.position == at("4:2"), "what is published in the background")
    pointer.pull_back(at("3:0"))
    pointer.pull_back(at("1:0"))
    pointer.release()  # the first is durable
    pointer.publish(lambda: (at("3:0"), 0))
    assert pointer.position <= at("1:0")
    pointer.release()
    pointer.publish(lambda: (at("2:0"), 0))
    assert pointer.position == at("2:0")


def test_a_position_from_before_a_reset_is_not_published_when_the_reset_ends(log: Log) -> None:
    keep = log.open_cursor("keep")
    pointer = keep._acks._pointer
    assert pointer is not None
    pointer.pull_back(at("1:0"))

    def current() -> tuple[Position, int]:
        pointer.release()  # the reset becomes durable in the moment in which the position was read
        return at("4:2"), 0

    pointer.publish(current)
    assert pointer.position <= at("1:0")


@pytest.mark.parametrize("wrong", [Position(-5, 3), Position(1, 1 << 70), Position(1 << 70, 0)], ids=str)
def test_acks_of_what_cannot_be_a_position_do_not_stop_the_cursor(log: Log, wrong: Position) -> None:
    cursor = log.open_cursor("keep")
    cursor.mark_delete(at("3:2")).result()
    cursor.close()
    assert log.trim() == [1, 2, 3]
    cursor = log.open_cursor("keep")
    with pytest.raises(BadInput):
        cursor.ack_each([at("4:0"), wrong])
    assert not cursor.is_acked(at("4:0"))
    cursor.ack_each([at("4:1"), at("1:1"), Position(1, 1 << 40)]).result()  # of a trimmed ledger nobody knows the size
    assert cursor.is_acked(at("4:1"))
