"""Statements that nobody understands: the tables that they may touch are parked, and no others."""

from __future__ import annotations

import pytest

from penstock.schema.model import ChangeKind, TableSchema
from tests.schema.ddl.shop import apply, table

TABLES = (table("items"), table("orders", schema="b"), table("x", schema="b"))


def touched(sql: str, *tables: TableSchema, schema: str = "shop") -> set[str]:
    made = apply(sql, *(tables or TABLES), schema=schema)
    assert all(m.parked and m.kind is ChangeKind.UNKNOWN and m.query == sql and m.reason for m in made)
    return {m.name for m in made}


@pytest.mark.parametrize(
    ("sql", "names"),
    [
        ("ALTER TABLE orders FROBNICATE", {"shop.orders"}),
        ("ALTER TABLE b.orders FROBNICATE WITH items", {"b.orders", "shop.items"}),
        ("ALTER TABLE `other`.`orders` FROBNICATE", set()),
        ("CREATE FROB VIEW z AS SELECT * FROM items", {"shop.items"}),
        ("CREATE FROB z", set()),
        ("DROP FROB b", {"b.orders", "b.x"}),  # a database by its name
        ("RENAME TABLE orders", {"shop.orders"}),
        ("RENAME TABLE orders INTO items", {"shop.orders", "shop.items"}),
        # Text that cannot be cut into tokens: by name alone, in every database.
        ("ALTER TABLE orders ADD y INT DEFAULT 'never ends", {"shop.orders", "b.orders"}),
        ("DROP TABLE `orders", {"shop.orders", "b.orders"}),
        ("ALTER TABLE nobody COMMENT 'never ends", set()),
    ],
)
def test_the_tables_that_a_statement_names(sql: str, names: set[str]) -> None:
    assert touched(sql) == names


def test_lost_characters_hide_names() -> None:
    everything = {"shop.orders", "shop.items", "b.orders", "b.x"}
    assert touched("CREATE FROB \N{REPLACEMENT CHARACTER}") == everything
    assert touched("ALTER TABLE \N{REPLACEMENT CHARACTER} COMMENT '") == everything
    assert touched("ALTER TABLE items FROB \N{REPLACEMENT CHARACTER}") == {"shop.items"}


@pytest.mark.parametrize(
    ("sql", "says"),
    [
        ("create table t as select 1", "SELECT"),
        ("create table t select 1", "SELECT"),
        ("create table t (a int) select 1", "SELECT"),
        ("create table t (a int) engine=innodb ignore as select 1", "SELECT"),
        ("create table t (a int) partition by hash(a) partitions 2 as select 1", "SELECT"),
        ("create table t (a int) with system versioning", "system-versioned"),
        ("create table t (a int, s timestamp(6) generated always as row start)", "system-versioned"),
        ("create table t (a int, period for system_time (s, e))", "system-versioned"),
        ("create table t (a int without system versioning)", "system-versioned"),
        ("create table t (a int", "at its end"),
        ("create table t (, a int)", "does not understand"),
        ("create table t (primary key (a))", "without columns"),
        ("create table t (a int, primary key (b))", "columns that are not there"),
    ],
)
def test_a_new_table_is_parked_alone(sql: str, says: str) -> None:
    (made,) = apply(sql)
    assert made.name == "shop.t" and made.parked and says in made.reason


@pytest.mark.parametrize(
    "sql",
    [
        "ALTER TABLE orders FROBNICATE",
        "ALTER TABLE orders ADD x INT",
        "TRUNCATE orders",
        "DROP INDEX `PRIMARY` ON orders",
        "CREATE INDEX i ON orders (id)",
        "ALTER TABLE other EXCHANGE PARTITION p WITH TABLE orders",
    ],
)
def test_what_comes_while_a_table_is_parked_is_kept_for_its_resumption(sql: str) -> None:
    (made,) = apply("ALTER TABLE orders FROBNICATE")
    (kept,) = apply(sql, made)
    assert kept.parked and kept.name == "shop.orders" and kept.query == sql and kept.reason


@pytest.mark.parametrize(
    "sql",
    [
        "CREATE VIEW v AS SELECT * FROM orders",
        "CREATE TABLE IF NOT EXISTS orders (a int)",
    ],
)
def test_what_leaves_a_parked_table_as_it_is_is_not_kept(sql: str) -> None:
    (made,) = apply("ALTER TABLE orders FROBNICATE")
    assert apply(sql, made) == []


def test_what_a_parked_table_becomes() -> None:
    (made,) = apply("ALTER TABLE orders FROBNICATE")
    (again,) = apply("CREATE OR REPLACE TABLE orders (a int)", made)
    assert not again.parked and again.kind is ChangeKind.CREATE
    (like,) = apply("CREATE TABLE t LIKE orders", made)
    assert like.parked
