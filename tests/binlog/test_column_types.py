"""Column types beyond the usual ones: old temporal forms, MariaDB's own types, what geometry does to charsets."""

from __future__ import annotations

import dataclasses
import datetime
import struct
import uuid
import zlib
from ipaddress import IPv4Address, IPv6Address
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.binlog.errors import BadEvent
from penstock.binlog.events import split_events
from penstock.binlog.rows import decode_rows, group_rows
from penstock.binlog.table_map import MapColumn, parse_table_map
from penstock.binlog.types import ColumnType as C
from tests.binlog.build import FDE, image, rows, table_map, tlv
from tests.support.bounded import bounded
from tests.support.budget import scaled


def decoded(kind: int, meta: bytes, values: list[bytes | None], **known: Any) -> list[Any]:
    """One column, with what a schema knows of it (`known`: fields of `MapColumn`)."""
    buffer = table_map([(kind, meta)]) + rows(30, 1, [image([value]) for value in values])
    events = split_events(buffer)
    ((layout, chosen),) = group_rows(buffer, events, FDE).groups()
    table = parse_table_map(buffer[: int(events.size[layout])], FDE)
    column: MapColumn = dataclasses.replace(table.columns[0], **known)
    (found,) = decode_rows(buffer, events, chosen, dataclasses.replace(table, columns=(column,)), FDE)
    found.after[0].validate(full=True)
    return found.after[0].to_pylist()


def test_geometry_does_not_shift_the_charsets_after_it() -> None:
    """A geometry column has a charset (binary) among those of the text columns, in both families."""
    columns = [(C.GEOMETRY, b"\4"), (C.VARCHAR, struct.pack("<H", 50)), (C.VARCHAR, struct.pack("<H", 50))]
    listed = table_map(columns, metadata=tlv(3, bytes([63, 8, 45])))
    assert [column.charset for column in parse_table_map(listed, FDE).columns] == ["binary", "latin1", "utf8mb4"]
    default = table_map(columns, metadata=tlv(2, bytes([45, 0, 63, 1, 8])))
    assert [column.charset for column in parse_table_map(default, FDE).columns] == ["binary", "latin1", "utf8mb4"]


# -- the temporal types of MySQL 5.5, and of MariaDB with mysql56_temporal_format=OFF


def packed_datetime(moment: datetime.datetime) -> int:
    whole = (moment.year * 13 + moment.month) << 22 | moment.day << 17 | moment.hour << 12 | moment.minute << 6
    return (whole | moment.second) << 24 | moment.microsecond


@settings(max_examples=scaled(100))
@given(st.integers(1, 6), st.integers(-3_020_399_999_999, 3_020_399_999_999))
def test_old_times_with_digits_of_a_second(fsp: int, micros: int) -> None:
    unit = 10 ** (6 - fsp)
    count = abs(micros) // unit * (1 if micros >= 0 else -1)
    width = {1: 4, 2: 4, 3: 5, 4: 5, 5: 5, 6: 6}[fsp]
    raw = (count + 3_020_400 * 10**fsp).to_bytes(width, "big")
    assert decoded(C.TIME, b"", [raw, None], length=fsp) == [count * unit, None]


