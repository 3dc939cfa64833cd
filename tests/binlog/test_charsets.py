"""Character sets: some characters of each here, all of them against a real server."""

from __future__ import annotations

import struct
from typing import Any

import pymysql
import pytest

from penstock.binlog.charset import charset_of, decode_exactly, decode_text
from penstock.binlog.errors import BadEvent
from penstock.binlog.types import ColumnType as C
from tests.binlog.build import tlv
from tests.binlog.test_rows import column
from tools.components.database import DatabaseServer
from tools.components.mariadb import MariaDbServer
from tools.components.mysql import MySqlServer

IDS = {"big5": 1, "dec8": 3, "hp8": 6, "swe7": 10, "ujis": 12, "sjis": 13, "tis620": 18, "euckr": 19, "koi8u": 22, "gb2312": 24,
       "greek": 25, "armscii8": 32, "cp866": 36, "keybcs2": 37, "geostd8": 92, "cp932": 95, "eucjpms": 97, "utf16le": 56,
       "utf32": 60, "gb18030": 248, "ascii": 11, "utf8mb4": 45, "ucs2": 35}  # fmt: skip


@pytest.mark.parametrize(
    ("charset", "raw", "text"),
    [
        ("dec8", b"a\xa8\xd7\xdd", "a¤ŒŸ"),
        ("swe7", b"{}|~@[", "äåöüÉÄ"),
        ("armscii8", b"\xb2\xb3", "Աա"),
        ("geostd8", b"\x80\xc0\xfd", "€ა№"),
        ("keybcs2", b"\x80\x91", "Čž"),
        ("koi8u", b"\x95\xa4", "•є"),
        ("cp866", b"\xfc\xfd", "ⁿ²"),
        ("greek", b"\xa1\xe1", "ʽα"),
        ("tis620", b"\xa1\xa0", "ก\ufffd"),
        ("big5", b"x\xa4\xa4\xf9\xd6", "x中碁"),
        ("gb2312", b"\xd6\xd0", "中"),
        ("euckr", b"\xb0\xa1\xc8\xfe", "가힝"),
        ("sjis", b"\xb1\x93\xfa\x81\x5f", "ｱ日\\"),
        ("cp932", b"\x87\x40\xfa\x54", "①￢"),
        ("ujis", b"\xc6\xfc\x8e\xb1\x8f\xb0\xa1\xf5\xa1\x8f\xf5\xa1", "日ｱ丂\ue000\ue3ac"),
        ("eucjpms", b"\xad\xa1\x8f\xf3\xf3\x8f\xf4\xfe\xa1\xc1", "①ⅰ黑～"),
        ("gb18030", b"\x81\x30\x81\x30\xd6\xd0", "\x80中"),
        ("utf16le", "😀é".encode("utf-16-le"), "😀é"),
        ("utf32", "😀é".encode("utf-32-be"), "😀é"),
        # What servers store and have no character for: a SELECT prints a question mark.
        ("dec8", b"a\xa4b", "a\ufffdb"),
        ("swe7", b"\xc0", "\ufffd"),
        ("ascii", b"a\xc3\xa9", "a\ufffd\ufffd"),
        ("sjis", b"\x87\x40x", "\ufffdx"),
        ("ujis", b"\xad\xa1\x8f\xa1\xa1", "\ufffd\ufffd"),
        ("gb18030", b"x\xfe\x39\xfe\x39\xa8\xbc", "x\ufffdḿ"),
        # A half of a surrogate pair is a character to them, and none to Unicode.
        ("utf8mb4", b"a\xed\xa0\x80b", "a\ufffdb"),
        ("ucs2", b"\xd8\x3d\0a", "\ufffda"),
        ("utf32", b"\0\0\xd8\x3d", "\ufffd"),
    ],
)
def test_characters(charset: str, raw: bytes, text: str) -> None:
    assert decode_exactly(raw, charset) == text
    assert decode_text(raw, charset) == text or "\ufffd" in text
    metadata = tlv(2, bytes([0xFC, *struct.pack("<H", IDS[charset])]))
    values = [bytes([len(raw)]) + raw, None, b"\0"]
    assert column(C.VARCHAR, struct.pack("<H", 200), values, metadata).to_pylist() == [text, None, ""]


