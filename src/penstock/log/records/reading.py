"""Reads a record log without owning it: for those who list, expire or examine cursors.

The owner may be at work meanwhile and go on to its next generation at any moment, so whatever is not found or does not
decode is looked for again before it is called damaged.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from penstock.errors import Corruption
from penstock.files import File, Files
from penstock.log.frames.end_file import EndFile
from penstock.log.frames.format import HEADER_BYTES, decode_changes
from penstock.log.frames.reader import find_end
from penstock.log.frames.walk import walk_frames
from penstock.log.records.generations import InForce, locate
from penstock.log.records.record_log import Record

_ATTEMPTS = 5
_PAUSE_SECONDS = 0.02


def read_records(files: Files, directory: Path, name: str) -> list[Record]:
    """The durable records. Raises `Corruption`."""
    found = in_force(files, directory, name)
    end_file = EndFile.open(files, directory / f"{name}.end")
    try:
        slot = end_file.read_of(found.number)
        # Without a slot the owner is bringing this generation into force right now: all of it is synced already.
        stop = slot.synced_end if slot else find_end(found.file, found.number, found.header.first_entry, 0)[0]
        return list(_records(found.file, found.number, found.header.first_entry, stop))
    finally:
        end_file.close()
        found.file.close()


def in_force(files: Files, directory: Path, name: str) -> InForce:
    """The generation that counts, open. Raises `Corruption` where every one of several attempts fails."""
    for attempt in range(_ATTEMPTS):
        try:
            return locate(files, directory, name)
        except (Corruption, FileNotFoundError) as error:
            if attempt + 1 == _ATTEMPTS:
                if isinstance(error, Corruption):
                    raise
                raise Corruption(f"{error.filename} is missing", hint="restore the directory from a copy") from error
            time.sleep(_PAUSE_SECONDS)
    raise AssertionError("unreachable")


def _records(file: File, file_id: int, first_entry: int, stop: int) -> Iterator[Record]:
    for line in walk_frames(file, file_id, first_entry, stop):
        if line.header is None or line.fault:
            raise Corruption(
                f"{file.path} is damaged at byte {line.offset}: {line.fault}",
                hint="restore it from a copy; nothing was changed",
            )
        raw = file.read_at(line.offset + HEADER_BYTES, line.header.data_len + line.header.changes_len)
        changes = decode_changes(raw[line.header.data_len :], line.header.wall_ms)
        yield Record(line.header.entry_id, raw[: line.header.data_len], changes, line.header.wall_ms)
