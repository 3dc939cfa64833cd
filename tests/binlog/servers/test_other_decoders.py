"""Generated rows as other decoders read them: python-mysql-replication, and `mariadb-binlog -v`."""

from __future__ import annotations

import datetime
import json
import random
import string
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.binlog.table_map import MapColumn
from penstock.binlog.types import ColumnType as C
from tests.binlog.servers.printed import Change, changes, printed
from tests.support.budget import chosen_seed, scaled
from tests.support.components import missing
from tools.components import MissingComponent
from tools.components.decoders import find_mariadb_binlog, find_python_with_mysql_replication
from tools.components.mariadb import MariaDbServer

pytestmark = pytest.mark.mariadb

ROWS = scaled(200)
# Types and values that both of them read as they are: the one has neither zero dates, nor
# empty sets, nor the fractions of negative times. test_values.py has them.
COLUMNS = {
    "tiny": "tinyint", "small": "smallint unsigned", "medium": "mediumint", "plain": "int unsigned",
    "big": "bigint", "whole": "bigint unsigned", "number": "decimal(30,10)", "wide": "decimal(65,30)", "real_": "double",
    "moment": "datetime(6)", "clock": "time(6)", "stamp": "timestamp(6) null", "day": "date", "y": "year",
    "word": "varchar(300)", "letters": "char(20) character set latin1", "long_": "text", "raw": "varbinary(40)",
    "choice": "enum('x','y','z')", "some": "set('p','q','r')", "bits": "bit(13)",
}  # fmt: skip


