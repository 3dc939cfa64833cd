"""Examines a ledger in its local file: header, every frame, footer."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import numpy as np

from penstock.errors import Corruption
from penstock.files import File, Files
from penstock.log.check.damage import Damage, Examined, damage_found_by, damage_of
from penstock.log.check.frames import damaged_frames, examine_growing
from penstock.log.frames.end_file import EndFile
from penstock.log.frames.file_header import LEDGER_MAGIC, read_file_header
from penstock.log.frames.reader import rebuild_index
from penstock.log.ledgers.footer import Footer, read_footer
from penstock.log.ledgers.info import LedgerInfo, ledger_path


def examine_ledger(files: Files, directory: Path, uuid: UUID, info: LedgerInfo, end_file: EndFile | None) -> Examined:
    """A ledger that the list names. Raises `FileNotFoundError`."""
    path = ledger_path(directory, info.id)
    file = files.open(path)
    try:
        damage = damage_found_by(lambda: read_file_header(file, LEDGER_MAGIC, uuid, info.id), path)
        if info.sealed:
            return _examine_sealed(file, info, damage)
        return examine_growing(file, info.id, 0, end_file, damage)
    finally:
        file.close()


def _examine_sealed(file: File, info: LedgerInfo, damage: list[Damage]) -> Examined:
    size = file.size()
    if info.footer:
        damage += damage_found_by(lambda: read_footer(file, info), file.path)
    try:
        index = rebuild_index(file, info.id, info.entries, info.frames_end)
    except Corruption as error:
        damage += damaged_frames(file, info.id, 0, info.frames_end) or [damage_of(error, file.path)]
        return Examined(info.entries, size, damage)
    if info.footer and not damage:
        footer = read_footer(file, info)
        right = Footer.of(index, info.frames_end)
        if not np.array_equal(footer.offsets, right.offsets):
            damage.append(Damage(file.path, info.frames_end, "the entry index does not say where the entries are"))
        if not np.array_equal(footer.times, right.times):
            damage.append(
                Damage(file.path, info.frames_end + 8 * info.entries, "the time index is not that of the entries")
            )
    return Examined(info.entries, size, damage)
