"""The log through its public interface, on real files."""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path

import pytest

from penstock.clock import ManualClock
from penstock.errors import BadInput, Closed, Fenced, Unavailable
from penstock.files import RealFiles
from penstock.log import Log, LogReader, LogSettings, Position, StateChange, wait_all
from penstock.log.ledgers.footer import read_footer
from penstock.log.ledgers.info import ledger_path
from tests.support.files import CountingFiles, UnlockedFiles

SMALL = LogSettings(ledger_entries_max=3, preallocate_bytes=4096)


def read_all(reader: LogReader) -> list[bytes]:
    return [bytes(entry.data) for entry in reader.read(reader.first, reader.end())]


def test_what_was_appended_is_there_after_reopen(tmp_path: Path) -> None:
    log = Log.open(tmp_path / "log", clock=ManualClock(5_000))
    assert log.end() == Position(1, -1)
    changes = (StateChange(1, b"k", b"v"), StateChange(1, b"gone", None), StateChange(2, b"", b""))
    first = log.append(b"one", changes).result()
    second = log.append([b"tw", bytearray(b"o"), memoryview(b"!")]).result()
    third = log.append(b"", changes[:1]).result()
    assert (first, second, third) == (Position(1, 0), Position(1, 1), Position(1, 2))
    assert log.end() == third
    log.close()
    again = Log.open(tmp_path / "log")
    assert again.uuid == log.uuid
    assert again.epoch == log.epoch + 1
    assert again.end() == third
    entries = list(again.read(first, third))
    assert [(bytes(e.data), e.changes, e.wall_ms) for e in entries] == [
        (b"one", changes, 5_000),
        (b"two!", (), 5_000),
        (b"", changes[:1], 5_000),
    ]
    assert again.append(b"four").result() > third
    again.close()


def test_many_outstanding_appends_keep_their_order(tmp_path: Path) -> None:
    log = Log.open(tmp_path / "log", LogSettings(ledger_bytes_max=50_000))
    expected = [b"%d" % number * (number % 90 + 1) for number in range(3000)]
    positions = wait_all([log.append(data) for data in expected])
    assert positions == sorted(set(positions))
    assert len({position.ledger_id for position in positions}) > 2
    assert read_all(log.reader()) == expected
    log.close()


def test_reads_across_ledgers(tmp_path: Path) -> None:
    log = Log.open(tmp_path / "log", SMALL)
    positions = wait_all([log.append(b"%d" % n) for n in range(8)])
    reader = LogReader.open(tmp_path / "log")
    assert [str(p) for p in positions] == ["1:0", "1:1", "1:2", "2:0", "2:1", "2:2", "3:0", "3:1"]

    def read(start: str, end: str, max_bytes: int | None = None) -> str:
        return b"".join(e.data for e in reader.read(Position.parse(start), Position.parse(end), max_bytes)).decode()

    assert read("1:0", "3:1") == "01234567"
    assert read("1:2", "2:0") == "23"
    assert read("2:-1", "2:1") == "34"
    assert read("1:3", "2:0") == "3"  # (1, 3) is the address after (1, 2)
    assert read("1:-1", "2:-1") == "012"
    assert read("3:1", "3:1") == "7"
    assert read("1:1", "3:1", max_bytes=2) == "12"
    assert [reader.next(Position.parse(p)) for p in ("1:-1", "1:2", "2:1", "3:1")] == [
        Position(1, 0),
        Position(2, 0),
        Position(2, 2),
        Position(3, 2),
    ]
    with pytest.raises(BadInput, match="beyond the durable end"):
        list(reader.read(Position(1, 0), Position(3, 2)))
    assert [(i.position, i.data_bytes) for i in reader.scan(Position(1, 2), Position(2, 0))] == [
        (Position(1, 2), 1),
        (Position(2, 0), 1),
    ]
    log.close()
    assert read("1:0", "3:1") == "01234567"  # the same reader, after the ledger under it was sealed
    reader.close()


def test_seek_in_a_long_open_ledger(tmp_path: Path) -> None:
    log = Log.open(tmp_path / "log")
    wait_all([log.append(b"%d" % n) for n in range(2000)])
    for start in (1500, 3, 1999, 700):
        reader = LogReader.open(tmp_path / "log")
        for _ in range(2):  # the second time from what the reader remembers
            entries = list(reader.read(Position(1, start), Position(1, min(start + 5, 1999))))
            assert [bytes(e.data) for e in entries] == [b"%d" % n for n in range(start, min(start + 6, 2000))]
        reader.close()
    log.close()


