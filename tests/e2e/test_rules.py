"""A flow with a filter, masks, a computed column, a choice of columns and a route, verified; and settings that change on the way,
to sql among others."""

from __future__ import annotations

import hashlib
import itertools
import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.e2e.flow import Flow
from tests.e2e.load import source_of
from tools.components.mariadb import MariaDbServer

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
    orders = _rows(lake / "sales" / "orders_x")
    assert orders and not (lake / "shop" / "orders").exists()
    assert all(row["label"] == f"{row['status']} #{row['id']}" for row in orders if row["_op"] != "D")
    assert all(row["status"] != "new" for row in orders)
    customers = _rows(lake / "shop" / "customers")
    assert {row["name"] for row in customers} <= {"***", None}
    assert {row["birthday"] for row in customers} == {None}
    assert all(len(row["email"]) == len(hashlib.sha256().hexdigest()) for row in customers)
    assert set(_rows(lake / "shop" / "order_items")[0]) == {"_op", "_commit_ts", "_seq", "order_id", "line", "price", "version", "date"}  # fmt: skip


GATHERED = {"table": "changing.inv_*", "route": "sales.invoices"}


@pytest.mark.mariadb
def test_settings_that_change_hold_from_a_position_on(mariadb_server: MariaDbServer, tmp_path: Path) -> None:
    """Three settings one after the other, each with rows that nobody had captured or delivered yet; kill -9 in between. One of
    them has sql, which verify holds the sink against too."""
    with mariadb_server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("CREATE DATABASE changing")
        cursor.execute(
            "CREATE TABLE changing.people (id int PRIMARY KEY, mail varchar(40), name varchar(20), born date)"
        )
        cursor.execute("CREATE TABLE changing.orders (id int PRIMARY KEY, total decimal(9,2) NOT NULL)")
        for shard in (1, 2):
            cursor.execute(f"CREATE TABLE changing.inv_{shard} (id int PRIMARY KEY, total int NOT NULL)")
            cursor.execute(
                f"INSERT INTO changing.inv_{shard} SELECT {shard}000000 + seq, seq FROM changing.seq_1_to_30"
            )
        connection.commit()
    flow = Flow(
        tmp_path,
        {**source_of(mariadb_server, "changing"), "start": "snapshot"},
        {
            "lake": {
                "format": "parquet",
                "flush": {"size": "1MiB", "every": "300ms"},
                "rules": [
                    {"table": "changing.people", "mask": {"mail": "sha256", "name": "redact"}},
                    {"table": "changing.orders", "filter": "id > 1003", "route": "sales.{table}_x"},
                    GATHERED,
                ],
            },
            "raw": {"format": "canal-json", "only": ["changing.orders"]},
        },
    )
    try:
        _change(mariadb_server, 1)
        _run_once(flow)
        first = _versions(tmp_path / "lake", "changing", "people")
        _change(mariadb_server, 2)
        flow.sinks["lake"]["rules"] = [
            {"table": "changing.people", "mask": {"mail": "sha256", "name": "redact"}, "drop": ["born"]},
            {
                "table": "changing.orders",
                "sql": "SELECT *, cast(total * 2 AS decimal(10,2)) AS twice FROM this WHERE id > 2006",
                "route": "sales.{table}_y",
            },
            GATHERED,
        ]
        flow.sinks["raw"]["only"] = ["changing.*"]
        flow.configure()
        flow.start(once=False)
        flow.wait_for("rows by the new settings", lambda s: s["rows"] > 0)
        flow.kill()
        _change(mariadb_server, 3)
        flow.sinks["lake"]["rules"] = [{"table": "changing.people", "mask": {"mail": "redact"}}, GATHERED]
        flow.configure()
        _run_once(flow)
    finally:
        flow.kill()
    code, report = flow.verify()
    assert code == 0, report
    notes = [note for sink in report["sinks"] for note in sink["notes"]]
    assert any(note.startswith("changing.people: its settings changed at") for note in notes), report
    lake = tmp_path / "lake"
    versions = _versions(lake, "changing", "people")
    assert len(versions) == 3 and versions[:1] == first, versions
    old, middle, new = (_rows(lake / "changing" / "people" / f"version={v}") for v in versions)
    assert {row["name"] for row in old + middle} == {"***"} and "***" not in {row["name"] for row in new}
    assert all("born" in row for row in old + new) and not any("born" in row for row in middle)
    assert {row["mail"] for row in new} == {"***"} and all(len(row["mail"]) == 64 for row in old + middle)
    statements = _statements(lake, "changing", "people")
    assert len(statements) == 3 and "DROP COLUMN `born`" in statements[1] and "ADD COLUMN `born`" in statements[2]
    assert _statements(lake, "sales", "orders_y")[0].startswith("CREATE TABLE IF NOT EXISTS `sales`.`orders_y`")
    orders = [
        {row["id"] for row in _rows(lake / name)} for name in ("sales/orders_x", "sales/orders_y", "changing/orders")
    ]
    assert [(min(ids), max(ids)) for ids in orders] == [(1004, 1020), (2007, 2020), (3001, 3020)]
    rows = _rows(lake / "sales/orders_y")
    assert all(row["twice"] == 2 * row["total"] for row in rows if row["_op"] != "D")
    versions = _versions(lake, "sales", "orders_y")
    assert len(versions) == 2
    later = _rows(lake / "sales/orders_y" / f"version={versions[-1]}")
    assert {row["id"] for row in later if row["note"] == "later"} == set(range(2011, 2021))
    assert (tmp_path / "raw" / "changing" / "people").exists(), "a table that is taken later begins there"
    _check_gathered(lake, report)


