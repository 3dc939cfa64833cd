"""The tables of the demo shop, and the content of any row at any stage: a function of (seed, table, id, stage).

The statements and table maps are those of a real MariaDB 10.11 with `binlog_row_metadata=FULL`; a test creates the same
tables on a server and compares.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from penstock.sources.demo import rows as form
from penstock.sources.demo.byte_column import ByteColumn, choice, constant, digits, join
from penstock.sources.demo.plan import Ids, Plan
from penstock.sources.demo.rows import ColumnForm, Values

SCHEMA = "shop"
_EPOCH_US = 1_704_067_200_000_000  # 2024-01-01
_FIRST = (
    b"Ada",
    b"Bj\xc3\xb6rn",
    b"Chlo\xc3\xa9",
    b"Dmitri",
    b"Emeka",
    b"\xe6\x98\x8e",
    b"Zo\xc3\xab",
    b"Omar \xf0\x9f\x8e\x88",
)
_LAST = (b" Lovelace", b" M\xc3\xbcller", b" O'Hara", b" \xe7\x8e\x8b", b" Garc\xc3\xada", b"")
_COUNTRIES = (b"DE", b"FR", b"JP", b"US", b"NG", b"BR")
_THINGS = (b"Kettle", b"Lamp", b"Umbrella, large", b'Mug "No. 1"', b"Caf\xc3\xa9 table", b"Garden hose\t10 m")
_NOTES = (b"gift", b"leave at the door", b"ring twice", b"", b"fr\xc3\xa4gile")

CREATE_DATABASE = "CREATE DATABASE shop CHARACTER SET utf8mb4"
ALTER_ORDERS = "ALTER TABLE shop.orders ADD COLUMN note varchar(64)"


@dataclass(frozen=True, slots=True)
class Table:
    """A table of the shop from one DDL to the next. `table_map`: the body of its TABLE_MAP event after the table id."""

    name: str
    table_id: int
    create: str
    table_map: bytes
    columns: tuple[tuple[str, ColumnForm], ...]
    key: tuple[str, ...]
    content: Callable[[Plan, Ids, Ids], list[Values]]  # (plan, ids, stages); items: (plan, order ids, lines)

    @property
    def forms(self) -> tuple[ColumnForm, ...]:
        return tuple(column for _, column in self.columns)


def _some(plan: Plan, salt: str, ids: Ids, stage: Ids | int, bound: int) -> Ids:
    return (plan.random(salt, ids, stage) % np.uint64(bound)).astype(np.int64)


def _sometimes(plan: Plan, salt: str, ids: Ids, stage: Ids | int = 0) -> npt.NDArray[np.bool_]:
    return np.asarray(_some(plan, salt, ids, stage, 8) != 3, np.bool_)


def _datetime(plan: Plan, salt: str, ids: Ids, stage: Ids | int, *, micros: bool) -> Ids:
    bits = plan.random(salt, ids, stage).astype(np.int64) & 0x7FFFFFFFFFFFFFFF
    month, day, hour = bits % 12 + 1, bits // 12 % 28 + 1, bits // 336 % 24
    minute, second = bits // 8064 % 60, bits // 483_840 % 60
    packed = ((2024 * 13 + month) << 22 | day << 17 | hour << 12 | minute << 6 | second) << 24
    return packed | (bits // 29_030_400 % 1_000_000 if micros else 0)


def _date(plan: Plan, salt: str, ids: Ids, first_year: int, years: int) -> Ids:
    bits = plan.random(salt, ids).astype(np.int64) & 0x7FFFFFFFFFFFFFFF
    return (first_year + bits // 336 % years) << 9 | (bits % 12 + 1) << 5 | (bits // 12 % 28 + 1)


def _customers(plan: Plan, ids: Ids, stage: Ids) -> list[Values]:
    some = plan.random("customers", ids, stage)
    email = join([constant(b"user", len(ids)), digits(ids, 9), constant(b"@example.org", len(ids))])
    name = join([choice(_FIRST, _some(plan, "first", ids, 0, 8)), choice(_LAST, _some(plan, "last", ids, 0, 6))])
    visits = digits(_some(plan, "visits", ids, stage, 1000), 3)
    # A leading zero is not JSON, so the digits stand in a string.
    profile = join([constant(b'{"visits": "', len(ids)), visits, constant(b'", "tags": ["a", "\xc3\xa9"]}', len(ids))])
    return [
        Values(ids),
        Values(email),
        Values(name, _sometimes(plan, "name", ids)),
        Values(choice(_COUNTRIES, _some(plan, "country", ids, 0, 6))),
        Values(_some(plan, "tier", ids, stage, 3) + 1),
        Values(_some(plan, "interests", ids, stage, 16), _sometimes(plan, "interested", ids)),
        Values(_date(plan, "birthday", ids, 1940, 70), _sometimes(plan, "born", ids)),
        Values((some % np.uint64(200_000_000_00)).astype(np.int64) - 100_000_000_00),
        Values(_some(plan, "active", ids, stage, 2)),
        Values(_some(plan, "flags", ids, stage, 32), _sometimes(plan, "flagged", ids)),
        Values(_EPOCH_US + ids * 1_000_000),
        Values(_datetime(plan, "updated", ids, stage, micros=True), stage > 0),
        Values(profile, _sometimes(plan, "profile", ids, stage)),
    ]


def _products(plan: Plan, ids: Ids, stage: Ids) -> list[Values]:
    count = len(ids)
    words = [choice(_THINGS, _some(plan, f"word{i}", ids, 0, len(_THINGS))) for i in range(6)]
    space = constant(b"; ", count)
    long_text = join([piece for word in words for piece in (word, space)])
    return [
        Values(ids),
        Values(join([constant(b"SKU-\x00\xff-", count), digits(ids, 6)])),
        Values(choice(_THINGS, _some(plan, "title", ids, 0, len(_THINGS)))),
        Values(long_text, _sometimes(plan, "described", ids)),
        Values(_some(plan, "price", ids, 0, 99_999_99) + 1),
        Values(_some(plan, "weight", ids, 0, 4096) / np.float64(64), _sometimes(plan, "weighed", ids)),
        Values(_some(plan, "rating", ids, stage, 5000) / np.float64(1000), _sometimes(plan, "rated", ids)),
        Values(_some(plan, "stock", ids, stage, 20_000) - 1000),
        Values(_some(plan, "shelf", ids, 0, 60_000) - 30_000, _sometimes(plan, "shelved", ids)),
        Values(_some(plan, "made", ids, 0, 120) + 1905),
        Values(join([digits(ids, 4), constant(bytes(range(48)), count)]), _sometimes(plan, "thumb", ids)),
        Values(_EPOCH_US + _some(plan, "changed", ids, stage, 10**9) * 1000, stage > 0),
    ]


def _orders(plan: Plan, ids: Ids, stage: Ids) -> list[Values]:
    customers = (plan.order_chunk(ids) + 1) * plan.customers_per_chunk
    customer = 1 + (plan.random("customer", ids) % customers.astype(np.uint64)).astype(np.int64)
    return [
        Values(ids),
        Values(customer),
        Values(stage + 1),
        Values(_some(plan, "total", ids, stage, 1_000_000_00) - 100),
        Values(_datetime(plan, "placed", ids, 0, micros=True)),
        Values(_datetime(plan, "paid", ids, 0, micros=False), stage > 0),
        Values(_date(plan, "delivery", ids, 2024, 2), _sometimes(plan, "delivered", ids)),
        Values((_some(plan, "slot", ids, 0, 6_000_000) - 3_000_000) * 1_000_000, _sometimes(plan, "slotted", ids)),
        Values(_some(plan, "priority", ids, stage, 256)),
        Values(_some(plan, "points", ids, stage, 1 << 24) - (1 << 23), _sometimes(plan, "pointed", ids, stage)),
    ]


def _orders_noted(plan: Plan, ids: Ids, stage: Ids) -> list[Values]:
    note = choice(_NOTES, _some(plan, "note", ids, stage, len(_NOTES)))
    return [*_orders(plan, ids, stage), Values(note, plan.noted(ids, stage) & _sometimes(plan, "noted", ids, stage))]


def _items(plan: Plan, ids: Ids, line: Ids) -> list[Values]:
    colour = choice(
        (b'{"colour": "red"}', b'{"gift": true, "n": [1, 2.5]}', b"{}"), _some(plan, "colour", ids, line, 3)
    )
    return [
        Values(ids),
        Values(line),
        Values(_some(plan, "product", ids, line, plan.products) + 1),
        Values(_some(plan, "quantity", ids, line, 2000) - 100),
        Values(_some(plan, "item", ids, line, 50_000_00)),
        Values(colour, _sometimes(plan, "options", ids, line)),
    ]


CUSTOMERS = Table(
    "customers",
    18,
    "CREATE TABLE shop.customers (id bigint unsigned NOT NULL, email varchar(120) NOT NULL, name varchar(80), country char(2)"
    " NOT NULL, tier enum('free','plus','pro') NOT NULL, interests set('books','music','games','garden'), birthday date,"
    " credit decimal(12,2) NOT NULL, active tinyint(1) NOT NULL, flags bit(5), created_at timestamp NOT NULL DEFAULT"
    " '2024-01-01 00:00:00', updated_at datetime(6), profile json, PRIMARY KEY (id)) DEFAULT CHARSET=utf8mb4",
    bytes.fromhex(
        "01000473686f700009637573746f6d657273000d080f0ffefefe0af601101112fc11e0014001fe08f701f8010c020500000604641a0101800203"
        "2d032e046002696405656d61696c046e616d6507636f756e747279047469657209696e74657265737473086269727468646179066372656469"
        "740661637469766505666c6167730a637265617465645f61740a757064617465645f61740770726f66696c650a012d051a0405626f6f6b7305"
        "6d757369630567616d65730667617264656e060f03046672656504706c75730370726f080100"
    ),
    (
        ("id", form.BIGINT_UNSIGNED),
        ("email", form.text(2)),
        ("name", form.text(2)),
        ("country", form.text(1)),
        ("tier", form.ENUM),
        ("interests", form.SET),
        ("birthday", form.DATE),
        ("credit", form.decimal(12)),
        ("active", form.TINYINT),
        ("flags", form.BIT),
        ("created_at", form.TIMESTAMP),
        ("updated_at", form.DATETIME6),
        ("profile", form.text(4)),
    ),
    ("id",),
    _customers,
)

PRODUCTS = Table(
    "products",
    22,
    "CREATE TABLE shop.products (id int unsigned NOT NULL, sku varbinary(16) NOT NULL, title varchar(120) NOT NULL,"
    " description text, price decimal(10,2) NOT NULL, weight float, rating double, stock int NOT NULL, shelf smallint, made"
    " year, thumb blob, changed_at timestamp(3) NULL, PRIMARY KEY (id)) DEFAULT CHARSET=utf8mb4",
    bytes.fromhex(
        "01000473686f70000870726f6475637473000c030f0ffcf6040503020dfc110b1000e001020a0204080203680f01018203043f2d2d3f044f0269"
        "6403736b75057469746c650b6465736372697074696f6e0570726963650677656967687406726174696e670573746f636b057368656c66046d"
        "616465057468756d620a6368616e6765645f6174080100"
    ),
    (
        ("id", form.INT_UNSIGNED),
        ("sku", form.binary(1)),
        ("title", form.text(2)),
        ("description", form.text(2)),
        ("price", form.decimal(10)),
        ("weight", form.FLOAT),
        ("rating", form.DOUBLE),
        ("stock", form.INT),
        ("shelf", form.SMALLINT),
        ("made", form.YEAR),
        ("thumb", form.binary(2)),
        ("changed_at", form.TIMESTAMP3),
    ),
    ("id",),
    _products,
)

_ORDER_COLUMNS = (
    ("id", form.BIGINT_UNSIGNED),
    ("customer_id", form.BIGINT_UNSIGNED),
    ("status", form.ENUM),
    ("total", form.decimal(12)),
    ("placed_at", form.DATETIME6),
    ("paid_at", form.DATETIME),
    ("delivery", form.DATE),
    ("slot", form.TIME),
    ("priority", form.TINYINT_UNSIGNED),
    ("points", form.MEDIUMINT),
)

ORDERS = Table(
    "orders",
    23,
    "CREATE TABLE shop.orders (id bigint unsigned NOT NULL, customer_id bigint unsigned NOT NULL, status"
    " enum('new','paid','shipped','cancelled') NOT NULL, total decimal(12,2) NOT NULL, placed_at datetime(6) NOT NULL, paid_at"
    " datetime, delivery date, slot time, priority tinyint unsigned NOT NULL, points mediumint, PRIMARY KEY (id)) DEFAULT"
    " CHARSET=utf8mb4",
    bytes.fromhex(
        "01000473686f7000066f7264657273000a0808fef612120a13010907f7010c02060000e0020101d0044c0269640b637573746f6d65725f6964"
        "0673746174757305746f74616c09706c616365645f617407706169645f61740864656c697665727904736c6f74087072696f7269747906706f"
        "696e74730a012d061c04036e6577047061696407736869707065640963616e63656c6c6564080100"
    ),
    _ORDER_COLUMNS,
    ("id",),
    _orders,
)

ORDERS_NOTED = Table(
    "orders",
    25,
    ALTER_ORDERS,
    bytes.fromhex(
        "01000473686f7000066f7264657273000b0808fef612120a1301090f09f7010c020600000001e0060101d002012d04510269640b637573746f"
        "6d65725f69640673746174757305746f74616c09706c616365645f617407706169645f61740864656c697665727904736c6f74087072696f72"
        "69747906706f696e7473046e6f74650a012d061c04036e6577047061696407736869707065640963616e63656c6c6564080100"
    ),
    (*_ORDER_COLUMNS, ("note", form.text(2))),
    ("id",),
    _orders_noted,
)

ORDER_ITEMS = Table(
    "order_items",
    24,
    "CREATE TABLE shop.order_items (order_id bigint unsigned NOT NULL, line smallint unsigned NOT NULL, product_id int unsigned"
    " NOT NULL, quantity mediumint NOT NULL, price decimal(10,2) NOT NULL, options json, PRIMARY KEY (order_id, line))"
    " DEFAULT CHARSET=utf8mb4",
    bytes.fromhex(
        "01000473686f70000b6f726465725f6974656d73000608020309f6fc030a0204200101e002012e0430086f726465725f6964046c696e650a70"
        "726f647563745f6964087175616e74697479057072696365076f7074696f6e7308020001"
    ),
    (
        ("order_id", form.BIGINT_UNSIGNED),
        ("line", form.SMALLINT_UNSIGNED),
        ("product_id", form.INT_UNSIGNED),
        ("quantity", form.MEDIUMINT),
        ("price", form.decimal(10)),
        ("options", form.text(4)),
    ),
    ("order_id", "line"),
    _items,
)


def item_keys(plan: Plan, orders: Ids) -> tuple[Ids, Ids, Ids]:
    """The lines of these orders: (order ids, lines, lines per order)."""
    counts = plan.items(orders)
    ends = np.cumsum(counts)
    line = np.arange(int(counts.sum()), dtype=np.int64) - np.repeat(ends - counts, counts) + 1
    return np.repeat(orders, counts), line, counts


__all__ = [
    "ALTER_ORDERS",
    "CREATE_DATABASE",
    "CUSTOMERS",
    "ORDERS",
    "ORDERS_NOTED",
    "ORDER_ITEMS",
    "PRODUCTS",
    "SCHEMA",
    "ByteColumn",
    "Table",
    "item_keys",
]
