"""The optional metadata of table maps, whose fields do not say which columns they are about, and servers differ."""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Sequence

import pytest

from penstock.binlog.bodies import FormatDescription
from penstock.binlog.errors import BadEvent
from penstock.binlog.table_map import MapColumn, TableMap, parse_table_map
from penstock.binlog.types import ColumnType as C
from penstock.binlog.types import Flavour
from tests.binlog.build import FDE, POST_HEADER, msb_bits, table_map, tlv

NUMBERS = [(C.YEAR, b""), (C.LONG, b""), (C.LONG, b""), (C.NEWDECIMAL, b"\5\2")]
TEXTS = [(C.GEOMETRY, b"\4"), (C.VARCHAR, struct.pack("<H", 50)), (C.VARCHAR, struct.pack("<H", 50))]
LATIN1, UTF8MB4, BINARY = 8, 45, 63


def mysql(version: str) -> FormatDescription:
    return FormatDescription(version, Flavour.MYSQL, 0, POST_HEADER)


def mapped(columns: Sequence[tuple[int, bytes]], metadata: bytes, fde: FormatDescription) -> TableMap:
    return parse_table_map(table_map(columns, metadata=metadata), fde)


def unsigned(table: TableMap) -> list[bool | None]:
    return [column.unsigned for column in table.columns[1:]]


@pytest.mark.parametrize("fde", [FDE, mysql("8.0.29"), mysql("8.4.3"), mysql("9.1.0-log")])
def test_servers_that_log_the_signedness_of_years(fde: FormatDescription) -> None:
    table = mapped(NUMBERS, tlv(1, msb_bits([True, True, False, True])), fde)
    assert unsigned(table) == [True, False, True] and table.has_signedness


@pytest.mark.parametrize("version", ["8.0.11", "8.0.12", "8.0.20"])
def test_servers_that_do_not(version: str) -> None:
    table = mapped(NUMBERS, tlv(1, msb_bits([True, False, True])), mysql(version))
    assert unsigned(table) == [True, False, True] and table.has_signedness


def test_servers_of_which_it_is_not_known() -> None:
    """Only what both readings agree on is said, and a reading that does not fit the bytes is none."""
    both = mapped(NUMBERS, tlv(1, msb_bits([True, True, True])), mysql("8.0.23"))
    assert unsigned(both) == [True, True, None] and not both.has_signedness
    with_year = mapped(NUMBERS, tlv(1, msb_bits([True, False, False, True])), mysql("8.0.23"))
    assert unsigned(with_year) == [False, False, True] and with_year.has_signedness
    nine = [(C.YEAR, b""), *[(C.LONG, b"")] * 8]
    shorter = mapped(nine, tlv(1, b"\xaa"), mysql("8.0.23"))
    assert unsigned(shorter) == [True, False] * 4
    without = mapped(NUMBERS[1:], tlv(1, msb_bits([True, False, True])), mysql("8.0.23"))
    assert [column.unsigned for column in without.columns] == [True, False, True] and without.has_signedness
    with pytest.raises(BadEvent, match="does not fit"):
        mapped(NUMBERS, tlv(1, b"\xff"), mysql("8.0.23"))


def charsets(metadata: bytes, fde: FormatDescription) -> list[str | None]:
    return [column.charset for column in mapped(TEXTS, metadata, fde).columns]


def test_geometry_has_a_charset_in_mariadb() -> None:
    wanted = ["binary", "latin1", "utf8mb4"]
    assert charsets(tlv(3, bytes([BINARY, LATIN1, UTF8MB4])), FDE) == wanted
    assert charsets(tlv(2, bytes([UTF8MB4, 0, BINARY, 1, LATIN1])), FDE) == wanted


def test_geometry_has_none_in_mysql() -> None:
    wanted = [None, "latin1", "utf8mb4"]
    assert charsets(tlv(3, bytes([LATIN1, UTF8MB4])), mysql("8.0.12")) == wanted
    assert charsets(tlv(2, bytes([UTF8MB4, 0, LATIN1])), mysql("8.0.12")) == wanted
    with pytest.raises(BadEvent, match="4 charsets do not fit"):
        charsets(tlv(3, bytes([BINARY] * 4)), FDE)


def elements(raw: list[bytes], charset: bytes) -> tuple[str, ...] | None:
    column = (C.STRING, bytes([C.ENUM, 1]))
    listed = bytes([len(raw)]) + b"".join(bytes([len(one)]) + one for one in raw)
    found: MapColumn = mapped([column], tlv(6, listed) + charset, mysql("8.0.12")).columns[0]
    return found.elements


def test_elements_of_enums_are_in_the_charset_of_the_column() -> None:
    assert elements([b"\xe4", b""], tlv(10, bytes([LATIN1]))) == ("ä", "")
    assert elements([b"\xc3\xa4"], tlv(10, bytes([UTF8MB4]))) == ("ä",)


def test_elements_without_a_charset_are_not_guessed() -> None:
    """MySQL 8.0.12 does not say the charset of enums and sets."""
    assert elements([b"small", b"x-large", b""], b"") == ("small", "x-large", "")
    assert elements([b"\xe4"], b"") is None
    assert elements([b"\0a"], b"") is None  # UTF-16, perhaps
    assert elements([b"\xe4"], tlv(10, b"\xfc\xff\x7f")) is None  # of a collation that nobody knows


def test_a_column_of_a_table_map_without_metadata_says_nothing() -> None:
    table = mapped(NUMBERS + TEXTS, b"", FDE)
    assert not table.has_signedness and not table.has_names
    assert all(dataclasses.astuple(column)[4:8] == (None, None, None, None) for column in table.columns)
