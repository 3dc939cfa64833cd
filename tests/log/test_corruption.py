"""Damage below the synced end is reported and nothing is changed; a torn tail above it is dropped."""

from __future__ import annotations

import hashlib
import random
import shutil
from pathlib import Path

import pytest

from penstock.errors import Corruption
from penstock.files import REAL_FILES, RealFiles
from penstock.log import Log, LogReader, LogSettings, RecordLog
from penstock.log.frames.end_file import EndFile
from penstock.log.frames.file_header import FILE_HEADER_BYTES


def killed(tmp_path: Path, entries: int = 5) -> Path:
    """The directory of a log whose owner was killed: a copy taken while it lived. Returns its log directory."""
    log = Log.open(tmp_path / "live" / "log", LogSettings(preallocate_bytes=8192))
    for n in range(entries):
        log.append(b"entry %d " % n * 20).result()
    shutil.copytree(tmp_path / "live", tmp_path / "state")
    log.close()
    return tmp_path / "state" / "log"


def ledger(directory: Path) -> Path:
    return directory / "ledger-0000000000000001.log"


def damage(path: Path, offset: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(data)


def digest(directory: Path) -> dict[str, str]:
    files = [p for p in directory.iterdir() if p.name.startswith("ledger")]
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in files}


def synced_end(directory: Path) -> int:
    end_file = EndFile.open(REAL_FILES, directory / "end")
    slot = end_file.read()
    end_file.close()
    assert slot is not None
    return slot.synced_end


def forget_slot(directory: Path) -> None:
    """As after a power cut: the slot never reached the disk."""
    raw = bytearray((directory / "end").read_bytes())
    raw[512:] = bytes(len(raw) - 512)
    (directory / "end").write_bytes(raw)


def entries(log: Log) -> int:
    reader = log.reader()
    return sum(1 for _ in reader.read(reader.first, reader.end()))


@pytest.mark.parametrize("tail", [b"", b"PSF1", b"\xff" * 300, bytes(1000)])
def test_a_torn_tail_is_cut(tmp_path: Path, tail: bytes) -> None:
    directory = killed(tmp_path)
    damage(ledger(directory), synced_end(directory), tail)
    log = Log.open(directory)
    assert entries(log) == 5
    assert log.append(b"goes on").result()
    log.close()


def test_half_a_frame_above_the_synced_end_is_cut(tmp_path: Path) -> None:
    directory = killed(tmp_path)
    raw = ledger(directory).read_bytes()
    end = synced_end(directory)
    frame = raw[FILE_HEADER_BYTES : FILE_HEADER_BYTES + 248]
    damage(ledger(directory), end, frame)  # an old frame in a new place: entry 0 again
    log = Log.open(directory)
    assert entries(log) == 5
    log.close()


def test_damage_below_the_synced_end_is_named_and_nothing_is_touched(tmp_path: Path) -> None:
    directory = killed(tmp_path)
    end = synced_end(directory)
    pristine = ledger(directory).read_bytes()
    rng = random.Random(3)
    for _ in range(60):
        offset = rng.randrange(FILE_HEADER_BYTES, end)
        ledger(directory).write_bytes(pristine)
        damage(ledger(directory), offset, bytes([pristine[offset] ^ (1 << rng.randrange(8))]))
        before = digest(directory)
        with pytest.raises(Corruption, match=r"ledger-0000000000000001.log is damaged at byte \d+"):
            Log.open(directory)
        reader = LogReader.open(directory, RealFiles())  # with nothing in its cache
        with pytest.raises(Corruption, match="is damaged at byte"):
            list(reader.read(reader.first, reader.end()))
        reader.close()
        assert digest(directory) == before
    ledger(directory).write_bytes(pristine)  # restored, as the hint says
    log = Log.open(directory)
    assert entries(log) == 5
    log.close()


def test_zeros_and_a_short_file_below_the_synced_end_are_corruption(tmp_path: Path) -> None:
    directory = killed(tmp_path)
    end = synced_end(directory)
    pristine = ledger(directory).read_bytes()
    damage(ledger(directory), end - 240, bytes(240))  # the whole last entry: no later one speaks for it
    with pytest.raises(Corruption, match="was durable"):
        Log.open(directory)
    ledger(directory).write_bytes(pristine[: end - 1])
    with pytest.raises(Corruption, match="was durable"):
        Log.open(directory)


