"""Every type of both servers, at its extremes: what the binlog says, decoded, is what a SELECT says."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import pymysql
import pytest
from pymysql.converters import encoders

from tests.binlog.servers.printed import changes
from tests.support.budget import chosen_seed, scaled
from tools.components.database import DatabaseServer
from tools.components.mariadb import MariaDbServer
from tools.components.mysql import MySqlServer

COLUMNS_A_TABLE = 12
RANDOM_VALUES = scaled(8)


@dataclass
class Kind:
    """A column: its definition, SQL expressions of its values, and how it is selected so that its text is exact."""

    definition: str
    values: list[str]
    select: str = "{}"
    known: dict[str, Any] = field(default_factory=dict)


def integers(choice: random.Random) -> list[Kind]:
    found = []
    for name, bits in (("tinyint", 8), ("smallint", 16), ("mediumint", 24), ("int", 32), ("bigint", 64)):
        for unsigned in (False, True):
            low, high = (0, 2**bits - 1) if unsigned else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
            values = [low, low + 1, 0, 1, high - 1, high, *(choice.randint(low, high) for _ in range(RANDOM_VALUES))]
            found.append(Kind(name + (" unsigned" if unsigned else ""), list(map(str, values))))
    for n in (1, 7, 8, 9, 16, 17, 33, 63, 64):
        values = [0, 1, 2**n - 1, choice.getrandbits(n)]
        found.append(Kind(f"bit({n})", list(map(str, values)), "CAST({} + 0 AS UNSIGNED)"))
    return found


def decimals(choice: random.Random) -> list[Kind]:
    found = []
    for precision, scale in (
        (1, 0), (1, 1), (5, 5), (9, 0), (9, 9), (10, 1), (18, 9), (19, 0), (19, 10), (27, 13), (30, 30), (38, 0), (38, 30),
        (39, 0), (40, 30), (64, 29), (65, 0), (65, 30),
    ):  # fmt: skip
        digits = ["9" * precision, "0" * (precision - 1) + "1", "1" + "0" * (precision - 1), "0" * precision]
        digits += ["".join(choice.choices("0123456789", k=precision)) for _ in range(RANDOM_VALUES)]
        texts = [f"{one[: precision - scale] or '0'}.{one[precision - scale :]}" for one in digits]
        found.append(Kind(f"decimal({precision},{scale})", [f"'{sign}{one}'" for one in texts for sign in ("", "-")]))
    found.append(Kind("float", ["0", "3.4028234e38", "-1.17549e-38", "1e-45", "0.1"], "{} + 0e0"))
    found.append(Kind("double", ["0", "1.7976931348623157e308", "5e-324", "-0.1"], "{} + 0e0"))
    return found


def temporals(choice: random.Random) -> list[Kind]:
    found = [
        Kind("year", ["0", "1901", "2155", "2024"]),
        Kind("date", [f"'{day}'" for day in ("0000-00-00", "9999-12-31", "2024-00-00", "2024-02-00", "0001-01-01", "2023-02-31")]),
    ]  # fmt: skip
    for digits in range(7):
        moments = ["0000-00-00 00:00:00", "9999-12-31 23:59:59.999999", "2024-02-00 00:00:00", "2024-00-00 10:11:12",
                   "1000-01-01 00:00:00.000001", "0000-01-01 00:00:00.5", "2023-02-31 01:02:03.123456"]  # fmt: skip
        times = [
            "00:00:00",
            "-838:59:59",
            "838:59:59",
            "-00:00:00.1",
            "-00:00:00.99",
            "-00:00:59.999999",
            "-838:59:58.5",
        ]
        stamps = ["0000-00-00 00:00:00", "1970-01-01 00:00:01.000001", "2038-01-19 03:14:07.999999"]
        for _ in range(RANDOM_VALUES):
            clock = f"{choice.randrange(60):02}:{choice.randrange(60):02}.{choice.randrange(10**6):06}"
            day = f"{choice.randrange(1, 13):02}-{choice.randrange(1, 29):02}"
            moments.append(f"{choice.randrange(1, 9999):04}-{day} {choice.randrange(24):02}:{clock}")
            times.append(f"{choice.choice(('', '-'))}{choice.randrange(838)}:{clock}")
            stamps.append(f"{choice.randrange(1971, 2038)}-{day} {choice.randrange(24):02}:{clock}")
        for name, values in (("datetime", moments), ("time", times), ("timestamp", stamps)):
            found.append(Kind(f"{name}({digits}) NULL", [f"'{value}'" for value in values]))
    return found


def lists(choice: random.Random) -> list[Kind]:
    many = tuple(f"v{i}" for i in range(300))
    found = [
        Kind("enum('a','b','')", ["'a'", "''", "1", "0"]),
        Kind(f"enum({','.join(map(repr, many))})", ["'v0'", "'v255'", "'v256'", "'v299'"]),
        # MySQL 8.0.12 does not log the charset of these: a schema knows their elements.
        Kind("enum('ä','ö') character set latin1", ["'ä'", "'ö'"], known={"elements": ("ä", "ö")}),
        Kind("set('ä','日') character set utf16", ["'ä'", "'ä,日'", "''"], known={"elements": ("ä", "日")}),
    ]
    for n in (1, 8, 9, 17, 25, 33, 64):
        names = [f"s{i}" for i in range(n)]
        values = ["''", repr(names[-1]), str(2**n - 1), str(choice.getrandbits(n))]
        found.append(Kind(f"set({','.join(map(repr, names))})", values))
    return found


TEXTS = [
    Kind("char(0)", ["''"]),
    Kind("char(255)", ["REPEAT('€', 255)", "''", "'a '"]),
    Kind("char(63) character set utf8mb4", ["REPEAT('😀', 63)"]),
    Kind("char(64) character set utf8mb4", ["REPEAT('😀', 64)", "'a'"]),
    Kind("char(255) character set utf32", ["REPEAT('😀', 255)", "''"]),
    Kind("char(255) character set latin1", ["REPEAT('é', 255)"]),
    Kind("char(20) character set ucs2", ["REPEAT('é', 20)"]),
    Kind("binary(0)", ["''"], "HEX({})"),
    Kind("binary(16)", ["x'00'", "x'ff00'", "x'2000'", "x'0020'"], "HEX({})"),
    Kind("binary(255)", ["REPEAT(x'ff', 255)", "''"], "HEX({})"),
    Kind("varchar(0)", ["''"]),
    Kind("varchar(255) character set latin1", ["REPEAT('é', 255)", "''"]),
    Kind("varchar(256) character set latin1", ["REPEAT('é', 256)", "'a '"]),
    Kind("varchar(63)", ["REPEAT('😀', 63)"]),
    Kind("varchar(64)", ["REPEAT('😀', 64)"]),
    Kind("varbinary(255)", ["REPEAT(x'00', 255)", "x'00'"], "HEX({})"),
    Kind("varbinary(256)", ["REPEAT(x'00', 256)", "x'00'"], "HEX({})"),
    Kind("tinytext", ["''", "REPEAT('x', 255)"]),
    Kind("text character set sjis", ["'日本'", "REPEAT('x', 65535)"]),
    Kind("geometry", ["ST_GeomFromText('POLYGON((0 0,1 0,1 1,0 0))')"], "HEX({})"),
    Kind("mediumtext character set utf16le", ["'é😀'", "REPEAT('x', 70000)"]),
    Kind("year", ["2000"]),
    Kind("int unsigned", ["4294967295"]),
    Kind("longtext character set gbk", ["'中'"]),
    Kind("tinyblob", ["''", "x'00ff'"], "HEX({})"),
    Kind("longblob", ["REPEAT(x'ff', 70000)"], "HEX({})"),
]


@pytest.mark.mariadb
def test_mariadb(mariadb_server: MariaDbServer) -> None:
    _compare(mariadb_server)


@pytest.mark.mysql
def test_mysql(mysql_server: MySqlServer) -> None:
    _compare(mysql_server)


def _compare(server: DatabaseServer) -> None:
    choice = random.Random(chosen_seed())
    kinds = integers(choice) + decimals(choice) + temporals(choice) + lists(choice)
    choice.shuffle(kinds)  # so that the metadata of a table map has to be told apart
    connection = pymysql.connect(
        host=server.host, port=server.port, user=server.user, password=server.password, charset="utf8mb4",
        autocommit=True, conv=dict(encoders),
    )  # fmt: skip
    groups = [TEXTS, *(kinds[i : i + COLUMNS_A_TABLE] for i in range(0, len(kinds), COLUMNS_A_TABLE))]
    with connection, connection.cursor() as cursor:
        cursor.execute("CREATE DATABASE IF NOT EXISTS decoder")
        cursor.execute("SET sql_mode = 'ALLOW_INVALID_DATES', time_zone = '+00:00'")
        for number, group in enumerate(groups):
            wanted = _selected(cursor, f"values_{number}", group)
            known = {f"c{k}": kind.known for k, kind in enumerate(group)}
            found = [change.after for change in changes(server, f"values_{number}", known)]
            assert len(found) == len(wanted)
            for row, decoded in zip(wanted, found, strict=True):
                assert decoded is not None
                for k, kind in enumerate(group):
                    value: Any = row[k].decode() if isinstance(row[k], bytes) else row[k]
                    value = float(value) if isinstance(decoded[f"c{k}"], float) else value
                    assert decoded[f"c{k}"] == value, (kind.definition, group)


def _selected(cursor: Any, table: str, group: list[Kind]) -> list[tuple[Any, ...]]:
    columns = ", ".join(f"c{k} {kind.definition}" for k, kind in enumerate(group))
    cursor.execute(f"CREATE TABLE decoder.{table} (id INT PRIMARY KEY, {columns}) CHARACTER SET utf8mb4")
    for i in range(max(len(kind.values) for kind in group)):
        row = ", ".join(kind.values[i] if i < len(kind.values) else "NULL" for kind in group)
        cursor.execute(f"INSERT IGNORE INTO decoder.{table} VALUES ({i}, {row})")
    selected = ", ".join(kind.select.format(f"c{k}") for k, kind in enumerate(group))
    cursor.execute(f"SELECT {selected} FROM decoder.{table} ORDER BY id")
    return list(cursor.fetchall())
