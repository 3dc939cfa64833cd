"""What a cursor reads, finds and skips: through the public interface, over ledgers of three entries."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.clock import ManualClock
from penstock.errors import BadInput, Closed
from penstock.log import (
    Cursor,
    CursorTable,
    Log,
    LogReader,
    LogSettings,
    Position,
    Terminated,
    wait_all,
)
from tests.log.cursors.support import at, values
from tests.support.waiting import LIMIT_SECONDS

SETTINGS = LogSettings(
    ledger_entries_max=3, preallocate_bytes=0, retention_seconds=None, maintenance_interval_seconds=0
)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1_000_000)


@pytest.fixture
def log(tmp_path: Path, clock: ManualClock) -> Iterator[Log]:
    """Ledgers 1 to 4 with three entries each and two in ledger 5; entry n holds n and is written at second n."""
    log = Log.open(tmp_path / "log", SETTINGS, clock=clock)
    for number in range(14):
        log.append(b"%d" % number).result()
        clock.advance(1)
    yield log
    log.close()


def test_earliest_reads_the_first_entry_and_latest_what_comes(log: Log) -> None:
    assert values(log.open_cursor("a", "earliest"), 1) == [0]
    latest = log.open_cursor("b", "latest")
    assert latest.read() == []
    assert not latest.has_more()
    log.append(b"14").result()
    assert latest.has_more()
    assert values(latest) == [14]
    assert values(log.open_cursor("c", at("4:1"))) == [11, 12, 13, 14]


def test_reads_in_steps_each_entry_once(log: Log) -> None:
    cursor = log.open_cursor("c")
    assert [values(cursor, 5) for _ in range(4)] == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9], [10, 11, 12, 13], []]
    assert cursor.backlog() == 14
    cursor.rewind()
    assert values(cursor, 2) == [0, 1]
    cursor.mark_delete(at("3:0")).result()
    cursor.rewind()
    assert values(cursor, 2) == [7, 8]


def test_reads_up_to_bytes_an_end_and_over_what_is_skipped(log: Log) -> None:
    cursor = log.open_cursor("c")
    assert values(cursor, max_bytes=3) == [0, 1, 2]
    assert values(cursor, max_bytes=1) == [3]
    assert values(cursor, end=at("3:0")) == [4, 5, 6]
    assert values(cursor, end=at("3:0")) == []
    assert values(cursor, skip=lambda position: position.entry_id == 0) == [7, 8, 10, 11, 13]
    assert cursor.backlog() == 14
    for wrong in ({"max_entries": 0}, {"max_bytes": 0}):
        with pytest.raises(BadInput):
            cursor.read(**wrong)  # type: ignore[arg-type]


def test_never_empty_while_something_is_unacked(log: Log) -> None:
    cursor = log.open_cursor("c")
    cursor.ack(at("1:0"), at("4:2")).result()
    cursor = reopen(log, "c")
    assert values(cursor, 1) == [12]
    other = log.open_cursor("o")
    other.ack_each([at("1:0"), at("1:1"), at("2:1"), at("4:2"), at("5:0")]).result()
    other.rewind()
    assert [values(other, 1)[0] for _ in range(9)] == [2, 3, 5, 6, 7, 8, 9, 10, 13]
    assert other.read() == []


def reopen(log: Log, name: str) -> Cursor:
    log.open_cursor(name).close()
    return log.open_cursor(name)


def test_acking_a_list_never_acks_its_gaps(log: Log) -> None:
    cursor = log.open_cursor("c")
    cursor.ack_each([at("2:2"), at("1:0"), at("1:2"), at("4:0")]).result()
    assert cursor.mark_delete_position == at("1:0")
    assert cursor.backlog() == 10
    again = reopen(log, "c")
    assert values(again) == [1, 3, 4, 6, 7, 8, 10, 11, 12, 13]
    assert again.hole_count() == 3
    with pytest.raises(BadInput, match="ends at"):
        again.ack_each([at("1:1"), at("5:2")])
    with pytest.raises(BadInput):
        again.ack_each([at("1:1"), at("2:-1")])
    assert not again.is_acked(at("1:1"))
    assert reopen(log, "c").backlog() == 10


def test_the_end_of_a_ledger_and_the_start_of_the_next_are_one_place(log: Log) -> None:
    for number, position in enumerate((at("2:2"), at("3:-1"))):
        cursor = log.open_cursor(f"c{number}")
        cursor.mark_delete(position).result()
        assert cursor.backlog() == 8
        cursor.rewind()
        assert values(cursor, 1) == [6]
        again = log.open_cursor(f"start{number}", position)
        assert again.backlog() == 8
        assert values(again, 1) == [6]
        again.seek(position)
        assert values(again, 1) == [6]


def test_skip_seek_and_reset_across_ledgers(log: Log) -> None:
    cursor = log.open_cursor("c")
    cursor.ack_each([at("1:1"), at("2:0")]).result()
    cursor.skip(4).result()  # 0, 2, 4, 5
    assert cursor.mark_delete_position == at("2:2")
    assert values(cursor, 2) == [6, 7]
    cursor.skip(0).result()
    assert cursor.mark_delete_position == at("2:2")
    cursor.seek(at("1:1"))
    assert cursor.read_position == at("1:1")
    assert values(cursor, 1) == [6]  # what is acked stays acked
    cursor.seek(at("4:2"))
    assert values(cursor) == [11, 12, 13]
    assert reopen(log, "c").mark_delete_position == at("2:2")  # a seek is memory alone
    cursor = log.open_cursor("c")
    cursor.ack(at("5:0")).result()
    cursor.reset(at("2:1")).result()
    assert cursor.backlog() == 10
    assert values(cursor) == [4, 5, 6, 7, 8, 9, 10, 11, 12, 13]
    cursor = reopen(log, "c")
    assert cursor.backlog() == 10
    assert values(cursor, 1) == [4]
    cursor.reset("latest").result()
    assert reopen(log, "c").backlog() == 0
    log.open_cursor("c").reset("earliest").result()
    assert values(reopen(log, "c"), 1) == [0]
    cursor = log.open_cursor("c")
    cursor.skip(100).result()
    assert cursor.backlog() == 0
    with pytest.raises(BadInput):
        cursor.skip(-1)


def test_a_reset_comes_between_the_acks_around_it(log: Log) -> None:
    cursor = log.open_cursor("c")
    waiting = [
        cursor.ack(at("1:0")),
        cursor.ack(at("3:0")),
        cursor.reset(at("1:1")),
        cursor.ack(at("4:0")),
    ]
    wait_all(waiting)
    assert values(reopen(log, "c")) == [1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 12, 13]


def test_find_newest(log: Log) -> None:
    cursor = log.open_cursor("c")
    looked: list[int] = []

    def up_to(limit: int) -> Position | None:
        def matches(entry: object) -> bool:
            number = int(bytes(entry.data))  # type: ignore[attr-defined]
            looked.append(number)
            return number <= limit

        return cursor.find_newest(matches)

    assert up_to(7) == at("3:1")
    assert len(looked) <= 5  # a binary search over 14
    assert up_to(-1) is None
    assert up_to(0) == at("1:0")
    assert up_to(99) == at("5:1")
    cursor.mark_delete(at("2:0")).result()
    assert up_to(2) is None
    assert cursor.find_newest(lambda entry: int(bytes(entry.data)) <= 2, everywhere=True) == at("1:2")


def test_find_by_time_and_earliest_time(log: Log) -> None:
    cursor = log.open_cursor("c")
    assert cursor.earliest_ms() == 1_000_000
    for second, expected in ((0, "1:0"), (4, "2:1"), (8, "3:2"), (13, "5:1"), (99, "5:1")):
        assert cursor.find_newest_by_time(1_000_000 + 1000 * second) == at(expected)
        assert cursor.find_newest_by_time(1_000_999 + 1000 * second) == at(expected)
    assert cursor.find_newest_by_time(999_999) is None
    cursor.mark_delete(at("2:0")).result()
    assert cursor.earliest_ms() == 1_004_000
    assert cursor.find_newest_by_time(1_002_000) is None
    assert cursor.find_newest_by_time(1_002_000, everywhere=True) == at("1:2")
    cursor.clear_backlog().result()
    assert cursor.earliest_ms() is None
    assert cursor.backlog() == 0


def test_nth_and_replay(log: Log) -> None:
    cursor = log.open_cursor("c")
    cursor.ack_each([at("1:1"), at("2:2")]).result()
    found = [cursor.nth(number) for number in (1, 2, 4, 12, 13)]
    assert [entry and int(bytes(entry.data)) for entry in found] == [0, 2, 4, 13, None]
    with pytest.raises(BadInput):
        cursor.nth(0)
    values(cursor, 3)
    before = cursor.read_position
    replayed = cursor.replay([at("3:1"), at("1:0"), at("1:1"), at("1:0")])
    assert [int(bytes(entry.data)) for entry in replayed] == [0, 7]
    assert cursor.read_position == before


def test_backlog_in_bytes(tmp_path: Path) -> None:
    log = Log.open(tmp_path / "sizes", SETTINGS)
    sizes = [1, 20, 300, 4000, 5, 60, 700, 8]
    wait_all([log.append(b"x" * size) for size in sizes])
    cursor = log.open_cursor("c")
    assert cursor.backlog_bytes() == sum(sizes)
    cursor.ack(at("2:0")).result()
    assert cursor.backlog_bytes() == sum(sizes) - 4000
    cursor.mark_delete(at("1:1")).result()
    assert cursor.backlog_bytes() == sum(sizes) - 4021
    log.append(b"x" * 90).result()
    assert cursor.backlog_bytes() == sum(sizes) - 4021 + 90
    log.close()


def test_wait_is_woken_by_an_append(log: Log) -> None:
    cursor = log.open_cursor("c", "latest")
    got: list[list[int]] = []
    thread = threading.Thread(
        target=lambda: got.append([int(bytes(e.data)) for e in cursor.read_or_wait(timeout=LIMIT_SECONDS)])
    )
    thread.start()
    time.sleep(0.05)
    log.append(b"77").result()
    thread.join(LIMIT_SECONDS)
    assert got == [[77]]


def test_wait_from_a_process_that_only_reads(tmp_path: Path, log: Log) -> None:
    reader = LogReader.open(tmp_path / "log")
    table = CursorTable(reader)
    cursor = table.open("far", "latest")
    got: list[list[int]] = []
    thread = threading.Thread(
        target=lambda: got.append([int(bytes(e.data)) for e in cursor.read_or_wait(timeout=LIMIT_SECONDS)])
    )
    thread.start()
    time.sleep(0.05)
    position = log.append(b"78").result()
    thread.join(LIMIT_SECONDS)
    assert got == [[78]]
    cursor.mark_delete(position).result()
    assert [info.name for info in log.cursors()] == ["far"]
    table.close()
    assert [info.mark_delete for info in log.cursors()] == [position]
    reader.close()


def test_wait_ends_by_timeout_cancel_and_close(log: Log) -> None:
    cursor = log.open_cursor("c", "latest")
    started = time.monotonic()
    assert cursor.read_or_wait(timeout=0.05) == []
    assert time.monotonic() - started < LIMIT_SECONDS
    got: list[object] = []

    def wait() -> None:
        try:
            got.append(cursor.read_or_wait(timeout=LIMIT_SECONDS))
        except Closed as error:
            got.append(error)

    for end in (cursor.cancel_reads, cursor.close):
        thread = threading.Thread(target=wait)
        thread.start()
        time.sleep(0.05)
        end()
        thread.join(LIMIT_SECONDS)
        assert not thread.is_alive()
    assert got[0] == []
    assert isinstance(got[1], Closed)
    with pytest.raises(Closed):
        cursor.ack(at("1:0"))


def test_terminated(log: Log) -> None:
    """`read` returns [], `read_or_wait` raises; what is there can still be read and acked."""
    cursor, late = log.open_cursor("c"), log.open_cursor("late", "latest")
    failed: list[BaseException] = []

    def wait() -> None:
        try:
            late.read_or_wait(timeout=LIMIT_SECONDS)
        except Terminated as error:
            failed.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    time.sleep(0.05)
    log.terminate()
    thread.join(LIMIT_SECONDS)
    assert len(failed) == 1
    assert len(cursor.read_or_wait(timeout=LIMIT_SECONDS)) == 14
    assert cursor.read() == []
    with pytest.raises(Terminated):
        cursor.read_or_wait(timeout=LIMIT_SECONDS)
    cursor.mark_delete(log.end()).result()
    assert cursor.backlog() == 0


def test_older_mark_delete_and_beyond_the_end(log: Log) -> None:
    cursor = log.open_cursor("c")
    cursor.mark_delete(at("2:1")).result()
    with pytest.raises(BadInput, match="cannot go back"):
        cursor.mark_delete(at("2:0"))
    for wrong in (at("5:2"), at("6:0"), at("2:3")):
        with pytest.raises(BadInput, match="ends at"):
            cursor.mark_delete(wrong)
        with pytest.raises(BadInput, match="ends at"):
            cursor.ack(wrong)
    assert cursor.mark_delete_position == at("2:1")
    assert reopen(log, "c").backlog() == 9


def test_a_cursor_that_is_not_durable(log: Log) -> None:
    cursor = log.open_cursor("c", "earliest", durable=False)
    assert values(cursor, 3) == [0, 1, 2]
    cursor.ack_each([at("1:0"), at("1:2")]).result()
    assert cursor.mark_delete_position == at("1:0")
    cursor.mark_delete(at("2:0")).result()
    assert cursor.backlog() == 10
    cursor.reset(at("1:1")).result()
    assert values(cursor, 1) == [1]
    assert not cursor.durable
    assert log.cursors() == []
    assert log.open_cursor("c", durable=False) is not cursor
