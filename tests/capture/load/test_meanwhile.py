"""Rows that change while they are loaded, and tables that do: at the worst moments, one by one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from penstock.capture.load import tables
from penstock.schema.model import TableSchema
from penstock.sources.load import KeyRange, LoadedRows, TableLoad
from penstock.sources.mysql import source as server_source
from penstock.sources.mysql.load.reader import ServerTableReader
from penstock.sources.position import SourcePosition
from tests.capture.load.loading import World

Disturb = Callable[[str, TableSchema, int], None]


@pytest.fixture
def disturbed(monkeypatch: pytest.MonkeyPatch) -> Callable[[Disturb], None]:
    """Calls back right before and right after each SELECT. The chunk is appended after what happened by then."""

    def install(disturb: Disturb) -> None:
        class Disturbed(ServerTableReader):
            number = 0

            def read(
                self, table: TableSchema, load: TableLoad, part: KeyRange, low: SourcePosition, rows_max: int
            ) -> LoadedRows:
                Disturbed.number += 1
                disturb("before", table, Disturbed.number)
                found = super().read(table, load, part, low, rows_max)
                disturb("after", table, Disturbed.number)
                return replace(found, high=self.now())

        monkeypatch.setattr(server_source, "ServerTableReader", Disturbed)

    return install


def test_the_newest_image_of_each_row_stands_at_the_end(world: World, disturbed: Callable[[Disturb], None]) -> None:
    world.run(
        "CREATE TABLE t (a INT, b VARCHAR(9), v INT, PRIMARY KEY (a, b))",
        "INSERT INTO t VALUES (1,'x',0),(2,'x',0),(3,'x',0),(4,'x',0),(5,'x',0),(6,'x',0),(7,'X',0)",
    )

    def disturb(when: str, table: TableSchema, number: int) -> None:
        if number > 1:
            return
        if when == "before":  # the chunk shows it, and the log has it before the chunk
            world.run(
                "UPDATE t SET v = 1 WHERE a = 1", "DELETE FROM t WHERE a = 2", "INSERT INTO t VALUES (10,'x',1)",
                "UPDATE t SET a = 33, v = 1 WHERE a = 3", "DELETE FROM t WHERE a = 7", "INSERT INTO t VALUES (7,'x',1)",
            )  # fmt: skip
        else:  # the chunk does not show it, and the log has it before the chunk all the same
            world.run(
                "UPDATE t SET v = 2 WHERE a = 4", "DELETE FROM t WHERE a = 5", "INSERT INTO t VALUES (11,'x',2)",
                "UPDATE t SET b = 'y', v = 2 WHERE a = 6",
            )  # fmt: skip

    disturbed(disturb)
    world.catch_up()
    expected = {
        (1, "x"): 1, (10, "x"): 1, (33, "x"): 1, (7, "x"): 1, (4, "x"): 2, (11, "x"): 2, (6, "y"): 2,
    }  # fmt: skip
    assert {key: row[2] for key, row in world.table("t").items()} == expected
    assert {(row[0], row[1]): row[2] for row in world.rows("SELECT * FROM t")} == expected
    # Every row that the chunk showed was touched: nothing of it is left, and no row comes twice.
    assert world.chunks() == 0


def test_a_chunk_is_read_again_when_its_table_has_changed(world: World, disturbed: Callable[[Disturb], None]) -> None:
    world.run("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1, 1), (2, 2)")
    versions: list[int] = []

    def disturb(when: str, table: TableSchema, number: int) -> None:
        versions.append(len(table.columns))
        if (when, number) == ("after", 1):
            world.run("ALTER TABLE t ADD COLUMN w INT DEFAULT 7")

    disturbed(disturb)
    world.catch_up()
    assert world.table("t") == {(1,): (1, 1, 7), (2,): (2, 2, 7)}
    assert versions[:2] == [2, 2] and set(versions[2:]) == {3}
    assert world.chunks() == 1


@pytest.mark.parametrize(
    "statement, expected",
    [
        ("ALTER TABLE t DROP COLUMN v", {(1,): (1,)}),  # then the SELECT has no such column
        ("ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY (v)", {(5,): (1, 5)}),
        ("DROP TABLE t", {}),
        ("TRUNCATE TABLE t", {}),
    ],
)
def test_a_statement_between_the_log_and_the_select(
    world: World, disturbed: Callable[[Disturb], None], statement: str, expected: dict[Any, Any]
) -> None:
    world.run("CREATE TABLE t (id INT PRIMARY KEY, v INT NOT NULL)", "INSERT INTO t VALUES (1, 5)")

    def disturb(when: str, table: TableSchema, number: int) -> None:
        if (when, number) == ("before", 1):
            world.run(statement)

    disturbed(disturb)
    said = world.catch_up()
    assert world.table("t") == expected
    assert said[-1]["load"]["done"] == 1


@pytest.mark.parametrize(
    "statement, expected",
    [
        ("OPTIMIZE TABLE t", {(1,): (1, 5)}),
        ("ALTER TABLE t ENGINE = InnoDB", {(1,): (1, 5)}),
        ("ALTER TABLE t ADD COLUMN w INT DEFAULT 7", {(1,): (1, 5, 7)}),
    ],
)
def test_a_table_that_is_rebuilt_between_snapshot_and_select(
    world: World, monkeypatch: pytest.MonkeyPatch, statement: str, expected: dict[Any, Any]
) -> None:
    """MariaDB refuses that SELECT (error 1412), although the table is perhaps as the log has it."""
    world.run("CREATE TABLE t (id INT PRIMARY KEY, v INT NOT NULL)", "INSERT INTO t VALUES (1, 5)")
    statements = [statement]

    class Disturbed(ServerTableReader):
        def _wait_until_visible(self, connection: Any, low: SourcePosition) -> None:
            super()._wait_until_visible(connection, low)
            if statements:
                world.run(statements.pop())

    monkeypatch.setattr(server_source, "ServerTableReader", Disturbed)
    said = world.catch_up()
    assert world.table("t") == expected
    assert said[-1]["load"]["done"] == 1


def test_a_load_goes_on_under_the_new_name_of_a_table(world: World, disturbed: Callable[[Disturb], None]) -> None:
    world.run("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1, 1), (2, 2)")

    def disturb(when: str, table: TableSchema, number: int) -> None:
        if (when, number) == ("before", 1):
            world.run("RENAME TABLE t TO u")

    disturbed(disturb)
    world.catch_up()
    assert world.table("u") == {(1,): (1, 1), (2,): (2, 2)}
    assert world.table("t") == {}


def loaded(world: World) -> set[Any]:
    """The values of the column `v` that the log has, under whatever name."""
    found: set[Any] = set()
    for batch in world.changes():
        place = next(i for i, column in enumerate(batch.table.columns) if column.name == "v")
        found |= set(batch.after[place].to_pylist())
    return found


def fill(world: World, table: str) -> set[str]:
    """Twenty rows, which are three chunks of `small_chunks`. The values of their column `v`."""
    values = [f"{table}{i}" for i in range(1, 21)]
    world.run(
        f"CREATE TABLE {table} (id INT PRIMARY KEY, v VARCHAR(20))",
        f"INSERT INTO {table} VALUES {', '.join(f'({i}, {v!r})' for i, v in enumerate(values, 1))}",
    )
    return set(values)


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "ROWS_FIRST", 7)
    monkeypatch.setattr(tables, "ROWS_MAX", 7)
    monkeypatch.setattr(tables, "AHEAD_MAX", 1)


@pytest.mark.usefixtures("small_chunks")
def test_a_table_that_is_renamed_and_gets_its_name_back(world: World, disturbed: Callable[[Disturb], None]) -> None:
    rows = fill(world, "t")

    def disturb(when: str, table: TableSchema, number: int) -> None:
        if (when, number) == ("after", 2):
            world.run("RENAME TABLE t TO other")
        elif when == "before" and table.table == "other":
            world.run("RENAME TABLE other TO t")

    disturbed(disturb)
    world.catch_up()
    assert loaded(world) == rows


@pytest.mark.usefixtures("small_chunks")
def test_tables_that_trade_their_names(world: World, disturbed: Callable[[Disturb], None]) -> None:
    rows = fill(world, "a") | fill(world, "b")

    def disturb(when: str, table: TableSchema, number: int) -> None:
        if (when, number) == ("after", 2):  # one of them is at its second chunk, the other at none
            world.run("RENAME TABLE a TO c, b TO a, c TO b")

    disturbed(disturb)
    world.catch_up(snapshot={"parallel": 1})
    assert loaded(world) == rows


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("first", ["a_part", "z_part"])
def test_tables_that_exchange_rows(world: World, disturbed: Callable[[Disturb], None], first: str) -> None:
    """The one is loaded whole, and gets rows of the other, of which nothing is loaded yet; no row event says so."""
    world.run(
        f"CREATE TABLE {first} (id INT PRIMARY KEY, v INT) PARTITION BY RANGE (id) "
        "(PARTITION p0 VALUES LESS THAN (100), PARTITION p1 VALUES LESS THAN MAXVALUE)",
        "CREATE TABLE m_other (id INT PRIMARY KEY, v INT)",
        f"INSERT INTO {first} VALUES (1, 1), (2, 1), (3, 1), (100, 1), (101, 1)",
        "INSERT INTO m_other VALUES (3, 2), (4, 2), (5, 2), (6, 2), (7, 2)",
    )
    names: list[str] = []

    def disturb(when: str, table: TableSchema, _number: int) -> None:
        if when == "before" and names and table.table != names[-1] and len(set(names)) == 1:
            world.run(f"ALTER TABLE {first} EXCHANGE PARTITION p0 WITH TABLE m_other")
        names.append(table.table)

    disturbed(disturb)
    world.catch_up(snapshot={"parallel": 1})
    assert len(set(names)) == 2, names
    for name in (first, "m_other"):  # rows that went away are there, too: the statement takes them
        there = set(world.rows(f"SELECT id, v FROM {name}"))
        assert there <= set(world.table(name).values()), name


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("changed", ["VARCHAR(20) COLLATE utf8mb4_bin", "VARBINARY(20)"])
def test_a_key_whose_order_becomes_another(world: World, disturbed: Callable[[Disturb], None], changed: str) -> None:
    values = {chr(i) for i in (*range(ord("a"), ord("k")), *range(ord("K"), ord("U")))}
    world.run(
        "CREATE TABLE t (k VARCHAR(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci PRIMARY KEY, v VARCHAR(20))",
        f"INSERT INTO t VALUES {', '.join(f'({v!r}, {v!r})' for v in sorted(values))}",
    )

    def disturb(when: str, table: TableSchema, number: int) -> None:
        if (when, number) == ("after", 2):
            world.run(f"ALTER TABLE t MODIFY k {changed} NOT NULL")

    disturbed(disturb)
    world.catch_up()
    assert loaded(world) == values


@pytest.mark.parametrize("how", ["load", "backfill"])
def test_values_that_an_alter_made_unreadable_for_the_log_s_version_are_read_again(
    world: World, disturbed: Callable[[Disturb], None], how: str
) -> None:
    """The SELECT comes after an ALTER that the log does not have yet: its values are no numbers any more."""
    world.run("CREATE TABLE t (id INT PRIMARY KEY, v INT NOT NULL)", "INSERT INTO t VALUES (1, 5), (2, 6)")
    if how == "backfill":
        world.catch_up(start="now")

    def disturb(when: str, table: TableSchema, number: int) -> None:
        if (when, number) == ("before", 1):
            world.run("ALTER TABLE t MODIFY v VARCHAR(20)", "UPDATE t SET v = CONCAT('v', v)")

    disturbed(disturb)
    if how == "backfill":
        asked = {"request": 1, "op": "backfill", "tables": [f"{world.database}.t"]}
        load = world.catch_up(asked, start="now")[-1]["load"]
    else:
        load = world.catch_up()[-1]["load"]
    assert load["ended"] == [] and load["done"] == 1
    assert world.chunks() == 1 and world.table("t") == {(1,): (1, "v5"), (2,): (2, "v6")}
