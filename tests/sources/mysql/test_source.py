"""A real MariaDB server: its stream into the log, restarts, and what it refuses."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pymysql
import pytest

from penstock.binlog.events import split_events
from penstock.binlog.types import EventType
from penstock.capture.loop import Capture
from penstock.entries.stores import SCHEMA_HISTORY, SOURCE, SOURCE_POSITION
from penstock.log import Log
from penstock.sources.demo import shop
from penstock.sources.mysql.source import MariadbSource
from penstock.sources.settings import MariadbSettings
from penstock.sources.source import SourceError
from tests.capture.running import logged_events, state_of
from tests.support.waiting import LIMIT_SECONDS, wait_until
from tools.components.mariadb import MariaDbServer

pytestmark = pytest.mark.mariadb


def settings(server: MariaDbServer, **values: Any) -> MariadbSettings:
    base = {
        "type": "mariadb",
        "host": "127.0.0.1",
        "port": server.port,
        "user": server.user,
        "password": server.password,
    }
    return MariadbSettings.model_validate({**base, **values})


@contextlib.contextmanager
def session(server: MariaDbServer) -> Iterator[Any]:
    connection = pymysql.connect(
        host="127.0.0.1",
        port=server.port,
        user=server.user,
        password=server.password,
        autocommit=True,
        charset="utf8mb4",
    )
    with contextlib.closing(connection), connection.cursor() as cursor:
        yield cursor


def run(directory: Path, source: MariadbSettings) -> list[dict[str, Any]]:
    """Up to where the server is now."""
    said: list[dict[str, Any]] = []
    log = Log.open(directory / "log")
    server = MariadbSource(source, directory)
    try:
        capture = Capture(log, server, tables=source.tables, report=said.append)
        assert capture.run(until_now=True)
    finally:
        server.close()
        log.close()
    return said


def row_events(directory: Path) -> list[bytes]:
    return [raw for raw in logged_events(directory / "log") if raw[4] in (23, 24, 25)]


def fresh(cursor: Any, name: str) -> None:
    cursor.execute(f"DROP DATABASE IF EXISTS {name}")
    cursor.execute(f"CREATE DATABASE {name}")


def test_the_stream_from_now_on_and_again(mariadb_server: MariaDbServer, tmp_path: Path) -> None:
    with session(mariadb_server) as cursor:
        fresh(cursor, "one")
        cursor.execute("CREATE TABLE one.a (id int primary key, v varchar(20))")
        source = settings(mariadb_server, tables={"include": ["one.*"]})
        run(tmp_path, source)
        assert row_events(tmp_path) == []
        for n in range(20):
            cursor.execute("INSERT INTO one.a VALUES (%s, 'x')", (n,))
        cursor.execute("CREATE TABLE one.b ENGINE=MyISAM AS SELECT * FROM one.a")
        cursor.execute("FLUSH BINARY LOGS")
        cursor.execute("ALTER TABLE one.a ADD COLUMN w int")
        cursor.execute("UPDATE one.a SET w = id WHERE id < 5")
        run(tmp_path, source)
        found = row_events(tmp_path)
        assert [raw[4] for raw in found] == [23] * 21 + [24]
        cursor.execute("DELETE FROM one.a WHERE id = 1")
        run(tmp_path, source)
    assert row_events(tmp_path)[:-1] == found
    state = state_of(tmp_path / "log")
    history = [(key[1], key[2], len(table.columns)) for key, table in state.store(SCHEMA_HISTORY).items() if key[1]]
    assert history == [("a", 0, 2), ("a", 1, 3), ("b", 0, 2)]
    position = state.store(SOURCE_POSITION).get(SOURCE)
    assert position is not None
    assert position.order == MariadbSource(source, tmp_path).end().order
    assert position.gtid == MariadbSource(source, tmp_path).end().gtid


def test_a_start_by_gtid_and_by_file_see_the_same(mariadb_server: MariaDbServer, tmp_path: Path) -> None:
    with session(mariadb_server) as cursor:
        fresh(cursor, "two")
        cursor.execute("CREATE TABLE two.t (id int primary key)")
        here = MariadbSource(settings(mariadb_server), tmp_path).end()
        for n in range(5):
            cursor.execute("INSERT INTO two.t VALUES (%s)", (n,))
    run(tmp_path / "gtid", settings(mariadb_server, start={"gtid": here.gtid}))
    run(tmp_path / "file", settings(mariadb_server, start={"file": here.file, "pos": here.pos}))
    assert len(row_events(tmp_path / "gtid")) == 5
    assert row_events(tmp_path / "gtid") == row_events(tmp_path / "file")
    run(tmp_path / "gtid", settings(mariadb_server, start={"gtid": here.gtid}))
    assert len(row_events(tmp_path / "gtid")) == 5


def test_a_large_event_over_several_packets(mariadb_server: MariaDbServer, tmp_path: Path) -> None:
    source = settings(mariadb_server, tables={"include": ["three.*"]})
    with session(mariadb_server) as cursor:
        fresh(cursor, "three")
        cursor.execute("CREATE TABLE three.t (id int primary key, v longblob)")
        run(tmp_path, source)
        cursor.execute("INSERT INTO three.t VALUES (1, REPEAT('x', 40000000)), (2, REPEAT('y', 20000000)), (3, 'z')")
        cursor.execute("INSERT INTO three.t VALUES (4, 'after')")
    run(tmp_path, source)
    found = row_events(tmp_path)
    assert b"x" * 40_000_000 in found[0]
    assert b"after" in found[-1]
    assert sum(raw.count(b"y" * 20_000_000) for raw in found) == 1


def test_the_connection_is_killed_while_it_streams(mariadb_server: MariaDbServer, tmp_path: Path) -> None:
    source = settings(mariadb_server, tables={"include": ["four.*"]})
    with session(mariadb_server) as cursor:
        fresh(cursor, "four")
        cursor.execute("CREATE TABLE four.t (id int primary key)")
        said: list[dict[str, Any]] = []
        stop = threading.Event()
        log = Log.open(tmp_path / "log")
        server = MariadbSource(source, tmp_path)
        capture = Capture(log, server, tables=source.tables, stop=stop, report=said.append)
        thread = threading.Thread(target=capture.run)
        thread.start()
        try:
            while not said:  # "now" is read by then
                time.sleep(0.05)
            for n in range(30):
                cursor.execute("INSERT INTO four.t VALUES (%s)", (n,))
                if n % 10 == 5:
                    time.sleep(0.5)
                    cursor.execute("SELECT id FROM information_schema.processlist WHERE command = 'Binlog Dump'")
                    for (number,) in cursor.fetchall():
                        cursor.execute(f"KILL {number}")
            wait_until(lambda: len(row_events(tmp_path)) >= 30, "events")
        finally:
            stop.set()
            thread.join(LIMIT_SECONDS)
            server.close()
            log.close()
    ids = [int.from_bytes(raw[-8:-4], "little") for raw in row_events(tmp_path)]
    assert ids == list(range(30))
    assert any(event["event"] == "retrying" for event in said)


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[MariaDbServer]:
    """For a test that changes the server's binlogs."""
    server = MariaDbServer(tmp_path / "server")
    server.start()
    yield server
    server.stop()


