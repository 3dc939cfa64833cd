"""What plain `spark.read.parquet` makes of our files: types and values, as docs/types.md says."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from penstock.commit_ts import commit_ts_of
from penstock.encode import FORMATS
from penstock.log.position import Seq
from tests.encode.reference import KINDS, Change, batch_of, lake_value
from tests.support.java import end_java

pytestmark = pytest.mark.spark

PARQUET = FORMATS["parquet"]
NAMES = list(KINDS)

# Two values of each kind, ends of their ranges where there are any; and the type that Spark gives the column.
EXAMPLES: dict[str, tuple[Any, Any, str]] = {
    "tiny": (-128, 127, "tinyint"),
    "utiny": (0, 255, "smallint"),
    "small": (-(2**15), 2**15 - 1, "smallint"),
    "usmall": (0, 2**16 - 1, "int"),
    "medium": (-(2**23), 2**23 - 1, "int"),
    "umedium": (0, 2**24 - 1, "int"),
    "int": (-(2**31), 2**31 - 1, "int"),
    "uint": (0, 2**32 - 1, "bigint"),
    "big": (-(2**63), 2**63 - 1, "bigint"),
    "ubig": (0, 2**64 - 1, "decimal(20,0)"),
    "bit1": (0, 1, "bigint"),
    "bit63": (0, 2**63 - 1, "bigint"),
    "bit64": (0, 2**64 - 1, "decimal(20,0)"),
    "money": (-5, 10**12 - 1, "decimal(12,2)"),
    "whole": (-1, 10**18 - 1, "decimal(18,0)"),
    "deep": (-1, 10**38 - 1, "decimal(38,30)"),
    "all": (-(10**38) + 1, 10**38 - 1, "decimal(38,0)"),
    "frac": (-1, 10**10 - 1, "decimal(10,10)"),
    "huge": (-1, 10**65 - 1, "string"),
    "float": (-0.5, 3.4028234663852886e38, "float"),
    "double": (5e-324, 1.7976931348623157e308, "double"),
    "year": (0, 2155, "smallint"),
    "date": ((1000, 1, 1), (9999, 12, 31), "date"),
    "datetime": ((1000, 1, 1, 0, 0, 0, 0), (9999, 12, 31, 23, 59, 59, 0), "timestamp_ntz"),
    "datetime3": ((0,) * 7, (1969, 12, 31, 23, 59, 59, 999_000), "timestamp_ntz"),
    "datetime6": ((2023, 2, 29, 0, 0, 0, 0), (2024, 2, 29, 1, 2, 3, 456_789), "timestamp_ntz"),
    "timestamp": (0, 1_000_000, "timestamp"),
    "timestamp6": (1, (2**31 - 1) * 1_000_000 + 999_999, "timestamp"),
    "time": ((True, 838, 59, 59, 0), (False, 0, 0, 0, 0), "string"),
    "time1": ((True, 0, 0, 0, 500_000), (False, 1, 2, 3, 0), "string"),
    "time6": ((True, 0, 0, 0, 1), (False, 838, 59, 59, 0), "string"),
    "enum": (0, 5, "string"),
    "set": (0, 31, "string"),
    "set64": (0, 2**64 - 1, "string"),
    "char": ("", "ß", "string"),
    "varchar": ("\x00", "😀", "string"),
    "text": ('"', "\r\n", "string"),
    "json": ("null", '{"a": 1}', "string"),
    "binary": (b"", bytes(range(256)), "binary"),
    "blob": (b"\x00", b"\xff", "binary"),
    "uuid": ("0" * 32, "f" * 32, "string"),
    "vector": (b"", b"\x00" * 16, "binary"),
    "point": (b"\x00" * 25, b"\x01" * 25, "binary"),
}


@pytest.fixture
def spark(tmp_path: Path) -> Iterator[Any]:
    sql = pytest.importorskip("pyspark.sql")
    running = sql.SparkSession.getActiveSession()  # of another test, which ends it
    session = (
        sql.SparkSession.builder.master("local[1]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.memory", "512m")
        .config("spark.sql.warehouse.dir", str(tmp_path / "warehouse"))
        .getOrCreate()
    )
    own = session.newSession()
    own.conf.set("spark.sql.session.timeZone", "UTC")
    yield own
    if running is None:
        session.stop()
        end_java()


def test_spark_reads_types_and_values(spark: Any, tmp_path: Path) -> None:
    assert list(EXAMPLES) == NAMES
    images: list[dict[str, Any]] = [
        {name: EXAMPLES[name][0] for name in NAMES},
        {name: EXAMPLES[name][1] for name in NAMES},
        dict.fromkeys(NAMES),
    ]
    millis = 1_700_000_000_123
    changes = [
        Change("I", None, images[0], Seq(1, 1, 0, 0), commit_ts_of(millis)),
        Change("U", images[0], images[1], Seq(1, 1, 0, 1), commit_ts_of(millis) + 1),
        Change("D", images[2], None, Seq(1, 2, 0, 0), commit_ts_of(millis) + 2),
    ]
    file = tmp_path / "CDC000001.parquet"
    batch = batch_of(NAMES, changes)
    file.write_bytes(PARQUET.assemble([PARQUET.encode(batch.slice(0, 2)), PARQUET.encode(batch.slice(2, 3))]))

    frame = spark.read.parquet(str(file))
    types = dict(frame.dtypes)
    assert {name: types.pop(name) for name in ("_op", "_commit_ts", "_seq")} == {
        "_op": "string",
        "_commit_ts": "timestamp",
        "_seq": "binary",
    }
    assert types == {name: example[2] for name, example in EXAMPLES.items()}

    # Moments compare as text in the session's zone: Python would read them in the machine's own.
    moments = [name for name, kind in types.items() if kind == "timestamp"]
    shown = frame.selectExpr(
        *(f"date_format(`{name}`, 'yyyy-MM-dd HH:mm:ss.SSSSSS') as `{name}`" if name in ("_commit_ts", *moments) else f"`{name}`" for name in frame.columns)
    )  # fmt: skip
    rows = [row.asDict() for row in shown.orderBy("_seq", "_op").collect()]
    expected = [(0, "I", images[0]), (1, "D", images[0]), (1, "I", images[1]), (2, "D", images[2])]  # its key changes
    assert [row["_op"] for row in rows] == [op for _, op, _ in expected]
    assert [bytes(row["_seq"]) for row in rows] == [changes[number].seq.to_bytes() for number, _, _ in expected]
    assert {row["_commit_ts"] for row in rows} == {"2023-11-14 22:13:20.123000"}
    for row, (_, _, image) in zip(rows, expected, strict=True):
        for name in NAMES:
            assert row[name] == _as_spark(lake_value(name, image[name])), name


def test_spark_splits_and_prunes_a_file_of_many_payloads(spark: Any, tmp_path: Path) -> None:
    """Row groups that tasks encoded lie where the joined footer says, for readers that split files and skip by statistics."""
    changes = [
        Change("I", None, {"big": n, "varchar": f"{n:04d}" * 50}, Seq(1, n, 0, 0), commit_ts_of(n)) for n in range(3000)
    ]
    batch = batch_of(["big", "varchar"], changes)
    file = tmp_path / "CDC000001.parquet"
    file.write_bytes(PARQUET.assemble([PARQUET.encode(batch.slice(a, a + 100)) for a in range(0, 3000, 100)]))
    spark.conf.set("spark.sql.files.maxPartitionBytes", file.stat().st_size // 7)
    try:
        frame = spark.read.parquet(str(file))
        assert frame.rdd.getNumPartitions() >= 7
        assert frame.count() == 3000
        assert [row["big"] for row in frame.select("big").orderBy("big").collect()] == list(range(3000))
        assert frame.where("big = 2950").select("varchar").collect()[0]["varchar"] == "2950" * 50
    finally:
        spark.conf.unset("spark.sql.files.maxPartitionBytes")


def _as_spark(value: Any) -> Any:
    if isinstance(value, datetime) and value.tzinfo is UTC:
        return value.strftime("%Y-%m-%d %H:%M:%S.%f")
    assert value is None or isinstance(value, (int, float, str, bytes, Decimal, date))
    return value
