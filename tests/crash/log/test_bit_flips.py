"""Flipped bits and cut files: each is detected, or the same entries and acks are read back. Nothing is ever deleted.

The same holds for the metadata store, which is a file of SQLite: damage is detected, or changes nothing that is read.
"""

from __future__ import annotations

import contextlib
import random
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.clock import ManualClock
from penstock.errors import Corruption, PenstockError
from penstock.files.memory import MemoryFiles
from penstock.log import Cursor, Log, LogReader, LogSettings, Position
from penstock.log.cursors.registry import find
from penstock.metadata import MemoryMetadata, SqliteMetadata
from tests.crash.stepping import STEPS, stepping
from tests.support.budget import LOG_FLIPS, METADATA_FLIPS

DIRECTORY = Path("/s/log")
CURSORS = Path("/s/cursors")
SETTINGS = LogSettings(ledger_entries_max=5, preallocate_bytes=2048)


class Machine:
    """A log with sealed ledgers and an open one, and a cursor with holes, as its killed owner left them."""

    def __init__(self) -> None:
        self.files, self.metadata = MemoryFiles(), MemoryMetadata()
        log = Log.open(DIRECTORY, SETTINGS, self.files, ManualClock(), self.metadata)
        self.entries = [(log.append(b"entry %d " % n * 9).result(), b"entry %d " % n * 9) for n in range(13)]
        reader = LogReader.open(DIRECTORY, self.files, self.metadata)
        cursor = Cursor.open(reader, CURSORS, "c", files=self.files)
        self.acked = {self.entries[n][0] for n in (0, 1, 3, 7, 11)}
        for position in sorted(self.acked):
            cursor.ack(position, position).result()
        self.files = self.files.kill()
        self.metadata = self.metadata.copy()
        STEPS.reset()

    def paths(self) -> list[Path]:
        return [d / name for d in (DIRECTORY, CURSORS) for name in self.files.list(d) if self.size(d / name)]

    def size(self, path: Path) -> int:
        return len(self.files._names[path].content)

    def damaged(self, path: Path, offset: int, bit: int | None) -> tuple[MemoryFiles, dict[Path, bytes]]:
        """With one bit flipped, or cut at the offset; and what every file holds then."""
        files = self.files.kill()
        node = files._names[path]
        if bit is None:
            del node.content[offset:]
        else:
            node.content[offset] ^= 1 << bit
        node.durable[:] = node.content
        node.pending.clear()
        return files, {p: bytes(n.content) for p, n in files._names.items()}

    def read(self, files: MemoryFiles) -> tuple[list[tuple[Position, bytes]], set[Position], str]:
        """What a new owner finds, and the damage that it notes of the cursor. Raises what it raises."""
        metadata = self.metadata.copy()
        try:
            log = Log.open(DIRECTORY, SETTINGS, files, ManualClock(), metadata)
            reader = LogReader.open(DIRECTORY, files, metadata)
            entries = [(entry.position, bytes(entry.data)) for entry in reader.read(reader.first, reader.end())]
            cursor = Cursor.open(reader, CURSORS, "c", files=files)
            acked = {position for position, _ in entries if cursor.is_acked(position)}
            cursor.close()
            reader.close()
            log.close()
        finally:
            STEPS.reset()
        known = find(metadata, DIRECTORY.name, "c")
        assert known is not None
        return entries, acked, known.damage


@pytest.fixture
def machine() -> Iterator[Machine]:
    with stepping():
        yield Machine()


def test_flips_and_cuts_of_every_file_are_detected_or_harmless(machine: Machine) -> None:
    rng = random.Random(4)
    detected: dict[str, int] = {}
    for path in machine.paths():
        size = machine.size(path)
        harms = [(rng.randrange(size), rng.randrange(8)) for _ in range(LOG_FLIPS)]
        harms += [(rng.randrange(size), None) for _ in range(LOG_FLIPS // 10)]
        for offset, bit in harms:
            files, before = machine.damaged(path, offset, bit)
            where = f"{path} at byte {offset}, {'cut' if bit is None else f'bit {bit}'}"
            try:
                entries, acked, damage = machine.read(files)
            except Corruption as error:
                detected[path.name] = detected.get(path.name, 0) + 1
                assert str(path.name.split(".")[0]) in str(error) or "cursor" in str(error), f"{where}: named {error}"
                gone = {p for p in before if p.suffix in {".log", ".rlog"} and not files.exists(p)}
                assert not gone, f"{where}: {gone} were deleted"
                assert bytes(files._names[path].content)[: len(before[path])] == before[path] or path.name == "end", (
                    where
                )
            except PenstockError as error:
                detected[path.name] = detected.get(path.name, 0) + 1
                assert "version" in str(error) or "format" in str(error), f"{where}: {error}"
            else:
                assert entries == machine.entries, f"{where}: other entries were read"
                if not damage:
                    assert acked == machine.acked, f"{where}: other acks were read"
                    continue
                detected[path.name] = detected.get(path.name, 0) + 1
                assert acked <= machine.acked, f"{where}: acks that nobody made"
                kept = {bytes(n.content) for p, n in files._names.items() if ".damaged-" in p.name}
                assert before[path] in kept, f"{where}: the damaged file is gone"
    assert all(detected.get(path.name) for path in machine.paths() if path.suffix in {".log", ".rlog"}), detected


def test_flips_and_cuts_of_the_metadata_are_detected_or_harmless(tmp_path: Path) -> None:
    pristine = tmp_path / "pristine.sqlite"
    store = SqliteMetadata(pristine)
    values = {f"log/{n}": b"value %d " % n * 40 for n in range(40)}
    for key, value in values.items():
        store.create(key, value)
    store.close()
    with contextlib.closing(sqlite3.connect(pristine)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    raw = pristine.read_bytes()
    rng = random.Random(5)
    path = tmp_path / "metadata.sqlite"
    wrong = detected = 0
    for number in range(METADATA_FLIPS):
        harmed = bytearray(raw)
        offset = rng.randrange(len(raw))
        if number % 10:
            harmed[offset] ^= 1 << rng.randrange(8)
        else:
            # At least one byte stays: an empty file is a new store (which a log refuses that has ledgers).
            del harmed[max(offset, 1) :]
        for leftover in tmp_path.glob("metadata.sqlite*"):
            leftover.unlink()
        path.write_bytes(harmed)
        try:
            found = SqliteMetadata(path)
            try:
                keys = found.children("")
                read = {key: v.value for key in keys if (v := found.get(key)) is not None}
            finally:
                found.close()
        except PenstockError:
            detected += 1
            continue
        wrong += read != values
    shutil.rmtree(tmp_path)
    assert detected > METADATA_FLIPS // 20
    assert wrong == 0, f"{wrong} damaged stores gave other values"
