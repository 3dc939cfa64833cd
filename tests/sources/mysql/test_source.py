"""Real servers of both families: their stream into the log, restarts, another history, and what they refuse."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.binlog.events import split_events
from penstock.binlog.types import EventType
from penstock.capture.loop import Capture
from penstock.entries.stores import SCHEMA_HISTORY, SOURCE, SOURCE_POSITION
from penstock.errors import Unavailable
from penstock.log import Log
from penstock.sources.demo import shop
from penstock.sources.mysql.source import ServerSource
from penstock.sources.position import SourcePosition
from penstock.sources.source import Chunk, SourceError
from tests.capture.fake_log import FakeLog
from tests.capture.running import logged_events, state_of
from tests.sources.mysql.streaming import fresh, row_events, run, session, settings
from tests.support.waiting import LIMIT_SECONDS, wait_until
from tools.components.database import DatabaseServer
from tools.components.mariadb import MariaDbServer


def position_of(directory: Path) -> SourcePosition:
    found = state_of(directory / "log").store(SOURCE_POSITION).get(SOURCE)
    assert found is not None
    return found


def test_the_stream_from_now_on_and_again(server: DatabaseServer, tmp_path: Path) -> None:
    with session(server) as cursor:
        fresh(cursor, "one")
        cursor.execute("CREATE TABLE one.a (id int primary key, v varchar(20))")
        source = settings(server, tables={"include": ["one.*"]})
        run(tmp_path, source)
        assert row_events(tmp_path) == []
        for n in range(20):
            cursor.execute("INSERT INTO one.a VALUES (%s, 'x')", (n,))
        cursor.execute("CREATE TABLE one.b (id int primary key, v varchar(20)) ENGINE=MyISAM")
        cursor.execute("INSERT INTO one.b SELECT * FROM one.a")
        cursor.execute("FLUSH BINARY LOGS")
        cursor.execute("ALTER TABLE one.a ADD COLUMN w int")
        cursor.execute("UPDATE one.a SET w = id WHERE id < 5")
        run(tmp_path, source)
        found = row_events(tmp_path)
        kinds = (23, 24) if server.kind == "mariadb" else (30, 31)
        assert [raw[4] for raw in found] == [kinds[0]] * 21 + [kinds[1]]
        cursor.execute("DELETE FROM one.a WHERE id = 1")
        run(tmp_path, source)
    assert row_events(tmp_path)[:-1] == found
    state = state_of(tmp_path / "log")
    history = [(key[1], key[2], len(table.columns)) for key, table in state.store(SCHEMA_HISTORY).items() if key[1]]
    assert history == [("a", 0, 2), ("a", 1, 3), ("b", 0, 2)]
    position, end = position_of(tmp_path), ServerSource(source, tmp_path).end()
    assert (position.file, position.pos, position.gtid) == (end.file, end.pos, end.gtid)


def test_the_family_is_found_out_whatever_the_settings_say(server: DatabaseServer, tmp_path: Path) -> None:
    ends = [ServerSource(settings(server, type=kind), tmp_path).end() for kind in ("mariadb", "mysql")]
    assert [end.source.split(":")[0] for end in ends] == [server.kind] * 2


def test_a_start_by_gtid_and_by_file_see_the_same(server: DatabaseServer, tmp_path: Path) -> None:
    with session(server) as cursor:
        fresh(cursor, "two")
        cursor.execute("CREATE TABLE two.t (id int primary key)")
        here = ServerSource(settings(server), tmp_path).end()
        for n in range(5):
            cursor.execute("INSERT INTO two.t VALUES (%s)", (n,))
    run(tmp_path / "gtid", settings(server, start={"gtid": here.gtid}))
    run(tmp_path / "file", settings(server, start={"file": here.file, "pos": here.pos}))
    assert len(row_events(tmp_path / "gtid")) == 5
    assert row_events(tmp_path / "gtid") == row_events(tmp_path / "file")
    run(tmp_path / "gtid", settings(server, start={"gtid": here.gtid}))
    assert len(row_events(tmp_path / "gtid")) == 5


def test_a_large_event_over_several_packets(server: DatabaseServer, tmp_path: Path) -> None:
    source = settings(server, tables={"include": ["three.*"]})
    with session(server) as cursor:
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


def test_the_connection_is_killed_while_it_streams(server: DatabaseServer, tmp_path: Path) -> None:
    source = settings(server, tables={"include": ["four.*"]})
    with session(server) as cursor:
        fresh(cursor, "four")
        cursor.execute("CREATE TABLE four.t (id int primary key)")
        said: list[dict[str, Any]] = []
        stop = threading.Event()
        log = Log.open(tmp_path / "log")
        followed = ServerSource(source, tmp_path)
        capture = Capture(log, followed, tables=source.tables, stop=stop, report=said.append)
        thread = threading.Thread(target=capture.run)
        thread.start()
        try:
            wait_until(lambda: bool(said), "a start: `now` is read by then")
            for n in range(30):
                cursor.execute("INSERT INTO four.t VALUES (%s)", (n,))
                if n % 10 == 5:
                    time.sleep(0.5)
                    cursor.execute("SELECT id FROM information_schema.processlist WHERE command LIKE 'Binlog Dump%'")
                    for (number,) in cursor.fetchall():
                        cursor.execute(f"KILL {number}")
            wait_until(lambda: len(row_events(tmp_path)) >= 30, "events")
        finally:
            stop.set()
            thread.join(LIMIT_SECONDS)
            followed.close()
            log.close()
    ids = [int.from_bytes(raw[-8:-4], "little") for raw in row_events(tmp_path)]
    assert ids == list(range(30))
    assert any(event["event"] == "retrying" for event in said)


def test_a_purged_binlog_is_named_and_nothing_is_skipped(own_server: DatabaseServer, tmp_path: Path) -> None:
    source = settings(own_server, tables={"include": ["five.*"]})
    run(tmp_path, source)
    with session(own_server) as cursor:
        cursor.execute("FLUSH BINARY LOGS")
        cursor.execute("FLUSH BINARY LOGS")
        cursor.execute("SHOW BINARY LOGS")
        newest = cursor.fetchall()[-1][0]
        time.sleep(1)
        cursor.execute(f"PURGE BINARY LOGS TO '{newest}'")
    with pytest.raises(SourceError, match=f"is gone .oldest on the server: {newest}.*Nothing was skipped"):
        run(tmp_path, source)


def test_whoever_only_looks_finds_a_purged_binlog_after_a_failover_too(
    own_server: DatabaseServer, tmp_path: Path
) -> None:
    """By GTID no file is named, and MariaDB says only to who asks for events that it has them no more."""
    source = settings(own_server)
    with session(own_server) as cursor:
        fresh(cursor, "eleven")
        here = ServerSource(source, tmp_path).end()
        elsewhere = replace(here, file="other.000077", pos=1234, source=f"{own_server.kind}:another")
        there = ServerSource(source, tmp_path)
        there.check(elsewhere)
        cursor.execute("FLUSH BINARY LOGS")
        cursor.execute("CREATE TABLE eleven.t (id int primary key)")
        cursor.execute("FLUSH BINARY LOGS")
        cursor.execute("SHOW BINARY LOGS")
        files = [row[0] for row in cursor.fetchall()]
        cursor.execute(f"PURGE BINARY LOGS TO '{files[-2]}'")
        there.check(elsewhere)
        cursor.execute(f"PURGE BINARY LOGS TO '{files[-1]}'")
        with pytest.raises(SourceError, match="Nothing was skipped"):
            there.check(elsewhere)


def test_a_reset_of_the_binlog_is_found_and_nothing_is_skipped(own_server: DatabaseServer, tmp_path: Path) -> None:
    """Files and offsets are there again, with other transactions in them."""
    source = settings(own_server, tables={"include": ["six.*"]})
    with session(own_server) as cursor:
        fresh(cursor, "six")
        cursor.execute("CREATE TABLE six.t (id int primary key)")
        for n in range(10):
            cursor.execute("INSERT INTO six.t VALUES (%s)", (n,))
        run(tmp_path, source)
        before = position_of(tmp_path)
        cursor.execute("RESET MASTER")
        for n in range(10, 14):
            cursor.execute("INSERT INTO six.t VALUES (%s)", (n,))
        cursor.execute("FLUSH BINARY LOGS")
    with pytest.raises(SourceError, match="Nothing was skipped"):
        run(tmp_path, source)
    assert position_of(tmp_path) == before


@pytest.mark.mariadb
def test_a_start_by_file_knows_every_domain(mariadb_server: MariaDbServer, tmp_path: Path) -> None:
    with session(mariadb_server) as cursor:
        fresh(cursor, "eight")
        cursor.execute("SET gtid_domain_id = 5")
        cursor.execute("CREATE TABLE eight.t (id int primary key)")
        here = ServerSource(settings(mariadb_server), tmp_path).end()
        cursor.execute("SET gtid_domain_id = 0")
        cursor.execute("INSERT INTO eight.t VALUES (1)")
        source = settings(mariadb_server, start={"file": here.file, "pos": here.pos})
        run(tmp_path, source)
        cursor.execute("INSERT INTO eight.t VALUES (2)")
        run(tmp_path, source)
    assert "5-" in here.gtid and "5-" in position_of(tmp_path).gtid  # else another server would send domain 5 again
    assert len(row_events(tmp_path)) == 2


def test_another_server_is_followed_by_gtid_where_it_knows_what_is_in_the_log(
    own_server: DatabaseServer, tmp_path: Path
) -> None:
    """After a failover the new server has the old one's transactions, in files of its own."""
    source = settings(own_server)
    with session(own_server) as cursor:
        fresh(cursor, "seven")
        here = ServerSource(source, tmp_path).end()
        cursor.execute("CREATE TABLE seven.t (id int primary key)")
        there = ServerSource(source, tmp_path)
        elsewhere = replace(here, file="other.000077", pos=1234, source=f"{own_server.kind}:another")
        on = there.resume(elsewhere)
        assert (on.file, on.gtid, on.source, on.epoch) == ("", here.gtid, here.source, here.epoch + 1)
        unknown = "9-9-9" if own_server.kind == "mariadb" else "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5"
        with pytest.raises(SourceError, match="does not know"):
            there.resume(replace(elsewhere, gtid=unknown))
        with pytest.raises(SourceError, match="no GTID is known"):
            there.resume(replace(elsewhere, gtid=""))


