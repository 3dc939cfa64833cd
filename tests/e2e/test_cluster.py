"""The same changefeed on a `spark://` master with two workers, one of which dies on the way. One of its tables goes through
Spark SQL: its rows pass between executors as Arrow batches, and its statement comes with the tasks."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.e2e.cluster import a_cluster
from tests.e2e.flow import Flow
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.spark]
RATE = 500  # changes a second, for as long as the test wants them
SQL = "SELECT id, upper(status) AS state FROM this WHERE status <> 'cancelled'"


def test_a_worker_dies_and_nothing_is_lost_or_doubled(tmp_path: Path) -> None:
    with a_cluster(tmp_path / "cluster", 2) as cluster:
        flow = Flow(
            tmp_path / "flow",
            {"type": "demo", "seed": 7, "changes": 10_000_000, "rate": RATE},
            {"lake": {"format": "parquet", "flush": {"size": "1MiB", "every": "1s"}}},
            spark={"master": cluster.url, "executor.memory": "512m", "executor.cores": "1"},
            rules=[{"table": "shop.orders", "sql": SQL}],
        )
        try:
            flow.start(once=False)
            flow.wait_for("rows from the cluster", lambda s: s["rows"] > 0)
            wait_until(lambda: len(cluster.executors()) == 2, "an executor on each worker", cluster.said)
            cluster.kill(cluster.workers[0])
            wait_until(lambda: len(cluster.executors()) == 1, "the death of its executor", cluster.said)
            rows = flow.last["rows"]
            flow.wait_for("rows after its death", lambda s: s["rows"] > rows)
            flow.interrupt()
            assert flow.finish()["restarts"] == {"capture": 0, "delivery": 0, "driver": 0}, "Spark does it by itself"
            code, report = flow.verify("--no-source")
        finally:
            flow.kill()
    assert code == 0, report
    [sink] = report["sinks"]
    assert sink["equal"] and sink["changes"] >= rows > 0, report
    orders = [pq.ParquetFile(path) for path in (tmp_path / "flow/lake/shop/orders").glob("*/*/*.parquet")]
    assert orders and all(file.schema_arrow.names[-2:] == ["id", "state"] for file in orders)
