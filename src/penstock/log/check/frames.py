"""Examines the frames of a ledger or record log."""

from __future__ import annotations

from penstock.errors import Corruption
from penstock.files import File
from penstock.log.check.damage import DAMAGE_MAX, Damage, Examined, damage_of
from penstock.log.frames.end_file import EndFile, SyncedEnd
from penstock.log.frames.file_header import FILE_HEADER_BYTES
from penstock.log.frames.reader import find_end
from penstock.log.frames.walk import walk_frames


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
