"""What capture knows of tables: DDL that it follows, tables that it parks, and what is not its business."""

from __future__ import annotations

import struct

from penstock.binlog.bodies import Query
from penstock.binlog.types import ColumnType as C
from penstock.binlog.types import Flavour
from penstock.capture.schemas import SchemaTracker
from penstock.schema.model import ChangeKind, DdlType, TableSchema
from penstock.sources.settings import Tables
from tests.binlog.build import FDE, msb_bits, packed, table_map, tlv

TWO = [(C.LONG, b""), (C.VARCHAR, struct.pack("<H", 40))]


def query(sql: str, schema: str = "shop", **values: object) -> Query:
    return Query(schema, sql, 1, 0, "utf8mb4", None, "utf8mb4", **values)  # type: ignore[arg-type]


def followed(*statements: str, tables: Tables | None = None, lower_case_table_names: int = 0) -> SchemaTracker:
    tracker = SchemaTracker(tables, lower_case_table_names=lower_case_table_names)
    for version, sql in enumerate(statements, 1):
        for table in tracker.after_ddl(query(sql), version):
            tracker.record(table)
    return tracker


def mapped(schema: str, table: str, *, names: tuple[str, ...] = ()) -> memoryview:
    metadata = b""
    if names:
        metadata = tlv(1, msb_bits([False])) + tlv(2, bytes([45]))
        metadata += tlv(4, b"".join(packed(len(name)) + name.encode() for name in names))
    return memoryview(table_map(TWO, schema=schema, table=table, metadata=metadata))


def column_names(table: TableSchema | None) -> list[str]:
    assert table is not None
    return [column.name for column in table.columns]


def test_names_as_the_server_compares_them() -> None:
    """lower_case_table_names=1: the statement says Orders, the table map says orders."""
    tracker = followed(
        "CREATE TABLE orders (id int primary key)",
        "ALTER TABLE Shop.Orders ADD note varchar(10)",
        lower_case_table_names=1,
    )
    assert column_names(tracker.lookup("shop", "orders")) == ["id", "note"]
    assert tracker.after_table_map(mapped("shop", "orders"), FDE, 9) == ()
    # With names that differ by case it is another table, which nobody knows.
    tracker = followed("CREATE TABLE orders (id int primary key)", "ALTER TABLE Orders ADD note varchar(10)")
    assert column_names(tracker.lookup("shop", "orders")) == ["id"]
    tracker.compare_names(1)
    (made,) = tracker.after_ddl(query("ALTER TABLE ORDERS ADD note varchar(10)"), 5)
    assert made.name == "shop.orders"


def test_names_that_a_server_stores_as_written() -> None:
    tracker = followed("CREATE TABLE Orders (id int, v varchar(10))", lower_case_table_names=2)
    (made,) = tracker.after_table_map(mapped("shop", "orders"), FDE, 9)
    assert made.name == "shop.orders" and column_names(made) == ["id", "v"]


def test_the_session_decides_how_a_statement_is_read() -> None:
    tracker = followed("CREATE TABLE orders (id int primary key, v int)")
    (made,) = tracker.after_ddl(query('ALTER TABLE "orders" DROP "v"', sql_mode=4), 2)
    assert column_names(made) == ["id"]
    (made,) = tracker.after_ddl(query("ALTER TABLE orders /*M!100100 DROP v */ , ADD w INT", flavour=Flavour.MYSQL), 2)
    assert made.parked or column_names(made) == ["id", "v", "w"]


def test_the_servers_own_tables_are_nobodys() -> None:
    """mysql.time_zone with MariaDB's default binlog_row_metadata=NO_LOG ended capture."""
    tracker = followed("CREATE TABLE mysql.x (a int)")
    assert tracker.after_table_map(mapped("mysql", "time_zone"), FDE, 1) == ()
    assert tracker.after_ddl(query("TRUNCATE TABLE mysql.time_zone"), 1) == ()
    assert tracker.after_ddl(query("DROP DATABASE sys"), 1) == ()


