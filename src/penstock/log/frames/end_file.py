"""The `end` file of a log (docs/formats/ledger.md, "end"): how much of the log is durable, and who may say so.

After each sync of its data the owner writes a slot, without syncing the slot: a slot never claims what is not durable, and
after a power cut it may be old, but not wrong. Readers in other processes learn the end with one small read. An owner
writes two slots in turn, each in a sector of its own, so that a torn write leaves the other slot whole. Owners of odd and
of even epoch have different pairs of slots, so that a late write of a replaced owner hides no slot of its successor.
"""

from __future__ import annotations

import struct
import threading
from pathlib import Path
from typing import Any, NamedTuple

import google_crc32c

from penstock.errors import Fenced
from penstock.files import File, Files
from penstock.log.closed import ClosedPart
from penstock.log.position import Position

_SECTOR = 512
RECORD_BYTES = 72
_CRC_AT = RECORD_BYTES - 4
HINTS_AT = 4096
HINTS_MAX = 1024
HINT_BYTES = 32


class RecordPlace(NamedTuple):
    """Where a record of the file stands, and how it begins."""

    offset: int
    magic: bytes
    name: str


RECORDS = (
    RecordPlace(0, b"PSE0", "fence"),
    RecordPlace(_SECTOR, b"PSEA", "slot A"),
    RecordPlace(2 * _SECTOR, b"PSEB", "slot B"),
    RecordPlace(3 * _SECTOR, b"PSEC", "final end"),
    RecordPlace(4 * _SECTOR, b"PSEA", "slot A of even epochs"),
    RecordPlace(5 * _SECTOR, b"PSEB", "slot B of even epochs"),
)
_FENCE_PLACE, _FINAL_END_PLACE = RECORDS[0], RECORDS[3]
_ODD_SLOTS, _EVEN_SLOTS = RECORDS[1:3], RECORDS[4:6]
_SLOTS = (*_ODD_SLOTS, *_EVEN_SLOTS)
_SLOTS_AT = _SLOTS[0].offset
_SLOTS_BYTES = _SLOTS[-1].offset + RECORD_BYTES - _SLOTS_AT
_FENCE = struct.Struct("<4sIQ52x")
_SLOT = struct.Struct("<4sIQQQQqQQ4x")
_FINAL_END = struct.Struct("<4sIQQQQ28x")
_HINT = struct.Struct("<QQQ4x")
_U32 = struct.Struct("<I")
_READ_ATTEMPTS = 50


class SyncedEnd(NamedTuple):
    """What a slot says: `file_id` is durable up to byte `synced_end`; `last` is the last durable entry of the whole log.

    `truncations` is that of the ledger list for which the slot was written: a reader whose list has a lower one knows of
    entries that are gone. `messages`: how many the durable entries of the file stand for.
    """

    epoch: int
    file_id: int
    synced_end: int
    last: Position
    commits: int
    truncations: int = 0
    messages: int = 0


class FinalEnd(NamedTuple):
    """Ledger `file_id` ends at byte `frames_end` for good: the appends whose frames stand after it were failed."""

    file_id: int
    frames_end: int
    entries: int


