"""Skipping what cannot be read: exactly that, on demand alone, in one step, and everybody is told."""

from __future__ import annotations

import contextlib
import errno
import logging
import random
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from penstock.errors import BadInput, Corruption, PenstockError, Unavailable
from penstock.files import File, RealFiles
from penstock.files.memory import MemoryFiles, PowerCut
from penstock.log import Log, LogReader, LogSettings, Position, skip_closed
from penstock.log.cursors.table import CursorTable
from penstock.log.ledgers.info import ledger_path
from penstock.log.read.cache import cache_for, cache_key
from penstock.metadata import MemoryMetadata, Operation
from penstock.observe.metrics import METRICS
from penstock.operations.log.verify import verify_log

SETTINGS = LogSettings(ledger_entries_max=10, preallocate_bytes=0, maintenance_interval_seconds=0)
FRAME = 64 + 5 + 4


def passed_over() -> float:
    return METRICS.registry.get_sample_value("penstock_log_passed_over_entries_total") or 0.0


def data(number: int) -> bytes:
    return b"%05d" % number


def damage(path: Path, entry: int, at: int = 66, *, size: int = 1) -> None:
    """Changes bytes of the entry: of its data, or with a low `at` of its header."""
    raw = bytearray(path.read_bytes())
    for byte in range(64 + entry * FRAME + at, 64 + entry * FRAME + at + size):
        raw[byte] ^= 0xFF
    path.write_bytes(raw)


def made(directory: Path, entries: int = 25) -> None:
    with Log.open(directory, SETTINGS) as log:
        cursor = log.open_cursor("behind")
        log.open_cursor("done")
        for number in range(entries):
            log.append(data(number)).result()
        cursor.ack(Position(1, 0), Position(1, 3)).result()
        cursor.ack(Position(2, 4)).result()
        log.open_cursor("done").clear_backlog().result()


def read(directory: Path) -> list[bytes]:
    with LogReader.open(directory) as reader:
        return [bytes(entry.data) for entry in reader.read(reader.first, reader.end())]


@pytest.mark.parametrize("at", [66, 0], ids=["its data", "its header"])
@pytest.mark.parametrize("footer", [True, False])
def test_only_what_cannot_be_read_is_lost(tmp_path: Path, at: int, footer: bool) -> None:
    made(tmp_path / "log")
    path = ledger_path(tmp_path / "log", 2)
    for entry in (3, 4, 7):
        damage(path, entry, at)
    if not footer:
        path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(Corruption):
        read(tmp_path / "log")
    before = (path.read_bytes(), (tmp_path / "metadata.sqlite").read_bytes())
    would = skip_closed(tmp_path / "log", 2, dry_run=True)
    assert (path.read_bytes(), (tmp_path / "metadata.sqlite").read_bytes()) == before
    with pytest.raises(Corruption):
        read(tmp_path / "log")
    lost = skip_closed(tmp_path / "log", 2)
    assert lost == would
    assert lost.ranges == ((Position(2, 3), Position(2, 4)), (Position(2, 7), Position(2, 7)))
    assert (lost.entries, lost.entries_kept, lost.bytes) == (3, 7, 3 * FRAME)
    assert lost.cursors == {"behind": 2}, "it had acked one of the three"
    kept = [data(number) for number in range(25) if number not in {13, 14, 17}]
    told = passed_over()
    assert read(tmp_path / "log") == kept
    assert passed_over() - told == 3
    with Log.open(tmp_path / "log", SETTINGS) as log:
        assert log.statistics().skipped_entries == 3
        cursor = log.open_cursor("behind")
        assert cursor.backlog() == len(kept) - 4
        assert [bytes(entry.data) for entry in cursor.read(100)] == kept[4:]
        assert log.open_cursor("done").backlog() == 0
        assert cursor.backlog_bytes() == 5 * (len(kept) - 4)
        for wanted in kept:
            found = log.reader().find_newest(lambda one, upto=wanted: bytes(one.data) <= upto)  # type: ignore[misc]
            assert found is not None
            assert bytes(next(log.read(found, found)).data) == wanted
        assert log.reader().find_by_time(1 << 60) == log.end()
        cursor.reset("earliest").result()
        assert [bytes(entry.data) for entry in cursor.read(100)] == kept, "a reset does not bring them back"
        cursor.clear_backlog().result()
        log.append(b"after").result()
        assert [bytes(entry.data) for entry in cursor.read(100)] == [b"after"]
        log.truncate(Position(2, 4), force=True)
        assert read(tmp_path / "log") == kept[:13]
    assert verify_log(tmp_path / "log").sound, "what was given up is no fault any more"
    with pytest.raises(BadInput, match="can be read, or was skipped before"):
        skip_closed(tmp_path / "log", 2)


