"""The demo source through every package, while each process in turn is killed with -9: nothing lost, nothing twice."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from penstock.operations.verify.sink_files import data_directories
from tests.delivery.rig import local_objects
from tests.docs.documents import ROOT
from tests.e2e.flow import Flow
from tests.operations.verify.planted import (
    Rows,
    rewrite,
    with_a_row_twice,
    with_a_swapped_pair,
    with_a_wrong_value,
    without_a_row,
)
from tests.support import budget
from tests.support.java import end_java

pytestmark = [pytest.mark.spark]
# A second: the stream must last while five processes die and come back, on a busy machine too. The rest comes at full speed.
RATE = budget.DEMO_CHANGES // 600


@pytest.fixture(scope="module")
def delivered(tmp_path_factory: pytest.TempPathFactory) -> Flow:
    """A finished run in which every kind of process was killed once."""
    flow = Flow(
        tmp_path_factory.mktemp("demo"),
        {"type": "demo", "seed": 7, "changes": budget.DEMO_CHANGES, "rate": RATE},
        {"lake": {"format": "parquet", "flush": {"size": "1MiB", "every": "1s"}}},
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
    (sink,) = report["sinks"]
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


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("lost", without_a_row),
        ("doubled", with_a_row_twice),
        ("misplaced", with_a_swapped_pair),
        ("wrong", with_a_wrong_value),
    ],
)
def test_verify_finds_a_planted_fault(delivered: Flow, kind: str, change: Callable[[Rows], Rows]) -> None:
    path = _first_file(delivered.directory / "lake", "orders")
    whole = path.read_bytes()
    try:
        rewrite(path, change)
        code, report = delivered.verify("--no-source")
    finally:
        path.write_bytes(whole)
    assert code == 1
    assert report["sinks"][0][kind] == 1, report


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
