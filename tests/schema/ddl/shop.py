"""A catalog with the table `shop.orders`, and short ways to apply statements to it."""

from __future__ import annotations

from typing import Any

from penstock.schema.catalog import Catalog
from penstock.schema.ddl import Statement, apply_ddl
from penstock.schema.model import Column, TableSchema

ORDERS = TableSchema(
    "shop",
    "orders",
    1,
    (
        Column("id", "int(11)", nullable=False, primary_key=True),
        Column("v", "varchar(20)", charset="latin1"),
        Column("n", "int"),
    ),
    charset="latin1",
)


def apply(sql: str, *tables: TableSchema, **session: Any) -> list[TableSchema]:
    """What `sql` makes of `orders` and `tables`; `session`: fields of `Statement`, and `lower_case_table_names`."""
    catalog = Catalog([ORDERS, *tables], lower_case_table_names=session.pop("lower_case_table_names", 0))
    return apply_ddl(Statement(sql, **{"schema": "shop", **session}), catalog, 42)


def altered(clauses: str, **session: Any) -> TableSchema:
    """`orders` after ALTER TABLE; not parked."""
    (made,) = apply(f"ALTER TABLE orders {clauses}", **session)
    assert not made.parked, made.reason
    return made


def table(name: str, *columns: str, schema: str = "shop") -> TableSchema:
    """A table of integers."""
    return TableSchema(schema, name, 1, tuple(Column(column, "int") for column in columns or ("id",)))


def names(table: TableSchema) -> list[str]:
    return [column.name for column in table.columns]


def types(definitions: str, **session: Any) -> list[str]:
    (made,) = apply(f"create table x ({definitions})", **session)
    assert not made.parked, made.reason
    return [column.mysql_type for column in made.columns]


def key(table: TableSchema) -> list[str]:
    return [column.name for column in table.columns if column.primary_key]
