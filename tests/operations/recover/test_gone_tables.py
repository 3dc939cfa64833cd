"""Tables that are gone, and a recovery: several that are one at the sink, whose versions only grow, and those of a database."""

from __future__ import annotations

import json
from pathlib import Path

from penstock.operations.recover import recover_from_sinks
from penstock.operations.verify.verify import verify
from tests.operations.recover.test_recover import database, ids  # noqa: F401 (a fixture)
from tests.operations.recover.world import World, server_source
from tests.operations.verify.sinks import run_statements
from tools.components.database import DatabaseServer


def test_a_part_that_was_dropped_last_leaves_its_version(
    tmp_path: Path,
    mariadb_server: DatabaseServer,
    database: str,  # noqa: F811
) -> None:
    """The whole was at the version of the DROP, and no table that is left has one as large."""
    run_statements(mariadb_server, database, [f"CREATE TABLE s_{n} (id INT PRIMARY KEY, v INT)" for n in "ab"])
    rule = {"table": f"{database}.s_*", "route": "one.shards"}
    world = World(tmp_path, server_source(mariadb_server, database), {"lake": {"format": "parquet", "rules": [rule]}})
    world.capture()
    statements = [
        "INSERT INTO s_a VALUES (1, 1)",
        "INSERT INTO s_b VALUES (2, 2)",
        "DROP TABLE s_b",
        "INSERT INTO s_a VALUES (3, 3)",
    ]
    run_statements(mariadb_server, database, statements)
    world.capture()
    world.deliver()
    world.lose()
    recover_from_sinks(world.config)
    run_statements(mariadb_server, database, ["INSERT INTO s_a VALUES (4, 4)"])
    world.capture()
    world.deliver()
    assert ids(world, "lake", "one.shards") == [1, 2, 3, 4]
    assert not verify(world.config).sinks[0].faults


def test_tables_of_a_dropped_database_do_not_come_back(
    tmp_path: Path,
    mariadb_server: DatabaseServer,
    database: str,  # noqa: F811
) -> None:
    """Their own newest versions are none of a drop."""
    world = World(tmp_path, server_source(mariadb_server, database), {"lake": {"format": "parquet"}})
    run_statements(mariadb_server, database, ["CREATE TABLE t (id INT PRIMARY KEY)"])
    world.capture()
    run_statements(mariadb_server, database, ["INSERT INTO t VALUES (1)", f"DROP DATABASE {database}"])
    world.capture()
    world.deliver()
    point = json.loads((tmp_path / "lake/_penstock/progress.json").read_text())["point"]
    schemas = json.loads((tmp_path / "lake" / point["schemas"]).read_text())
    assert not [one for one in schemas if one["table"]], schemas
