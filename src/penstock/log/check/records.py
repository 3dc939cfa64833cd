"""Examines a record log: its `end` file, and the generation in force."""

from __future__ import annotations

from pathlib import Path

from penstock.errors import Corruption
from penstock.files import Files
from penstock.log.check.damage import Examined, damage_of
from penstock.log.check.end_file import examine_end_file
from penstock.log.check.frames import examine_growing
from penstock.log.frames.end_file import EndFile
from penstock.log.records.reading import in_force


def examine_record_log(files: Files, directory: Path, name: str) -> Examined:
    """Every byte of the record log that counts, whether its owner is at work or not."""
    damage = examine_end_file(files, directory / f"{name}.end")
    try:
        found = in_force(files, directory, name)
    except Corruption as error:
        return Examined(0, 0, [*damage, damage_of(error, directory / f"{name}.current")])
    end_file = EndFile.open(files, directory / f"{name}.end")
    try:
        return examine_growing(found.file, found.number, found.header.first_entry, end_file, damage)
    finally:
        end_file.close()
        found.file.close()
