"""Rows that change while they are loaded, and tables that do: at the worst moments, one by one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from penstock.schema.model import TableSchema
from penstock.sources.load import LoadedRows, TableLoad
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

            def read(self, table: TableSchema, load: TableLoad, low: SourcePosition, rows_max: int) -> LoadedRows:
                Disturbed.number += 1
                disturb("before", table, Disturbed.number)
                found = super().read(table, load, low, rows_max)
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


def test_a_load_goes_on_under_the_new_name_of_a_table(world: World, disturbed: Callable[[Disturb], None]) -> None:
    world.run("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1, 1), (2, 2)")

    def disturb(when: str, table: TableSchema, number: int) -> None:
        if (when, number) == ("before", 1):
            world.run("RENAME TABLE t TO u")

    disturbed(disturb)
    world.catch_up()
    assert world.table("u") == {(1,): (1, 1), (2,): (2, 2)}
    assert world.table("t") == {}
