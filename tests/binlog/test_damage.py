"""Damaged bytes end in a typed error or in values, never in a crash or an endless loop, and they cost little: a few
hundred bytes, whatever they claim to be, take neither memory nor time worth a name."""

from __future__ import annotations

import struct

import pytest

from penstock.binlog.bodies import (
    parse_format_description,
    parse_gtid,
    parse_mariadb_gtid,
    parse_query,
    parse_xa_prepare,
)
from penstock.binlog.errors import BadChecksum, BadEvent
from penstock.binlog.events import split_events, verify_checksums
from penstock.binlog.rows import decode_rows, group_rows
from penstock.binlog.table_map import parse_table_map
from penstock.binlog.types import ColumnType as C
from penstock.errors import BadInput
from tests.binlog.build import FDE, event, image, msb_bits, packed, rows, table_map, time2, tlv

COLUMNS = [
    (C.LONG, b""),
    (C.VARCHAR, struct.pack("<H", 300)),
    (C.NEWDECIMAL, bytes([20, 4])),
    (C.NEWDECIMAL, bytes([50, 10])),
    (C.DATETIME2, b"\x06"),
    (C.TIME2, b"\x03"),
    (C.BLOB, b"\2"),
    (C.STRING, bytes([C.ENUM, 1])),
    (C.BIT, b"\1\1"),
    (C.JSON, b"\4"),
    (C.STRING, bytes([C.STRING, 12])),
]
NAMES = b"".join(packed(2) + f"c{chr(97 + i)}".encode() for i in range(len(COLUMNS)))
METADATA = (
    tlv(1, msb_bits([True, False, False]))
    + tlv(2, bytes([45, 1, 8]))
    + tlv(4, NAMES)
    + tlv(6, b"\2\1a\1b")
    + tlv(8, b"\0")
)


def _row(i: int) -> bytes:
    json = b"\0\1\0\x0c\0\x0b\0\1\0\5\1\0a"
    values: list[bytes | None] = [
        struct.pack("<i", i),
        struct.pack("<H", 5) + b"hello",
        b"\x80" + b"\0" * 9,
        b"\x80" + b"\0" * 22,
        (0x8000000000 + ((2024 * 13 + 2) << 22)).to_bytes(5, "big") + b"\0\0\1",
        time2(-1_500_000, 3),
        struct.pack("<H", 3) + b"caf",
        b"\1",
        b"\1\xff",
        struct.pack("<I", len(json)) + json,
        b"\3abc",
    ]
    return image([None if (i + k) % 5 == 0 else value for k, value in enumerate(values)])


def _buffer() -> bytes:
    n = len(COLUMNS)
    buffer = table_map(COLUMNS, metadata=METADATA) + rows(30, n, [_row(i) for i in range(3)])
    buffer += rows(24, n, [_row(1), _row(2)]) + table_map(COLUMNS, table_id=8, table="u", metadata=METADATA)
    return buffer + rows(32, n, [_row(4)], table_id=8)


def _decode(buffer: bytes) -> int:
    events = split_events(buffer)
    total = 0
    for layout, chosen in group_rows(buffer, events, FDE).groups():
        start = int(events.offset[layout])
        table = parse_table_map(buffer[start : start + int(events.size[layout])], FDE)
        for decoded in decode_rows(buffer, events, chosen, table, FDE):
            for array in (*decoded.before, *decoded.after):
                array.validate(full=True)
            total += len(decoded)
    return total


def test_cut_and_too_small_events() -> None:
    good = event(2, b"x" * 30)
    with pytest.raises(BadEvent, match="offset 49"):
        split_events(good + good[:10])
    with pytest.raises(BadEvent, match=r"offset 49 \(QUERY\)"):
        split_events(good + good[:-1])
    assert split_events(good + good[:-1], whole=False).consumed == 49
    with pytest.raises(BadEvent, match="size of 3"):
        split_events(struct.pack("<IBIIIH", 0, 2, 1, 3, 0, 0))
    assert len(split_events(b"")) == 0


def test_checksums() -> None:
    for size in (0, 5, 8, 100, 5000):
        buffer = event(2, b"y" * size, crc=True) * 3
        events = split_events(buffer)
        verify_checksums(buffer, events)
        for at in range(0, len(buffer), max(1, len(buffer) // 40)):
            if at % len(event(2, b"y" * size, crc=True)) in range(9, 13):
                continue  # the size itself: there is no such event any more
            damaged = bytearray(buffer)
            damaged[at] ^= 0x10
            with pytest.raises(BadChecksum):
                verify_checksums(bytes(damaged), split_events(bytes(damaged)))


def test_checksum_of_a_file_in_use() -> None:
    closed = event(15, b"z" * 80, crc=True)
    opened = bytearray(closed)
    opened[17] |= 1
    verify_checksums(bytes(opened), split_events(bytes(opened)))


def test_short_bodies() -> None:
    for parse, kind in ((parse_query, 2), (parse_gtid, 33), (parse_mariadb_gtid, 162), (parse_xa_prepare, 38)):
        for size in range(13):
            with pytest.raises(BadEvent):
                parse(event(kind, b"\xff" * size), FDE)
    for size in range(56):
        with pytest.raises(BadInput):
            parse_format_description(event(15, b"\4\0" + b"5.7.1\0".ljust(size, b"\0")))
