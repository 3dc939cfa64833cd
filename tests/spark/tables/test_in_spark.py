"""`format("penstock")` in a real SparkSession, found by Spark itself; and the examples of docs/spark.md, as they are."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from penstock.errors import NotSupported
from penstock.log import CursorTable, LogReader
from penstock.spark.jvm.java import find_java_home
from penstock.spark.tables import data_source
from tests.docs.documents import ROOT, code_blocks
from tests.spark.tables.conftest import World
from tests.spark.tables.test_reading import in_order, load
from tests.spark.tables.worlds import capture_files
from tests.support.java import end_java

T = TypeVar("T")

pytestmark = [pytest.mark.spark, pytest.mark.mariadb, pytest.mark.slow]


@pytest.fixture(scope="module")
def place(world: World, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The directory where Spark runs: a state directory and a sink's prefix, by the names that the documentation has."""
    place, before = tmp_path_factory.mktemp("place"), Path.cwd()
    (place / "penstock-data").mkdir(mode=0o700)
    capture_files(place / "penstock-data", world.root / "binlogs")
    shutil.copytree(world.path("parquet"), place / "lake")
    os.chdir(place)
    yield place
    os.chdir(before)


@pytest.fixture(scope="module")
def spark(place: Path) -> Iterator[Any]:
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.session.timeZone": "UTC",
        "spark.local.dir": str(place / "local"),
        "spark.sql.warehouse.dir": str(place / "warehouse"),
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }
    changed = {"PYSPARK_PYTHON": sys.executable, "JAVA_HOME": str(find_java_home(place)), "SPARK_LOCAL_IP": "127.0.0.1"}
    before = {name: os.environ.get(name) for name in changed}
    os.environ.update(changed)
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").appName("tables")
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()
    end_java()
    for name, old in before.items():
        os.environ.pop(name) if old is None else os.environ.update({name: old})


def patiently(action: Callable[[], T]) -> T:
    """Spark gives a Python process ten seconds to start, which a busy machine may need: then again."""
    while True:
        try:
            return action()
        except Exception as error:
            if "failed to connect back" not in str(error):
                raise


def test_typed_rows_are_the_same_in_spark(spark: Any, world: World) -> None:
    """Each type as the last column of docs/types.md says it."""
    read = spark.read.format("penstock").option("table", "shop.types").option("view", "current")
    frame = patiently(lambda: read.load("lake"))
    assert in_order(patiently(frame.toArrow)) == in_order(world.truth["types"])
    kinds = dict(frame.dtypes)
    assert (kinds["bu"], kinds["si"], kinds["i"], kinds["ti"]) == ("decimal(20,0)", "int", "bigint", "tinyint")
    assert (kinds["dl"], kinds["dc"], kinds["b64"], kinds["b9"]) == (
        "string",
        "decimal(12,3)",
        "decimal(20,0)",
        "bigint",
    )
    assert (kinds["dt"], kinds["t6"], kinds["ts"], kinds["tm"]) == ("date", "timestamp_ntz", "timestamp", "string")
    assert (kinds["y"], kinds["e"], kinds["bl"], kinds["g"]) == ("smallint", "string", "binary", "binary")


def test_the_examples_of_the_documentation(spark: Any, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    examples = code_blocks(ROOT / "docs" / "spark.md", "python")
    assert len(examples) == 5 and all(len(example.splitlines()) <= 12 for example in examples)
    names: dict[str, Any] = {}
    for example in examples:
        code = compile(example, "docs/spark.md", "exec")
        patiently(lambda code=code: exec(code, names))
    said = capsys.readouterr().out
    assert "|     2|" in said, "two orders"
    assert "|  I|" in said and "|  D|" in said
    assert "{a}" in said and "{b}" in said
    stored = spark.read.parquet("reports/orders")
    assert stored.count() == load(path=place / "penstock-data", table="shop.orders").num_rows
    reader = LogReader.open(place / "penstock-data" / "log")
    assert CursorTable(reader).positions() == {"reports": reader.end()}
    reader.close()
    copied = spark.read.parquet("copy/orders").collect()
    expected = load(path=place / "lake", table="shop.orders").to_pylist()
    assert sorted(bytes(row["_seq"]) for row in copied) == sorted(row["_seq"] for row in expected)
    patiently(lambda: exec(compile(examples[-1], "docs/spark.md", "exec"), names))
    assert spark.read.parquet("copy/orders").count() == len(copied), "a second query begins where the first one ended"


def test_a_stream_ends_at_new_columns_and_goes_on_with_them(spark: Any, place: Path) -> None:
    def start() -> Any:
        stream = spark.readStream.format("penstock").option("table", "shop.orders").option("columnsAt", "start")
        frame = stream.option("cursor", "evolving").load("penstock-data")
        writer = frame.writeStream.option("checkpointLocation", str(place / "evolving")).format("parquet")
        return writer.trigger(processingTime="0 seconds").start(str(place / "evolved"))

    with pytest.raises(Exception, match=r"ADD COLUMN state.*load the DataFrame again"):
        patiently(lambda: start().awaitTermination())
    delivered = spark.read.parquet("evolved")
    assert delivered.columns[3:] == ["id", "note", "total"]
    assert delivered.count() == 6
    with pytest.raises(Exception, match=r"CREATE TABLE orders \(k"):
        patiently(lambda: start().awaitTermination())
    delivered = spark.read.option("mergeSchema", "true").parquet("evolved")
    assert [(row.id, row.state) for row in delivered.filter("state IS NOT NULL").collect()] == [(4, "done")]
    assert delivered.count() == 7


def test_bad_options_are_named_in_spark(spark: Any) -> None:
    with pytest.raises(Exception, match=r"no option 'tabel'.*did you mean 'table'"):
        patiently(lambda: spark.read.format("penstock").option("tabel", "shop.orders").load("lake"))


def test_an_older_pyspark_gets_a_clear_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark.sql.datasource", None)
    with pytest.raises(NotSupported, match=r'format\("penstock"\) needs pyspark 4.0 or newer'):
        data_source()
