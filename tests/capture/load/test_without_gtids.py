"""MySQL without GTIDs: refused, or read with row locks where the user allows it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.capture.load import tables as tables_module
from penstock.sources.source import SourceError
from tests.capture.load.loading import World, loading
from tests.capture.load.test_load_kills import TABLES, writing
from tests.support.components import missing
from tools.components import MissingComponent
from tools.components.mysql import MySqlServer

LOCKS = {"row_locks": True, "max_rows_per_second": 4000}


@pytest.fixture(scope="module")
def bare_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MySqlServer]:
    options = ["--gtid-mode=OFF", "--enforce-gtid-consistency=OFF"]
    try:
        with MySqlServer(tmp_path_factory.mktemp("mysql"), options=options) as server:
            yield server
    except MissingComponent as error:
        missing(str(error))


@pytest.fixture
def world(bare_server: MySqlServer, tmp_path: Path) -> Iterator[World]:
    with loading(bare_server, tmp_path / "state") as found:
        yield found


def test_it_is_refused_and_the_way_out_is_named(world: World) -> None:
    world.run("CREATE TABLE a (id INT PRIMARY KEY, v VARCHAR(40))")
    with pytest.raises(SourceError, match="needs gtid_mode = ON, and it is OFF") as raised:
        world.catch_up()
    assert "source.snapshot.row_locks: true" in (raised.value.hint or "")


def test_a_load_under_writes_with_row_locks(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables_module, "ROWS_FIRST", 100)
    monkeypatch.setattr(tables_module, "ROWS_MAX", 100)
    for table in TABLES:
        numbers = "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 999) SELECT i FROM n"
        world.run(
            f"CREATE TABLE {table} (id INT PRIMARY KEY, v VARCHAR(40))",
            f"INSERT INTO {table} SELECT 3 * i, CONCAT('old', i) FROM ({numbers}) s",
        )
    with writing(world, 3):
        world.catch_up(snapshot=LOCKS)
    world.catch_up(snapshot=LOCKS)
    for table in TABLES:
        assert dict(world.rows(f"SELECT * FROM {table}")) == {row[0]: row[1] for row in world.table(table).values()}
    assert world.chunks() >= 3 * len(TABLES)


def test_a_chunk_waits_for_rows_that_others_hold(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """As those of a transaction that is in the binlog and cannot be seen yet are held, until it can."""
    world.run("CREATE TABLE a (id INT PRIMARY KEY, v INT)", "INSERT INTO a VALUES (1, 1), (2, 2)")
    holder = world.server.connect(world.database)
    holder.begin()
    holder.cursor().execute("UPDATE a SET v = 9 WHERE id = 2")
    waited: list[str] = []
    pause = tables_module.TableReaders._pause

    def release(self: tables_module.TableReaders, seconds: float) -> None:
        if not waited:
            waited.append("the chunk could not be read")
            holder.commit()
            holder.close()
        pause(self, min(seconds, 0.01))

    monkeypatch.setattr(tables_module.TableReaders, "_pause", release)
    monkeypatch.setattr(
        "penstock.sources.mysql.load.reader._LOCKING_SESSION",
        ("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED", "SET SESSION innodb_lock_wait_timeout = 1"),
    )
    world.catch_up(snapshot={"row_locks": True})
    assert waited and world.table("a") == {(1,): (1, 1), (2,): (2, 9)}
