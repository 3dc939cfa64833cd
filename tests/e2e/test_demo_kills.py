"""The demo source through every package, while each process in turn is killed with -9: nothing lost, nothing twice."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from penstock.operations.verify.sink_tables import data_directories
from tests.delivery.rig import local_objects
from tests.e2e.flow import Flow
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
    sink = report["sinks"][0]
    assert sink["equal"], report
    assert sink["changes"] >= budget.DEMO_CHANGES
    assert sink["compared_with_source"] == sink["tables_count"] > 0


def test_file_numbers_have_no_gap(delivered: Flow) -> None:
    directories = data_directories(local_objects(delivered.directory / "lake"))
    assert sum(len(d.files) for d in directories) > 10
    for directory in directories:
        assert not directory.faults


def _first_file(root: Path, table: str) -> Path:
    return root / next(d.files[0] for d in data_directories(local_objects(root)) if d.table == table and d.files)


def _rewrite(path: Path, change: Callable[[pa.Table], pa.Table]) -> None:
    pq.write_table(change(pq.read_table(path, partitioning=None)), path)


def _without_a_row(table: pa.Table) -> pa.Table:
    return pa.concat_tables([table.slice(0, 3), table.slice(4)])


def _with_a_row_twice(table: pa.Table) -> pa.Table:
    return pa.concat_tables([table.slice(0, 4), table.slice(3)])


def _with_a_wrong_value(table: pa.Table) -> pa.Table:
    index = next(i for i, f in enumerate(table.schema) if pa.types.is_decimal(f.type) or pa.types.is_integer(f.type))
    field = table.schema.field(index)
    column = table.column(index)
    first = pc.add(
        column.slice(0, 1), pa.scalar(1, field.type) if pa.types.is_integer(field.type) else column.slice(0, 1)
    )
    changed = pa.concat_arrays([*first.cast(field.type).chunks, *column.slice(1).chunks])
    return table.set_column(index, field, changed)


@pytest.mark.parametrize(
    ("change", "kind"),
    [(_without_a_row, "lost"), (_with_a_row_twice, "doubled"), (_with_a_wrong_value, "wrong")],
    ids=["lost", "doubled", "wrong"],
)
def test_verify_finds_a_planted_fault(
    delivered: Flow, tmp_path: Path, change: Callable[[pa.Table], pa.Table], kind: str
) -> None:
    lake = delivered.directory / "lake"
    backup = tmp_path / "lake"
    shutil.copytree(lake, backup)
    try:
        _rewrite(_first_file(lake, "orders"), change)
        code, report = delivered.verify()
        assert code == 1
        assert report["sinks"][0][kind] == 1, report
    finally:
        shutil.rmtree(lake)
        shutil.copytree(backup, lake)


def test_verify_finds_a_missing_file(delivered: Flow, tmp_path: Path) -> None:
    path = _first_file(delivered.directory / "lake", "orders")
    shutil.move(path, tmp_path / "away")
    try:
        code, report = delivered.verify()
        assert code == 1
        assert report["sinks"][0]["lost"] > 0
        assert any("is missing" in fault for fault in report["sinks"][0]["faults"])
    finally:
        shutil.move(tmp_path / "away", path)


def test_plain_spark_reads_a_table(delivered: Flow) -> None:
    """`spark.read.parquet` on the table's directory, as the README says: partitions, both versions, every change."""
    from pyspark.sql import SparkSession

    from penstock.spark.jvm.java import find_java_home

    os.environ["JAVA_HOME"] = str(find_java_home(delivered.directory / "java", os.environ))
    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    try:
        orders = spark.read.option("mergeSchema", "true").parquet(str(delivered.directory / "lake" / "shop" / "orders"))
        assert {"_op", "_commit_ts", "_seq", "id", "note", "version", "date"} <= set(orders.columns)
        lake = delivered.directory / "lake"
        files = [lake / f for d in data_directories(local_objects(lake)) if d.table == "orders" for f in d.files]
        assert orders.count() == sum(pq.read_metadata(f).num_rows for f in files) > 0
        assert orders.select("version").distinct().count() == 2, "before and after ADD COLUMN"
        assert orders.select("_seq").distinct().count() == orders.count()
    finally:
        spark.stop()
        end_java()