def test_a_purged_binlog_is_named_and_nothing_is_skipped(
    mariadb_server: MariaDbServer, own_server: MariaDbServer, tmp_path: Path
) -> None:
    del mariadb_server  # skips where there is no MariaDB
    mariadb_server = own_server
    source = settings(mariadb_server, tables={"include": ["five.*"]})
    run(tmp_path, source)
    with session(mariadb_server) as cursor:
        cursor.execute("FLUSH BINARY LOGS")
        cursor.execute("FLUSH BINARY LOGS")
        cursor.execute("SHOW BINARY LOGS")
        newest = cursor.fetchall()[-1][0]
        time.sleep(1)
        cursor.execute(f"PURGE BINARY LOGS TO '{newest}'")
    with pytest.raises(SourceError, match=f"is gone .oldest on the server: {newest}.*Nothing was skipped"):
        run(tmp_path, source)


def test_a_wrong_password_and_a_server_that_is_not_ready(mariadb_server: MariaDbServer, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="Access denied"):
        run(tmp_path, settings(mariadb_server, password="wrong"))
    with session(mariadb_server) as cursor:
        cursor.execute("SET GLOBAL binlog_row_image = 'MINIMAL'")
        try:
            with pytest.raises(SourceError, match="binlog_row_image is MINIMAL") as caught:
                run(tmp_path, settings(mariadb_server))
        finally:
            cursor.execute("SET GLOBAL binlog_row_image = 'FULL'")
    assert "SET GLOBAL binlog_row_image = 'FULL';" in caught.value.hint


def test_the_demo_writes_what_a_server_would(mariadb_server: MariaDbServer, tmp_path: Path) -> None:
    """The same statements on a server give the demo's table maps, byte for byte after the table id."""
    with session(mariadb_server) as cursor:
        cursor.execute("DROP DATABASE IF EXISTS shop")
        here = MariadbSource(settings(mariadb_server), tmp_path).end()
        cursor.execute(shop.CREATE_DATABASE)
        for table in (shop.CUSTOMERS, shop.PRODUCTS, shop.ORDERS, shop.ORDER_ITEMS):
            cursor.execute(table.create)
        cursor.execute("INSERT INTO shop.customers VALUES (1,'e','n','DE','pro',NULL,NULL,1,1,NULL,now(),NULL,NULL)")
        cursor.execute("INSERT INTO shop.products VALUES (1,'s','t',NULL,1,NULL,NULL,1,NULL,2000,NULL,NULL)")
        cursor.execute("INSERT INTO shop.orders VALUES (1,1,'new',1,now(),NULL,NULL,NULL,1,NULL)")
        cursor.execute("INSERT INTO shop.order_items VALUES (1,1,1,1,1,NULL)")
        cursor.execute(shop.ALTER_ORDERS)
        cursor.execute("UPDATE shop.orders SET note = 'x'")
    run(tmp_path, settings(mariadb_server, start={"file": here.file, "pos": here.pos}))
    maps = [raw[25:-4] for raw in logged_events(tmp_path / "log") if raw[4] == EventType.TABLE_MAP]
    tables = (shop.CUSTOMERS, shop.PRODUCTS, shop.ORDERS, shop.ORDER_ITEMS, shop.ORDERS_NOTED)
    assert maps == [table.table_map for table in tables]
    assert len(split_events(b"".join(logged_events(tmp_path / "log")))) > 0
