"""Examines the local files of a log: its ledgers, the record logs of its cursors, and their `end` files.

The format of an `end` file is in docs/formats/ledger.md, "end".
"""

from __future__ import annotations

import struct
import time
from pathlib import Path
from uuid import UUID

import google_crc32c
import numpy as np
from pyroaring import BitMap

from penstock.errors import Corruption
from penstock.files import File, Files, read_file
from penstock.log.check.damage import DAMAGE_MAX, Damage, Examined, damage_found_by, damage_of
from penstock.log.frames.end_file import HINT_BYTES, HINTS_AT, RECORD_BYTES, RECORDS, EndFile, SyncedEnd, is_blank
from penstock.log.frames.file_header import FILE_HEADER_BYTES, LEDGER_MAGIC, read_file_header
from penstock.log.frames.reader import find_end, rebuild_index
from penstock.log.frames.walk import walk_frames
from penstock.log.ledgers.footer import Footer, read_footer
from penstock.log.ledgers.info import LedgerInfo, ledger_path
from penstock.log.records.reading import in_force

_ATTEMPTS = 5  # reads of an `end` file, whose owner may be writing a record
_PAUSE_SECONDS = 0.02
_SIZE_MIN = RECORDS[2].offset + RECORD_BYTES  # as the first owner makes the file
_U32 = struct.Struct("<I")


def examine_ledger(files: Files, directory: Path, uuid: UUID, info: LedgerInfo, end_file: EndFile | None) -> Examined:
    """A ledger that the list names. Raises `FileNotFoundError`."""
    path = ledger_path(directory, info.id)
    if info.skipped:
        return _examine_skipped(files, path, info)
    file = files.open(path)
    try:
        damage = damage_found_by(lambda: read_file_header(file, LEDGER_MAGIC, uuid, info.id), path)
        if info.sealed:
            return _examine_sealed(file, info, damage)
        return examine_growing(file, info.id, 0, end_file, damage)
    finally:
        file.close()


def _examine_skipped(files: Files, path: Path, info: LedgerInfo) -> Examined:
    """A ledger of which entries were skipped: damage is what cannot be read and was not skipped."""
    lost = BitMap(range(info.entries)) - info.skipped_entries()
    if not lost:
        return Examined(0, 0, [])
    file = files.open(path)
    try:
        for line in walk_frames(file, info.id, 0, info.frames_end):
            if line.header is not None and not line.fault:
                lost.discard(line.header.entry_id)
        damage = [Damage(path, 0, f"entry {entry} cannot be read") for entry in lost[:DAMAGE_MAX]]
        return Examined(info.entries, file.size(), damage)
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


def examine_growing(
    file: File, file_id: int, first_entry: int, end_file: EndFile | None, damage: list[Damage]
) -> Examined:
    """The frames of a file that its owner appends to, or that no owner has sealed yet; `damage` was found before.

    Every byte below the synced end must decode. So must the bytes above it that a whole, later frame calls durable.
    """
    slot = _slot_of(end_file, file_id)
    stop = slot.synced_end if slot else FILE_HEADER_BYTES
    entries = slot.last.entry_id + 1 - first_entry if slot and slot.last.ledger_id == file_id else 0
    try:
        entries = len(find_end(file, file_id, first_entry, stop)[1].offsets)
    except Corruption as error:
        found = damaged_frames(file, file_id, first_entry, min(stop, file.size()))
        # Without damage below the synced end, a later frame calls more durable than the slot does. That is damage only if
        # the slot is still the same: otherwise the owner wrote both in this moment.
        if found or file.size() < stop or _slot_of(end_file, file_id) == slot:
            damage += found or [damage_of(error, file.path)]
    return Examined(entries, stop, damage)


def damaged_frames(file: File, file_id: int, first_entry: int, stop: int) -> list[Damage]:
    """The frames up to byte `stop` that do not decode; at most `DAMAGE_MAX` of them."""
    damage: list[Damage] = []
    for line in walk_frames(file, file_id, first_entry, stop):
        if line.fault and len(damage) < DAMAGE_MAX:
            which = f"entry {line.header.entry_id}: " if line.header else ""
            damage.append(Damage(file.path, line.offset, f"{which}{line.fault} ({line.bytes} bytes)"))
    return damage


def _slot_of(end_file: EndFile | None, file_id: int) -> SyncedEnd | None:
    return end_file.read_of(file_id) if end_file is not None else None


def examine_end_file(files: Files, path: Path) -> list[Damage]:
    """The damage of the `end` file: of its records, and of the bytes between them, where nothing is written.

    Its owner may be writing a record: only what is wrong in every one of several reads counts.
    """
    if not files.exists(path):
        return [Damage(path, 0, "the file is missing")]
    damage: list[Damage] = []
    for attempt in range(_ATTEMPTS):
        found = _damage(path, read_file(files, path))
        damage = found if attempt == 0 else [one for one in damage if one in found]
        if not damage:
            return []
        time.sleep(_PAUSE_SECONDS)
    return damage


def _damage(path: Path, raw: bytes) -> list[Damage]:
    damage: list[Damage] = []
    if len(raw) < _SIZE_MIN:
        return [Damage(path, len(raw), "the file is too short")]
    after = 0
    for at, magic, name in RECORDS:
        if not is_blank(raw[after:at]):
            damage.append(Damage(path, after, "bytes stand where none are written"))
        record = raw[at : at + RECORD_BYTES]
        after = at + RECORD_BYTES
        if not is_blank(record) and (record[:4] != magic or not _crc_matches(record)):
            damage.append(Damage(path, at, f"the {name} does not match its checksum"))
    if not is_blank(raw[after:HINTS_AT]):
        damage.append(Damage(path, after, "bytes stand where none are written"))
    for at in range(HINTS_AT, len(raw), HINT_BYTES):
        hint = raw[at : at + HINT_BYTES]
        if not is_blank(hint) and not _crc_matches(hint):
            damage.append(Damage(path, at, "a hint does not match its checksum (readers do without it)"))
    return damage


def _crc_matches(record: bytes) -> bool:
    return len(record) > 4 and google_crc32c.value(record[:-4]) == _U32.unpack(record[-4:])[0]