@pytest.mark.parametrize(
    ("charset", "raw"),
    [
        ("big5", b"\xa4"),
        ("ujis", b"\x8f\xb0"),
        ("gbk", b"\xff\xff"),
        ("cp932", b"\x80"),
        ("utf8mb4", b"a\xed\xa0"),
        ("utf8mb4", b"\xc3\xa9\xe9"),
        ("ucs2", b"a"),
        ("utf32", b"\0\x11\0\0"),
        ("gb18030", b"\x81\x20"),
    ],
)
def test_bytes_that_a_charset_does_not_have(charset: str, raw: bytes) -> None:
    identity = {**IDS, "gbk": 28}[charset]
    with pytest.raises(ValueError, match=charset):
        decode_exactly(raw, charset)
    assert "\ufffd" in decode_text(raw, charset)
    with pytest.raises(BadEvent, match=f"bytes that are not {charset}"):
        column(C.VARCHAR, struct.pack("<H", 200), [b"\1a", bytes([len(raw)]) + raw], tlv(2, bytes([identity])))


def _characters(cursor: Any, charset: str, codes: list[bytes]) -> dict[bytes, str]:
    """What a server takes as it is: its character, or U+FFFD where it has none. What it refuses is not among them."""
    cursor.execute("DROP TEMPORARY TABLE IF EXISTS characters")
    cursor.execute(f"CREATE TEMPORARY TABLE characters (k INT PRIMARY KEY, v VARCHAR(4) CHARACTER SET {charset})")
    values = ",".join(f"({k},x'{code.hex()}')" for k, code in enumerate(codes))
    cursor.execute(f"INSERT INTO characters VALUES {values}")
    cursor.execute("SELECT k, CONVERT(v USING utf8mb4), HEX(v) FROM characters")
    found = {}
    for k, text, stored in cursor.fetchall():
        if stored.lower() == codes[k].hex() and len(text) == 1:
            found[codes[k]] = "\ufffd" if text == "?" and codes[k] != b"?" else text
    return found


# Characters that only newer standards than the server's have: the server would print a question mark or U+FFFD.
NEWER = {"big5": 7, "greek": 3, "cp1256": 8, "swe7": 1}


@pytest.mark.mariadb
def test_all_characters_are_those_of_mariadb(mariadb_server: MariaDbServer) -> None:
    _compare(mariadb_server)


@pytest.mark.mysql
def test_all_characters_are_those_of_mysql(mysql_server: MySqlServer) -> None:
    _compare(mysql_server)


def _four_bytes(number: int) -> bytes:
    """A code of gb18030, by its number."""
    rest, last = divmod(number, 10)
    rest, third = divmod(rest, 126)
    first, second = divmod(rest, 10)
    return bytes([0x81 + first, 0x30 + second, 0x81 + third, 0x30 + last])


def _compare(server: DatabaseServer) -> None:
    connection = pymysql.connect(
        host=server.host, port=server.port, user=server.user, password=server.password, autocommit=True
    )
    with connection, connection.cursor() as cursor:
        cursor.execute("CREATE DATABASE IF NOT EXISTS decoder")
        cursor.execute("USE decoder")
        cursor.execute("SET sql_mode = ''")  # what cannot be stored is cut, with a warning
        cursor.execute("SELECT id, character_set_name FROM information_schema.collations WHERE id > 0")
        charsets: dict[int, str] = {row[0]: {"utf8": "utf8mb3"}.get(row[1], row[1]) for row in cursor.fetchall()}
        assert {identity: charset_of(identity) for identity in charsets} == charsets
        singles = [bytes([byte]) for byte in range(256)]
        doubles = [bytes([a, b]) for a in range(0x80, 256) for b in range(0x30, 256)]
        triples = [bytes([0x8F, a, b]) for a in range(0xA1, 0xFF) for b in range(0xA1, 0xFF)]
        quadruples = [b"\x81\x35\xf4\x37", *(_four_bytes(n) for n in range(0, 126 * 1260 * 10, 97))]
        for charset in sorted(set(charsets.values()) - {"binary", "filename"}):
            if charset.startswith(("utf", "ucs")):
                continue
            codes = list(singles)
            if charset in ("big5", "cp932", "eucjpms", "euckr", "gb18030", "gb2312", "gbk", "sjis", "ujis"):
                codes += doubles
            if charset in ("eucjpms", "ujis"):
                codes += triples
            if charset == "gb18030":
                codes += quadruples
            wanted = _characters(cursor, charset, codes)
            differ = []
            for code in codes:
                try:
                    text = decode_exactly(code, charset)
                except ValueError:
                    text = ""
                if text != wanted.get(code, "") and not (len(text) > 1 and code not in wanted):
                    differ.append((code.hex(), text, wanted.get(code)))
            newer = [one for one in differ if one[2] == "\ufffd" and one[1]]
            assert differ == newer and len(newer) == NEWER.get(charset, 0), (charset, len(newer), differ[:10])
