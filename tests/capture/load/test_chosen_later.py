"""Tables that the configuration chooses after the log's start: loaded at the next start, while the others stream on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.capture.load.beginning import LoadBeginnings
from penstock.schema.model import TableSchema
from penstock.sources.mysql.source import ServerSource
from penstock.sources.position import SourcePosition
from penstock.sources.source import SourceError
from tests.capture.load.loading import World, loading
from tests.capture.load.test_backfill import chunk_rows
from tests.capture.load.test_meanwhile import Disturb, disturbed  # noqa: F401
from tools.components.database import DatabaseServer


def only(world: World, *tables: str) -> dict[str, Any]:
    return {"tables": {"include": [f"{world.database}.{name}" for name in tables]}}


def both(world: World) -> dict[str, Any]:
    return only(world, "a", "b")


@pytest.fixture
def begun(world: World) -> World:
    """A log of the table `a`, which has a row; `b` has two, and nobody has asked for it."""
    world.run(
        "CREATE TABLE a (id INT PRIMARY KEY, v INT)", "INSERT INTO a VALUES (1, 1)",
        "CREATE TABLE b (id INT PRIMARY KEY, v INT)", "INSERT INTO b VALUES (1, 1), (2, 2)",
    )  # fmt: skip
    world.catch_up(**only(world, "a"))
    world.run("INSERT INTO b VALUES (3, 3)", "INSERT INTO a VALUES (2, 2)")  # in the log, and nobody's
    world.catch_up(**only(world, "a"))
    assert chunk_rows(world) == {"a": [1]}
    return world


def test_what_is_chosen_later_is_loaded_once(begun: World) -> None:
    begun.run("INSERT INTO b VALUES (4, 4)", "UPDATE b SET v = 7 WHERE id = 2", "INSERT INTO a VALUES (3, 3)")
    begun.catch_up(**both(begun))
    assert chunk_rows(begun) == {"a": [1], "b": [1, 2, 3, 4]}
    begun.run("DELETE FROM b WHERE id = 1")
    begun.catch_up(**both(begun))
    assert chunk_rows(begun) == {"a": [1], "b": [1, 2, 3, 4]}
    assert begun.table("b") == {(2,): (2, 7), (3,): (3, 3), (4,): (4, 4)}
    assert begun.table("a") == {(i,): (i, i) for i in (1, 2, 3)}


def test_rows_of_before_its_definition_do_not_park_a_table_whose_columns_the_binlog_does_not_name(begun: World) -> None:
    names = dict(begun.rows("SHOW GLOBAL VARIABLES LIKE 'binlog_row_metadata'"))
    begun.run("SET GLOBAL binlog_row_metadata = 'MINIMAL'")
    try:
        begun.run("INSERT INTO b VALUES (4, 4)", "INSERT INTO a VALUES (3, 3)")
        said = begun.catch_up(**both(begun))
        begun.run("UPDATE b SET v = 8 WHERE id = 4")
        begun.catch_up(**both(begun))
    finally:
        begun.run(f"SET GLOBAL binlog_row_metadata = '{names['binlog_row_metadata']}'")
    assert said[-1]["parked"]["count"] == 0
    assert begun.table("b") == {(1,): (1, 1), (2,): (2, 2), (3,): (3, 3), (4,): (4, 8)}


def test_a_table_that_was_left_out_for_a_while_is_loaded_again(begun: World) -> None:
    begun.catch_up(**both(begun))
    begun.catch_up(**only(begun, "a"))
    begun.run("UPDATE b SET v = 9 WHERE id = 1", "DELETE FROM b WHERE id = 2")
    begun.catch_up(**only(begun, "a"))
    begun.catch_up(**both(begun))
    assert begun.table("b")[1,] == (1, 9)
    assert chunk_rows(begun)["b"] == [1, 2, 3, 1, 3]


def test_a_table_that_is_created_in_the_stream_is_whole_by_itself(world: World) -> None:
    world.run("CREATE TABLE a (id INT PRIMARY KEY)")
    world.catch_up(**only(world, "a", "new*"))
    world.run("CREATE TABLE new_one (id INT PRIMARY KEY)", "INSERT INTO new_one VALUES (1)")
    world.catch_up(**only(world, "a", "new*"))
    world.catch_up(**only(world, "a", "new*", "x"))  # the configuration is another one, and takes it as before
    assert world.table("new_one") == {(1,): (1,)} and chunk_rows(world) == {}


def test_a_log_that_began_without_a_load_is_loaded_when_the_start_becomes_one(world: World) -> None:
    world.run("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    world.catch_up(start="now")
    world.catch_up(start="now")
    assert chunk_rows(world) == {}
    world.catch_up()
    world.catch_up()
    assert chunk_rows(world) == {"t": [1]}


def test_one_that_cannot_be_loaded_is_refused_by_name_and_nothing_begins(begun: World) -> None:
    begun.run("CREATE TABLE bare (id INT)")
    with pytest.raises(SourceError, match=r"cannot load \S+\.bare \(it has no primary key\)"):
        begun.catch_up(**only(begun, "a", "b", "bare"))
    assert chunk_rows(begun) == {"a": [1]}
    begun.catch_up(**both(begun))
    assert chunk_rows(begun) == {"a": [1], "b": [1, 2, 3]}


@pytest.mark.mariadb
def test_one_whose_definition_nobody_understands_is_refused_too(mariadb_server: DatabaseServer, tmp_path: Path) -> None:
    """The catalogue calls a table with a history by another name than all others: it was passed over, and never loaded."""
    with loading(mariadb_server, tmp_path / "state") as world:
        world.run(
            "CREATE TABLE a (id INT PRIMARY KEY)", "CREATE TABLE kept (id INT PRIMARY KEY) WITH SYSTEM VERSIONING"
        )
        world.catch_up(**only(world, "a"))
        with pytest.raises(SourceError, match=r"cannot load \S+\.kept \(.*system-versioned"):
            world.catch_up(**only(world, "a", "kept"))


def test_a_statement_between_the_question_and_the_answer_asks_again(
    begun: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table has another column by the time at which the stream comes to where its definition was read."""
    plan_loads, asked = ServerSource.plan_loads, []

    def disturbed_plan(self: ServerSource, *arguments: Any) -> Any:
        plan = plan_loads(self, *arguments)
        asked.append(sorted(name[1] for name in plan.versions))
        if len(asked) == 2:  # the first question is of `choose`, and says only which tables are new
            begun.run("ALTER TABLE b CHANGE v w INT", "INSERT INTO b VALUES (9, 9)")
            plan = replace(plan, position=self.end())  # the stream comes to both before anybody looks
        return plan

    monkeypatch.setattr(ServerSource, "plan_loads", disturbed_plan)
    begun.catch_up(**both(begun))
    begun.catch_up(**both(begun))
    assert asked == [["b"], ["b"], ["b"]]
    batch = next(one for one in begun.changes() if one.table.table == "b")
    assert [column.name for column in batch.table.columns] == ["id", "w"]
    assert begun.table("b") == {(i,): (i, i) for i in (1, 2, 3, 9)}


