"""Looks at the files of a log without owning it: every byte that counts, what is wrong, and where.

Nothing here writes, takes a lock or waits for the owner, which may be at work meanwhile. What the owner changes in this
moment is looked at again before it is called damaged.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

import google_crc32c
import numpy as np

from penstock.errors import Corruption
from penstock.files import File, Files, read_file
from penstock.log.frames.end_file import EndFile, SyncedEnd, blank
from penstock.log.frames.file_header import FILE_HEADER_BYTES, LEDGER_MAGIC, read_file_header
from penstock.log.frames.format import HEADER_BYTES, MAGIC, BadFrame, Header, decode_changes, decode_header, verify_body
from penstock.log.frames.reader import FrameSource, find_end, rebuild_index
from penstock.log.ledgers.info import LedgerInfo, ledger_path, read_footer
from penstock.log.records.generations import InForce, locate
from penstock.log.records.record_log import Record

FAULTS_MAX = 100  # a file, so that a disk full of garbage still has a readable report
_ATTEMPTS = 5
_PAUSE_SECONDS = 0.02
_CHUNK_BYTES = 4 << 20
_RECORD_BYTES = 64
_HINT_BYTES = 32
_HINTS_AT = 4096
_END_RECORDS = (
    (0, b"PSE0", "fence"),
    (512, b"PSEA", "slot A"),
    (1024, b"PSEB", "slot B"),
    (1536, b"PSEC", "cut"),
    (2048, b"PSEA", "slot A of even epochs"),
    (2560, b"PSEB", "slot B of even epochs"),
)
_U32 = struct.Struct("<I")


class Fault(NamedTuple):
    """What is wrong, and where."""

    path: Path | str  # an object of a store is named by its URL
    offset: int
    what: str


class FrameLine(NamedTuple):
    """One frame, or (`header` is None) a stretch of bytes that is none. `fault` is empty where all checksums match."""

    offset: int
    bytes: int
    header: Header | None
    fault: str


class Examined(NamedTuple):
    """What a file holds, and its faults."""

    entries: int
    bytes: int
    faults: list[Fault]


def walk_frames(file: FrameSource, file_id: int, entry_id: int, stop: int) -> Iterator[FrameLine]:
    """Every frame up to byte `stop`, the bad ones too: after bytes that are no frame it goes on with the next that is."""
    offset, epoch = FILE_HEADER_BYTES, 0
    while offset < stop:
        try:
            header = decode_header(file.read_at(offset, HEADER_BYTES), 0, file_id)
        except BadFrame as error:
            after = _next_header(file, file_id, offset + 1, stop)
            yield FrameLine(offset, after - offset, None, str(error))
            offset, entry_id = after, -1  # how many are lost is not known
            continue
        fault = ""
        if offset + header.frame_bytes > stop:
            yield FrameLine(offset, stop - offset, header, "the frame reaches over the end")
            return
        try:
            decode_changes(verify_body(file.read_at(offset, header.frame_bytes), 0, header))
        except BadFrame as error:
            fault = str(error)
        if not fault and entry_id >= 0 and header.entry_id != entry_id:
            fault = f"entry {header.entry_id} stands where {entry_id} should"
        if not fault and header.epoch < epoch:
            fault = f"epoch {header.epoch} comes after epoch {epoch}"
        yield FrameLine(offset, header.frame_bytes, header, fault)
        offset += header.frame_bytes
        entry_id, epoch = header.entry_id + 1, max(epoch, header.epoch)


def _next_header(file: FrameSource, file_id: int, start: int, stop: int) -> int:
    """Where the next header of this file is that matches its checksum; `stop` where there is none."""
    at = start
    while at < stop:
        raw = file.read_at(at, min(_CHUNK_BYTES, stop - at))
        if len(raw) < len(MAGIC):
            break
        found = raw.find(MAGIC)
        while found >= 0:
            try:
                decode_header(file.read_at(at + found, HEADER_BYTES), 0, file_id)
                return at + found
            except BadFrame:
                found = raw.find(MAGIC, found + 1)
        at += len(raw) - len(MAGIC) + 1
    return stop


# -- ledgers -----------------------------------------------------------------------------------------------------


def examine_ledger(files: Files, directory: Path, uuid: UUID, info: LedgerInfo, end_file: EndFile | None) -> Examined:
    """Header, frames and footer of a ledger that the list names. Raises `FileNotFoundError`."""
    path = ledger_path(directory, info.id)
    file = files.open(path)
    try:
        faults = _caught(path, lambda: read_file_header(file, LEDGER_MAGIC, uuid, info.id))
        if info.sealed:
            return _examine_sealed(file, info, faults)
        return _examine_growing(file, info.id, 0, end_file, faults)
    finally:
        file.close()


def _examine_sealed(file: File, info: LedgerInfo, faults: list[Fault]) -> Examined:
    size = file.size()
    if info.footer:
        faults += _caught(file.path, lambda: read_footer(file, info))
    try:
        index = rebuild_index(file, info.id, info.entries, info.frames_end)
    except Corruption as error:
        faults += _frame_faults(file, info.id, 0, info.frames_end) or [_fault(file.path, error)]
        return Examined(info.entries, size, faults)
    if info.footer and not faults:
        footer = read_footer(file, info)
        times = np.asarray(index.finished_times(), np.uint64).reshape(-1, 2)
        if not np.array_equal(footer.offsets, np.asarray(index.offsets, np.uint64)):
            faults.append(Fault(file.path, info.frames_end, "the entry index does not say where the entries are"))
        if not np.array_equal(footer.times, times):
            faults.append(
                Fault(file.path, info.frames_end + 8 * info.entries, "the time index is not that of the entries")
            )
    return Examined(info.entries, size, faults)


def _examine_growing(
    file: File, file_id: int, first_entry: int, end_file: EndFile | None, faults: list[Fault]
) -> Examined:
    """A file that its owner appends to, or left so: all below the synced end counts; after it, what later entries claim."""
    slot = _slot_of(end_file, file_id)
    stop = slot.synced_end if slot else FILE_HEADER_BYTES
    entries = slot.last.entry_id + 1 - first_entry if slot and slot.last.ledger_id == file_id else 0
    try:
        entries = len(find_end(file, file_id, first_entry, stop)[1].offsets)
    except Corruption as error:
        found = _frame_faults(file, file_id, first_entry, min(stop, file.size()))
        # Without a fault below the synced end it is a later entry that claims more: the owner may have just written it.
        if found or file.size() < stop or _slot_of(end_file, file_id) == slot:
            faults += found or [_fault(file.path, error)]
    return Examined(entries, stop, faults)


def _slot_of(end_file: EndFile | None, file_id: int) -> SyncedEnd | None:
    slot = end_file.read() if end_file is not None else None
    return slot if slot is not None and slot.file_id == file_id else None


def _frame_faults(file: File, file_id: int, first_entry: int, stop: int) -> list[Fault]:
    faults: list[Fault] = []
    for line in walk_frames(file, file_id, first_entry, stop):
        if line.fault and len(faults) < FAULTS_MAX:
            which = f"entry {line.header.entry_id}: " if line.header else ""
            faults.append(Fault(file.path, line.offset, f"{which}{line.fault} ({line.bytes} bytes)"))
    return faults


# -- the end file ------------------------------------------------------------------------------------------------


def examine_end_file(files: Files, path: Path) -> list[Fault]:
    """Fence, slots, cut and hints; and that nothing stands between them."""
    if not files.exists(path):
        return [Fault(path, 0, "the file is missing")]
    faults: list[Fault] = []
    for attempt in range(_ATTEMPTS):
        found = _end_faults(path, read_file(files, path))
        # The owner may write a record while it is read: only what is wrong each time is wrong.
        faults = found if attempt == 0 else [fault for fault in faults if fault in found]
        if not faults:
            return []
        time.sleep(_PAUSE_SECONDS)
    return faults


def _end_faults(path: Path, raw: bytes) -> list[Fault]:
    faults: list[Fault] = []
    if len(raw) < _END_RECORDS[2][0] + _RECORD_BYTES:
        return [Fault(path, len(raw), "the file is cut")]
    after = 0
    for at, magic, name in _END_RECORDS:
        if not blank(raw[after:at]):
            faults.append(Fault(path, after, "bytes stand where none are written"))
        record = raw[at : at + _RECORD_BYTES]
        after = at + _RECORD_BYTES
        if not blank(record) and (record[:4] != magic or not _crc_matches(record)):
            faults.append(Fault(path, at, f"the {name} does not match its checksum"))
    if not blank(raw[after:_HINTS_AT]):
        faults.append(Fault(path, after, "bytes stand where none are written"))
    for at in range(_HINTS_AT, len(raw), _HINT_BYTES):
        hint = raw[at : at + _HINT_BYTES]
        if not blank(hint) and not _crc_matches(hint):
            faults.append(Fault(path, at, "a hint does not match its checksum (readers do without it)"))
    return faults


def _crc_matches(record: bytes) -> bool:
    return len(record) > 4 and google_crc32c.value(record[:-4]) == _U32.unpack(record[-4:])[0]


# -- record logs -------------------------------------------------------------------------------------------------


def examine_record_log(files: Files, directory: Path, name: str) -> Examined:
    """Every file of the record log, its owner at work or not."""
    faults = examine_end_file(files, directory / f"{name}.end")
    try:
        found = in_force(files, directory, name)
    except Corruption as error:
        return Examined(0, 0, [*faults, _named_fault(directory / f"{name}.current", error)])
    end_file = EndFile.open(files, directory / f"{name}.end")
    try:
        return _examine_growing(found.file, found.number, found.header.first_entry, end_file, faults)
    finally:
        end_file.close()
        found.file.close()


def read_records(files: Files, directory: Path, name: str) -> list[Record]:
    """The durable records, without owning the record log. Raises `Corruption`."""
    found = in_force(files, directory, name)
    end_file = EndFile.open(files, directory / f"{name}.end")
    try:
        slot = _slot_of(end_file, found.number)
        # No slot of this generation: the owner is just bringing it into force, whole and synced.
        stop = slot.synced_end if slot else find_end(found.file, found.number, found.header.first_entry, 0)[0]
        return list(_records(found.file, found.number, found.header.first_entry, stop))
    finally:
        end_file.close()
        found.file.close()


def in_force(files: Files, directory: Path, name: str) -> InForce:
    """The generation that counts, open. Raises `Corruption`. The owner may move on meanwhile: only what is wrong each time is wrong."""
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


def _caught(path: Path, look: Callable[[], object]) -> list[Fault]:
    try:
        look()
    except Corruption as error:
        return [_fault(path, error)]
    return []


def _named_fault(path: Path, error: Corruption) -> Fault:
    """The file that the error itself names; `path` where it names none."""
    damaged, separator, _ = error.message.partition(" is damaged at byte ")
    return _fault(Path(damaged) if separator else path, error)


def _fault(path: Path, error: Corruption) -> Fault:
    """The one sentence of `corruption`, taken apart again."""
    where, separator, what = error.message.removeprefix(f"{path} is damaged at byte ").partition(": ")
    if separator and where.isdecimal():
        return Fault(path, int(where), what)
    return Fault(path, 0, error.message)