def _value(choice: random.Random, definition: str) -> Any:
    if choice.random() < 0.15:
        return None
    kind = definition.split("(", maxsplit=1)[0].split(maxsplit=1)[0]
    sizes = {"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "bigint": 64}
    if kind in sizes:
        bits = choice.getrandbits(sizes[kind])
        return bits if "unsigned" in definition else bits - 2 ** (sizes[kind] - 1)
    if kind == "decimal":
        whole, scale = (20, 10) if "30,10" in definition else (35, 30)
        digits = "".join(choice.choices(string.digits, k=whole + scale))
        return f"{choice.choice(('', '-'))}{digits[:whole]}.{digits[whole:]}"
    moment = datetime.datetime(1971, 1, 1) + datetime.timedelta(microseconds=choice.randrange(60 * 365 * 86400 * 10**6))
    simple: dict[str, Callable[[], Any]] = {
        "double": lambda: choice.uniform(-1e10, 1e10),
        "datetime": lambda: f"{moment:%Y-%m-%d %H:%M:%S.%f}",
        "timestamp": lambda: f"{moment:%Y-%m-%d %H:%M:%S.%f}",
        "date": lambda: f"{moment:%Y-%m-%d}",
        "time": lambda: f"{choice.randrange(838)}:{moment:%M:%S.%f}",
        "year": lambda: choice.randrange(1901, 2156),
        "varbinary": lambda: choice.choice(string.ascii_letters) * choice.randrange(40),
        "enum": lambda: choice.choice("xyz"),
        "set": lambda: choice.choice(("p", "q,r", "p,q,r")),
        "bit": lambda: choice.getrandbits(13),
    }
    return simple[kind]() if kind in simple else "".join(choice.choices(string.ascii_letters + "éü ", k=19)).strip()


@pytest.fixture(scope="module")
def written(mariadb_server: MariaDbServer) -> Iterator[tuple[str, int]]:
    """The file and the offset from which on the server wrote the rows of `others`."""
    choice = random.Random(chosen_seed())
    with mariadb_server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("CREATE DATABASE IF NOT EXISTS decoder")
        cursor.execute("SET time_zone = '+00:00'")
        cursor.execute(
            f"CREATE OR REPLACE TABLE decoder.others (id INT PRIMARY KEY, {', '.join(f'{n} {d}' for n, d in COLUMNS.items())})"
        )
        cursor.execute("SHOW MASTER STATUS")
        file, position = cursor.fetchone()[:2]
        places = ", ".join(["%s"] * (len(COLUMNS) + 1))
        for i in range(ROWS):
            values = [_value(choice, definition) for definition in COLUMNS.values()]
            cursor.execute(f"INSERT INTO decoder.others VALUES ({places})", [i, *values])
        for i in range(0, ROWS, 3):
            name = choice.choice(list(COLUMNS))
            cursor.execute(f"UPDATE decoder.others SET {name} = %s WHERE id = %s", [_value(choice, COLUMNS[name]), i])
        cursor.execute("DELETE FROM decoder.others WHERE id % 5 = 0")
    yield file, position


def _program(find: Any) -> Path:
    try:
        found: Path = find()
    except MissingComponent as error:
        missing(str(error))
    return found


def _assert_same(found: list[Change], wanted: list[Change]) -> None:
    assert len(found) == len(wanted) > ROWS
    for ours, theirs in zip(found, wanted, strict=True):
        assert ours.op == theirs.op
        for image, other in ((ours.before or {}, theirs.before or {}), (ours.after or {}, theirs.after or {})):
            differ = {
                name: (image.get(name), other.get(name))
                for name in {*image, *other}
                if image.get(name) != other.get(name)
            }
            assert not differ


def test_python_mysql_replication(mariadb_server: MariaDbServer, written: tuple[str, int]) -> None:
    python = _program(find_python_with_mysql_replication)
    script = Path(__file__).with_name("mysql_replication.py")
    said = subprocess.run(
        [python, script, str(mariadb_server.port), mariadb_server.user, mariadb_server.password, written[0], str(written[1]), "others"],
        capture_output=True, text=True, check=True, timeout=300,
    )  # fmt: skip
    wanted = [Change(ord(op), before, after) for op, before, after in map(json.loads, said.stdout.splitlines())]
    found = changes(mariadb_server, "others", show=_as_mysql_replication)
    _assert_same(found, wanted)


def _as_mysql_replication(column: MapColumn, value: Any) -> str | float:
    if column.type == C.BIT:
        return f"{value:013b}"
    return str(value) if column.type == C.YEAR else printed(column, value)


def test_mariadb_binlog(mariadb_server: MariaDbServer, written: tuple[str, int]) -> None:
    program = _program(find_mariadb_binlog)
    path = mariadb_server.binlog_directory / written[0]
    said = subprocess.run(
        [program, "--no-defaults", "-v", "--base64-output=DECODE-ROWS", "--database=decoder", f"--start-position={written[1]}", path],
        capture_output=True, encoding="latin-1", check=True, timeout=300, env={"TZ": "UTC"},
    )  # fmt: skip
    found = changes(mariadb_server, "others", show=_as_mariadb_binlog)
    _assert_same(found, _spoken(said.stdout, ["id", *COLUMNS]))


def _spoken(output: str, names: list[str]) -> list[Change]:
    """The changes of `others` in what the program prints."""
    found: list[dict[str, Any]] = []
    image: dict[str, Any] = {}
    for line in output.splitlines():
        words = line.removeprefix("### ")
        if not line.startswith("### "):
            continue
        if words.startswith(("INSERT", "UPDATE", "DELETE")):
            found.append({"op": ord(words[0]), "before": None, "after": None, "ours": "`others`" in words})
        elif words in ("WHERE", "SET"):
            image = found[-1]["before" if words == "WHERE" else "after"] = {}
        else:
            place, _, value = words.strip().partition("=")
            image[names[int(place[1:]) - 1]] = None if value == "NULL" else value
    return [Change(one["op"], one["before"], one["after"]) for one in found if one["ours"]]


def _as_mariadb_binlog(column: MapColumn, value: Any) -> str:
    widths = {C.TINY: 8, C.SHORT: 16, C.INT24: 24, C.LONG: 32, C.LONGLONG: 64}
    if column.type in widths:
        bits = widths[C(column.type)]
        other = value + 2**bits if value < 0 else value
        signed = other - 2**bits if other >> (bits - 1) else other
        return f"{signed} ({other})" if signed < 0 else str(signed)
    text = printed(column, value)
    if column.type == C.DOUBLE:
        return f"{value:.20g}"
    if column.type == C.DATE:
        return f"'{str(text).replace('-', ':')}'"
    if column.type == C.TIMESTAMP2:
        return f"{value // 10**6}.{value % 10**6:06}"
    if column.type == C.ENUM:
        return str(value)
    if column.type == C.SET:
        return f"b'{value:08b}'"
    if column.type == C.BIT:
        return f"b'{value:013b}'"
    if isinstance(value, bytes):
        return f"'{value.decode()}'"
    if column.type in (C.NEWDECIMAL, C.YEAR):
        return str(text)
    stored = str(text).encode("latin-1" if column.charset == "latin1" else "utf-8")
    return f"'{stored.decode('latin-1')}'"
