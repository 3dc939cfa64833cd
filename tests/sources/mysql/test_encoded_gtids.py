"""Sets of GTIDs as COM_BINLOG_DUMP_GTID has them."""

from __future__ import annotations

import struct

import pytest

from penstock.sources.gtid import parse_gtid_set
from penstock.sources.mysql.mysql import encoded_gtids
from penstock.sources.source import SourceError

ONE, TWO = "11111111-1111-1111-1111-111111111111", "22222222-2222-2222-2222-222222222222"


def interval(first: int, end: int) -> bytes:
    return struct.pack("<QQ", first, end)


def test_intervals_with_gaps() -> None:
    expected = struct.pack("<Q", 2)
    expected += b"\x11" * 16 + struct.pack("<Q", 2) + interval(1, 8) + interval(9, 11)
    expected += b"\x22" * 16 + struct.pack("<Q", 1) + interval(5, 6)
    assert encoded_gtids(parse_gtid_set(f"{TWO}:5,{ONE}:1-7:9-10")) == expected
    assert encoded_gtids(parse_gtid_set("")) == bytes(8)


def test_sources_with_tags() -> None:
    """As `Gtid_set::encode` of MySQL 8.3: marks around the number, and a length of one byte, shifted by one."""
    expected = b"\x01" + (2).to_bytes(6, "little") + b"\x01"
    expected += b"\x11" * 16 + b"\x00" + struct.pack("<Q", 1) + interval(1, 4)
    expected += b"\x11" * 16 + b"\x06" + b"abc" + struct.pack("<Q", 1) + interval(7, 8)
    assert encoded_gtids(parse_gtid_set(f"{ONE}:1-3:abc:7")) == expected


def test_those_of_the_other_family() -> None:
    with pytest.raises(SourceError, match="GTIDs of MariaDB"):
        encoded_gtids(parse_gtid_set("0-1-5"))
