"""Schema files: the golden values of TiCDC's own tests, and Go's way to print JSON."""

from __future__ import annotations

import json

import pytest

from penstock.schema.model import Column, DdlType, TableSchema
from penstock.schema.schema_file import schema_checksum, schema_file, schema_json

PEOPLE = TableSchema(
    "schema1",
    "table1",
    100,
    (
        Column("Id", "int(11)", nullable=False, primary_key=True),
        Column("LastName", "varchar(128)", nullable=False),
        Column("FirstName", "varchar(64)"),
        Column("Birthday", "datetime"),
    ),
)


def test_golden_names() -> None:
    assert schema_file(TableSchema("schema1", "", 100, ()))[0] == "schema_100_3233644819.json"
    assert schema_file(PEOPLE)[0] == "schema_100_0785427252.json"


def test_checksum_ignores_order_query_and_version() -> None:
    other = TableSchema("schema1", "table1", 7, PEOPLE.columns[::-1], "alter …", DdlType.ADD_COLUMN)
    assert schema_checksum(other) == schema_checksum(PEOPLE)


def test_keys_in_order() -> None:
    table = TableSchema(
        "s",
        "t",
        5,
        (
            Column("n", "decimal(10,2) unsigned", nullable=False, default="1.50"),
            Column("e", "enum('a','b')", elements=("a", "b")),
            Column("ts", "timestamp(3)"),
            Column("x", "text"),
        ),
        "create table t(…) /* <&> */",
        DdlType.CREATE_TABLE,
    )
    text = schema_json(table).decode()
    value = json.loads(text)
    assert list(value) == [
        "Table", "Schema", "Version", "TableVersion", "Query", "Type", "TableColumns", "TableColumnsTotal",
    ]  # fmt: skip
    assert value["TableColumns"] == [
        {
            "ColumnName": "n",
            "ColumnType": "DECIMAL UNSIGNED",
            "ColumnDefault": "1.50",
            "ColumnPrecision": "10",
            "ColumnScale": "2",
            "ColumnNullable": "false",
        },
        {"ColumnName": "e", "ColumnType": "ENUM", "ColumnElems": ["a", "b"]},
        {"ColumnName": "ts", "ColumnType": "TIMESTAMP", "ColumnScale": "3"},
        {"ColumnName": "x", "ColumnType": "TEXT", "ColumnPrecision": "65535"},
    ]
    assert "\\u003c\\u0026\\u003e" in text
    assert "<" not in text
    assert text.startswith('{\n    "Table": "t",\n')


@pytest.mark.parametrize(
    ("spellings", "plain", "precision"),
    [
        (("int", "int(11)", "int(5)"), "int", "11"),
        (("int unsigned", "int(10) unsigned", "int(5) unsigned zerofill"), "int unsigned", "10"),
        (("tinyint unsigned", "tinyint(3) unsigned"), "tinyint unsigned", "3"),
        (("bigint unsigned", "bigint(20) unsigned"), "bigint unsigned", "20"),
        (("tinyint", "tinyint(1)", "tinyint(4)"), "tinyint", "4"),
        (("decimal(5,2) unsigned", "decimal(5,2) unsigned zerofill"), "decimal(5,2) unsigned", "5"),
        (("year", "year(4)"), "year", "4"),
        (("point", "geometry", "polygon"), "geometry", None),
        (("varchar(20)",), "varchar(20)", "20"),
    ],
)
def test_a_type_is_the_same_whichever_way_it_was_learnt(
    spellings: tuple[str, ...], plain: str, precision: str | None
) -> None:
    columns = [Column("c", spelling) for spelling in spellings]
    assert {column.plain_type for column in columns} == {plain}
    written = [json.loads(schema_json(TableSchema("s", "t", 1, (c,))))["TableColumns"][0] for c in columns]
    assert written == [written[0]] * len(written) and written[0].get("ColumnPrecision") == precision