def test_a_new_reader_does_not_walk_from_the_head_of_the_open_ledger(tmp_path: Path) -> None:
    log = Log.open(tmp_path / "log")
    for first in range(0, 16_000, 500):
        wait_all([log.append(b"%d " % n + bytes(1000)) for n in range(first, first + 500)])
    files = CountingFiles()
    for wanted in (15_900, 7_000, 100):
        reader = LogReader.open(tmp_path / "log", files)
        files.bytes_read = 0
        (entry,) = reader.read(Position(1, wanted), Position(1, wanted))
        assert bytes(entry.data).startswith(b"%d " % wanted)
        assert files.bytes_read < 3 << 20
        reader.close()
    log.close()


def test_a_sealed_ledger_has_its_index_and_times(tmp_path: Path) -> None:
    clock = ManualClock(1_000)
    log = Log.open(tmp_path / "log", SMALL, clock=clock)
    for n in range(4):
        log.append(b"x" * n).result()
        clock.advance(1)
    view = log.reader().ledgers()[0]
    assert (view.info.state, view.entries, view.info.first_ms, view.info.last_ms) == ("sealed", 3, 1_000, 3_000)
    file = RealFiles().open(ledger_path(tmp_path / "log", 1))
    footer = read_footer(file, view.info)
    assert footer.offsets.tolist() == [64, 64 + 68, 64 + 68 + 69]
    assert footer.times.tolist() == [[1_000, 0], [3_000, 2]]
    file.close()
    log.close()


def test_ledger_numbers_are_never_used_twice_and_empty_ledgers_go(tmp_path: Path) -> None:
    seen: list[int] = []
    for _ in range(4):
        log = Log.open(tmp_path / "log")
        seen.append(log.reader().ledgers()[-1].info.id)
        log.close()
    assert seen == sorted(set(seen))
    assert not list((tmp_path / "log").glob("ledger-*"))
    log = Log.open(tmp_path / "log")
    assert log.append(b"x").result().ledger_id > seen[-1]
    log.close()


def test_a_second_process_cannot_open_while_the_first_lives(tmp_path: Path) -> None:
    log = Log.open(tmp_path / "log")
    with pytest.raises(Unavailable, match="in use"):
        Log.open(tmp_path / "log", files=RealFiles())  # another file system object: as another process sees it
    log.append(b"fine").result()
    log.close()


def test_a_deposed_owner_is_fenced_for_good(tmp_path: Path) -> None:
    first = Log.open(tmp_path / "log", files=UnlockedFiles())
    kept = first.append(b"kept").result()
    second = Log.open(tmp_path / "log", files=UnlockedFiles())
    assert second.epoch == first.epoch + 1
    with pytest.raises(Fenced):
        first.append(b"never").result()
    with pytest.raises(Fenced):
        first.append(b"never").result()
    new = second.append(b"new").result()
    with contextlib.suppress(Fenced):
        first.close()
    assert [bytes(e.data) for e in second.read(kept, new)] == [b"kept", b"new"]
    second.close()
    third = Log.open(tmp_path / "log")
    assert read_all(third.reader()) == [b"kept", b"new"]
    third.close()


def test_there_is_no_log_yet(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="no metadata"):
        LogReader.open(tmp_path / "log")


def test_close_amid_appends_completes_every_future(tmp_path: Path) -> None:
    log = Log.open(tmp_path / "log")
    pendings = [log.append(b"x" * 1000) for _ in range(100)]
    called = []
    for pending in pendings:
        pending.add_done_callback(lambda p: called.append(p.result(0)))
    log.close()
    assert all(pending.done() for pending in pendings)
    assert called == [pending.result(0) for pending in pendings]
    with pytest.raises(Closed):
        log.append(b"late")
    assert not [t for t in threading.enumerate() if t.name.startswith(f"log {tmp_path}")]


def test_memory_is_bounded_by_what_waits(tmp_path: Path) -> None:
    log = Log.open(tmp_path / "log", LogSettings(waiting_bytes_max=100_000))
    data = bytes(60_000)
    pendings = [log.append(data) for _ in range(50)]  # waits for room again and again, and comes through
    assert len({pending.result() for pending in pendings}) == 50
    log.close()
