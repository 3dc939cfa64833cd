"""The bytes of a segment (docs/formats/spool-segment.md)."""

from __future__ import annotations

import re
import struct
from typing import NamedTuple

from penstock.errors import Corruption
from penstock.files import Buffer
from penstock.log.frames.format import crc32c

FILE_MAGIC = b"PSS1"
VERSION = 1
RECORD_MAGIC = 0x5350
PAYLOAD_BYTES_MAX = (1 << 32) - 1

_FILE_HEADER = struct.Struct("<4sBBH16s")
_RECORD_HEAD = struct.Struct("<HBBI16s")
_CHECKSUM = struct.Struct("<I")
FILE_HEADER_BYTES = _FILE_HEADER.size
RECORD_HEADER_BYTES = _RECORD_HEAD.size + _CHECKSUM.size
_NAME = re.compile(r"([0-9a-f]{2})-(\d{10,})-([0-9a-f]{8})\.seg")


class SegmentName(NamedTuple):
    shard: int
    segment: int
    incarnation: str

    def __str__(self) -> str:
        return f"{self.shard:02x}-{self.segment:010d}-{self.incarnation[:8]}.seg"


def parse_name(name: str) -> SegmentName | None:
    """None for a file that is no segment."""
    found = _NAME.fullmatch(name)
    return SegmentName(int(found[1], 16), int(found[2]), found[3]) if found else None


def file_header(shard: int, incarnation: bytes) -> bytes:
    return _FILE_HEADER.pack(FILE_MAGIC, VERSION, shard, 0, incarnation)


class FileHeader(NamedTuple):
    shard: int
    incarnation: str


def parse_file_header(data: Buffer, what: object) -> FileHeader:
    magic, version, shard, reserved, incarnation = _FILE_HEADER.unpack_from(data)
    if (magic, version, reserved) != (FILE_MAGIC, VERSION, 0):
        raise Corruption(f"{what}: there is no segment: it begins with {bytes(data[:8]).hex()}")
    return FileHeader(shard, incarnation.hex())


def record_header(dispatcher: bytes, payload: Buffer) -> bytes:
    """What stands before the payload. The checksum covers the length and the dispatcher too, so that zeros do not pass."""
    head = _RECORD_HEAD.pack(RECORD_MAGIC, VERSION, 0, len(payload), dispatcher)
    return head + _CHECKSUM.pack(_checksum(head, payload))


class RecordHeader(NamedTuple):
    length: int
    dispatcher: bytes
    checksum: int


def parse_record_header(data: Buffer, what: object) -> RecordHeader:
    if len(data) < RECORD_HEADER_BYTES:
        raise Corruption(f"{what}: the record's header is cut off after {len(data)} bytes")
    magic, version, flags, length, dispatcher = _RECORD_HEAD.unpack_from(data)
    if (magic, version, flags) != (RECORD_MAGIC, VERSION, 0):
        raise Corruption(f"{what}: there is no record: it begins with {bytes(data[:4]).hex()}")
    return RecordHeader(length, dispatcher, _CHECKSUM.unpack_from(data, _RECORD_HEAD.size)[0])


def payload_of(record: Buffer, dispatcher: bytes | None, length: int, what: object) -> memoryview:
    """The payload of a record that was read whole. Raises `Corruption` unless every part of it is as expected."""
    header = parse_record_header(record, what)
    if header.length != length or len(record) != RECORD_HEADER_BYTES + length:
        raise Corruption(
            f"{what}: the record should hold {length} bytes, says {header.length} and has {len(record) - RECORD_HEADER_BYTES}"
        )
    if dispatcher is not None and header.dispatcher != dispatcher:
        raise Corruption(f"{what}: the record is of dispatcher {header.dispatcher.hex()}, not {dispatcher.hex()}")
    payload = memoryview(record)[RECORD_HEADER_BYTES:]
    found = _checksum(bytes(record[: _RECORD_HEAD.size]), payload)
    if found != header.checksum:
        raise Corruption(f"{what}: checksum {found:08x} instead of {header.checksum:08x} over {length} bytes")
    return payload


def _checksum(head: bytes, payload: Buffer) -> int:
    return crc32c(payload, crc32c(head))
