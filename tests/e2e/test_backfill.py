"""`penstock backfill` and a table that is chosen later, in a real run under writes: capture and the run are killed meanwhile,
and in the end every sink has the tables of the source."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.flow import Flow, penstock
from tests.e2e.load import Load, create_tables, fill_tables, source_of
from tests.support.budget import LOAD_PAUSE_MS
from tools.components.mariadb import MariaDbServer

pytestmark = [pytest.mark.spark, pytest.mark.mariadb]
TABLES = 3
DATABASE = "backfilled"
FILLED = 1_000  # rows of each table, before the start


def test_rows_are_loaded_beside_the_stream_over_kills(mariadb_server: MariaDbServer, tmp_path: Path) -> None:
    create_tables(mariadb_server, DATABASE, TABLES)
    fill_tables(mariadb_server, DATABASE, TABLES, FILLED)
    source = source_of(mariadb_server, DATABASE)
    names = [f"{DATABASE}.{name}" for name in table_names(mariadb_server)]
    flow = Flow(
        tmp_path / "flow",
        {**source, "start": "snapshot", "snapshot": {"max_rows_per_second": FILLED // 2}},
        {"lake": {"format": "parquet", "flush": {"size": "1MiB", "every": "1s"}}},
    )
    first = {"include": names[:-1]}
    flow.configure(tables=first)
    try:
        with Load(mariadb_server, DATABASE, TABLES, LOAD_PAUSE_MS / 1000).running():
            flow.start(once=False)
            flow.wait_for("the initial load", is_loaded)
            asked = penstock("backfill", names[0], "-c", flow.config, "--json")
            assert asked.returncode == 0, asked.stderr
            answer = json.loads(asked.stdout)
            assert [one["table"] for one in answer["tables"]] == [names[0]]
            flow.kill_victim("capture")
            flow.wait_for("rows of the backfill", lambda s: s["source"]["load"]["begun_ms"] == answer["begun_ms"])
            flow.kill()
        flow.configure(tables={"include": names})  # and one more table
        flow.start(once=True)
        flow.finish()
        code, report = flow.verify()
        assert code == 0, report
        (sink,) = report["sinks"]
        # Of the later table, most rows were there before anybody followed it: only a load brings them.
        assert sink["equal"] and sink["compared_with_source"] == TABLES, sink
        assert sink["lost"] == sink["doubled"] == sink["wrong"] == 0
    finally:
        flow.kill()


def is_loaded(status: dict[str, Any]) -> bool:
    load = status["source"]["load"]
    return load is not None and load["done"] == load["tables"] > 0


def table_names(server: MariaDbServer) -> list[str]:
    with server.connect(DATABASE) as connection, connection.cursor() as cursor:
        cursor.execute("SHOW TABLES")
        return sorted(str(row[0]) for row in cursor.fetchall())
