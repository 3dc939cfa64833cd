"""A table that cannot be loaded any more, or is another one now: it costs no rows, and stops nothing else."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from penstock.errors import PenstockError
from penstock.schema.model import TableSchema
from penstock.sources.source import SourceError
from tests.capture.load.loading import World
from tests.capture.load.test_backfill import chunk_rows
from tests.capture.load.test_meanwhile import Disturb, disturbed, fill, loaded, small_chunks  # noqa: F401

pytestmark = pytest.mark.usefixtures("small_chunks")
ONE_READER = {"parallel": 1}


def once(world: World, table: str, *statements: str) -> Disturb:
    """Runs the statements after the first chunk of `table` was read."""
    left = [statements]

    def disturb(when: str, read: TableSchema, _number: int) -> None:
        if when == "after" and read.table == table and left:
            world.run(*left.pop())

    return disturb


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE t RENAME COLUMN a TO b, RENAME COLUMN b TO a",
        "ALTER TABLE t CHANGE a b INT, CHANGE b a INT",
        "ALTER TABLE t DROP PRIMARY KEY, DROP COLUMN a, ADD COLUMN a INT AUTO_INCREMENT UNIQUE FIRST, ADD PRIMARY KEY (a, b)",
        "ALTER TABLE t RENAME COLUMN a TO b, RENAME COLUMN b TO a, RENAME TO u",
    ],
)
def test_columns_of_the_key_that_are_others_under_the_same_names(
    world: World,
    disturbed: Callable[[Disturb], None],  # noqa: F811
    statement: str,
) -> None:
    values = ", ".join(f"({1000 * i}, {-i}, 'v{i}')" for i in range(1, 21))
    world.run("CREATE TABLE t (a INT, b INT, v VARCHAR(20), PRIMARY KEY (a, b))", f"INSERT INTO t VALUES {values}")
    second: list[int] = []

    def disturb(when: str, _table: TableSchema, number: int) -> None:
        if (when, number) == (
            "after",
            2,
        ) and not second:  # the log has the first chunk, whose last key says nothing now
            second.append(number)
            world.run(statement)

    disturbed(disturb)
    world.catch_up()
    assert second and loaded(world) == {f"v{i}" for i in range(1, 21)}


@pytest.mark.parametrize("body", ["(x INT)", "(id INT PRIMARY KEY, v VARCHAR(20))"])
def test_a_table_that_is_dropped_and_created_at_once(
    world: World,
    disturbed: Callable[[Disturb], None],  # noqa: F811
    body: str,
) -> None:
    fill(world, "t")
    fill(world, "u")
    disturbed(once(world, "t", "DROP TABLE t", f"CREATE TABLE t {body}"))
    load = world.catch_up(snapshot=ONE_READER)[-1]["load"]
    assert (load["done"], load["tables"]) == (2, 2) and load["ended"][0]["note"] == "it was dropped"
    assert len(world.table("u")) == 20 and "t" not in chunk_rows(world)


def test_one_that_loses_its_key_waits_and_can_be_left_out(
    world: World,
    disturbed: Callable[[Disturb], None],  # noqa: F811
) -> None:
    fill(world, "t")
    fill(world, "u")
    disturbed(once(world, "t", "ALTER TABLE t DROP PRIMARY KEY"))
    with pytest.raises(SourceError, match=r"\.t cannot be loaded: it lost its primary key .*snapshot\.tables\.exclude"):
        world.catch_up(snapshot=ONE_READER)  # it is to end, and would never
    assert len(world.table("u")) == 20  # all the others are loaded before that
    load = world.catch_up(snapshot={"tables": {"exclude": [f"{world.database}.t"]}})[-1]["load"]
    assert load["done"] == load["tables"] and load["ended"][0]["note"] == "left out"
    # The log does not know of the new key before the stream has come to it.
    world.run("ALTER TABLE t ADD PRIMARY KEY (id)")
    world.catch_up()
    assert chunk_rows(world)["t"] == list(range(1, 21))


def test_one_that_is_left_out_for_a_while_is_loaded_from_its_first_row_on(
    world: World,
    disturbed: Callable[[Disturb], None],  # noqa: F811
) -> None:
    fill(world, "t")
    fill(world, "u")
    ending = [True]

    def disturb(when: str, table: TableSchema, number: int) -> None:
        if ending and (when, table.table, number) == ("before", "t", 3):
            raise RuntimeError("the process ends")

    disturbed(disturb)
    with pytest.raises(PenstockError, match="the process ends"):
        world.catch_up(snapshot=ONE_READER)
    assert 0 < len(chunk_rows(world)["t"]) < 20
    ending.clear()
    world.catch_up(tables={"include": [f"{world.database}.u"]})
    world.run("UPDATE t SET v = 'changed unseen' WHERE id = 1")
    world.catch_up(tables={"include": [f"{world.database}.u"]})
    before = len(chunk_rows(world)["t"])
    world.catch_up()
    assert chunk_rows(world)["t"][before:] == list(range(1, 21))


@pytest.mark.parametrize("server", ["mariadb"], indirect=True)
def test_a_run_that_is_to_end_does_not_wait_for_a_parked_table(
    world: World,
    disturbed: Callable[[Disturb], None],  # noqa: F811
) -> None:
    fill(world, "t")
    fill(world, "u")
    disturbed(once(world, "t", "ALTER TABLE t ADD SYSTEM VERSIONING"))
    done: list[list[dict[str, Any]]] = []
    thread = threading.Thread(target=lambda: done.append(world.catch_up(snapshot=ONE_READER)), daemon=True)
    thread.start()
    thread.join(120)
    assert done, "it never ends"
    (said,) = done
    assert said[-1]["parked"]["count"] == 1 and len(world.table("u")) == 20