def test_after_a_failover_a_new_connection_is_by_gtid_again(own_server: DatabaseServer, tmp_path: Path) -> None:
    """By file it would send again what it left out: its binlog has an order of its own."""
    source = settings(own_server)
    with session(own_server) as cursor:
        fresh(cursor, "ten")
        cursor.execute("CREATE TABLE ten.t (id int primary key)")
        run(tmp_path, source)
        moved = replace(position_of(tmp_path), source=f"{own_server.kind}:another")
        there = ServerSource(source, tmp_path)
        asked = there.resume(moved)
        log = FakeLog(asked)
        for number in (1, 2):
            cursor.execute("INSERT INTO ten.t VALUES (%s)", (number,))
            position = log.frames[-1].position if log.frames else asked
            assert there.resume(position) == position and position.by_gtid
            log.run(ShortSource(there))  # type: ignore[arg-type]
            assert len(log.committed()) == number and log.frames[-1].position.file


def test_a_server_that_took_the_address_meanwhile_is_not_asked_by_file(
    mariadb_server: MariaDbServer, tmp_path: Path
) -> None:
    """A failover between the look at the server and the connection that streams: file and offset are the old server's."""
    there = ServerSource(settings(mariadb_server), tmp_path)
    here = there.end()
    assert there.resume(here) == here
    stream = there.open(replace(here, source="mariadb:the-old-one"))
    with pytest.raises(Unavailable, match=f"{here.source}, and not mariadb:the-old-one any more"):
        next(stream)
    assert next(there.open(here)).idle
    there.close()


