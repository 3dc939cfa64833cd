"""The entry: what capture appends to the log (docs/formats/entry.md).

`encode_entry` makes the buffers of an entry without copying the events; `parse_entry` gives views into the entry's
bytes, never copies. Bytes that are not an entry raise `BadEntry`, which says what is wrong and where.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from penstock.binlog.types import Flavour
from penstock.errors import BadInput, Corruption
from penstock.files import Buffer

MAGIC = b"PSE1"
VERSION = 1
EVENTS_BYTES_MAX = 16 << 20  # of events in an entry; a single event that is larger gets an entry of its own

TXN_DTYPE = np.dtype(
    [
        ("offset", "<u4"),
        ("length", "<u4"),
        ("commit_ts", "<u8"),
        ("start_pos", "<u8"),
        ("end_pos", "<u8"),
        ("first_event", "<u4"),
        ("events", "<u4"),
        ("file", "<u2"),
        ("end_file", "<u2"),
        ("part", "u1"),
        ("kind", "u1"),
        ("tag", "<u2"),
        ("reserved", "<u8"),
        ("gtid", "V24"),
    ]
)
"""One transaction, or one part of it, in an entry: 80 bytes."""

_FIXED = struct.Struct("<4sBBBB")
_U16 = struct.Struct("<H")
_U32 = struct.Struct("<I")
_GTID_MARIADB = struct.Struct("<IIQ8x")

TxnArray = npt.NDArray[np.void]

__all__ = [
    "EVENTS_BYTES_MAX",
    "TXN_DTYPE",
    "BadEntry",
    "EntryHeader",
    "Flavour",
    "Kind",
    "ParsedEntry",
    "Part",
    "TxnArray",
    "encode_entry",
    "gtid_text",
    "pack_gtid",
    "parse_buffers",
    "parse_entry",
]


class Part(IntEnum):
    """Which part of its transaction a record is."""

    WHOLE = 0
    FIRST = 1
    MIDDLE = 2
    LAST = 3


class Kind(IntEnum):
    """What a record stands for (docs/formats/entry.md)."""

    ROWS = 0
    DDL = 1
    HELD = 2
    CHUNK = 3
    VOID = 4


class BadEntry(Corruption):
    """The bytes of a log entry are not an entry of a version that this build reads."""


@dataclass(frozen=True, slots=True)
class EntryHeader:
    """What all events of an entry share."""

    flavour: Flavour
    checksum: bool  # each event ends with four bytes of CRC
    source: str
    files: tuple[str, ...]
    fde: bytes  # the FORMAT_DESCRIPTION event, whole
    tags: tuple[str, ...] = ()  # of GTIDs; a record names one by its index + 1


@dataclass(frozen=True, slots=True)
class ParsedEntry:
    """Views into an entry: valid as long as its buffer is."""

    header: EntryHeader
    transactions: TxnArray  # dtype TXN_DTYPE
    events: npt.NDArray[np.uint8]


def pack_gtid(domain: int, server: int, sequence: int) -> bytes:
    """A MariaDB GTID in the 24 bytes of a transaction record."""
    return _GTID_MARIADB.pack(domain, server, sequence)


def gtid_text(flavour: Flavour, raw: bytes, tag: str = "") -> str:
    """`0-1-42`, or `uuid:number` or `uuid:tag:number` for MySQL; empty where the GTID is unknown."""
    if not any(raw):
        return ""
    if flavour is Flavour.MARIADB:
        domain, server, sequence = _GTID_MARIADB.unpack(raw)
        return f"{domain}-{server}-{sequence}"
    text = raw[:16].hex()
    uuid = "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))
    return f"{uuid}:{tag}{':' if tag else ''}{int.from_bytes(raw[16:], 'little')}"


def encode_entry(header: EntryHeader, transactions: TxnArray, events: Sequence[Buffer]) -> list[Buffer]:
    """The entry's bytes as buffers, in order: a head, then `events` as they are."""
    if transactions.dtype != TXN_DTYPE:
        raise BadInput(f"transactions have dtype {transactions.dtype}, not TXN_DTYPE")
    source = header.source.encode()
    events_length = sum(memoryview(part).nbytes for part in events)
    head = bytearray(_FIXED.pack(MAGIC, VERSION, header.flavour, int(header.checksum), 0))
    head += _U16.pack(len(source)) + source
    for names in (header.files, header.tags):
        head += _U16.pack(len(names))
        for encoded in (name.encode() for name in names):
            head += _U16.pack(len(encoded)) + encoded
    head += _U32.pack(len(header.fde)) + header.fde
    head += _U32.pack(len(transactions)) + transactions.tobytes()
    head += _U32.pack(events_length)
    return [bytes(head), *events]


