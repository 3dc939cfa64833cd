"""The source's rows, read from the packets of a result set, are what PyMySQL makes of the same table, value by value."""

from __future__ import annotations

import contextlib
import itertools
import random
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pymysql
import pytest
from pymysql.connections import Connection

from penstock.errors import Unavailable
from penstock.operations.verify import source_truth
from penstock.operations.verify.source_truth import ServerTruth, physical_type, select_chunks
from penstock.schema.model import TableSchema
from penstock.secret import Secret
from penstock.sources.mysql.definitions import read_definitions, versions_of
from penstock.sources.mysql.load import result
from penstock.sources.mysql.load.result import Space, select_pieces
from penstock.sources.settings import ServerSettings, Tables
from tests.capture.load.test_types import _COMMON, _OF_MARIADB, _OF_MYSQL, _inserts
from tests.operations.verify.pymysql_rows import rows_by_pymysql
from tools.components.database import DatabaseServer

DATABASE = "select_chunks"
_CHARSETS = {
    "latin1": "grüße €", "latin2": "Žluť", "latin5": "ışık", "latin7": "žąsis", "cp1250": "Žluť", "cp1251": "Привет",
    "cp1256": "سلام", "cp1257": "žąsis", "cp850": "grüße", "cp852": "Žluť", "cp866": "Привет", "koi8r": "Привет",
    "koi8u": "Привіт", "greek": "καλά", "hebrew": "שלום", "tis620": "สวัสดี", "sjis": "日本", "cp932": "日本", "ujis": "日本",
    "eucjpms": "日本", "gbk": "中文", "gb2312": "中文", "big5": "中文", "euckr": "한국", "macroman": "grüße", "ascii": "plain",
    "ucs2": "日本 grüße", "utf16": "😀 grüße", "utf16le": "😀 grüße", "utf32": "😀 grüße", "utf8mb3": "日本", "utf8mb4": "😀 日本",
}  # fmt: skip


@pytest.fixture
def connection(server: DatabaseServer) -> Iterator[Connection[Any]]:
    with contextlib.closing(server.connect()) as made, made.cursor() as cursor:
        cursor.execute(f"DROP DATABASE IF EXISTS {DATABASE}")
        cursor.execute(f"CREATE DATABASE {DATABASE}")
        cursor.execute(f"USE {DATABASE}")
        cursor.execute("SET NAMES utf8mb4")
        cursor.execute("SET time_zone = '+00:00', sql_mode = 'ALLOW_INVALID_DATES'")
        yield made


def run(connection: Connection[Any], *statements: str) -> None:
    with connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


def table_of(connection: Connection[Any], server: DatabaseServer) -> TableSchema:
    definitions = read_definitions(connection, Tables(include=(f"{DATABASE}.t",)))
    versions = versions_of(definitions, 1, mariadb=server.kind == "mariadb")
    return next(version for version in versions if version.table == "t")


def read(connection: Connection[Any], table: TableSchema) -> list[pa.Array[Any]]:
    chunks = list(select_chunks(connection, table))
    assert chunks, "the table has rows"
    return [pa.concat_arrays([chunk.after[i] for chunk in chunks]) for i in range(len(table.columns))]


def assert_same(connection: Connection[Any], table: TableSchema) -> None:
    expected = rows_by_pymysql(connection, table)
    for column, ours, theirs in zip(table.columns, read(connection, table), expected, strict=True):
        assert ours.type == theirs.type == physical_type(column), column
        assert ours.to_pylist() == theirs.to_pylist(), column


def test_every_type(server: DatabaseServer, connection: Connection[Any]) -> None:
    types = dict(_COMMON)
    for kind, values in (_OF_MARIADB if server.kind == "mariadb" else _OF_MYSQL).items():
        types[kind] = (*types.get(kind, ()), *values)
    columns = ", ".join(f"c{i} {kind}" for i, kind in enumerate(types))
    depth = max(map(len, types.values())) + 1  # the last row is NULL throughout
    run(connection, f"CREATE TABLE t (id INT PRIMARY KEY, {columns}) ROW_FORMAT=DYNAMIC", *_inserts(types, depth, 0))
    assert_same(connection, table_of(connection, server))


def test_every_character_set(server: DatabaseServer, connection: Connection[Any]) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SHOW CHARACTER SET")
        known = {str(row[0]) for row in cursor.fetchall()}
    there = {name: text for name, text in _CHARSETS.items() if name in known}
    assert len(there) > 25
    columns = ", ".join(f"{name} varchar(20) character set {name}, t{name} text character set {name}" for name in there)
    run(connection, f"CREATE TABLE t (id INT PRIMARY KEY, {columns})")
    with connection.cursor() as cursor:
        values = list(itertools.chain.from_iterable((text, text * 9) for text in there.values()))
        cursor.execute(f"INSERT INTO t VALUES (1, {', '.join(['%s'] * len(values))})", values)
        cursor.execute(f"INSERT INTO t VALUES (2, {', '.join(['NULL', repr('')] * len(there))})")
    table = table_of(connection, server)
    assert_same(connection, table)
    assert [column[0].as_py() for column in read(connection, table)[1::2]] == list(there.values())


