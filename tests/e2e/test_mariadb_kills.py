"""A real MariaDB with twenty tables that have rows from the start on, under load, while each process in turn is killed with
-9: an initial load and a stream in one order."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.operations.verify.sink_tables import data_directories
from tests.delivery.rig import local_objects
from tests.e2e.flow import Flow
from tests.e2e.load import SEED, Load, create_tables, fill_tables, source_of
from tests.support.budget import LOAD_PAUSE_MS
from tools.components.mariadb import MariaDbServer

pytestmark = [pytest.mark.spark, pytest.mark.mariadb]
TABLES = 20
DATABASE = "kills"
FILLED = 400  # rows of each table, before the start


@pytest.fixture(scope="module")
def delivered(mariadb_server: MariaDbServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Flow]:
    print(f"seed {SEED}")
    create_tables(mariadb_server, DATABASE, TABLES)
    fill_tables(mariadb_server, DATABASE, TABLES, FILLED)
    flow = Flow(
        tmp_path_factory.mktemp("mariadb-kills"),
        {
            **source_of(mariadb_server, DATABASE),
            "start": "snapshot",
            "snapshot": {"max_rows_per_second": FILLED * TABLES // 10},  # so that it is killed, too
        },
        {
            "lake": {"format": "parquet", "flush": {"size": "1MiB", "every": "1s"}},
            "raw": {"format": "canal-json", "flush": {"size": "1MiB", "every": "1s"}},
        },
    )
    try:
        flow.start(once=False)
        flow.wait_for("a capture that follows the server", lambda s: s["source"]["position"] is not None)
        with Load(mariadb_server, DATABASE, TABLES, LOAD_PAUSE_MS / 1000).running():
            flow.kill_each()
        flow.interrupt()
        flow.finish()
        flow.start(once=True)  # what came after the interrupt
        flow.finish()
        yield flow
    finally:
        flow.kill()


def test_tables_and_changes_are_equal(delivered: Flow) -> None:
    code, report = delivered.verify()
    assert code == 0, report
    for sink in report["sinks"]:
        assert sink["equal"], sink
        assert sink["tables_count"] == TABLES
        assert sink["compared_with_source"] == TABLES
        assert sink["lost"] == sink["doubled"] == sink["wrong"] == 0


def test_the_load_was_whole(delivered: Flow) -> None:
    load = delivered.last["source"]["load"]
    assert load["done"] == load["tables"] == TABLES
    assert load["rows"] > FILLED * TABLES // 2  # the others came from the stream first


@pytest.mark.parametrize("sink", ["lake", "raw"])
def test_file_numbers_have_no_gap(delivered: Flow, sink: str) -> None:
    root: Path = delivered.directory / sink
    directories = data_directories(local_objects(root))
    assert len(directories) >= TABLES
    for directory in directories:
        assert not directory.faults
