"""Compressed events stand for plain ones: made here with other tools, and read back."""

from __future__ import annotations

import dataclasses
import struct
import zlib
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest

from penstock.binlog.bodies import CHECKSUM_CRC32, FormatDescription, parse_query
from penstock.binlog.errors import BadEvent
from penstock.binlog.events import split_events, verify_checksums
from penstock.binlog.expand import PART_BYTES, expand_events, plain_events
from penstock.binlog.rows import decode_rows, group_rows
from penstock.binlog.table_map import parse_table_map
from penstock.binlog.types import ColumnType as C
from penstock.binlog.types import EventType as E
from tests.binlog.build import FDE, event, image, rows, table_map
from tests.support.bounded import bounded

CRC = dataclasses.replace(FDE, checksum=CHECKSUM_CRC32)
NUMBER = [(C.LONG, b"")]


def lenenc(value: int) -> bytes:
    if value < 251:
        return bytes([value])
    return b"\xfc" + struct.pack("<H", value) if value < 1 << 16 else b"\xfe" + struct.pack("<Q", value)


def field(kind: int, value: int) -> bytes:
    return lenenc(kind) + lenenc(len(lenenc(value))) + lenenc(value)


def zstd(data: bytes) -> bytes:
    """A frame that does not say how long its content is, as servers write them."""
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(data)
    return sink.getvalue().to_pybytes()


def payload(plain: bytes, *, algorithm: int = 0, size: int | None = None, crc: bool = False) -> bytes:
    data = zstd(plain) if algorithm == 0 else plain
    header = field(2, algorithm) + field(3, len(plain) if size is None else size) + field(1, len(data)) + b"\0"
    return event(E.TRANSACTION_PAYLOAD, header + data, crc=crc)