@pytest.mark.parametrize("chunk_bytes", [1, 100, 5_000, 1 << 20])
def test_pieces_of_any_size(
    server: DatabaseServer, connection: Connection[Any], chunk_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that are cut by a receive, rows larger than the buffers, and many rows in one piece."""
    monkeypatch.setattr(source_truth, "CHUNK_BYTES", chunk_bytes)
    monkeypatch.setattr(source_truth, "CHUNK_ROWS", 64)
    monkeypatch.setattr(result, "_READ_BYTES", 16 << 10)
    chance = random.Random(chunk_bytes)
    sizes = [chance.choice((0, 1, 250, 251, 252, 300, 3000, 70_000)) for _ in range(300)]
    rows = ", ".join(
        f"({n}, {'NULL' if n % 7 == 0 else f'REPEAT(CHAR({65 + n % 26}), {size})'})" for n, size in enumerate(sizes)
    )
    run(connection, "CREATE TABLE t (id INT PRIMARY KEY, v LONGTEXT)", f"INSERT INTO t VALUES {rows}")
    table = table_of(connection, server)
    assert_same(connection, table)
    counts = [len(chunk) for chunk in select_chunks(connection, table)]
    assert max(counts) <= 64
    if chunk_bytes == 1:
        assert set(counts) == {1}


def test_rows_over_several_packets(server: DatabaseServer, connection: Connection[Any]) -> None:
    edge = (1 << 24) - 7  # of a row whose packet is full
    sizes = (1, edge - 1, edge, edge + 1, edge + 20, 3)
    run(connection, "CREATE TABLE t (id INT PRIMARY KEY, v LONGBLOB)")
    with connection.cursor() as cursor:
        cursor.execute("SELECT @@GLOBAL.max_allowed_packet")
        before = int(cursor.fetchall()[0][0])
    run(connection, "SET GLOBAL max_allowed_packet = 67108864")  # a session takes it when it begins
    try:
        other = server.connect()
    finally:
        run(connection, f"SET GLOBAL max_allowed_packet = {before}")
    with contextlib.closing(other):
        run(
            other,
            f"USE {DATABASE}",
            *(f"INSERT INTO t VALUES ({n}, REPEAT('{n}', {size}))" for n, size in enumerate(sizes)),
        )
        table = table_of(other, server)
        found = [value.as_py() for chunk in select_chunks(other, table) for value in chunk.after[1]]
    expected = (str(n).encode() * size for n, size in enumerate(sizes))
    assert [ours == theirs for ours, theirs in zip(found, expected, strict=True)] == [True] * len(sizes)


def test_an_error_in_the_middle_of_the_rows(connection: Connection[Any]) -> None:
    run(connection, "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(9))")
    run(connection, "INSERT INTO t VALUES " + ", ".join(f"({n}, 'x')" for n in range(2_000)))
    sql = "SELECT id, IF(id = 1500, (SELECT t.id UNION SELECT 0), 1) FROM t ORDER BY id"
    rows = 0
    with pytest.raises(pymysql.err.MySQLError, match="more than 1 row"):
        for piece in select_pieces(connection, sql, 1_000, Space()):
            rows += piece.count
    assert rows <= 1_500
    with connection.cursor() as cursor:
        cursor.execute("SELECT 7")
        assert cursor.fetchall()[0][0] == 7, "the connection goes on"


def test_a_connection_that_ends_in_the_middle(server: DatabaseServer, connection: Connection[Any]) -> None:
    rows = ", ".join(f"({n}, REPEAT('x', 60000))" for n in range(400))
    run(connection, "CREATE TABLE t (id INT PRIMARY KEY, v LONGTEXT)", f"INSERT INTO t VALUES {rows}")
    with contextlib.closing(server.connect()) as other:
        found = select_pieces(other, f"SELECT * FROM {DATABASE}.t", 1 << 16, Space())
        next(found)
        run(connection, f"KILL {other.thread_id()}")  # what is on its way still comes, then the end
        with pytest.raises(Unavailable, match="closed the connection"):
            for _ in found:
                pass


def test_what_is_not_wanted_to_its_end_is_not_read(
    server: DatabaseServer, connection: Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be hours of rows, and somebody has pressed Ctrl-C."""
    rows = ", ".join(f"({n}, REPEAT('x', 60000))" for n in range(200))
    run(connection, "CREATE TABLE t (id INT PRIMARY KEY, v LONGTEXT)", f"INSERT INTO t VALUES {rows}")
    monkeypatch.setattr(source_truth, "CHUNK_BYTES", 100_000)
    received: list[int] = []
    receive = result._receive

    def counted(*arguments: Any, **more: Any) -> int:
        received.append(receive(*arguments, **more))
        return received[-1]

    monkeypatch.setattr(result, "_receive", counted)
    table = table_of(connection, server)
    settings = ServerSettings(
        type="mariadb", unix_socket=server.socket, user=server.user, password=Secret(server.password)
    )
    with ServerTruth(settings) as truth:
        before = truth.position
        with pytest.raises(KeyboardInterrupt):
            for _ in truth.chunks(table):
                run(connection, "INSERT INTO t VALUES (1000, 'x')")
                raise KeyboardInterrupt
        assert sum(received) < 6_000_000
        # Other tables are read in a snapshot of its own, which knows where it is.
        assert sum(len(chunk) for chunk in truth.chunks(table)) == 201
        assert before is not None and truth.position is not None and before.pos < truth.position.pos
