"""The run format (docs/formats/checkpoint.md): pack and parse header, footer and the table of namespaces. No I/O."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

import google_crc32c

from penstock.errors import NotSupported
from penstock.log.position import Position

VERSION = 1
HEADER_BYTES = 64
FOOTER_BYTES = 128
PAGE_SHIFT = 12
PAGE_BYTES = 1 << PAGE_SHIFT
PAGE_MASK = PAGE_BYTES - 1
STRIPE_PAGES = 8  # pages of data for each page of parity
ANCHOR_EVERY = 32
TOMBSTONE = 0xFFFFFFFF  # as value_len
RECORD = struct.Struct("<II")  # key_len, value_len
RECORD_BYTES = RECORD.size
SLOT = struct.Struct("<Q")  # of the index; an anchor too
HASH_FACTOR = 0x9E3779B1
U32_MASK = 0xFFFFFFFF
TAG_BITS = 16
TAG_MASK = (1 << TAG_BITS) - 1

_HEADER = struct.Struct("<4sBBHQQqQQ12x")
_FOOTER = struct.Struct("<4sBBHQQQQQQQQQQQQQ8xI")
_NAMESPACE = struct.Struct("<QQQQQ")
_U32 = struct.Struct("<I")
_HEADER_MAGIC = b"PSC1"
_FOOTER_MAGIC = b"PSCE"


class BadRun(Exception):
    """A run or a manifest is damaged. Its readers turn it into a `Finding`, and step over the checkpoint."""

    def __init__(self, offset: int, problem: str) -> None:
        super().__init__(problem)
        self.offset = offset
        self.problem = problem


class Header(NamedTuple):
    run_id: int
    position: Position  # of the newest change that may be in the run
    wall_ms: int
    oldest_id: int  # the lowest id of the runs that were merged into this one; its own, if none


class Footer(NamedTuple):
    """`…_at`: the offset of a section; the field after it: how many items it has."""

    run_id: int
    file_bytes: int
    namespaces_at: int
    namespaces: int
    anchors_at: int
    anchors: int
    index_at: int
    slots: int
    pages_at: int
    pages: int
    puts: int
    tombstones: int
    content_bytes: int
    pages_crc: int


class Section(NamedTuple):
    """Where the records of one namespace lie, and how many there are."""

    namespace: int
    start: int
    end: int
    puts: int
    tombstones: int


def salt_of(namespace: int) -> int:
    """Makes the hashes of equal keys differ between namespaces."""
    return namespace * 0x85EBCA6B & U32_MASK


def slots_for(records: int) -> int:
    """Slots of the index: at most seven of ten are taken, and one is always free."""
    return records * 10 // 7 + 1


def aligned(offset: int) -> int:
    return -(-offset // 8) * 8


def pack_header(header: Header) -> bytes:
    run_id, (ledger, entry), wall_ms, oldest_id = header
    raw = _HEADER.pack(_HEADER_MAGIC, VERSION, 0, 0, run_id, ledger, entry, wall_ms, oldest_id)
    return raw + _U32.pack(google_crc32c.value(raw))


def parse_header(raw: bytes) -> Header:
    _check(raw[:HEADER_BYTES], HEADER_BYTES, _HEADER_MAGIC, 0, "header")
    _, _, _, _, run_id, ledger, entry, wall_ms, oldest_id = _HEADER.unpack_from(raw)
    return Header(run_id, Position(ledger, entry), wall_ms, oldest_id)


def pack_footer(footer: Footer) -> bytes:
    raw = _FOOTER.pack(_FOOTER_MAGIC, VERSION, 0, 0, *footer)
    return raw + _U32.pack(google_crc32c.value(raw))


def parse_footer(raw: bytes, at: int) -> Footer:
    _check(raw, FOOTER_BYTES, _FOOTER_MAGIC, at, "footer")
    return Footer(*_FOOTER.unpack_from(raw)[4:])


def footer_crc(raw: bytes) -> int:
    return int(_U32.unpack_from(raw, FOOTER_BYTES - 4)[0])


def pack_sections(sections: Sequence[Section]) -> bytes:
    return b"".join(_NAMESPACE.pack(*section) for section in sections)


def parse_sections(raw: bytes) -> list[Section]:
    return [Section(*fields) for fields in _NAMESPACE.iter_unpack(raw)]


def _check(raw: bytes, size: int, magic: bytes, at: int, what: str) -> None:
    if len(raw) != size:
        raise BadRun(at, f"the {what} is incomplete")
    if raw[:4] != magic:
        raise BadRun(at, f"there is no {what}")
    if google_crc32c.value(raw[:-4]) != _U32.unpack_from(raw, size - 4)[0]:
        raise BadRun(at, f"the checksum of the {what} does not match")
    if raw[4] != VERSION or raw[5] != 0:
        raise NotSupported(
            f"version {raw[4]} with flags {raw[5]:#x} of a state checkpoint is not known",
            hint="a newer Penstock wrote it: upgrade",
        )