def parse_entry(data: Buffer) -> ParsedEntry:
    """Views into an entry. Raises `BadEntry` unless all lengths add up and every record points inside the entry."""
    raw = np.frombuffer(data, np.uint8)
    reader = _ByteReader(memoryview(data).cast("B"))
    header, transactions, length = _parse_head(reader, raw)
    start = reader.at
    reader.take(length, "events")
    if reader.at != len(raw):
        raise BadEntry(f"{len(raw) - reader.at} bytes follow the entry's events")
    return ParsedEntry(header, transactions, raw[start : reader.at])


def parse_buffers(buffers: Sequence[Buffer]) -> ParsedEntry:
    """`parse_entry` of what `encode_entry` made, without copying the events if they are in one buffer."""
    if len(buffers) != 2:
        return parse_entry(b"".join(buffers))
    raw, events = np.frombuffer(buffers[0], np.uint8), np.frombuffer(buffers[1], np.uint8)
    header, transactions, length = _parse_head(_ByteReader(memoryview(buffers[0]).cast("B")), raw)
    if length != len(events):
        raise BadEntry(f"{len(events)} bytes of events, but the entry has {length}")
    return ParsedEntry(header, transactions, events)


def _parse_head(reader: _ByteReader, raw: npt.NDArray[np.uint8]) -> tuple[EntryHeader, TxnArray, int]:
    """Everything before the events, and how many bytes of them follow."""
    magic, version, flavour, checksum, _ = _FIXED.unpack(reader.take(_FIXED.size, "header"))
    if magic != MAGIC:
        raise BadEntry(f"an entry starts with {magic!r}, not {MAGIC!r}", hint="the log holds something else")
    if version != VERSION:
        raise BadEntry(f"entry version {version} is unknown", hint="it was written by a newer Penstock: upgrade")
    if flavour > 1 or checksum > 1:
        raise BadEntry(f"entry flavour {flavour}, checksum {checksum}: unknown values")
    source = reader.text("source id")
    files = tuple(reader.text("file name") for _ in range(reader.u16("file count")))
    tags = tuple(reader.text("tag") for _ in range(reader.u16("tag count")))
    fde = bytes(reader.take(reader.u32("format description length"), "format description"))
    count = reader.u32("transaction count")
    start = reader.at
    reader.take(count * TXN_DTYPE.itemsize, "transaction records")
    transactions = raw[start : reader.at].view(TXN_DTYPE) if count else np.empty(0, TXN_DTYPE)
    length = reader.u32("events length")
    if count:
        ends = transactions["offset"].astype(np.uint64) + transactions["length"]
        file = int(max(transactions["file"].max(), transactions["end_file"].max()))
        if int(ends.max()) > length or file >= len(files) or int(transactions["tag"].max()) > len(tags):
            raise BadEntry("a transaction record points outside its entry")
    return EntryHeader(Flavour(flavour), bool(checksum), source, files, fde, tags), transactions, length


class _ByteReader:
    """Takes bytes off the front. Where too few are left, the error names what they were for."""

    def __init__(self, view: memoryview) -> None:
        self._view = view
        self.at = 0

    def take(self, size: int, what: str) -> memoryview:
        end = self.at + size
        if end > len(self._view):
            raise BadEntry(f"the entry ends inside its {what}: {size} bytes at {self.at}, of {len(self._view)}")
        taken = self._view[self.at : end]
        self.at = end
        return taken

    def u16(self, what: str) -> int:
        return int(_U16.unpack(self.take(2, what))[0])

    def u32(self, what: str) -> int:
        return int(_U32.unpack(self.take(4, what))[0])

    def text(self, what: str) -> str:
        try:
            return str(self.take(self.u16(what), what), "utf-8")
        except UnicodeDecodeError as error:
            raise BadEntry(f"the entry's {what} is not UTF-8") from error
