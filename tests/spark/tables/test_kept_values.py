"""Rows that were there when a statement gave a column another type: what they have afterwards, or a refusal that says why."""

from __future__ import annotations

import datetime
import itertools
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from penstock.encode.parquet.columns import parquet_type
from penstock.errors import BadInput
from penstock.schema.model import Column, TableSchema
from penstock.spark.tables.current import CurrentTable
from penstock.spark.tables.rows import changes_schema

_MOMENT = datetime.datetime(2020, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)
VALUES: dict[str, Any] = {
    "tinyint": 1, "int unsigned": 1, "int(5) unsigned zerofill": 1, "bigint unsigned": Decimal(1), "decimal(5,2)": Decimal(1),
    "decimal(50,3)": "1.000", "float": 1.5, "double": 1.5, "bit(5)": 1, "year": 2020, "date": _MOMENT.date(), "time": "03:04:05",
    "datetime": _MOMENT.replace(tzinfo=None), "timestamp": _MOMENT, "char(3)": "abc", "varchar(9)": "1", "longtext": "2020-01-01",
    "enum('a','b')": "a", "set('x','y')": "x,y", "binary(3)": b"abc", "blob": b"", "json": "{}", "point": b"", "inet6": "::1",
    "vector(3)": b"",
}  # fmt: skip


def altered(old: str, value: Any, new: str) -> Any:
    """The value that a row has after its column became one of another type."""
    key = Column("id", "int", nullable=False, primary_key=True)
    before = TableSchema("shop", "t", 1, (key, _column(old)))
    after = TableSchema("shop", "t", 2, (key, _column(new)), f"ALTER TABLE `shop`.`t` MODIFY v {new}")
    current = CurrentTable(before)
    values = {"_op": "I", "_commit_ts": _MOMENT, "_seq": b"", "id": 1, "v": value}
    current.take(before, [pa.Table.from_pylist([values], schema=changes_schema(before))])
    current.take(after, [])
    rows = current.rows()
    assert rows.schema.field("v").type == parquet_type(_column(new))
    return rows.column("v")[0].as_py()


def _column(kind: str) -> Column:
    elements = tuple(kind.split("'")[1::2])
    charset = "utf8mb4" if kind.startswith(("char", "varchar", "longtext")) else None
    return Column("v", kind, elements=elements, charset=charset)


def test_each_type_becomes_each_other_one_or_is_refused() -> None:
    kept = set()
    for old, new in itertools.permutations(VALUES, 2):
        try:
            altered(old, VALUES[old], new)
            kept.add((old, new))
        except BadInput as error:
            assert "MODIFY" in error.message, (old, new)
    assert {("tinyint", "varchar(9)"), ("bit(5)", "tinyint"), ("year", "int unsigned"), ("time", "longtext")} <= kept
    assert {("float", "double"), ("enum('a','b')", "longtext"), ("tinyint", "decimal(5,2)")} <= kept


@pytest.mark.parametrize(
    ("old", "value", "new"),
    [  # and what a server makes of it
        ("int", 7, "time"),  # 00:00:07
        ("int", 7, "year"),  # 2007
        ("int", 7, "bit(2)"),  # 3
        ("int", 7, "decimal(50,3)"),  # 7.000
        ("bit(12)", 300, "tinyint unsigned"),  # 255
        ("bit(5)", 1, "longtext"),  # \x01
        ("year", 2007, "tinyint unsigned"),  # 255
        ("year", 0, "varchar(9)"),  # 0000
        ("year", 2007, "time"),  # 00:20:07
        ("decimal(20,0)", Decimal(10**20 - 1), "bigint unsigned"),  # 2^64 - 1
    ],
)
def test_values_that_a_server_converts_are_refused(old: str, value: Any, new: str) -> None:
    with pytest.raises(BadInput, match="may have given older rows values of v that no change tells"):
        altered(old, value, new)


@pytest.mark.parametrize(
    ("old", "value", "new", "found"),
    [
        ("bit(12)", 200, "tinyint unsigned", 200),
        ("bit(5)", 3, "bit(2)", 3),
        ("year", 2007, "decimal(9,2)", Decimal(2007)),
        ("decimal(20,0)", Decimal(7), "bigint unsigned", Decimal(7)),
        ("double", 1.5, "double unsigned", 1.5),
        ("datetime(6)", _MOMENT.replace(tzinfo=None), "datetime", _MOMENT.replace(tzinfo=None)),
    ],
)
def test_values_that_stay(old: str, value: Any, new: str, found: Any) -> None:
    assert altered(old, value, new) == found
