"""What a QUERY event says of its session: every status variable of both families has its width."""

from __future__ import annotations

import struct

import pytest

from penstock.binlog.bodies import Query, parse_query
from tests.binlog.build import FDE, event

CHARSETS = b"\x04" + struct.pack("<HHH", 8, 8, 28)  # client and connection latin1, server gbk
TIME_ZONE = b"\x05\x06+02:00"
DATABASE = b"\x08" + struct.pack("<H", 13)
# (code, bytes of its value) of everything that may stand before the charsets, or between them and the rest.
OTHERS = {
    0: bytes(4), 1: bytes(8), 2: b"\3std\0", 3: bytes(4), 6: b"\3std", 7: bytes(2), 9: bytes(8), 10: bytes(4),
    11: b"\4user\4host", 12: b"\2db1\0db2\0", 13: bytes(3), 16: b"\1", 17: bytes(8), 18: bytes(2), 19: b"\1", 20: b"\1",
    128: bytes(3), 129: bytes(8), 255: b"",
}  # fmt: skip


def query(status: bytes, sql: bytes = b"CREATE TABLE \xe9 (a INT)") -> Query:
    body = struct.pack("<IIBHH", 7, 0, 2, 0, len(status)) + status + b"db\0" + sql
    return parse_query(event(2, body), FDE)


@pytest.mark.parametrize(
    "other",
    [
        *(bytes([code]) + value for code, value in OTHERS.items()),
        b"\x0c\xfe",  # too many databases to list
        b"\x82\x02",  # a two-phase ALTER begins
        b"\x82\x04" + bytes(8),  # and ends
        b"\x82\x08" + bytes(8),
        b"\x83\x00",
        b"\x83\x02" + struct.pack("<HHHH", 45, 2304, 33, 192),  # MariaDB 11.5, before the charsets
    ],
)
def test_the_session_is_known_whatever_stands_before_it(other: bytes) -> None:
    for status in (other + CHARSETS + TIME_ZONE + DATABASE, CHARSETS + other + TIME_ZONE + other + DATABASE):
        found = query(status)
        assert (found.client_charset, found.server_charset, found.database_charset) == ("latin1", "gbk", "sjis")
        assert found.time_zone == "+02:00" and found.sql == "CREATE TABLE é (a INT)" and found.schema == "db"


def test_after_a_variable_that_nobody_knows_nothing_is_read() -> None:
    found = query(CHARSETS + b"\xc8" + DATABASE)
    assert (found.client_charset, found.database_charset) == ("latin1", None)
