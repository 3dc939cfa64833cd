"""Where a log starts on a real server, and whether the server still has the same history when capture comes back."""

from __future__ import annotations

import contextlib
import re
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.capture.loop import Capture
from penstock.log import Log, LogReader
from penstock.sources.mysql import source as source_module
from penstock.sources.mysql.mariadb import MariaDb
from penstock.sources.mysql.source import ServerSource
from penstock.sources.source import SourceError
from tests.e2e.servers.mirror import logged_gtids
from tests.sources.mysql.streaming import fresh, row_events, run, session, settings
from tests.sources.mysql.test_source import position_of
from tools.components.database import DatabaseServer
from tools.components.mariadb import MariaDbServer
from tools.components.mysql import MySqlServer

_NUMBER = re.compile(r"(\d+)'?$")


def numbers(cursor: Any, file: str, end: int | None = None) -> list[int]:
    """The numbers of the GTIDs in a binlog, up to an offset, by the server's own words."""
    cursor.execute(f"SHOW BINLOG EVENTS IN '{file}'")
    found = []
    for _, pos, kind, _, _, info in cursor.fetchall():
        match = _NUMBER.search(info)
        if kind == "Gtid" and match and (end is None or pos < end):
            found.append(int(match[1]))
    return found


@contextlib.contextmanager
def load(server: DatabaseServer, database: str, sessions: int) -> Iterator[None]:
    """Many small commits at the same time."""
    stop = threading.Event()

    def work(number: int) -> None:
        with session(server) as cursor:
            while not stop.is_set():
                cursor.execute(f"INSERT INTO {database}.t{number} VALUES ()")

    with session(server) as cursor:
        fresh(cursor, database)
        for number in range(sessions):
            cursor.execute(f"CREATE TABLE {database}.t{number} (a int AUTO_INCREMENT PRIMARY KEY)")
    threads = [threading.Thread(target=work, args=(number,)) for number in range(sessions)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()


@pytest.mark.mysql
def test_a_start_under_load_has_all_that_its_gtids_lack(mysql_server: MySqlServer, tmp_path: Path) -> None:
    """MySQL says its set of GTIDs and its offset one after the other. What lies between would be sent again by another
    server, after newer rows."""
    begun = []
    with load(mysql_server, "busy", 3):
        for number in range(5):
            directory = tmp_path / str(number)
            log = Log.open(directory / "log")
            source = ServerSource(settings(mysql_server), directory)
            Capture(log, source)._begin()
            log.close()
            begun.append((directory, position_of(directory).gtid))
    for directory, gtid in begun:
        run(directory, settings(mysql_server))
        first = int(logged_gtids(LogReader.open(directory / "log"))[0].rpartition(":")[2])
        with session(mysql_server) as cursor:
            cursor.execute("SELECT GTID_SUBSET(%s, %s)", (f"{gtid.rpartition(':')[0]}:1-{first - 1}", gtid))
            assert cursor.fetchone()[0] == 1, (gtid, first)


def test_a_start_by_file_knows_the_gtids_before_it(server: DatabaseServer, tmp_path: Path) -> None:
    with session(server) as cursor:
        fresh(cursor, "nine")
        cursor.execute("CREATE TABLE nine.t (id int primary key)")
        here = ServerSource(settings(server), tmp_path).end()
        cursor.execute("INSERT INTO nine.t VALUES (1)")
        source = ServerSource(settings(server, start={"file": here.file, "pos": here.pos}), tmp_path)
        assert source.begin(1).position.gtid == here.gtid
        cursor.execute("FLUSH BINARY LOGS")
        after = ServerSource(settings(server), tmp_path).end()
        source = ServerSource(settings(server, start={"file": after.file}), tmp_path)
        assert source.begin(1).position.gtid == after.gtid
        nowhere = ServerSource(settings(server, start={"file": here.file, "pos": here.pos + 1}), tmp_path)
        with pytest.raises(SourceError, match=f"no transaction begins at {here.file}:{here.pos + 1}"):
            nowhere.begin(1)


@pytest.mark.mariadb
def test_a_reset_binlog_that_is_as_long_as_before(mariadb_server: MariaDbServer, tmp_path: Path) -> None:
    """The same statements again: files, offsets and GTIDs are those of before, and yet it is another history."""

    def history(cursor: Any, value: int) -> None:
        fresh(cursor, "ten")
        cursor.execute("CREATE TABLE ten.t (id int primary key)")
        for n in range(5):
            cursor.execute("INSERT INTO ten.t VALUES (%s)", (value + n,))

    with type(mariadb_server)(tmp_path / "server") as own, session(own) as cursor:
        source = settings(own, tables={"include": ["ten.*"]})
        cursor.execute("RESET MASTER")
        run(tmp_path, source)
        history(cursor, 100)
        run(tmp_path, source)
        before = position_of(tmp_path)
        time.sleep(1.1)  # a binlog knows the second in which it was begun
        cursor.execute("RESET MASTER")
        history(cursor, 200)
        assert ServerSource(source, tmp_path).end().pos == before.pos
        cursor.execute("INSERT INTO ten.t VALUES (1)")
        with pytest.raises(
            SourceError, match=r"filled from a file of that name that was begun at .* Nothing was skipped"
        ):
            run(tmp_path, source)
    assert position_of(tmp_path) == before


@pytest.mark.mysql
def test_a_reset_is_found_at_the_head_of_a_file_too(mysql_server: MySqlServer, tmp_path: Path) -> None:
    """All that the log has is known to the server again, and more; what came before this file is not in the log."""
    with MySqlServer(tmp_path / "server") as own, session(own) as cursor:
        source = settings(own, tables={"include": ["eleven.*"]})
        fresh(cursor, "eleven")
        run(tmp_path, source)
        cursor.execute("CREATE TABLE eleven.t (id int primary key)")
        cursor.execute("FLUSH BINARY LOGS")
        run(tmp_path, source)
        assert position_of(tmp_path).file == "binlog.000002"
        time.sleep(1.1)
        cursor.execute("RESET MASTER")
        for n in range(9):
            cursor.execute("INSERT INTO eleven.t VALUES (%s)", (n,))
        cursor.execute("FLUSH BINARY LOGS")
        cursor.execute("INSERT INTO eleven.t VALUES (100)")
        with pytest.raises(SourceError, match="Nothing was skipped"):
            run(tmp_path, source)


def test_an_offset_above_4_gib_is_followed_by_gtid(
    server: DatabaseServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No command of the protocol has more than 32 bits for an offset."""
    source = settings(server, tables={"include": ["twelve.*"]})
    with session(server) as cursor:
        fresh(cursor, "twelve")
        cursor.execute("CREATE TABLE twelve.t (id int primary key)")
        run(tmp_path, source)
        cursor.execute("INSERT INTO twelve.t VALUES (1)")
        run(tmp_path, source)
        monkeypatch.setattr(source_module, "OFFSET_MAX", 500)
        cursor.execute("INSERT INTO twelve.t VALUES (2)")
        run(tmp_path, source)
        assert position_of(tmp_path).by_gtid
        cursor.execute("INSERT INTO twelve.t VALUES (3)")
        run(tmp_path, source)
    assert len(row_events(tmp_path)) == 3


def test_grants_that_were_lost_end_the_run_with_the_statement(server: DatabaseServer, tmp_path: Path) -> None:
    with session(server) as cursor:
        cursor.execute("DROP USER IF EXISTS lost@'%'")
        cursor.execute("CREATE USER lost@'%' IDENTIFIED BY 'p'")
        cursor.execute("GRANT SELECT, REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO lost@'%'")
        source = settings(server, user="lost", password="p", tables={"include": ["none.*"]})
        run(tmp_path, source)
        cursor.execute("REVOKE REPLICATION SLAVE ON *.* FROM lost@'%'")
        with pytest.raises(SourceError) as caught:
            run(tmp_path, source)
        assert "GRANT REPLICATION SLAVE ON *.* TO 'lost'@'%';" in caught.value.hint
        cursor.execute("GRANT REPLICATION SLAVE ON *.* TO 'lost'@'%';")
        cursor.execute("REVOKE REPLICATION CLIENT ON *.* FROM lost@'%'")
        with pytest.raises(SourceError) as caught:
            run(tmp_path, source)
        assert "GRANT REPLICATION CLIENT ON *.* TO 'lost'@'%';" in caught.value.hint
        cursor.execute("GRANT REPLICATION CLIENT ON *.* TO 'lost'@'%';")
        run(tmp_path, source)
        cursor.execute("DROP USER lost@'%'")


def test_the_place_that_a_server_named_is_asked_for_once(
    mariadb_server: MariaDbServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MariaDB reads a whole file to say which GTIDs are before an offset. The first start does without asking again; whoever
    comes back asks, as the server may be another one by then."""
    asked: list[tuple[str, int]] = []
    gtids_at = MariaDb.gtids_at

    def counted(self: MariaDb, connection: Any, file: str, pos: int) -> str | None:
        asked.append((file, pos))
        return gtids_at(self, connection, file, pos)

    monkeypatch.setattr(MariaDb, "gtids_at", counted)
    source = ServerSource(settings(mariadb_server), tmp_path)
    begun = source.begin(1).position
    assert source.end() == begun
    assert source.resume(begun) == begun
    assert asked == [(begun.file, begun.pos)]
    source.resume(begun)
    assert asked == [(begun.file, begun.pos)] * 2
    source.begin(1)
    with pytest.raises(SourceError, match="is after GTID"):
        source.resume(replace(begun, gtid="0-1-999999999"))
    source.close()