def deflated(data: bytes) -> bytes:
    """A compressed block of MariaDB."""
    length = len(data).to_bytes((len(data).bit_length() + 7) // 8 or 1, "big")
    return bytes([0x80 | len(length)]) + length + zlib.compress(data)


def compressed(kind: int, plain: bytes, head: int, *, crc: bool = False) -> bytes:
    """A plain event as MariaDB compresses it: all after the first `head` bytes of its body."""
    body = plain[19:]
    return event(kind, body[:head] + deflated(body[head:]), crc=crc)


def inserts(count: int, first: int = 0) -> bytes:
    return rows(30, 1, [image([struct.pack("<i", first + i)]) for i in range(count)])


def numbers(buffer: bytes, fde: FormatDescription) -> tuple[list[int], list[int]]:
    """All values of the buffer's rows, and the index of the event in the buffer that each row came from."""
    expanded = expand_events(buffer, split_events(buffer), fde)
    if fde.trailer_bytes:
        verify_checksums(expanded.buffer, expanded.events)
    values, origins = [], []
    for layout, chosen in group_rows(expanded.buffer, expanded.events, fde).groups():
        start, size = int(expanded.events.offset[layout]), int(expanded.events.size[layout])
        table = parse_table_map(expanded.buffer[start : start + size].tobytes(), fde)
        for found in decode_rows(expanded.buffer, expanded.events, chosen, table, fde):
            values += found.after[0].to_pylist()
            origins += expanded.origin[found.event].tolist()
    return values, origins


@pytest.mark.parametrize("algorithm", [0, 255])
@pytest.mark.parametrize("fde", [FDE, CRC])
def test_a_payload_is_its_events(fde: FormatDescription, algorithm: int) -> None:
    crc = bool(fde.checksum)
    inner = table_map(NUMBER) + inserts(3) + inserts(2, 3) + event(E.XID, b"\0" * 8)
    query = event(E.QUERY, b"\0" * 13 + b"\0BEGIN", crc=crc)
    values, origins = numbers(query + payload(inner, algorithm=algorithm, crc=crc) + query, fde)
    assert values == [0, 1, 2, 3, 4] and origins == [1] * 5


def test_a_buffer_without_compressed_events_is_itself() -> None:
    buffer = table_map(NUMBER) + inserts(2)
    expanded = expand_events(buffer, split_events(buffer), FDE)
    assert np.shares_memory(expanded.buffer, np.frombuffer(buffer, np.uint8)) and expanded.origin.tolist() == [0, 1]


def test_a_large_payload_comes_in_parts_of_whole_events() -> None:
    count = 3 * PART_BYTES // 40_000
    big = rows(30, 1, [image([struct.pack("<i", 7)])] * (2 * PART_BYTES // 5))  # larger than a part
    inner = table_map(NUMBER) + b"".join(inserts(8000, i) for i in range(count)) + big + inserts(1)
    sizes, found = [], 0
    outer = payload(inner)
    with bounded(mib=8 * PART_BYTES / (1 << 20), cpu_seconds=20):
        for part in plain_events(outer, FDE):
            sizes.append(len(part))
            found += len(split_events(part))
    assert sum(sizes) == len(inner) and found == count + 3 and len(sizes) >= 3
    assert max(sizes) <= len(big) + 2 * PART_BYTES


@pytest.mark.parametrize("fde", [FDE, CRC])
def test_compressed_events_of_mariadb(fde: FormatDescription) -> None:
    crc = bool(fde.checksum)
    sql = b"INSERT INTO t VALUES ('" + b"x" * 500 + b"')"
    head = struct.pack("<IIBHH", 9, 0, 2, 0, 3) + b"\x08\x2d\0" + b"db\0"
    query = compressed(E.QUERY_COMPRESSED, event(E.QUERY, head + sql), len(head), crc=crc)
    expanded = expand_events(query, split_events(query), fde)
    parsed = parse_query(expanded.buffer.tobytes(), fde)
    assert (parsed.sql.encode(), parsed.schema, parsed.thread_id) == (sql, "db", 9)
    maps = event(E.TABLE_MAP, table_map(NUMBER)[19:], crc=crc)
    v2 = compressed(E.WRITE_ROWS_COMPRESSED, inserts(4), 6 + 2 + 2 + 1 + 1, crc=crc)
    v1 = compressed(E.WRITE_ROWS_COMPRESSED_V1, rows(23, 1, [image([struct.pack("<i", 9)])]), 6 + 2 + 1 + 1, crc=crc)
    update = rows(24, 1, [image([struct.pack("<i", 1)]), image([struct.pack("<i", 5)])])
    updates = compressed(E.UPDATE_ROWS_COMPRESSED_V1, update, 6 + 2 + 1 + 2, crc=crc)
    assert numbers(maps + v2 + v1 + updates, fde) == ([0, 1, 2, 3, 9, 5], [1, 1, 1, 1, 2, 3])


INNER = table_map(NUMBER) + inserts(3)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: payload(INNER, size=len(INNER) - 1), "plain bytes, but there are more"),
        (lambda: payload(INNER, size=len(INNER) + 1), "plain bytes, but there are"),
        (lambda: payload(INNER[:-1]), "has 37 bytes, but only 36 are left|are left"),
        (lambda: payload(payload(INNER)), "inside a compressed one"),
        (lambda: payload(INNER, algorithm=7), "compression 7"),
        (lambda: event(40, field(2, 0) + field(3, 9) + field(1, 9) + b"\0" + b"x" * 9), "decompressed"),
        (lambda: event(40, field(2, 0) + field(1, 100) + b"\0" + b"x" * 9), "says 100 compressed bytes"),
        (lambda: event(40, b"\1\5"), "cut in its header"),
        (lambda: event(40, b""), "cut in its header"),
        (lambda: event(E.WRITE_ROWS_COMPRESSED_V1, bytes(8) + b"\1\xff" + b"\x81\5nonsense"), "decompressed"),
        (
            lambda: event(E.WRITE_ROWS_COMPRESSED_V1, bytes(8) + b"\1\xff" + b"\x81\2" + zlib.compress(b"abc")),
            "not of 2",
        ),
        (lambda: event(E.WRITE_ROWS_COMPRESSED_V1, bytes(8) + b"\1\xff" + b"\x91\3" + zlib.compress(b"abc")), "begin"),
        (lambda: event(E.QUERY_COMPRESSED, bytes(3)), "too short"),
        (lambda: event(E.QUERY_COMPRESSED, b"\0" * 8 + b"\xff" * 5), "begin"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(make: Callable[[], bytes], says: str) -> None:
    before = event(2, b"x" * 30)
    buffer = before + make()
    with pytest.raises(BadEvent, match=rf"offset {len(before)} \([A-Z_1-9]+\).*({says})"):
        expand_events(buffer, split_events(buffer), FDE)


def test_a_bomb_is_refused_before_it_fills_the_memory() -> None:
    """A gigabyte of zeros in some hundred kilobytes, and a size of exabytes that nothing backs."""
    bomb = event(E.WRITE_ROWS_COMPRESSED_V1, bytes(8) + b"\1\xff\x84\0\0\1\0" + zlib.compress(b"\0" * (64 << 20), 9))
    with bounded(mib=4, cpu_seconds=5), pytest.raises(BadEvent, match="not of 256 bytes"):
        expand_events(bomb, split_events(bomb), FDE)
    zeros = zstd(b"\0" * (256 << 20))
    for size in (256 << 20, 1 << 62):
        outer = event(40, field(2, 0) + field(3, size) + field(1, len(zeros)) + b"\0" + zeros)
        with bounded(mib=6 * PART_BYTES / (1 << 20), cpu_seconds=10), pytest.raises(BadEvent):
            list(plain_events(outer, FDE))


def test_rows_are_never_read_over_a_compressed_event() -> None:
    buffer = table_map(NUMBER) + payload(INNER)
    with pytest.raises(BadEvent, match="expanded first"):
        group_rows(buffer, split_events(buffer), FDE)
