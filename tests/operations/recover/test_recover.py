"""The state directory is lost, and made anew from the sink: nothing is lost, nothing is doubled, and numbers only grow."""

from __future__ import annotations

import json
import random
import uuid
from pathlib import Path
from typing import Any

import pytest

from penstock.operations.recover import recover_from_sinks
from penstock.operations.verify.verify import verify
from tests.operations.recover.world import World, server_source
from tests.operations.verify.sinks import run_statements
from tools.components.database import DatabaseServer

WIDTH = 200  # of random bytes in hexadecimal, so that a file is soon full in any format


@pytest.fixture
def database() -> str:
    return f"r{uuid.uuid4().hex[:8]}"


def make_tables(server: DatabaseServer, database: str) -> None:
    run_statements(
        server,
        database,
        [f"CREATE TABLE {name} (id INT PRIMARY KEY, v VARCHAR(500))" for name in ("busy", "quiet")],
    )


def insert(server: DatabaseServer, database: str, table: str, first: int, count: int, *, width: int = WIDTH) -> None:
    values = ", ".join(f"({n}, '{random.randbytes(width).hex()}')" for n in range(first, first + count))
    run_statements(server, database, [f"INSERT INTO {table} VALUES {values}"])


def ids(world: World, sink: str, table: str) -> list[int]:
    return [int(row["id"]) for row in world.rows(sink, table)]


def beyond(world: World, sink: str, table: str, more_than: int) -> Any:
    def there() -> bool:
        return len(world.rows(sink, table)) > more_than

    return there


FORMATS = [("mariadb", each) for each in ("parquet", "canal-json", "csv", "debezium-json")]


@pytest.mark.parametrize(("server", "fmt"), [*FORMATS, ("mysql", "parquet")], indirect=["server"])
def test_rows_beyond_the_point_are_neither_lost_nor_doubled(
    tmp_path: Path, server: DatabaseServer, database: str, fmt: str
) -> None:
    """MySQL is asked by GTID from the start on, and for what follows the point too."""
    make_tables(server, database)
    sink: dict[str, Any] = {"format": fmt} | (
        {"csv": {"include_commit_ts": True, "output_field_header": True}} if fmt == "csv" else {}
    )
    world = World(tmp_path, server_source(server, database), {"lake": sink})
    world.capture()
    insert(server, database, "busy", 0, 50)
    insert(server, database, "quiet", 0, 5)
    world.capture()
    world.deliver()
    point = json.loads((tmp_path / "lake/_penstock/progress.json").read_text())["point"]
    assert point["position"]["gtid"]
    insert(server, database, "quiet", 5, 3, width=1)  # holds the cursor, and with it the point
    run_statements(server, database, ["UPDATE busy SET id = 1000 WHERE id = 7"])
    for first in range(50, 450, 40):
        insert(server, database, "busy", first, 40)
    world.capture()
    world.deliver(flushed=False, until=beyond(world, "lake", f"{database}.busy", 200))
    after = json.loads((tmp_path / "lake/_penstock/progress.json").read_text())["point"]
    assert after["position"] == point["position"], "nothing after it is whole at the sink"
    before, files = world.rows("lake", f"{database}.busy"), world.files("lake")
    world.lose()
    insert(server, database, "busy", 450, 10)
    run_statements(server, database, ["ALTER TABLE busy ADD w INT DEFAULT 4"])
    insert_more = ", ".join(f"({n}, 'y', {n})" for n in range(460, 470))
    run_statements(server, database, [f"INSERT INTO busy VALUES {insert_more}"])
    found = recover_from_sinks(world.config)
    assert found.kept["lake"] > 150
    assert world.rows("lake", f"{database}.busy") == before, "a recovery delivers nothing by itself"
    world.capture()
    world.deliver()
    rows = world.rows("lake", f"{database}.busy")
    expected = [*range(50), 7, 1000, *range(50, 470)]
    assert [int(row["id"]) for row in rows] == expected
    assert ids(world, "lake", f"{database}.quiet") == list(range(8))
    assert rows[: len(before)] == before
    times = [row["_commit_ts"] for row in rows]
    assert times == sorted(times)
    if fmt != "csv":
        seqs = [bytes(row["_seq"]) for row in rows]
        assert seqs == sorted(seqs)
        report = verify(world.config)
        assert not report.sinks[0].faults and not report.sinks[0].held, (report.sinks[0].faults, report.sinks[0].held)
    assert set(files) <= set(world.files("lake"))