@settings(max_examples=scaled(100))
@given(st.integers(1, 6), st.datetimes(datetime.datetime(1, 1, 1), datetime.datetime(9999, 12, 31, 23, 59, 59)))
def test_old_datetimes_with_digits_of_a_second(fsp: int, moment: datetime.datetime) -> None:
    unit = 10 ** (6 - fsp)
    moment = moment.replace(microsecond=moment.microsecond // unit * unit)
    days = (moment.year * 13 + moment.month) * 32 + moment.day
    seconds = ((days * 24 + moment.hour) * 60 + moment.minute) * 60 + moment.second
    width = {1: 6, 2: 6, 3: 7, 4: 7, 5: 7, 6: 8}[fsp]
    raw = (seconds * 10**fsp + moment.microsecond // unit).to_bytes(width, "big")
    assert decoded(C.DATETIME, b"", [raw], length=fsp) == [packed_datetime(moment)]


def test_other_old_temporal_values() -> None:
    assert decoded(C.TIMESTAMP, b"", [struct.pack(">IH", 1_700_000_000, 1234)], length=4) == [1_700_000_000_123_400]
    assert decoded(C.TIMESTAMP, b"", [bytes(7)], length=6) == [0]
    assert decoded(C.DATETIME, b"", [bytes(8)], length=6) == [0]
    assert decoded(C.DATETIME, b"", [struct.pack("<q", 20240200000000)]) == [
        ((2024 * 13 + 2) << 22) << 24
    ]  # a partial date
    for value in (20241301000000, 20240132000000, 20240101240000, 20240101006000, 20240101000060, -1):
        with pytest.raises(BadEvent, match="no server writes"):
            decoded(C.DATETIME, b"", [struct.pack("<q", value)])
    for raw in (b"\xff" * 6, bytes(6)):
        with pytest.raises(BadEvent, match="no server writes"):
            decoded(C.TIME, b"", [raw], length=6)
    with pytest.raises(BadEvent, match="no server writes"):
        decoded(C.DATETIME, b"", [b"\x7f" + b"\xff" * 7], length=6)


# -- types of MariaDB


@given(st.lists(st.integers(0, 2**32 - 1), min_size=1))
def test_inet4(numbers: list[int]) -> None:
    addresses = [IPv4Address(number) for number in numbers]
    raw = [bytes([len(a.packed.rstrip(b"\0"))]) + a.packed.rstrip(b"\0") for a in addresses]
    assert decoded(C.STRING, bytes([C.STRING, 4]), [*raw, None], form="inet4") == [*map(str, addresses), None]


def _shortest(groups: list[int]) -> str:
    """As the server prints an address: also one zero group alone is left out, the first longest run of them."""
    runs = [(k, n) for n in range(8, 0, -1) for k in range(9 - n) if not any(groups[k : k + n])]
    if not runs:
        return ":".join(f"{group:x}" for group in groups)
    k, n = runs[0]
    return "::".join(":".join(f"{group:x}" for group in part) for part in (groups[:k], groups[k + n :]))


@settings(max_examples=scaled(200))
@given(st.lists(st.sampled_from([0, 0, 0, 1, 0xABCD, 0xFFFF, 0x10, 0x100]), min_size=8, max_size=8))
def test_inet6(groups: list[int]) -> None:
    raw = struct.pack(">8H", *groups)
    address = IPv6Address(raw)
    expected = _shortest(groups)
    if address.ipv4_mapped is not None or (not any(groups[:6]) and groups[6]):
        expected = ("::ffff:" if address.ipv4_mapped else "::") + str(IPv4Address(raw[12:]))
    stored = raw.rstrip(b"\0")
    assert decoded(C.STRING, bytes([C.STRING, 16]), [bytes([len(stored)]) + stored], form="inet6") == [expected]


@given(st.uuids(version=4), st.uuids(), st.sampled_from([1, 3, 5]))
def test_uuid(random: uuid.UUID, other: uuid.UUID, version: int) -> None:
    """Versions 1 to 5 are stored with the slowest part first; version 7 and what is no UUID as they are."""
    swapped = [random, uuid.UUID(bytes=other.bytes, version=version)]
    seven = uuid.UUID(int=(other.int & ~(0xF << 76)) & ~(1 << 63) | 7 << 76)
    raw = [(u.bytes[10:] + u.bytes[8:10] + u.bytes[6:8] + u.bytes[4:6] + u.bytes[:4]).rstrip(b"\0") for u in swapped]
    raw += [seven.bytes.rstrip(b"\0"), b""]
    found = decoded(C.STRING, bytes([C.STRING, 16]), [bytes([len(r)]) + r for r in raw], form="uuid")
    assert found[3] == str(uuid.UUID(int=0)) and found[:2] == [str(u) for u in swapped]
    if not (0 < seven.bytes[8] < 0x60 and seven.bytes[6] & 0x80):
        assert found[2] == str(seven)


def test_an_address_that_is_too_long() -> None:
    with pytest.raises(BadEvent, match="no server writes"):
        decoded(C.STRING, bytes([C.STRING, 4]), [b"\5abcde"], form="inet4")


def compressed(data: bytes, *, header: bool = False) -> bytes:
    squeezed = zlib.compressobj(9, wbits=15 if header else -15)
    length = len(data).to_bytes((len(data).bit_length() + 7) // 8, "big")
    return bytes([0x80 | len(length) | (0 if header else 8)]) + length + squeezed.compress(data) + squeezed.flush()


def test_compressed_columns() -> None:
    values = [b"\0short", compressed(b"long" * 300), compressed("é".encode() * 500, header=True), b""]
    plain = ["short", "long" * 300, "é" * 500, ""]
    short = [struct.pack("<H", len(value)) + value for value in values]
    meta = struct.pack("<H", 2000)
    assert decoded(C.VARCHAR_COMPRESSED, meta, [*short, None], charset="utf8mb4") == [*plain, None]
    assert decoded(C.VARCHAR_COMPRESSED, meta, short[:1], charset="latin1") == ["short"]
    long = [struct.pack("<I", len(value)) + value for value in values]
    assert decoded(C.BLOB_COMPRESSED, b"\4", long, charset="binary") == [text.encode() for text in plain]
    for bad in (b"\x90x", b"\x80", b"\x89\5abc", compressed(b"x" * 300)[:-2], b"\x8c\xff\xff\xff\xff" + b"x"):
        with pytest.raises(BadEvent, match="compressed value"):
            decoded(C.VARCHAR_COMPRESSED, meta, [struct.pack("<H", len(bad)) + bad], charset="utf8mb4")


def test_compressed_values_are_decompressed_few_at_a_time() -> None:
    bombs = [compressed(bytes([i]) + b"\0" * (1 << 20)) for i in range(100)]
    buffer = table_map([(C.BLOB_COMPRESSED, b"\4")])
    buffer += rows(30, 1, [image([struct.pack("<I", len(bomb)) + bomb]) for bomb in bombs])
    events = split_events(buffer)
    ((layout, chosen),) = group_rows(buffer, events, FDE).groups()
    table = parse_table_map(buffer[: int(events.size[layout])], FDE)
    count = 0
    with bounded(mib=48, cpu_seconds=20):
        for batch in decode_rows(buffer, events, chosen, table, FDE, 4 << 20):
            count += len(batch)
            del batch
    assert count == 100
