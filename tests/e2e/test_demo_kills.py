"""The demo source through every package, while each process in turn is killed with -9: nothing lost, nothing twice."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.cli.verify import exit_code
from penstock.operations.config.loading import load
from penstock.operations.verify.sink_tables import data_directories
from penstock.operations.verify.verify import verify
from tests.delivery.rig import local_objects
from tests.docs.documents import ROOT
from tests.e2e.flow import Flow
from tests.support import budget
from tests.support.java import end_java

pytestmark = [pytest.mark.spark]
# A second: the stream must last while five processes die and come back, on a busy machine too. The rest comes at full speed.
RATE = budget.DEMO_CHANGES // 600
SINKS = {"lake": "parquet", "canal": "canal-json", "debezium": "debezium-json"}


@pytest.fixture(scope="module")
def delivered(tmp_path_factory: pytest.TempPathFactory) -> Flow:
    """A finished run in which every kind of process was killed once."""
    flow = Flow(
        tmp_path_factory.mktemp("demo"),
        {"type": "demo", "seed": 7, "changes": budget.DEMO_CHANGES, "rate": RATE},
        {name: {"format": fmt, "flush": {"size": "1MiB", "every": "1s"}} for name, fmt in SINKS.items()},
    )
    try:
        flow.start(once=False)
        flow.kill_each()
        flow.interrupt()
        flow.restarts = flow.finish()["restarts"]
        flow.configure(rate=0)
        flow.start(once=True)  # the rest of the stream
        flow.finish()
    finally:
        flow.kill()
    return flow


def test_every_process_was_killed_and_every_row_is_there_once(delivered: Flow) -> None:
    assert delivered.restarts["capture"] >= 1
    assert delivered.restarts["delivery"] >= 1
    assert delivered.restarts["driver"] >= 2, "the driver itself and its JVM were killed"
    code, report = delivered.verify()
    assert code == 0, report
    assert [sink["name"] for sink in report["sinks"]] == list(SINKS)
    for sink in report["sinks"]:
        assert sink["equal"] and not sink["held_back"], report
        assert sink["changes"] >= budget.DEMO_CHANGES
        assert sink["compared_with_source"] == sink["tables_count"] > 0


def test_file_numbers_have_no_gap(delivered: Flow) -> None:
    directories = data_directories(local_objects(delivered.directory / "lake"))
    assert sum(len(d.files) for d in directories) > 10
    for directory in directories:
        assert not directory.faults


def _first_file(root: Path, table: str) -> Path:
    return root / next(d.files[0] for d in data_directories(local_objects(root)) if d.table == table and d.files)


Rows = list[Any]  # lines, or rows of a Parquet file


def _without_a_row(rows: Rows) -> Rows:
    return rows[:3] + rows[4:]


def _with_a_row_twice(rows: Rows) -> Rows:
    return rows[:4] + rows[3:]


def _with_a_swapped_pair(rows: Rows) -> Rows:
    return [*rows[:3], rows[4], rows[3], *rows[5:]]


def _with_a_wrong_value(rows: Rows) -> Rows:
    row = rows[0]
    if isinstance(row, bytes):
        digit = re.search(rb'"customer_id":"?(\d)', row)
        assert digit is not None
        at = digit.start(1)
        return [row[:at] + bytes([row[at] ^ 1]) + row[at + 1 :], *rows[1:]]
    return [{**row, "customer_id": row["customer_id"] + 1}, *rows[1:]]


def _rewrite(path: Path, change: Callable[[Rows], Rows]) -> None:
    if path.suffix == ".parquet":
        table = pq.read_table(path, partitioning=None)
        pq.write_table(pa.Table.from_pylist(change(table.to_pylist()), table.schema), path)
    else:
        path.write_bytes(b"".join(change(path.read_bytes().splitlines(keepends=True))))


@pytest.mark.parametrize("sink", SINKS)
def test_verify_finds_planted_faults(delivered: Flow, sink: str) -> None:
    """Each in turn; the comparison with the source finds those that change a table, too, and names the key."""
    path = _first_file(delivered.directory / sink, "orders")
    whole = path.read_bytes()
    config = load(delivered.config)
    try:
        for kind, change in (
            ("lost", _without_a_row),
            ("doubled", _with_a_row_twice),
            ("misplaced", _with_a_swapped_pair),
            ("wrong", _with_a_wrong_value),
        ):
            path.write_bytes(whole)
            _rewrite(path, change)
            report = verify(config, sink=sink, with_source=False)
            counts = report.sinks[0].differences.counts()
            assert exit_code(report) == 1
            assert {name: count for name, count in counts.items() if count and name != "changes"} == {kind: 1}
            assert report.sinks[0].faults[0].startswith("shop.orders: "), kind
    finally:
        path.write_bytes(whole)
    assert verify(config, sink=sink, with_source=False).equal


def test_verify_names_the_keys_that_differ_from_the_source(delivered: Flow) -> None:
    """The log says so too; this comparison does not need it."""
    files = [
        delivered.directory / "lake" / name
        for each in data_directories(local_objects(delivered.directory / "lake"))
        if each.table == "products"
        for name in each.files
    ]
    last = pq.read_table(files[-1], partitioning=None).to_pylist()[-1]
    whole = files[-1].read_bytes()
    try:
        _rewrite(files[-1], lambda rows: [*rows[:-1], {**rows[-1], "title": "planted"}])
        code, report = delivered.verify("--sink", "lake")
    finally:
        files[-1].write_bytes(whole)
    assert code == 1
    (products,) = [table for table in report["sinks"][0]["tables"] if table["table"] == "shop.products"]
    assert products["with_source"]["different"] == 1
    (key,) = products["with_source"]["keys"]
    assert key.startswith(f"id = {last['id']!r}: title 'planted' at the sink, '") and key.endswith("' at the source")


def test_verify_finds_a_missing_file(delivered: Flow, tmp_path: Path) -> None:
    path = _first_file(delivered.directory / "lake", "orders")
    shutil.move(path, tmp_path / "away")
    try:
        code, report = delivered.verify("--sink", "lake")
        assert code == 1
        assert report["sinks"][0]["lost"] > 0
        assert any("is missing" in fault for fault in report["sinks"][0]["faults"])
    finally:
        shutil.move(tmp_path / "away", path)


def test_plain_spark_reads_a_table(delivered: Flow) -> None:
    """As the README and the format's page say, word by word: partitions, both versions, every change."""
    said = 'spark.read.option("mergeSchema", True).parquet("lake/shop/orders")'
    for page in ("README.md", "docs/formats/parquet.md"):
        assert said in (ROOT / page).read_text(), page
    from pyspark.sql import SparkSession

    from penstock.spark.jvm.java import find_java_home

    os.environ["JAVA_HOME"] = str(find_java_home(delivered.directory / "java", os.environ))
    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    try:
        there = said.replace("lake/shop/orders", str(delivered.directory / "lake" / "shop" / "orders"))
        orders = eval(there, {"spark": spark})
        assert {"_op", "_commit_ts", "_seq", "id", "note", "version", "date"} <= set(orders.columns)
        lake = delivered.directory / "lake"
        files = [lake / f for d in data_directories(local_objects(lake)) if d.table == "orders" for f in d.files]
        assert orders.count() == sum(pq.read_metadata(f).num_rows for f in files) > 0
        assert orders.select("version").distinct().count() == 2, "before and after ADD COLUMN"
        assert orders.select("_seq").distinct().count() == orders.count()
    finally:
        spark.stop()
        end_java()
