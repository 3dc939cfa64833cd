"""The synced end and the fence (docs/formats/ledger.md, "end"): what is durable, and who may say so.

One small file a log. The owner writes a slot after each sync of its data, without a sync of its own: a slot never claims
what is not durable. Readers in other processes learn the end with one small read. Two slots in turn, in sectors of their
own, so that a torn write leaves the other one; another two for every second owner.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import NamedTuple

import google_crc32c

from penstock.errors import Fenced
from penstock.files import File, Files
from penstock.log.position import Position

_SECTOR = 512
_FENCE = struct.Struct("<4sIQ44x")
_SLOT = struct.Struct("<4sIQQQQqQ4x")
_U32 = struct.Struct("<I")
_RECORD_BYTES = 64
_READ_ATTEMPTS = 50
_HINT = struct.Struct("<QQQ4x")
_HINT_BYTES = _HINT.size + 4
_HINTS_AT = 4096
_CUT_AT = 3 * _SECTOR
_CUT = struct.Struct("<4sIQQQQ20x")
_SLOT_PLACES = ((_SECTOR, b"PSEA"), (2 * _SECTOR, b"PSEB"), (4 * _SECTOR, b"PSEA"), (5 * _SECTOR, b"PSEB"))
_SLOTS_BYTES = 4 * _SECTOR + _RECORD_BYTES
HINTS_MAX = 1024


class SyncedEnd(NamedTuple):
    """`file_id` is durable up to byte `synced_end`; `last` is the last durable entry of the whole log."""

    epoch: int
    file_id: int
    synced_end: int
    last: Position
    commits: int


class Cut(NamedTuple):
    """Ledger `file_id` ends at byte `frames_end` for good: what stands after it was refused to its callers."""

    file_id: int
    frames_end: int
    entries: int


class EndFile:
    """The open `end` file. An owner fences and publishes; a reader asks."""

    def __init__(self, file: File) -> None:
        self._file = file
        self._commits = 0
        self._epoch = 0
        self._hinted: tuple[int, int] = (0, 0)  # file, number of its hints

    @classmethod
    def create(cls, files: Files, path: Path, *, sync_name: bool = True) -> None:
        """Makes the file durable; fine if it is there (a cut may have left a short one: it is filled up).

        `sync_name`: its name too; a caller that syncs the directory before it relies on the file saves a sync.
        """
        file = files.open(path, writable=True) if files.exists(path) else files.create(path)
        try:
            if file.size() < 3 * _SECTOR:
                file.truncate(3 * _SECTOR)
            file.datasync()
        finally:
            file.close()
        if sync_name:
            files.sync_directory(path.parent)

    @classmethod
    def open(cls, files: Files, path: Path, *, writable: bool = False) -> EndFile:
        return cls(files.open(path, writable=writable))

    def close(self) -> None:
        self._file.close()

    def fence(self, epoch: int) -> SyncedEnd | None:
        """From here on an owner with a lower epoch acknowledges nothing more. The end that it published, if any."""
        highest = self.fence_epoch()
        if highest > epoch:
            raise _fenced(self._file.path, epoch, highest)
        record = _FENCE.pack(b"PSE0", 0, epoch)
        self._file.write_at(0, record + _U32.pack(google_crc32c.value(record)))
        self._file.datasync()
        return self.own(epoch)

    def own(self, epoch: int) -> SyncedEnd | None:
        """As `fence`, for an owner that is fenced by other means: nothing is written."""
        self._epoch = epoch
        slot = self.read()
        self._commits = slot.commits if slot else 0
        return slot

    def check(self) -> None:
        """Raises `Fenced` where another owner came."""
        highest = self.fence_epoch()
        if highest > self._epoch:
            raise _fenced(self._file.path, self._epoch, highest)

    def publish(self, file_id: int, synced_end: int, last: Position) -> None:
        """The data up to here is synced: readers may see it."""
        self._commits += 1
        at, magic = _slot_places(self._epoch)[(self._commits + 1) % 2]
        record = _SLOT.pack(magic, 0, self._epoch, file_id, synced_end, last.ledger_id, last.entry_id, self._commits)
        self._file.write_at(at, record + _U32.pack(google_crc32c.value(record)))

    def hint(self, file_id: int, entry_id: int, offset: int) -> None:
        """Tells readers where an entry of the open file is (or will be), so that a seek need not walk from its head."""
        number = self._hinted[1] if self._hinted[0] == file_id else 0
        if number < HINTS_MAX:
            record = _HINT.pack(file_id, entry_id, offset)
            at = _HINTS_AT + number * _HINT_BYTES
            self._file.write_at(at, record + _U32.pack(google_crc32c.value(record)))
            self._hinted = (file_id, number + 1)

    def hints(self, file_id: int) -> list[tuple[int, int]]:
        """(entry, offset) pairs of the file, ascending. Advice: the caller looks whether that entry is there."""
        raw = self._file.read_at(_HINTS_AT, HINTS_MAX * _HINT_BYTES)
        found = []
        for at in range(0, len(raw) - _HINT_BYTES + 1, _HINT_BYTES):
            number, entry, offset = _HINT.unpack_from(raw, at)
            if number != file_id or google_crc32c.value(raw[at : at + _HINT.size]) != _U32.unpack_from(raw, at + 28)[0]:
                break
            found.append((entry, offset))
        return found

    def cut(self, cut: Cut) -> None:
        """Before callers are told that their appends failed: no later owner may find them. Durable when it returns."""
        record = _CUT.pack(b"PSEC", 0, self._epoch, *cut)
        self._file.write_at(_CUT_AT, record + _U32.pack(google_crc32c.value(record)))
        self._file.datasync()

    def read_cut(self) -> Cut | None:
        """The newest cut; None where there is none."""
        raw = self._file.read_at(_CUT_AT, _RECORD_BYTES)
        if len(raw) < _RECORD_BYTES or google_crc32c.value(raw[:-4]) != _U32.unpack_from(raw, 60)[0]:
            return None
        magic, _, _, file_id, frames_end, entries = _CUT.unpack_from(raw)
        return Cut(file_id, frames_end, entries) if magic == b"PSEC" else None

    def reopen(self, files: Files) -> None:
        """A new handle, after a write of the old one failed: it is poisoned."""
        old, self._file = self._file, files.open(self._file.path, writable=True)
        old.close()

    def sync(self) -> None:
        """Makes the slots durable: before a long quiet time, such as a close."""
        self._file.datasync()

    def read(self) -> SyncedEnd | None:
        """The newest slot; None where nothing was published yet, or a power cut tore the only one."""
        best: SyncedEnd | None = None
        for _ in range(_READ_ATTEMPTS):
            raw = self._file.read_at(_SECTOR, _SLOTS_BYTES)
            slots = [slot for at, magic in _SLOT_PLACES if (slot := _slot(raw, at - _SECTOR, magic)) is not None]
            if not slots:
                if all(blank(raw[at - _SECTOR : at - _SECTOR + _RECORD_BYTES]) for at, _ in _SLOT_PLACES):
                    return None
                continue
            best = max(slots, key=lambda slot: (slot.epoch, slot.commits))
            # The other one of its pair, where it is neither whole nor blank, is being written at this moment by another
            # process (or a power cut tore it).
            if all(
                _slot(raw, at - _SECTOR, magic) is not None or blank(raw[at - _SECTOR : at - _SECTOR + _RECORD_BYTES])
                for at, magic in _slot_places(best.epoch)
            ):
                return best
        return best

    def fence_epoch(self) -> int:
        """The highest epoch that ever opened; 0 where none did."""
        raw = self._file.read_at(0, _RECORD_BYTES)
        if blank(raw):
            return 0
        for _ in range(_READ_ATTEMPTS):
            if len(raw) == _RECORD_BYTES and google_crc32c.value(raw[:-4]) == _U32.unpack_from(raw, 60)[0]:
                return int(_FENCE.unpack_from(raw)[2])
            raw = self._file.read_at(0, _RECORD_BYTES)
        return 0  # torn by a power cut while an owner opened: that owner never wrote, its epoch is in the metadata


def _slot_places(epoch: int) -> tuple[tuple[int, bytes], ...]:
    """The two slots of an owner. Its successor has two others, so that what a deposed owner still writes hides nothing."""
    return _SLOT_PLACES[:2] if epoch % 2 else _SLOT_PLACES[2:]


def blank(raw: bytes) -> bool:
    return not raw.strip(b"\0")


def _slot(raw: bytes, at: int, magic: bytes) -> SyncedEnd | None:
    record = raw[at : at + _RECORD_BYTES]
    if len(record) < _RECORD_BYTES or google_crc32c.value(record[:-4]) != _U32.unpack_from(record, 60)[0]:
        return None
    found, _, epoch, file_id, synced_end, last_file, last_entry, commits = _SLOT.unpack_from(record)
    if found != magic:
        return None
    return SyncedEnd(epoch, file_id, synced_end, Position(last_file, last_entry), commits)


def _fenced(path: Path, epoch: int, highest: int) -> Fenced:
    return Fenced(
        f"{path.parent}: owner epoch {epoch} was replaced by epoch {highest}",
        hint="another process owns it now; stop this one",
    )
