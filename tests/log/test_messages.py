"""Entries that stand for several messages, sizes without overhead, and when ledgers were made: all survive a restart."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.clock import ManualClock
from penstock.errors import BadInput
from penstock.log import Log, LogReader, LogSettings, Position, StateChange
from penstock.log.frames.format import MESSAGES_MAX
from penstock.operations.log.listing import summarize_log

SETTINGS = LogSettings(ledger_entries_max=4, preallocate_bytes=0, maintenance_interval_seconds=0)


def messages_of(reader: LogReader) -> list[int]:
    read = [entry.messages for entry in reader.read(reader.first, reader.end())]
    assert [info.messages for info in reader.scan(reader.first, reader.end())] == read
    return read


@pytest.mark.parametrize("before", [0, 300], ids=["in Python", "compiled"])
def test_messages_are_counted_across_restarts_rolls_and_truncations(tmp_path: Path, before: int) -> None:
    settings = LogSettings(ledger_entries_max=400, preallocate_bytes=0, maintenance_interval_seconds=0)
    counts = [1] * before + [1, 7, MESSAGES_MAX, 1, 300]
    with Log.open(tmp_path / "log", settings) as log:
        if before:
            log.append_many([b"one"] * before)
        pendings = [log.append(b"some", messages=count) for count in counts[before:]]
        positions = [pending.result() for pending in pendings]
        assert len(positions) == len(set(positions)) == 5
        assert messages_of(log.reader()) == counts
        assert log.statistics().messages == log.statistics().appended_messages == sum(counts)
        with LogReader.open(tmp_path / "log") as other:
            assert messages_of(other) == counts
            assert sum(view.messages for view in other.ledgers()) == sum(counts), "the open ledger, by its slot"
        log.roll()
        log.append(b"last", messages=9).result()
        assert log.statistics().messages == sum(counts) + 9
        with LogReader.open(tmp_path / "log") as other:
            assert [view.messages for view in other.ledgers()] == [sum(counts), 9]
    with Log.open(tmp_path / "log", settings) as log:
        assert messages_of(log.reader()) == [*counts, 9]
        assert log.statistics().messages == sum(counts) + 9
        log.truncate(positions[1])
        assert log.statistics().messages == sum(counts[: before + 2])
    with Log.open(tmp_path / "log", settings) as log:
        assert log.statistics().messages == before + 8


def test_recovery_counts_the_messages_of_a_ledger_that_nobody_sealed(tmp_path: Path) -> None:
    import subprocess
    import sys

    program = (
        "import os, pathlib, sys; from penstock.log import Log\n"
        "log = Log.open(pathlib.Path(sys.argv[1]))\n"
        "log.append(b'x', messages=5).result(); log.append(b'y').result(); os._exit(9)\n"
    )
    assert subprocess.run([sys.executable, "-c", program, tmp_path / "log"], check=False).returncode == 9
    with Log.open(tmp_path / "log", SETTINGS) as log:
        assert log.statistics().messages == 6
        assert log.reader().ledgers()[0].info.messages == 6


@pytest.mark.parametrize("wrong", [0, -1, MESSAGES_MAX + 1, 1.5, "1", None, True])
def test_a_count_that_cannot_be_is_refused_on_the_callers_thread(tmp_path: Path, wrong: object) -> None:
    with Log.open(tmp_path / "log", SETTINGS) as log:
        if wrong is not True:
            with pytest.raises(BadInput, match="messages"):
                log.append(b"x", messages=wrong)  # type: ignore[arg-type]
        assert log.append(b"x").result() == Position(1, 0)


def test_sizes_with_and_without_overhead_and_the_time_of_creation(tmp_path: Path) -> None:
    clock = ManualClock(5_000)
    with Log.open(tmp_path / "log", SETTINGS, clock=clock) as log:
        log.append(b"12345").result()
        clock.advance(10)
        log.append(b"123", (StateChange(1, b"k", b"v"),)).result()
        changes = log.statistics().body_bytes - 8
        assert 34 <= changes <= 40, "a state change as it is encoded"
        assert log.statistics().bytes == 64 + 2 * 68 + 8 + changes
        log.roll()
        log.append(b"1234567").result()
        made = [view.info.created_ms for view in log.reader().ledgers()]
        assert made == [5_000, 15_000]
    found = summarize_log(tmp_path / "log")
    assert [view.info.created_ms for view in found.ledgers] == [5_000, 15_000]
    assert [view.body_bytes for view in found.ledgers] == [8 + changes, 7]
    assert (found.body_bytes, found.messages, found.entries) == (15 + changes, 3, 3)