class ShortSource:
    """A source that ends when nothing more comes."""

    def __init__(self, inner: ServerSource) -> None:
        self._inner = inner

    def open(self, position: SourcePosition) -> Iterator[Chunk]:
        quiet = 0
        for chunk in self._inner.open(position):
            quiet = 0 if len(chunk.data) else quiet + 1
            yield chunk
            if quiet > 6:  # between two heartbeats
                return


def test_a_server_id_in_use_is_said_by_both(server: DatabaseServer, tmp_path: Path) -> None:
    followed = ServerSource(settings(server, server_id=4711), tmp_path / "first")
    stream = followed.open(followed.end())
    next(stream)
    next(stream)
    rival = ServerSource(settings(server, server_id=4711), tmp_path / "second")
    with pytest.raises(SourceError, match="server id 4711 is in use by replica penstock-"):
        list(rival.open(rival.end()))
    rival._replica.name = followed._replica.name  # as one that does not look, or whom the server does not list
    against = rival.open(rival.end())
    next(against)
    with pytest.raises(SourceError, match="server id 4711 is in use by another replica"):
        wait_until(lambda: next(stream) is None, "the end of the first")
    rival.close()
    followed.close()


def test_an_id_of_our_own_choice_is_one_that_is_free(server: DatabaseServer, tmp_path: Path) -> None:
    one, same = (ServerSource(settings(server), tmp_path) for _ in range(2))
    one._replica.name = "somebody-else"
    stream = one.open(one.end())
    next(stream)
    against = same.open(same.end())
    next(against)
    assert same._replica.server_id != one._replica.server_id
    one.close()
    same.close()


def test_a_wrong_password_and_a_server_that_is_not_ready(server: DatabaseServer, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="Access denied"):
        run(tmp_path, settings(server, password="wrong"))
    with session(server) as cursor:
        cursor.execute("SET GLOBAL binlog_format = 'MIXED'")
        try:
            with pytest.raises(SourceError, match="binlog_format is MIXED") as caught:
                run(tmp_path, settings(server))
        finally:
            cursor.execute("SET GLOBAL binlog_format = 'ROW'")
    assert "SET GLOBAL binlog_format = 'ROW';" in caught.value.hint


@pytest.mark.mariadb
def test_the_demo_writes_what_a_server_would(mariadb_server: MariaDbServer, tmp_path: Path) -> None:
    """The same statements on a server give the demo's table maps, byte for byte after the table id."""
    with session(mariadb_server) as cursor:
        cursor.execute("DROP DATABASE IF EXISTS shop")
        here = ServerSource(settings(mariadb_server), tmp_path).end()
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