def test_other_databases_are_not_looked_at() -> None:
    tracker = followed(tables=Tables(include=("shop.*",), exclude=("shop.secret",)))
    for sql in (
        "CREATE SEQUENCE other.s",
        "CREATE TABLE other.t (a int) WITH SYSTEM VERSIONING",
        "ALTER TABLE other.t FROBNICATE",
        "CREATE TABLE other.t SELECT 1",
        "CREATE DATABASE other",
        "DROP DATABASE other",
        "ALTER TABLE other.t COMMENT 'never ends",
    ):
        assert tracker.after_ddl(query(sql), 1) == (), sql
    assert tracker.after_table_map(mapped("other", "t"), FDE, 1) == ()
    assert tracker.after_table_map(mapped("shop", "secret"), FDE, 1) == ()


def test_a_swap_with_a_table_that_is_not_wanted() -> None:
    """gh-ost fills a table that the configuration leaves out, and gives it the name of one that it wants."""
    tracker = followed(
        "CREATE TABLE orders (id int primary key)",
        "CREATE TABLE _orders_gho LIKE orders",
        "ALTER TABLE _orders_gho ADD note varchar(10)",
        "RENAME TABLE orders TO _orders_del, _orders_gho TO orders",
        tables=Tables(include=("shop.orders",)),
    )
    found = tracker.lookup("shop", "orders")
    assert column_names(found) == ["id", "note"] and found is not None and found.kind is ChangeKind.RENAME
    assert tracker.lookup("shop", "_orders_del") is None  # not wanted
    assert tracker.after_table_map(mapped("shop", "orders"), FDE, 9) == ()


def test_a_restart_knows_the_same() -> None:
    statements = (
        "CREATE TABLE orders (id int primary key)",
        "CREATE TABLE t LIKE orders",
        "ALTER TABLE t FROBNICATE",
        "RENAME TABLE orders TO o2, t TO orders",
        "DROP DATABASE b",
        "CREATE SEQUENCE s",
    )
    tracker = SchemaTracker()
    history: list[TableSchema] = []
    keys = []
    for version, sql in enumerate(statements, 1):
        for table in tracker.after_ddl(query(sql), version):
            history.append(table)
            keys.append(tracker.record(table))
    assert len(set(keys)) == len(keys)
    again = SchemaTracker(None, reversed([TableSchema.from_json(table.to_json()) for table in history]))
    for name in ("orders", "t", "o2", "s"):
        assert again.lookup("shop", name) == tracker.lookup("shop", name)


def test_a_table_whose_shape_nobody_tells_is_parked() -> None:
    tracker = followed()
    (made,) = tracker.after_table_map(mapped("shop", "orders"), FDE, 7)
    assert made.parked and "binlog_row_metadata=FULL" in made.reason and made.version == 7
    tracker.record(made)
    assert tracker.after_table_map(mapped("shop", "orders"), FDE, 8) == ()
    # CREATE TABLE tells it again.
    (made,) = tracker.after_ddl(query("CREATE OR REPLACE TABLE orders (id int, v varchar(10))"), 9)
    tracker.record(made)
    assert tracker.after_table_map(mapped("shop", "orders"), FDE, 10) == ()


def test_a_ddl_that_was_missed_parks_the_table_unless_the_map_tells_all() -> None:
    tracker = followed("CREATE TABLE orders (id int primary key) charset latin1")
    (made,) = tracker.after_table_map(mapped("shop", "orders"), FDE, 7)
    assert made.parked and "2" in made.reason
    (made,) = tracker.after_table_map(mapped("shop", "orders", names=("id", "v")), FDE, 7)
    assert column_names(made) == ["id", "v"] and made.charset == "latin1" and made.ddl_type is DdlType.NONE


def test_rows_of_sequences_are_nobodys() -> None:
    tracker = followed("CREATE SEQUENCE s")
    assert tracker.after_table_map(mapped("shop", "s"), FDE, 7) == ()
    columns = [(C.LONGLONG, b"")] * 6 + [(C.TINY, b""), (C.LONGLONG, b"")]
    names = (
        "next_not_cached_value", "minimum_value", "maximum_value", "start_value", "increment", "cache_size",
        "cycle_option", "cycle_count",
    )  # fmt: skip
    metadata = tlv(1, msb_bits([False] * 8)) + tlv(4, b"".join(packed(len(n)) + n.encode() for n in names))
    event = memoryview(table_map(columns, schema="shop", table="older", metadata=metadata))
    (made,) = tracker.after_table_map(event, FDE, 7)
    assert made.is_sequence