def test_a_ledger_that_is_gone_is_skipped_as_a_whole(tmp_path: Path) -> None:
    made(tmp_path / "log")
    ledger_path(tmp_path / "log", 2).unlink()
    assert not verify_log(tmp_path / "log").sound
    lost = skip_closed(tmp_path / "log", 2)
    assert lost.ranges == ((Position(2, 0), Position(2, 9)),)
    assert (lost.entries, lost.entries_kept, lost.cursors) == (10, 0, {"behind": 9})
    assert read(tmp_path / "log") == [data(number) for number in (*range(10), *range(20, 25))]
    assert verify_log(tmp_path / "log").sound
    with Log.open(tmp_path / "log", LogSettings(retention_seconds=0, maintenance_interval_seconds=0)) as log:
        for name in ("behind", "done"):
            log.open_cursor(name).clear_backlog().result()
        log.append(b"x").result()
        log.roll()
        assert 2 in log.trim()


def test_a_log_that_cannot_be_opened_is_opened_again(tmp_path: Path) -> None:
    """Its owner was killed, and an acknowledged entry of the ledger that it had open is damaged."""
    log = Log.open(tmp_path / "live" / "log", SETTINGS)
    for number in range(15):
        log.append(data(number)).result()
    shutil.copytree(tmp_path / "live", tmp_path / "state")
    log.close()
    directory = tmp_path / "state" / "log"
    damage(ledger_path(directory, 2), 1)
    with pytest.raises(Corruption):
        Log.open(directory, SETTINGS)
    lost = skip_closed(directory, 2)
    assert lost.ranges == ((Position(2, 1), Position(2, 1)),)
    with Log.open(directory, SETTINGS) as again:
        assert again.end() == Position(2, 4)
        assert again.append(b"after").result() > Position(2, 4)
        kept = [data(number) for number in range(15) if number != 11]
        assert read(directory) == [*kept, b"after"]


def left_open(root: Path, entries: int = 15) -> Path:
    """A log whose owner was killed while it wrote ledger 2."""
    log = Log.open(root / "live" / "log", SETTINGS)
    for number in range(entries):
        log.append(data(number)).result()
    shutil.copytree(root / "live", root / "state")
    log.close()
    return root / "state" / "log"


@pytest.mark.parametrize("ledger", [1, 2])
def test_a_damaged_file_header_costs_no_entry(tmp_path: Path, ledger: int) -> None:
    """The list vouches for the file, and its frames for themselves: in a sealed ledger and in one that is recovered."""
    directory = left_open(tmp_path)
    path = ledger_path(directory, ledger)
    path.write_bytes(b"\xff" * 64 + path.read_bytes()[64:])
    assert not verify_log(directory).sound, "an operator is told"
    with pytest.raises(BadInput, match="nothing to skip"):
        skip_closed(directory, ledger, dry_run=True)
    with Log.open(directory, SETTINGS) as log:
        assert log.end() == Position(2, 4)
        assert read(directory) == [data(number) for number in range(15)]
        with pytest.raises(BadInput, match="nothing to skip"):
            log.skip(ledger)


