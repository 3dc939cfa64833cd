"""The same row, loaded and streamed, is the same in every column."""

from __future__ import annotations

import pyarrow as pa
import pytest

from penstock.encode import open_format
from penstock.schema.changes import ChangeBatch
from tests.capture.load.loading import World

_MEMBERS = ", ".join(f"'m{i}'" for i in range(64))
_COMMON = {
    "tinyint": ("-128", "127"),
    "tinyint unsigned": ("0", "255"),
    "smallint": ("-32768", "32767"),
    "mediumint": ("-8388608", "8388607"),
    "mediumint unsigned": ("0", "16777215"),
    "int": ("-2147483648", "2147483647"),
    "int(8) unsigned zerofill": ("7", "4294967295"),
    "bigint(255) zerofill": ("7", "18446744073709551615"),
    "bigint": ("-9223372036854775808", "9223372036854775807"),
    "bigint unsigned": ("0", "18446744073709551615"),
    "float": ("0.1", "-1.17549e-38", "16777217", "3.4e38"),
    "double": ("0.1", "-2.2250738585072014e-308", "123456789.123456789", "1.7976931348623157e308"),
    "double(10,2)": ("0.1", "-12345678.91"),
    "decimal(10,2)": ("-99999999.99", "0.01", "0"),
    "decimal(10,2) zerofill": ("1.5",),
    "decimal(38,10)": ("-1234567890123456789012345678.0123456789", "0.1"),
    "decimal(65,30)": ("-12345678901234567890123456789012345.012345678901234567890123456789", "0.5", "0"),
    "bit(1)": ("b'1'", "b'0'"),
    "bit(64)": ("18446744073709551615", "1"),
    "year": ("2024", "1901", "0"),
    "date": ("'2024-02-29'", "'9999-12-31'", "'0000-00-00'", "'2024-00-00'"),
    "time": ("'-838:59:59'", "'838:59:59'", "'00:00:00'", "'-00:00:01'"),
    "time(6)": ("'-00:00:00.000001'", "'12:34:56.789012'"),
    "time(3)": ("'-12:34:56.789'",),
    "datetime": ("'2024-02-29 23:59:59'", "'0000-00-00 00:00:00'", "'1000-01-01 00:00:00'"),
    "datetime(6)": ("'2024-02-29 23:59:59.123456'",),
    "datetime(2)": ("'2024-02-29 23:59:59.12'",),
    "timestamp null": ("'1970-01-01 00:00:01'", "'2038-01-19 03:14:07'", "'0000-00-00 00:00:00'"),
    "timestamp(4) null": ("'2024-03-31 01:30:00.1234'",),
    "enum('a','b','ü')": ("'a'", "'ü'", "''"),
    "set('x','y','z')": ("''", "'x,z'"),
    f"set({_MEMBERS})": ("18446744073709551615", "9007199254740993", "'m63'"),
    "char(10)": ("''", "'grüße'", "' a  '"),
    "char(10) character set latin1": ("'grüße'", "'€'"),
    "varchar(40) character set utf16": ("'grüße😀'", "''"),
    "varchar(40) character set sjis": ("'日本'",),
    "varchar(40) character set utf8mb3": ("'日本'",),
    "varchar(300)": ("''", "REPEAT('ä', 300)", "'a\\tb\\n\\'c\\\\'"),
    "text": ("''", "REPEAT('x', 60000)"),
    "longtext character set latin1": ("REPEAT('é', 70000)",),
    "binary(6)": ("'ab'", "X'0000ff000000'"),
    "varbinary(20)": ("''", "X'00ff10'"),
    "blob": ("X'deadbeef00'", "REPEAT(X'00ff', 30000)"),
    "json": ('\'{"a": [1, 2.5, null, "ü"], "b": {}}\'', "'\"text\"'", "'[]'", "'true'", "'1e100'"),
    "point": ("ST_GeomFromText('POINT(1 2)')",),
    "geometry": ("ST_GeomFromText('LINESTRING(0 0, 1 1)', 4326)",),
}
_OF_MARIADB = {
    "inet6": ("'::1'", "'2001:db8::ff00:42:8329'"),
    "uuid": ("'123e4567-e89b-12d3-a456-426655440000'",),
    "varchar(100) compressed": ("REPEAT('ab', 50)",),
    "text compressed": ("REPEAT('ü', 500)",),
}
_OF_MYSQL = {
    "json": ("JSON_OBJECT('d', CAST(1.10 AS DECIMAL(10,2)), 't', CAST('2024-01-02 03:04:05.6' AS DATETIME(6)))",),
}


@pytest.fixture
def filled(world: World) -> World:
    types = dict(_COMMON)
    for kind, values in (_OF_MARIADB if world.server.kind == "mariadb" else _OF_MYSQL).items():
        types[kind] = (*types.get(kind, ()), *values)
    columns = ", ".join(f"c{i} {kind}" for i, kind in enumerate(types))
    depth = max(map(len, types.values()))
    world.run(
        "SET SESSION sql_mode = 'ALLOW_INVALID_DATES', time_zone = '+05:30'",
        f"CREATE TABLE t (id INT PRIMARY KEY, {columns}) ROW_FORMAT=DYNAMIC",
        *_inserts(types, depth, 0),
    )
    world.catch_up()
    assert world.chunks() == 1
    world.run("SET SESSION sql_mode = 'ALLOW_INVALID_DATES', time_zone = '+05:30'", *_inserts(types, depth, depth))
    world.catch_up()
    return world


def _inserts(types: dict[str, tuple[str, ...]], depth: int, first: int) -> list[str]:
    """Each value in some row; NULL where a type has fewer."""
    made = []
    for row in range(depth):
        values = ", ".join(kinds[row] if row < len(kinds) else "NULL" for kinds in types.values())
        made.append(f"INSERT INTO t VALUES ({first + row}, {values})")
    return made


def test_every_type_is_the_same_from_the_load_and_from_the_stream(filled: World) -> None:
    loaded, *streamed = filled.changes()
    for i, column in enumerate(loaded.table.columns[1:], 1):
        assert all(batch.after[i].type == loaded.after[i].type for batch in streamed), column
        assert loaded.after[i].to_pylist() == _values(streamed, i), column
    for name in ("canal-json", "debezium-json", "parquet"):  # and so is what a sink gets
        fmt = open_format(name)
        first, *others = (fmt.rows(fmt.assemble([fmt.encode(batch)])) for batch in (loaded, *streamed))
        columns = [column for column in first.column_names if column not in ("id", "_seq", "_commit_ts")]
        assert first.select(columns).to_pylist() == pa.concat_tables(others).select(columns).to_pylist(), name


def _values(batches: list[ChangeBatch], column: int) -> list[object]:
    return [value for batch in batches for value in batch.after[column].to_pylist()]
