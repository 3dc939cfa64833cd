"""The state directory is lost under writes, with everything killed: the flow goes on from what its sink says of itself, and no
row is lost or there twice."""

from __future__ import annotations

import contextlib
import json
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.e2e.flow import Flow
from tests.e2e.load import Load, create_tables, source_of
from tests.support.budget import LOAD_PAUSE_MS
from tests.support.waiting import wait_until
from tools.components.mariadb import MariaDbServer

pytestmark = [pytest.mark.spark, pytest.mark.mariadb]
TABLES = 3
DATABASE = "recovered"


def test_a_flow_goes_on_from_its_sink_after_its_state_is_lost(mariadb_server: MariaDbServer, tmp_path: Path) -> None:
    create_tables(mariadb_server, DATABASE, TABLES)
    flow = Flow(
        tmp_path,
        source_of(mariadb_server, DATABASE),
        {"lake": {"format": "parquet", "flush": {"size": "64KiB", "every": "700ms"}}},
    )
    progress = tmp_path / "lake/_penstock/progress.json"

    def has_point(_snapshot: object) -> bool:
        return progress.exists() and bool(json.loads(progress.read_text())["point"])

    try:
        flow.start(once=False)
        flow.wait_for("a capture that follows the server", lambda s: s["source"]["position"] is not None)
        load = Load(mariadb_server, DATABASE, TABLES, LOAD_PAUSE_MS / 1000)
        with load.running():
            flow.wait_for("a point", has_point)
            rows = flow.last["rows"]
            flow.wait_for("rows after it", lambda s: s["rows"] > rows)
            pids = [pid for part in ("capture", "delivery", "driver") if (pid := flow.pid(part)) is not None]
            flow.kill()
            wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), "the end of its processes")
            before = numbers(tmp_path / "lake")
            shutil.rmtree(flow.state_dir)
            written = load.transactions
            with contextlib.closing(mariadb_server.connect()) as connection, connection.cursor() as cursor:
                cursor.execute(f"ALTER TABLE {DATABASE}.t0 ADD added INT NULL")
            wait_until(lambda: load.transactions > written + 5, "writes that nobody followed")
        flow.start("--recover-from-sink", once=True)
        flow.finish()
    finally:
        flow.kill()
    code, report = flow.verify()
    assert code == 0, report
    (lake,) = report["sinks"]
    assert lake["equal"] and lake["source_equal"] == lake["compared_with_source"] == TABLES, lake
    assert lake["before_log"] > 0 and any("recovered" in note for note in lake["notes"]), lake
    after = numbers(tmp_path / "lake")
    for directory, last in after.items():
        files = sorted(Path(directory).glob("CDC*.parquet"))
        assert [int(path.stem.removeprefix("CDC")) for path in files] == list(range(1, last + 1)), directory
        assert last >= before.get(directory, 0), directory
    assert before.keys() <= after.keys()
    for table in {Path(directory).parents[1] for directory in after}:
        files = sorted(table.rglob("CDC*.parquet"))
        rows = [(row["_seq"], row["_op"]) for path in files for row in pq.read_table(path).to_pylist()]
        assert len(set(rows)) == len(rows), f"{table} has a row twice"


def numbers(sink: Path) -> dict[str, int]:
    """The number of the last file that counts in each data directory."""
    found = {}
    for index in sink.rglob("CDC.index"):
        found[str(index.parents[1])] = int(index.read_text().strip().removeprefix("CDC").removesuffix(".parquet"))
    return found