def test_a_restart_before_the_definition_is_recorded_waits_for_it_again(
    begun: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Stop(Exception):
        pass

    def stop(self: LoadBeginnings, passed: SourcePosition) -> bool:
        raise Stop

    begun.run("INSERT INTO b VALUES (4, 4)")
    with monkeypatch.context() as patched, pytest.raises(Stop):
        patched.setattr(LoadBeginnings, "step", stop)
        begun.catch_up(**both(begun))
    begun.run("INSERT INTO b VALUES (5, 5)")
    begun.catch_up(**both(begun))
    assert chunk_rows(begun)["b"] == [1, 2, 3, 4, 5]
    assert begun.table("b") == {(i,): (i, i) for i in range(1, 6)}


def test_rows_that_change_while_a_later_table_is_loaded(
    begun: World,
    disturbed: Callable[[Disturb], None],  # noqa: F811
) -> None:
    def disturb(when: str, table: TableSchema, number: int) -> None:
        if number == 1:
            key = 1 if when == "before" else 2
            begun.run(f"UPDATE b SET v = 50 WHERE id = {key}", f"INSERT INTO b VALUES ({10 + key}, 0)")

    disturbed(disturb)
    begun.catch_up(**both(begun))
    assert begun.table("b") == {(1,): (1, 50), (2,): (2, 50), (3,): (3, 3), (11,): (11, 0), (12,): (12, 0)}
