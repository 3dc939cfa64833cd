"""Cursors through their public interface."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.errors import BadInput, Corruption, Unavailable
from penstock.log import (
    Cursor,
    Log,
    LogReader,
    LogSettings,
    Position,
    wait_all,
)
from tests.log.cursors.support import at
from tests.support.budget import scaled


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    """Ledgers 1 to 4 with three entries each, and two in ledger 5, which is open."""
    log = Log.open(tmp_path / "log", LogSettings(ledger_entries_max=3, preallocate_bytes=0))
    wait_all([log.append(b"x") for _ in range(14)])
    yield log
    log.close()


@pytest.fixture
def reader(tmp_path: Path, log: Log) -> Iterator[LogReader]:
    reader = LogReader.open(tmp_path / "log")
    yield reader
    reader.close()


def test_acks_out_of_order_move_the_mark_delete_across_ledgers(tmp_path: Path, reader: LogReader) -> None:
    cursor = Cursor.open(reader, tmp_path / "cursors", "c")
    assert cursor.mark_delete_position == at("1:-1")
    assert cursor.backlog() == 14
    cursor.ack(at("1:1"), at("3:0")).result()
    assert cursor.mark_delete_position == at("1:-1")
    assert cursor.backlog() == 8
    assert not cursor.is_acked(at("1:0"))
    assert cursor.is_acked(at("2:2"))
    cursor.ack(at("1:0"), at("1:0")).result()
    assert cursor.mark_delete_position == at("3:0")
    assert cursor.backlog() == 7
    cursor.ack(at("3:1"), at("3:2")).result()
    assert cursor.mark_delete_position == at("3:2")
    cursor.ack(at("1:0"), at("2:0")).result()  # again: fine, and nothing moves
    assert cursor.mark_delete_position == at("3:2")
    cursor.close()
    again = Cursor.open(reader, tmp_path / "cursors", "c", start="latest")
    assert again.mark_delete_position == at("3:2")
    assert again.epoch == cursor.epoch + 1
    again.close()


def test_acks_survive_without_a_close(tmp_path: Path, reader: LogReader) -> None:
    import shutil

    cursor = Cursor.open(reader, tmp_path / "cursors", "c")
    cursor.ack(at("1:2"), at("1:2")).result()
    cursor.ack(at("4:0"), at("5:0")).result()
    shutil.copytree(tmp_path / "cursors", tmp_path / "copy")  # as kill -9 leaves it
    cursor.close()
    again = Cursor.open(reader, tmp_path / "copy", "c")
    acked = [p for p in (e.position for e in reader.read(reader.first, reader.end())) if again.is_acked(p)]
    assert acked == [at(p) for p in ("1:2", "4:0", "4:1", "4:2", "5:0")]
    assert list(again.holes()) == [(at("1:2"), at("1:2")), (at("4:0"), at("4:2")), (at("5:0"), at("5:0"))]
    again.close()


def test_mark_delete(tmp_path: Path, reader: LogReader, log: Log) -> None:
    cursor = Cursor.open(reader, tmp_path / "cursors", "c")
    cursor.ack(at("3:0"), at("3:1")).result()
    cursor.mark_delete(at("2:2")).result()
    assert cursor.mark_delete_position == at("3:1")  # the last of ledger 2 and the start of ledger 3 are the same place
    with pytest.raises(BadInput, match="cannot go back to 2:0"):
        cursor.mark_delete(at("2:0"))
    cursor.mark_delete(at("4:-1")).result()
    assert cursor.mark_delete_position == at("3:2")
    assert cursor.backlog() == 5
    cursor.mark_delete(log.end()).result()
    assert cursor.backlog() == 0
    log.append(b"more").result()
    assert cursor.backlog() == 1
    cursor.close()


def test_beyond_the_end_is_refused_and_changes_nothing(tmp_path: Path, reader: LogReader) -> None:
    cursor = Cursor.open(reader, tmp_path / "cursors", "c")
    for first, last in (("5:1", "5:2"), ("1:0", "6:0"), ("9:0", "9:0"), ("1:3", "1:3")):
        with pytest.raises(BadInput, match="ends at"):
            cursor.ack(at(first), at(last))
    with pytest.raises(BadInput, match="ends at"):
        cursor.mark_delete(at("5:2"))
    with pytest.raises(BadInput):
        cursor.ack(at("2:0"), at("1:0"))
    assert cursor.mark_delete_position == at("1:-1")
    assert cursor.backlog() == 14
    cursor.close()


def test_where_a_new_cursor_starts(tmp_path: Path, reader: LogReader) -> None:
    starts = {"a": ("earliest", 14), "b": ("latest", 0), "c": (at("4:1"), 3)}
    for name, (start, backlog) in starts.items():
        cursor = Cursor.open(reader, tmp_path / "cursors", name, start)  # type: ignore[arg-type]
        assert cursor.backlog() == backlog
        cursor.close()
    with pytest.raises(BadInput, match="ends at"):
        Cursor.open(reader, tmp_path / "cursors", "d", at("7:0"))


def test_one_owner_and_no_silent_restart(tmp_path: Path, reader: LogReader) -> None:
    cursor = Cursor.open(reader, tmp_path / "cursors", "c")
    with pytest.raises(Unavailable):
        Cursor.open(reader, tmp_path / "cursors", "c")
    cursor.close()
    for path in (tmp_path / "cursors").iterdir():
        path.unlink()
    with pytest.raises(Corruption, match="registered"):
        Cursor.open(reader, tmp_path / "cursors", "c")


def test_the_record_log_of_a_busy_cursor_stays_small(tmp_path: Path) -> None:
    log = Log.open(tmp_path / "log", LogSettings(preallocate_bytes=0))
    wait_all([log.append(b"x") for _ in range(100)])
    cursor = Cursor.open(log.reader(), tmp_path / "cursors", "c")
    position = Position(1, 50)
    for _ in range(20):
        wait_all([cursor.ack(position, position) for _ in range(1000)])
    cursor.close()
    (generation,) = (tmp_path / "cursors").glob("*.rlog")
    assert generation.stat().st_size < 1_300_000  # of 20,000 records of 101 bytes
    again = Cursor.open(log.reader(), tmp_path / "cursors", "c")
    assert again.is_acked(position)
    assert again.backlog() == 99
    again.close()
    log.close()


POSITIONS = [Position(ledger, entry) for ledger in range(1, 5) for entry in range(3)] + [Position(5, 0), Position(5, 1)]
STEPS = st.lists(
    st.tuples(st.sampled_from(["ack", "mark", "reopen"]), st.integers(0, 13), st.integers(0, 4)), max_size=30
)


@given(steps=STEPS)
@settings(max_examples=scaled(25), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_cursor_agrees_with_a_set(
    tmp_path_factory: pytest.TempPathFactory, reader: LogReader, steps: list[tuple[str, int, int]]
) -> None:
    directory = tmp_path_factory.mktemp("cursors")
    name = directory.name  # a name of its own: cursors are registered with the log
    cursor = Cursor.open(reader, directory, name)
    model: set[int] = set()
    for action, first, length in steps:
        last = min(first + length, 13)
        before = cursor.mark_delete_position
        if action == "reopen":
            cursor.close()
            cursor = Cursor.open(reader, directory, name)
        elif action == "ack":
            cursor.ack(POSITIONS[first], POSITIONS[last]).result()
            model |= set(range(first, last + 1))
        elif POSITIONS[first] >= before:
            cursor.mark_delete(POSITIONS[first]).result()
            model |= set(range(first + 1))
        assert [cursor.is_acked(p) for p in POSITIONS] == [n in model for n in range(14)]
        assert cursor.backlog() == 14 - len(model)
        gap = next((n for n in range(15) if n not in model), 14)
        assert cursor.mark_delete_position == (POSITIONS[gap - 1] if gap else Position(1, -1))
        assert cursor.mark_delete_position >= before
    cursor.close()
