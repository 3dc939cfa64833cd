"""Tables that a rename gives a name that is loaded by itself, and that nobody followed before: their rows are loaded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock.capture.recorder import Recorder
from penstock.schema.model import TableSchema
from tests.capture.load.loading import World
from tests.capture.load.test_meanwhile import Disturb, disturbed, small_chunks  # noqa: F401

ROWS = {(1,): (1, 1), (2,): (2, 2), (3,): (3, 3), (4,): (4, 4)}


def chosen(world: World) -> dict[str, Any]:
    return {"tables": {"include": [f"{world.database}.t*"]}}


def fill(world: World, *more: str) -> None:
    world.run(
        "CREATE TABLE t (id INT PRIMARY KEY, v INT)",
        "INSERT INTO t VALUES (7, 7), (8, 8)",
        "CREATE TABLE other (id INT PRIMARY KEY, v INT)",
        "INSERT INTO other VALUES (1, 1), (2, 2)",
        *more,
    )


@pytest.mark.parametrize("known", [False, True], ids=["before the log", "in the log"])
@pytest.mark.parametrize("statement", ["RENAME TABLE other TO t2", "ALTER TABLE other RENAME TO t2"])
def test_a_table_that_gets_a_new_name(world: World, statement: str, known: bool) -> None:
    world.run("CREATE TABLE t (id INT PRIMARY KEY, v INT)") if known else fill(world)
    world.catch_up(**chosen(world))
    if known:
        world.run("DROP TABLE t")
        fill(world)
        world.catch_up(**chosen(world))
    world.run("INSERT INTO other VALUES (3, 3)", statement, "INSERT INTO t2 VALUES (4, 4)")
    load = world.catch_up(**chosen(world))[-1]["load"]
    assert load["done"] == load["tables"] and load["ended"] == []
    assert world.table("t2") == ROWS
    chunks = world.chunks()
    world.run("UPDATE t2 SET v = 0 WHERE id = 1")
    world.catch_up(**chosen(world))
    assert world.chunks() == chunks and world.table("t2") == {**ROWS, (1,): (1, 0)}


def test_a_swap_with_a_table_that_was_there_before_the_log(world: World) -> None:
    fill(world, "INSERT INTO other VALUES (3, 3)")
    world.catch_up(**chosen(world))
    world.run("RENAME TABLE t TO gone, other TO t", "INSERT INTO t VALUES (4, 4)")
    world.catch_up(**chosen(world))
    found = world.table("t")
    assert {key: found[key] for key in ROWS} == ROWS


def test_a_swap_while_the_table_is_loaded(
    world: World,
    disturbed: Callable[[Disturb], None],  # noqa: F811
    small_chunks: None,  # noqa: F811
) -> None:
    fill(
        world,
        "INSERT INTO other VALUES (3, 3)",
        "INSERT INTO t VALUES " + ", ".join(f"({i}, 0)" for i in range(10, 30)),
    )

    def disturb(when: str, _table: TableSchema, number: int) -> None:
        if (when, number) == ("after", 2):
            world.run("RENAME TABLE t TO gone, other TO t", "INSERT INTO t VALUES (4, 4)")

    disturbed(disturb)
    world.catch_up(**chosen(world))
    found = world.table("t")
    assert {key: found[key] for key in ROWS} == ROWS


def test_a_kill_right_after_the_statement(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first frame that has passed the statement has the load, too."""
    fill(world)
    world.catch_up(**chosen(world))
    world.run("RENAME TABLE other TO t2", "INSERT INTO t2 VALUES (3, 3)", "INSERT INTO t2 VALUES (4, 4)")
    append = Recorder._append
    left = [1]

    def failing(self: Recorder, frame: Any) -> None:
        append(self, frame)
        self.finish()
        if left and frame.position.pos:
            left.pop()
            raise RuntimeError("killed")

    monkeypatch.setattr(Recorder, "_append", failing)
    with pytest.raises(RuntimeError, match="killed"):
        world.catch_up(**chosen(world))
    world.catch_up(**chosen(world))
    assert world.table("t2") == ROWS


def test_one_without_a_key_stops_nothing(world: World) -> None:
    fill(world, "CREATE TABLE bare (v INT)", "INSERT INTO bare VALUES (1)")
    world.catch_up(**chosen(world))
    world.run("RENAME TABLE bare TO t3", "INSERT INTO t VALUES (9, 9)", "INSERT INTO t3 VALUES (2)")
    load = world.catch_up(**chosen(world))[-1]["load"]
    assert [one["note"] for one in load["ended"]] == ["it has no primary key"]
    assert world.table("t")[9,] == (9, 9)
    world.run("INSERT INTO t3 VALUES (3)")
    world.catch_up(**chosen(world))
    assert [change.after[0].to_pylist() for change in world.changes() if change.table.table == "t3"][-1] == [3]


def test_a_flow_that_loads_nothing_loads_none(world: World) -> None:
    fill(world)
    world.catch_up(start="now", **chosen(world))
    world.run("RENAME TABLE other TO t2")
    assert world.catch_up(start="now", **chosen(world))[-1]["load"] is None