class EndFile:
    """The open `end` file. The owner fences and publishes; a reader only reads."""

    def __init__(self, file: File) -> None:
        self._file = file
        self._path = file.path
        self._handle = threading.Lock()  # a read never meets the number of a closed handle, which may be another file's
        self._commits = 0
        self._epoch = 0
        self.truncations = 0  # as the owner's ledger list has it
        self._hinted: tuple[int, int] = (0, 0)  # file, number of its hints

    @classmethod
    def create(cls, files: Files, path: Path) -> None:
        """Makes the file, durably. A file that is there stays; a short one, which a power cut may leave, is filled up."""
        file = files.open(path, writable=True) if files.exists(path) else files.create(path)
        try:
            if file.size() < 3 * _SECTOR:
                file.truncate(3 * _SECTOR)
            file.datasync()
        finally:
            file.close()
        files.sync_directory(path.parent)

    @classmethod
    def open(cls, files: Files, path: Path, *, writable: bool = False) -> EndFile:
        return cls(files.open(path, writable=writable))

    def close(self) -> None:
        """Every later read raises `Closed`, and one that is under way is waited for."""
        closed: Any = ClosedPart(f"the end of log {self._path.parent}")
        with self._handle:
            file, self._file = self._file, closed
        if not isinstance(file, ClosedPart):
            file.close()

    # -- the owner -----------------------------------------------------------------------------------------------

    def fence(self, epoch: int) -> SyncedEnd | None:
        """From here on an owner with a lower epoch acknowledges nothing. Returns the end that was published before."""
        highest = self.fence_epoch()
        if highest > epoch:
            raise _fenced(self._path, epoch, highest)
        record = _FENCE.pack(_FENCE_PLACE.magic, 0, epoch)
        self._file.write_at(_FENCE_PLACE.offset, record + _U32.pack(google_crc32c.value(record)))
        self._file.datasync()
        return self.own(epoch)

    def own(self, epoch: int) -> SyncedEnd | None:
        """As `fence`, for an owner whose predecessors are fenced by other means: nothing is written."""
        self._epoch = epoch
        slot = self.read()
        self._commits = slot.commits if slot else 0
        return slot

    def check(self) -> None:
        """Raises `Fenced` where another owner came. Any thread may call it."""
        highest = self.fence_epoch()
        if highest > self._epoch:
            raise _fenced(self._path, self._epoch, highest)

    def publish(self, file_id: int, synced_end: int, last: Position, messages: int = 0) -> None:
        """Shows readers the data up to here, which must be synced."""
        self._commits += 1
        at, magic, _ = _slots_of(self._epoch)[(self._commits + 1) % 2]
        record = _SLOT.pack(
            magic,
            self.truncations,
            self._epoch,
            file_id,
            synced_end,
            last.ledger_id,
            last.entry_id,
            self._commits,
            messages,
        )
        self._file.write_at(at, record + _U32.pack(google_crc32c.value(record)))

    def hint(self, file_id: int, entry_id: int, offset: int) -> None:
        """Says where an entry of the open file is (or will be), so that a reader need not walk there from the file's head."""
        number = self._hinted[1] if self._hinted[0] == file_id else 0
        if number < HINTS_MAX:
            record = _HINT.pack(file_id, entry_id, offset)
            at = HINTS_AT + number * HINT_BYTES
            self._file.write_at(at, record + _U32.pack(google_crc32c.value(record)))
            self._hinted = (file_id, number + 1)

    def write_final_end(self, end: FinalEnd) -> None:
        """Ends a ledger for good, before the appends after that end are failed: no later owner may find their frames.

        Durable when it returns.
        """
        record = _FINAL_END.pack(_FINAL_END_PLACE.magic, 0, self._epoch, *end)
        self._file.write_at(_FINAL_END_PLACE.offset, record + _U32.pack(google_crc32c.value(record)))
        self._file.datasync()

    def reopen(self, files: Files) -> None:
        """Takes a new handle after a failed write: the failure poisoned the old one."""
        new = files.open(self._path, writable=True)
        with self._handle:
            old, self._file = self._file, new
            old.close()

    def sync(self) -> None:
        """Makes the slots durable; for a time without further publishes, such as after a close."""
        self._file.datasync()

    # -- everybody -----------------------------------------------------------------------------------------------

    def read(self) -> SyncedEnd | None:
        """The newest slot; None where nothing was published yet, or a power cut tore the only slot."""
        best: SyncedEnd | None = None
        for _ in range(_READ_ATTEMPTS):
            raw = self._read_at(_SLOTS_AT, _SLOTS_BYTES)
            slots = [slot for place in _SLOTS if (slot := _slot(raw, place)) is not None]
            if not slots:
                if all(is_blank(_record(raw, place)) for place in _SLOTS):
                    return None
                continue
            best = max(slots, key=lambda slot: (slot.epoch, slot.commits))
            # If the other slot of this owner is neither whole nor blank, the owner is writing a newer slot in this moment:
            # read again. (Or a power cut tore it: then `best` is the newest there is.)
            if all(_slot(raw, place) is not None or is_blank(_record(raw, place)) for place in _slots_of(best.epoch)):
                return best
        return best

    def read_of(self, file_id: int) -> SyncedEnd | None:
        """The newest slot, if it is about this file."""
        slot = self.read()
        return slot if slot is not None and slot.file_id == file_id else None

    def read_final_end(self) -> FinalEnd | None:
        """The newest final end; None where there is none."""
        raw = self._read_at(_FINAL_END_PLACE.offset, RECORD_BYTES)
        if len(raw) < RECORD_BYTES or google_crc32c.value(raw[:-4]) != _U32.unpack_from(raw, _CRC_AT)[0]:
            return None
        magic, _, _, file_id, frames_end, entries = _FINAL_END.unpack_from(raw)
        return FinalEnd(file_id, frames_end, entries) if magic == _FINAL_END_PLACE.magic else None

    def hints(self, file_id: int) -> list[tuple[int, int]]:
        """(entry, offset) pairs of the file, ascending. Only advice: the caller looks whether the entry is there."""
        raw = self._read_at(HINTS_AT, HINTS_MAX * HINT_BYTES)
        found = []
        for at in range(0, len(raw) - HINT_BYTES + 1, HINT_BYTES):
            number, entry, offset = _HINT.unpack_from(raw, at)
            if number != file_id or google_crc32c.value(raw[at : at + _HINT.size]) != _U32.unpack_from(raw, at + 28)[0]:
                break
            found.append((entry, offset))
        return found

    def _read_at(self, offset: int, size: int) -> bytes:
        with self._handle:
            return self._file.read_at(offset, size)

    def fence_epoch(self) -> int:
        """The highest epoch that an owner ever opened with; 0 where there was no owner yet."""
        raw = self._read_at(_FENCE_PLACE.offset, RECORD_BYTES)
        if is_blank(raw):
            return 0
        for _ in range(_READ_ATTEMPTS):
            if len(raw) == RECORD_BYTES and google_crc32c.value(raw[:-4]) == _U32.unpack_from(raw, _CRC_AT)[0]:
                return int(_FENCE.unpack_from(raw)[2])
            raw = self._read_at(_FENCE_PLACE.offset, RECORD_BYTES)
        # A power cut tore the record while an owner opened. That owner wrote nothing yet, and the metadata has its epoch.
        return 0


def is_blank(raw: bytes) -> bool:
    """Whether nothing was ever written here."""
    return not raw.strip(b"\0")


def _slots_of(epoch: int) -> tuple[RecordPlace, ...]:
    return _ODD_SLOTS if epoch % 2 else _EVEN_SLOTS


def _record(raw: bytes, place: RecordPlace) -> bytes:
    at = place.offset - _SLOTS_AT
    return raw[at : at + RECORD_BYTES]


def _slot(raw: bytes, place: RecordPlace) -> SyncedEnd | None:
    record = _record(raw, place)
    if len(record) < RECORD_BYTES or google_crc32c.value(record[:-4]) != _U32.unpack_from(record, _CRC_AT)[0]:
        return None
    found, truncations, epoch, file_id, synced_end, last_file, last_entry, commits, messages = _SLOT.unpack_from(record)
    if found != place.magic:
        return None
    return SyncedEnd(epoch, file_id, synced_end, Position(last_file, last_entry), commits, truncations, messages)


def _fenced(path: Path, epoch: int, highest: int) -> Fenced:
    return Fenced(
        f"{path.parent}: owner epoch {epoch} was replaced by epoch {highest}",
        hint="another process owns it now; stop this one",
    )
