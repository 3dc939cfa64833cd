"""Examines an `end` file (docs/formats/ledger.md, "end"): every record, and that nothing stands between the records."""

from __future__ import annotations

import struct
import time
from pathlib import Path

import google_crc32c

from penstock.files import Files, read_file
from penstock.log.check.damage import Damage
from penstock.log.frames.end_file import HINT_BYTES, HINTS_AT, RECORD_BYTES, RECORDS, is_blank

_ATTEMPTS = 5
_PAUSE_SECONDS = 0.02
_SIZE_MIN = RECORDS[2].offset + RECORD_BYTES  # as the first owner makes the file
_U32 = struct.Struct("<I")


def examine_end_file(files: Files, path: Path) -> list[Damage]:
    """The damage of the file. Its owner may be writing a record: only what is wrong in every one of several reads counts."""
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