@pytest.mark.parametrize("ledger", [1, 2])
def test_the_file_of_another_log_is_given_up_as_a_whole(tmp_path: Path, ledger: int) -> None:
    """What no reader reads can be skipped, so that the log can be opened."""
    directory, other = left_open(tmp_path), tmp_path / "other" / "log"
    made(other)
    shutil.copy(ledger_path(other, ledger), ledger_path(directory, ledger))
    if ledger == 2:
        with pytest.raises(Corruption, match="belongs to"):
            Log.open(directory, SETTINGS)
    with pytest.raises(Corruption, match="belongs to"):
        read(directory)
    assert skip_closed(directory, ledger).entries == (10 if ledger == 1 else 5)
    kept = range(10, 15) if ledger == 1 else range(10)
    with Log.open(directory, SETTINGS):
        assert read(directory) == [data(number) for number in kept]
    assert verify_log(directory).sound


@pytest.mark.parametrize("seed", range(8))
def test_what_a_skip_seals_survives_a_power_cut(seed: int) -> None:
    """Whole frames above the published end may be in the page cache alone. The list counts them, so they are synced first."""
    directory, path = Path("/s/log"), ledger_path(Path("/s/log"), 1)
    files, metadata = MemoryFiles(), MemoryMetadata()
    log = Log.open(directory, SETTINGS, files, metadata=metadata)
    for number in range(5):
        log.append(data(number)).result()
    killed, found = files.kill(), metadata.copy()
    log.append(data(5)).result()
    with contextlib.closing(files.open(path)) as file:
        frame = file.read_at(64 + 5 * FRAME, FRAME)
    log.close()
    with contextlib.closing(killed.open(path, writable=True)) as file:
        file.write_at(64 + FRAME + 66, b"\xff\xff")
        file.datasync()
        file.write_at(64 + 5 * FRAME, frame)  # whole, and not synced
    with pytest.raises(Corruption):
        Log.open(directory, SETTINGS, killed.kill(), metadata=found.copy())
    assert skip_closed(directory, 1, files=killed, metadata=found).ranges == ((Position(1, 1), Position(1, 1)),)
    with Log.open(directory, SETTINGS, killed.crash(random.Random(seed)), metadata=found) as again:
        assert again.end() == Position(1, 5)
        entries = [bytes(entry.data) for entry in again.read(Position(1, 0), again.end())]
        assert entries == [data(number) for number in (0, 2, 3, 4, 5)]


