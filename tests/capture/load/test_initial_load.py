"""The initial load from a real server of each family: what is there before the start comes out, once, as it would have come
from the binlog."""

from __future__ import annotations

from tests.capture.load.loading import World


def test_rows_of_before_the_start_come_first_and_those_of_after_it_too(world: World) -> None:
    world.run(
        "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(20))",
        "INSERT INTO t SELECT seq, CONCAT('v', seq) FROM (WITH RECURSIVE n(seq) AS (SELECT 1 UNION ALL SELECT seq + 1 FROM n "
        "WHERE seq < 900) SELECT seq FROM n) s",
        "CREATE TABLE empty_table (id INT PRIMARY KEY)",
    )
    said = world.catch_up()
    assert world.table("t") == {(i,): (i, f"v{i}") for i in range(1, 901)}
    assert said[-1]["load"] == {
        "tables": 2, "done": 2, "rows": 900, "rows_left": 0, "seconds_left": None, "begun_ms": 0, "loading": [], "ended": [],
    }  # fmt: skip
    world.run("UPDATE t SET v = 'x' WHERE id = 7", "DELETE FROM t WHERE id = 8", "INSERT INTO t VALUES (1000, 'new')")
    chunks = world.chunks()
    world.catch_up()
    assert world.chunks() == chunks  # a load is done once
    found = world.table("t")
    assert len(found) == 900
    assert found[7,] == (7, "x") and found[1000,] == (1000, "new") and (8,) not in found