def test_without_a_slot_a_later_entry_tells_corruption_from_a_torn_tail(tmp_path: Path) -> None:
    directory = killed(tmp_path)
    forget_slot(directory)
    damage(
        ledger(directory), FILE_HEADER_BYTES + 100, b"\0\0\0\0"
    )  # in entry 0; entries 1 to 4 know that it was synced
    before = digest(directory)
    with pytest.raises(Corruption, match="a later entry says"):
        Log.open(directory)
    assert digest(directory) == before


def test_damage_in_a_sealed_ledger(tmp_path: Path) -> None:
    log = Log.open(tmp_path / "log")
    for n in range(5):
        log.append(b"entry %d " % n * 20).result()
    log.close()
    path = ledger(tmp_path / "log")
    pristine = path.read_bytes()
    for offset in (70, 300, len(pristine) - 200, len(pristine) - 80, len(pristine) - 30, len(pristine) - 1):
        raw = bytearray(pristine)
        raw[offset] ^= 4
        path.write_bytes(raw)
        reader = LogReader.open(tmp_path / "log")
        with pytest.raises(Corruption):
            list(reader.read(reader.first, reader.end()))
        reader.close()
    path.unlink()
    reader = LogReader.open(tmp_path / "log")
    with pytest.raises(Corruption, match="missing"):
        list(reader.read(reader.first, reader.end()))
    reader.close()


def test_metadata_older_than_the_log_is_refused(tmp_path: Path) -> None:
    Log.open(tmp_path / "log").close()
    old = (tmp_path / "metadata.sqlite").read_bytes()
    log = Log.open(tmp_path / "log")
    log.append(b"precious").result()
    log.close()
    for name in ("metadata.sqlite-wal", "metadata.sqlite-shm"):
        (tmp_path / name).unlink(missing_ok=True)
    (tmp_path / "metadata.sqlite").write_bytes(old)
    with pytest.raises(Corruption, match="holds entries, but the metadata does not know it"):
        Log.open(tmp_path / "log")
    assert any(b"precious" in path.read_bytes() for path in (tmp_path / "log").glob("ledger-*"))


def test_lost_metadata_is_refused_before_anything_changes(tmp_path: Path) -> None:
    for _ in range(3):
        log = Log.open(tmp_path / "log")
        log.append(b"precious").result()
        log.close()
    for path in tmp_path.glob("metadata.sqlite*"):
        path.rename(tmp_path / f"kept-{path.name}")
    before = {path.name: path.read_bytes() for path in (tmp_path / "log").iterdir()}
    with pytest.raises(Corruption, match="holds entries, but the metadata does not know it"):
        Log.open(tmp_path / "log")
    assert {path.name: path.read_bytes() for path in (tmp_path / "log").iterdir()} == before
    for path in tmp_path.glob("metadata.sqlite*"):
        path.unlink()
    for path in tmp_path.glob("kept-*"):
        path.rename(tmp_path / path.name.removeprefix("kept-"))
    log = Log.open(tmp_path / "log")
    assert entries(log) == 3
    log.close()


def test_lost_metadata_is_refused_though_every_ledger_was_trimmed(tmp_path: Path) -> None:
    """A new log in its place would give positions that were given already."""
    settings = LogSettings(retention_seconds=0, retention_bytes=0, trim_without_cursors=True)
    log = Log.open(tmp_path / "log", settings)
    log.append(b"trimmed").result()
    log.roll()
    log.trim()
    log.close()
    assert not ledger(tmp_path / "log").exists()
    for path in tmp_path.glob("metadata.sqlite*"):
        path.unlink()
    before = {path.name: path.read_bytes() for path in (tmp_path / "log").iterdir()}
    with pytest.raises(Corruption, match="end tells of a log, but the metadata does not know it"):
        Log.open(tmp_path / "log")
    assert {path.name: path.read_bytes() for path in (tmp_path / "log").iterdir()} == before


def test_a_reader_names_a_missing_end_file(tmp_path: Path) -> None:
    Log.open(tmp_path / "log").close()
    (tmp_path / "log" / "end").unlink()
    with pytest.raises(Corruption, match="end is missing, but the metadata knows this log"):
        LogReader.open(tmp_path / "log")


def test_a_record_log_without_its_pointer_is_refused(tmp_path: Path) -> None:
    records = RecordLog.open(tmp_path, "r")
    records.append(b"fact").result()
    records.close()
    (tmp_path / "r.current").unlink()
    with pytest.raises(Corruption, match=r"r.current is missing"):
        RecordLog.open(tmp_path, "r")