def _check_gathered(lake: Path, report: dict[str, Any]) -> None:
    """Two tables in one, from before the first start on, in every version in the order of the log."""
    (compared,) = [t for sink in report["sinks"] for t in sink["tables"] if t["table"] == "sales.invoices"]
    assert compared["with_source"] and compared["with_source"]["rows_at_sink"] == 2 * (30 + 3 * 20), compared
    assert not (lake / "changing" / "inv_1").exists()
    rows = [_rows(lake / "sales" / "invoices" / f"version={v}") for v in _versions(lake, "sales", "invoices")]
    assert [row["_seq"] for version in rows for row in version] == sorted(row["_seq"] for v in rows for row in v)
    parts = [row["id"] // 1_000_000 for version in rows for row in version]
    assert sum(a != b for a, b in itertools.pairwise(parts)) > 40, "rows of both alternate as they were committed"
    told = " ".join(_statements(lake, "sales", "invoices"))
    assert told.count("CREATE TABLE") == 1 and told.count("ADD COLUMN `note`") == 1, told
    assert {row["note"] for row in rows[-1] if row["id"] > 2_003_000} == {"n"}


def _change(server: MariaDbServer, round_: int) -> None:
    """Twenty new rows of each table, and an update of all that there are."""
    with server.connect("changing") as connection, connection.cursor() as cursor:
        if round_ == 2:
            cursor.execute("ALTER TABLE inv_1 ADD note varchar(9)")
        cursor.execute(
            f"INSERT INTO people SELECT {round_}000 + seq, CONCAT('m', seq, '@example.org'), CONCAT('n', seq), '2000-01-01' FROM seq_1_to_20"
        )
        cursor.execute(f"INSERT INTO orders (id, total) SELECT {round_}000 + seq, seq / 3 FROM seq_1_to_20")
        if round_ == 2:  # while rows go through sql: its * has the new column from there on
            cursor.execute("ALTER TABLE orders ADD COLUMN note varchar(9) NOT NULL DEFAULT 'none'")
            cursor.execute("UPDATE orders SET note = 'later', total = total + 1 WHERE id > 2010")
        cursor.execute("UPDATE people SET mail = CONCAT('x', mail)")
        for number in range(1, 21):
            for shard in (1, 2):
                note = ", 'n'" if shard < 2 * round_ - 2 else ""  # of the shards that have been altered by now
                cursor.execute(f"INSERT INTO inv_{shard} VALUES ({shard}000000 + {round_}000 + {number}, 1{note})")
        cursor.execute("UPDATE inv_1 SET total = total + 1")
        cursor.execute("UPDATE inv_2 SET total = total + 1")
        connection.commit()
        if round_ == 2:
            cursor.execute("ALTER TABLE inv_2 ADD note varchar(9)")


def _run_once(flow: Flow) -> None:
    flow.start(once=True)
    flow.finish()


def _rows(directory: Path) -> list[dict[str, Any]]:
    return pq.read_table(directory).to_pylist()


def _versions(lake: Path, schema: str, table: str) -> list[int]:
    return sorted(int(path.name.removeprefix("version=")) for path in (lake / schema / table).glob("version=*"))


def _statements(lake: Path, schema: str, table: str) -> list[str]:
    """Of the schema files, by their versions."""
    files = sorted((lake / schema / table / "_meta").glob("schema_*.json"), key=lambda p: int(p.name.split("_")[1]))
    return [json.loads(path.read_text())["Query"] for path in files]