def test_the_owner_skips_while_others_read(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    made(tmp_path / "log")
    with Log.open(tmp_path / "log", SETTINGS) as log, LogReader.open(tmp_path / "log") as reader:
        ours = log.open_cursor("behind")
        table = CursorTable(reader, tmp_path / "elsewhere")
        theirs = table.open("theirs", "earliest")
        damage(ledger_path(tmp_path / "log", 2), 3)
        reader.cache.drop(reader.cache_key)
        with pytest.raises(Corruption):
            log.open_cursor("new").read(100)
        with pytest.raises(Unavailable):
            skip_closed(tmp_path / "log", 2)
        with pytest.raises(BadInput, match="no ledger 99"):
            log.skip(99)
        with pytest.raises(BadInput, match="nothing to skip"):
            log.skip(1)
        assert log.skip(2, dry_run=True).entries == 1
        assert log.statistics().skipped_entries == 0
        told = passed_over()
        with caplog.at_level(logging.WARNING):
            assert log.skip(2).entries == 1
        assert passed_over() - told == 2, "both cursors that are open here and had not acked it"
        assert "cursor behind passes over 1 entries that were skipped" in caplog.text
        kept = [data(number) for number in range(25) if number != 13]
        assert [bytes(entry.data) for entry in ours.read(100)] == [d for d in kept[4:] if d != data(14)]
        assert [bytes(entry.data) for entry in theirs.read(100)] == kept, (
            "it learns of the skip where it meets the damage"
        )
        assert not theirs.has_more()
        table.close()


def test_the_open_ledger_is_sealed_first(tmp_path: Path) -> None:
    with Log.open(tmp_path / "log", SETTINGS) as log:
        for number in range(5):
            log.append(data(number)).result()
        damage(ledger_path(tmp_path / "log", 1), 2)
        log.reader().cache.drop(log.reader().cache_key)
        assert log.skip(1).ranges == ((Position(1, 2), Position(1, 2)),)
        log.append(data(5)).result()
        assert read(tmp_path / "log") == [data(number) for number in (0, 1, 3, 4, 5)]


class _DyingMetadata(MemoryMetadata):
    """The process ends just before the next change, or just after it."""

    dies: str = ""

    def transaction(self, operations: Sequence[Operation]) -> int:
        if self.dies == "before":
            raise PowerCut("before the change")
        version = super().transaction(operations)
        if self.dies == "after":
            raise PowerCut("after the change")
        return version


@pytest.mark.parametrize(("dies", "skipped"), [("before", 0), ("after", 1)])
@pytest.mark.parametrize("opened", [False, True])
def test_a_crash_leaves_all_or_nothing(dies: str, skipped: int, opened: bool) -> None:
    """One change of the ledger list: before it the damage is reported as ever, after it the log is read around it."""
    directory = Path("/s/log")
    files, metadata = MemoryFiles(), _DyingMetadata()
    log = Log.open(directory, SETTINGS, files, metadata=metadata)
    log.open_cursor("behind")
    for number in range(25):
        log.append(data(number)).result()
    if not opened:
        log.close()
    file = files.open(ledger_path(directory, 2), writable=True)
    file.write_at(64 + 3 * FRAME + 66, b"\xff\xff")
    file.datasync()
    file.close()
    cache_for(files).drop(cache_key(log.uuid, directory))
    metadata.dies = dies
    with pytest.raises(PowerCut):
        if opened:
            log.skip(2)
        else:
            skip_closed(directory, 2, files=files, metadata=metadata)
    metadata.dies = ""
    killed, found = files.kill(), metadata.copy()
    if opened:
        with contextlib.suppress(PenstockError):
            log.close()
    with Log.open(directory, SETTINGS, killed, metadata=found) as again:
        assert again.statistics().skipped_entries == skipped
        if skipped:
            entries = [bytes(entry.data) for entry in again.read(Position(1, 0), again.end())]
            assert entries == [data(number) for number in range(25) if number != 13]
        else:
            with pytest.raises(Corruption):
                list(again.read(Position(1, 0), again.end()))


def test_state_refuses_to_stand_on_what_was_skipped(tmp_path: Path) -> None:
    from penstock.log import StateChange
    from penstock.state.checkpoints.recovery import refuse_skipped

    with Log.open(tmp_path / "log", SETTINGS) as log:
        for number in range(5):
            log.append(data(number), (StateChange(1, b"k", b"v"),)).result()
        log.roll()
        path = ledger_path(tmp_path / "log", 1)
        raw = bytearray(path.read_bytes())
        raw[66 + 64] ^= 0xFF
        path.write_bytes(raw)
        assert log.skip(1).entries == 1
        refuse_skipped(log.reader(), Position(1, 1), log.end())
        with pytest.raises(Corruption, match="their changes are lost: 1:0 … 1:0"):
            refuse_skipped(log.reader(), Position(1, 0), log.end())


class SickFiles(RealFiles):
    """A disk that refuses to read some bytes of ledger 1, or to open it."""

    bad = range(0)
    error = 0

    def open(self, path: Path, *, writable: bool = False) -> File:
        if path.name != ledger_path(path.parent, 1).name:
            return super().open(path, writable=writable)
        if self.error:
            raise OSError(self.error, "no")
        file = super().open(path, writable=writable)
        read_at = file.read_at

        def refusing(offset: int, size: int) -> bytes:
            if self.bad and offset < self.bad.stop and offset + size > self.bad.start:
                raise OSError(errno.EIO, "bad sector")
            return read_at(offset, size)

        file.read_at = refusing  # type: ignore[method-assign]
        return file


def test_a_bad_sector_takes_only_the_entries_in_it(tmp_path: Path) -> None:
    files, elsewhere = SickFiles(), SickFiles()
    settings = LogSettings(preallocate_bytes=0, maintenance_interval_seconds=0)
    with Log.open(tmp_path / "log", settings, files=files) as log:
        positions = [log.append(b"%0932d" % number).result() for number in range(16)]  # frames of 1,000 bytes
        log.roll()
        with LogReader.open(tmp_path / "log", elsewhere) as other:
            assert len(list(other.read(positions[0], positions[0]))) == 1  # it holds the list of before
            files.bad = elsewhere.bad = range(4096, 8192)
            with pytest.raises(Unavailable):
                list(other.read(positions[1], positions[-1]))
            assert log.skip(1).ranges == ((positions[4], positions[8]),)
            kept = [*positions[:4], *positions[9:]]
            for reader in (log.reader(), other):
                assert [entry.position for entry in reader.read(positions[0], positions[-1])] == kept
                assert [info.position for info in reader.scan(positions[0], positions[-1])] == kept


@pytest.mark.parametrize("error", [errno.EMFILE, errno.EACCES])
def test_a_ledger_that_cannot_be_opened_now_is_not_given_up(tmp_path: Path, error: int) -> None:
    files = SickFiles()
    with Log.open(tmp_path / "log", SETTINGS, files=files) as log:
        positions = [log.append(data(number)).result() for number in range(15)]
        files.error = error
        with pytest.raises(Unavailable, match="cannot be read now"):
            log.skip(1)
        files.error = 0
        assert len(list(log.read(positions[0], positions[-1]))) == 15


def test_a_scan_elsewhere_learns_of_a_skip(tmp_path: Path) -> None:
    made(tmp_path / "log")
    with Log.open(tmp_path / "log", SETTINGS) as log, LogReader.open(tmp_path / "log") as other:
        other.ledgers()
        damage(ledger_path(tmp_path / "log", 2), 3, 0)
        with pytest.raises(Corruption):
            list(other.scan(Position(2, 0), Position(2, 9)))
        log.skip(2)
        assert [info.position.entry_id for info in other.scan(Position(2, 0), Position(2, 9))] == [
            0, 1, 2, 4, 5, 6, 7, 8, 9
        ]  # fmt: skip


def test_a_cursor_elsewhere_counts_and_finds_what_can_be_read(tmp_path: Path) -> None:
    with Log.open(tmp_path / "log", SETTINGS) as log, LogReader.open(tmp_path / "log") as reader:
        for number in range(12):
            log.append(data(number)).result()
        log.roll()
        elsewhere = CursorTable(reader)
        cursor, other = elsewhere.open("elsewhere"), elsewhere.open("other")
        assert cursor.backlog() == 12
        damage(ledger_path(tmp_path / "log", 1), 0)
        log.skip(1)
        first = cursor.nth(1)
        assert first is not None
        assert bytes(first.data) == data(1)
        assert other.earliest_ms() == first.wall_ms
        assert (cursor.backlog(), other.backlog()) == (11, 11)
        for path in (ledger_path(tmp_path / "log", 1), ledger_path(tmp_path / "log", 2)):
            for entry in range(12):
                with contextlib.suppress(IndexError):
                    damage(path, entry)
        for ledger in (1, 2):
            log.skip(ledger)
        assert cursor.nth(1) is None
        assert other.earliest_ms() is None
        assert not other.has_more()
        assert other.backlog_bytes() == 0
        elsewhere.close()
