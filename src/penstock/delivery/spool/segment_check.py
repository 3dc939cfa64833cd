"""Looks at every byte of one segment without owning it: what it holds, for whom, and what is damaged. Changes nothing.

The process that writes the segment may go on meanwhile, or may have died while it wrote. So a record that the file ends in
is *unfinished*, not damaged, unless a whole record comes after it. After damage the look goes on at the next record whose
checksum is right.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import google_crc32c

from penstock.delivery.spool.segment_format import (
    FILE_HEADER_BYTES,
    RECORD_HEADER_BYTES,
    RECORD_MAGIC,
    VERSION,
    SegmentName,
    parse_file_header,
    parse_record_header,
)
from penstock.errors import Corruption
from penstock.files import File, Files

CHUNK_BYTES = 1 << 20
_RECORD_START = struct.pack("<HBB", RECORD_MAGIC, VERSION, 0)
_CHECKSUM_BYTES = 4


@dataclass(frozen=True, slots=True)
class RecordSeen:
    """A record whose length fits. `damage` is empty where its checksum is right."""

    offset: int
    length: int
    dispatcher: str
    checksum: int
    damage: str = ""


@dataclass(frozen=True, slots=True)
class Damage:
    offset: int
    bytes: int
    reason: str


@dataclass(slots=True)
class Share:
    """What a segment holds of one dispatcher. Whether it is still needed only the process knows that wrote it."""

    records: int = 0
    bytes: int = 0


@dataclass(slots=True)
class SegmentSeen:
    """`incarnation` is that of the header, empty where that cannot be read; `bytes` the file's length when it was opened."""

    path: Path
    name: SegmentName
    bytes: int
    incarnation: str = ""
    records: int = 0
    payload_bytes: int = 0
    unfinished_bytes: int = 0
    dispatchers: dict[str, Share] = field(default_factory=dict)
    damage: list[Damage] = field(default_factory=list)


def check_segment(files: Files, path: Path, name: SegmentName, into: list[RecordSeen] | None = None) -> SegmentSeen:
    """Reads the whole file, a megabyte at a time. Each record goes to `into` where that is given. Raises
    `FileNotFoundError` for a segment that was deleted: it is not needed any more."""
    file = files.open(path)
    try:
        seen = SegmentSeen(path, name, file.size())
        if not _check_header(file, seen):
            return seen
        for found in _records(file, seen.bytes, seen):
            if into is not None:
                into.append(found)
            if found.damage:
                seen.damage.append(Damage(found.offset, RECORD_HEADER_BYTES + found.length, found.damage))
                continue
            share = seen.dispatchers.setdefault(found.dispatcher, Share())
            share.records += 1
            share.bytes += found.length
            seen.records += 1
            seen.payload_bytes += found.length
        return seen
    finally:
        file.close()


def _check_header(file: File, seen: SegmentSeen) -> bool:
    """False where no record can be looked for."""
    if seen.bytes < FILE_HEADER_BYTES:
        seen.unfinished_bytes = seen.bytes
        return False
    try:
        header = parse_file_header(file.read_at(0, FILE_HEADER_BYTES), seen.path)
    except Corruption as error:
        seen.damage.append(Damage(0, FILE_HEADER_BYTES, error.message))
        return True
    seen.incarnation = header.incarnation
    if header.shard != seen.name.shard or not header.incarnation.startswith(seen.name.incarnation):
        what = f"says shard {header.shard:02x} and process {header.incarnation[:8]}, which its name does not"
        seen.damage.append(Damage(0, FILE_HEADER_BYTES, f"the header {what}"))
    return True


def _records(file: File, end: int, seen: SegmentSeen) -> Iterator[RecordSeen]:
    """The records in file order. Bytes that are none go to `seen`."""
    offset = FILE_HEADER_BYTES
    while offset < end:
        found = _record_at(file, offset, end)
        after = end if found is None else offset + RECORD_HEADER_BYTES + found.length
        if found is not None and (not found.damage or _begins_record(file, after, end)):
            yield found
            offset = after
            continue
        next_offset = _next_record(file, offset + 1, end)
        if next_offset is not None:
            reason = found.damage if found is not None else "there is no record"
            seen.damage.append(Damage(offset, next_offset - offset, reason))
            offset = next_offset
        elif found is not None or not _may_be_unfinished(file, offset, end):
            reason = found.damage if found is not None else "there is no record from here to the end"
            seen.damage.append(Damage(offset, end - offset, reason))
            return
        else:
            seen.unfinished_bytes = end - offset
            return


def _record_at(file: File, offset: int, end: int) -> RecordSeen | None:
    """None where no header is, or its record would go beyond the end."""
    try:
        head = file.read_at(offset, min(RECORD_HEADER_BYTES, end - offset))
        header = parse_record_header(head, "")
    except Corruption:
        return None
    if offset + RECORD_HEADER_BYTES + header.length > end:
        return None
    found = google_crc32c.value(head[:-_CHECKSUM_BYTES])
    at, left = offset + RECORD_HEADER_BYTES, header.length
    while left:
        part = file.read_at(at, min(CHUNK_BYTES, left))
        if not part:
            return None  # the file became shorter: somebody truncated it
        found = google_crc32c.extend(found, part)
        at, left = at + len(part), left - len(part)
    damage = "" if found == header.checksum else f"checksum {found:08x} instead of {header.checksum:08x}"
    return RecordSeen(offset, header.length, header.dispatcher.hex(), header.checksum, damage)


def _begins_record(file: File, offset: int, end: int) -> bool:
    """Whether a length leads to a place where a record may begin, or to the end: then it is right, and the payload is not."""
    return offset == end or _may_be_unfinished(file, offset, end)


def _may_be_unfinished(file: File, offset: int, end: int) -> bool:
    """Whether what is there is how a record begins."""
    start = file.read_at(offset, min(len(_RECORD_START), end - offset))
    return _RECORD_START.startswith(start)


def _next_record(file: File, offset: int, end: int) -> int | None:
    """The next place with a whole record whose checksum is right."""
    while offset < end:
        chunk = file.read_at(offset, min(CHUNK_BYTES, end - offset))
        at = chunk.find(_RECORD_START)
        if at < 0:
            if len(chunk) <= len(_RECORD_START):
                return None
            offset += len(chunk) - len(_RECORD_START) + 1
            continue
        found = _record_at(file, offset + at, end)
        if found is not None and not found.damage:
            return offset + at
        offset += at + 1
    return None
