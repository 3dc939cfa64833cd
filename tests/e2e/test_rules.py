"""A flow with a filter, masks, a computed column, a choice of columns and a route, verified; other rules are refused."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.e2e.flow import Flow, penstock

pytestmark = pytest.mark.spark

RULES: list[dict[str, Any]] = [
    {"table": "shop.customers", "mask": {"email": "sha256", "name": "redact", "birthday": None}},
    {
        "table": "shop.orders",
        "filter": "status <> 'new' and id > 3",
        "compute": {"label": "concat(status, ' #', id)"},
        "route": "sales.{table}_x",
    },
]


def test_rules_from_the_source_to_the_sinks(tmp_path: Path) -> None:
    flow = Flow(
        tmp_path,
        {"type": "demo", "changes": 12_000},
        {
            "lake": {
                "format": "parquet",
                "flush": {"size": "256KiB", "every": "500ms"},
                "rules": [*RULES, {"table": "shop.order_items", "columns": ["order_id", "line", "price"]}],
            },
            "raw": {"format": "canal-json", "rules": RULES},
        },
    )
    try:
        flow.start(once=True)
        flow.finish()
    finally:
        flow.kill()
    code, report = flow.verify()
    assert code == 0, report
    assert {sink["name"]: sink["compared_with_source"] for sink in report["sinks"]} == {"lake": 4, "raw": 4}
    lake = tmp_path / "lake"
    orders = _rows(lake, "sales", "orders_x")
    assert orders and not (lake / "shop" / "orders").exists()
    assert all(row["label"] == f"{row['status']} #{row['id']}" for row in orders if row["_op"] != "D")
    assert all(row["status"] != "new" for row in orders)
    customers = _rows(lake, "shop", "customers")
    assert {row["name"] for row in customers} <= {"***", None}
    assert {row["birthday"] for row in customers} == {None}
    assert all(len(row["email"]) == len(hashlib.sha256().hexdigest()) for row in customers)
    assert set(_rows(lake, "shop", "order_items")[0]) == {"_op", "_commit_ts", "_seq", "order_id", "line", "price", "version", "date"}  # fmt: skip
    _other_rules_are_refused(flow)


def _other_rules_are_refused(flow: Flow) -> None:
    text = flow.config.read_text()
    flow.config.write_text(text.replace("id > 3", "id > 4", 1))
    done = penstock("run", "-c", flow.config, "--once")
    assert done.returncode == 2, done.stderr
    assert "rule 2 was" in done.stderr and "new name and a new url" in done.stderr
    code, report = flow.verify("--no-source")
    assert code != 0, f"by other rules the rows differ: {report}"


def _rows(lake: Path, schema: str, table: str) -> list[dict[str, Any]]:
    return pq.read_table(lake / schema / table).to_pylist()
