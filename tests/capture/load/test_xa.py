"""XA transactions that are prepared while rows are loaded, or were before the log's start."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import pytest

from penstock.schema.model import TableSchema
from tests.capture.load.loading import World
from tests.capture.load.test_meanwhile import Disturb, disturbed  # noqa: F401


@contextlib.contextmanager
def prepared(world: World, *statements: str) -> Iterator[None]:
    """An XA transaction that is prepared; it commits at the end."""
    with contextlib.closing(world.server.connect(world.database)) as connection, connection.cursor() as cursor:
        for statement in ("XA START 'x'", *statements, "XA END 'x'", "XA PREPARE 'x'"):
            cursor.execute(statement)
        yield
        cursor.execute("XA COMMIT 'x'")


@pytest.fixture
def table(world: World) -> World:
    world.run("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1, 1), (2, 2), (3, 3)")
    return world


CHANGES = ("UPDATE t SET v = 9 WHERE id = 1", "DELETE FROM t WHERE id = 2", "INSERT INTO t VALUES (4, 9)")
AFTER = {(1,): (1, 9), (3,): (3, 3), (4,): (4, 9)}


def test_rows_that_were_prepared_before_the_start_and_commit_after_the_load(table: World) -> None:
    with prepared(table, "UPDATE t SET v = 9 WHERE id = 1", "INSERT INTO t VALUES (4, 9)"):
        said = table.catch_up()
        assert said[-1]["load"]["done"] == 1
    table.catch_up()
    assert table.table("t") == {(1,): (1, 9), (2,): (2, 2), (3,): (3, 3), (4,): (4, 9)}
    chunks = table.chunks()
    table.catch_up()
    assert table.chunks() == chunks


def test_rows_that_are_prepared_at_low_and_commit_before_the_chunk_is_appended(
    table: World,
    disturbed: Callable[[Disturb], None],  # noqa: F811
) -> None:
    table.catch_up(tables={"include": [f"{table.database}.other"]})
    stack = contextlib.ExitStack()
    stack.enter_context(prepared(table, *CHANGES))
    table.catch_up(tables={"include": [f"{table.database}.other"]})  # the log has it, prepared

    def disturb(when: str, version: TableSchema, number: int) -> None:
        if (when, number) == ("after", 1):
            stack.close()

    disturbed(disturb)
    table.catch_up()
    assert table.table("t") == AFTER
