"""Names that move from table to table: RENAME, swaps, online schema changes."""

from __future__ import annotations

from penstock.schema.catalog import Catalog
from penstock.schema.ddl import Statement, apply_ddl
from penstock.schema.model import ChangeKind, TableSchema
from tests.schema.ddl.shop import ORDERS, apply, names, table


def moved(made: list[TableSchema]) -> dict[str, tuple[list[str], str]]:
    """Name → columns that it has now, and the other name."""
    assert all(one.kind is ChangeKind.RENAME and one.version == 42 for one in made)
    return {one.name: (names(one), one.other) for one in made}


def test_one_table() -> None:
    assert moved(apply("RENAME TABLE orders TO o2")) == {
        "shop.o2": (["id", "v", "n"], "shop.orders"), "shop.orders": ([], "shop.o2"),
    }  # fmt: skip
    assert moved(apply("rename tables if exists x to y, `shop`.`orders` wait 5 to b.orders")) == {
        "b.orders": (["id", "v", "n"], "shop.orders"), "shop.orders": ([], "b.orders"),
    }  # fmt: skip
    for clause in ("rename to o2", "rename as o2", "rename o2", "rename = o2"):
        assert set(moved(apply(f"alter table orders {clause}"))) == {"shop.o2", "shop.orders"}
    made = moved(apply("alter table orders rename b.o2, add w int, drop v"))
    assert made["b.o2"] == (["id", "n", "w"], "shop.orders")


def test_swaps_from_left_to_right() -> None:
    other = table("other", "a")
    swapped = {"shop.orders": (["a"], "shop.other"), "shop.other": (["id", "v", "n"], "shop.orders")}
    assert moved(apply("RENAME TABLE orders TO tmp, other TO orders, tmp TO other", other)) == swapped
    assert apply("RENAME TABLE orders TO tmp, tmp TO orders") == []
    assert apply("ALTER TABLE orders RENAME TO orders") == []
    assert names(apply("ALTER TABLE orders RENAME TO orders, DROP v")[0]) == ["id", "n"]
    chain = moved(apply("RENAME TABLE orders TO a, a TO b"))
    assert chain["shop.b"] == (["id", "v", "n"], "shop.orders") and chain["shop.orders"][0] == []
    assert set(chain) == {"shop.b", "shop.orders"}


def test_a_name_that_gets_a_table_nobody_knows() -> None:
    """Its next table map tells the shape; the old one must not be used."""
    made = moved(apply("RENAME TABLE orders TO old, other_db.x TO orders"))
    assert made["shop.old"] == (["id", "v", "n"], "shop.orders") and made["shop.orders"] == ([], "shop.old")
    assert apply("RENAME TABLE x TO y") == []


def test_parked_tables_stay_parked_under_their_new_name() -> None:
    (stuck,) = apply("ALTER TABLE orders FROBNICATE")
    catalog = Catalog([ORDERS])
    catalog.take(stuck)
    made = {m.name: m for m in apply_ddl(Statement("RENAME TABLE orders TO o2", "shop"), catalog, 43)}
    assert made["shop.o2"].parked and "FROBNICATE" in made["shop.o2"].reason and made["shop.orders"].dropped
    (kept,) = apply_ddl(Statement("ALTER TABLE orders ADD x INT", "shop"), catalog, 43)
    assert kept.parked and kept.name == "shop.orders"
    moved = {m.name: m for m in apply_ddl(Statement("ALTER TABLE orders ADD x INT, RENAME o3", "shop"), catalog, 43)}
    assert moved["shop.o3"].parked and moved["shop.o3"].other == "shop.orders" and moved["shop.orders"].dropped
    (gone,) = apply_ddl(Statement("DROP TABLE orders", "shop"), catalog, 43)
    assert gone.dropped


def follow(*statements: str) -> Catalog:
    catalog = Catalog([ORDERS])
    for number, sql in enumerate(statements, 2):
        for made in apply_ddl(Statement(sql, "shop"), catalog, number):
            assert not made.parked, made.reason
            catalog.take(made)
    return catalog


def columns(catalog: Catalog, name: str) -> list[str] | None:
    found = catalog.find("shop", name)
    return names(found) if found else None


def test_gh_ost() -> None:
    catalog = follow(
        "create /* gh-ost */ table `shop`.`_orders_ghc` (id bigint unsigned auto_increment, last_update timestamp not null "
        "DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP, hint varchar(64) charset ascii not null, value "
        "varchar(4096) charset ascii not null, primary key(id), unique key hint_uidx(hint)) auto_increment=256",
        "create /* gh-ost */ table `shop`.`_orders_gho` like `shop`.`orders`",
        "alter /* gh-ost */ table `shop`.`_orders_gho` add column note varchar(200) after id, drop column n",
        "create /* gh-ost */ table `shop`.`_orders_del` (id int auto_increment primary key) engine=InnoDB "
        "comment='ghost-cut-over-sentry'",
        "drop /* gh-ost */ table if exists `shop`.`_orders_del`",
        "rename /* gh-ost */ table `shop`.`orders` to `shop`.`_orders_del`, `shop`.`_orders_gho` to `shop`.`orders`",
        "drop /* gh-ost */ table if exists `shop`.`_orders_ghc`",
    )
    assert columns(catalog, "orders") == ["id", "note", "v"]
    assert columns(catalog, "_orders_del") == ["id", "v", "n"]
    assert columns(catalog, "_orders_gho") is None and columns(catalog, "_orders_ghc") is None


def test_pt_online_schema_change() -> None:
    catalog = follow(
        "CREATE TABLE `shop`.`_orders_new` (\n  `id` int(11) NOT NULL,\n  `v` varchar(20) DEFAULT NULL,\n  `n` int(11)"
        " DEFAULT NULL,\n  PRIMARY KEY (`id`)\n) ENGINE=InnoDB DEFAULT CHARSET=latin1",
        "ALTER TABLE `shop`.`_orders_new` modify n bigint, add w json",
        "CREATE TRIGGER `pt_osc_shop_orders_del` AFTER DELETE ON `shop`.`orders` FOR EACH ROW BEGIN DECLARE CONTINUE "
        "HANDLER FOR 1146 begin end; DELETE IGNORE FROM `shop`.`_orders_new` WHERE `shop`.`_orders_new`.`id` <=> OLD.`id`; END",
        "RENAME TABLE `shop`.`orders` TO `shop`.`_orders_old`, `shop`.`_orders_new` TO `shop`.`orders`",
        "DROP TABLE IF EXISTS `shop`.`_orders_old`",
        "DROP TRIGGER IF EXISTS `shop`.`pt_osc_shop_orders_del`",
    )
    assert columns(catalog, "orders") == ["id", "v", "n", "w"]
    assert columns(catalog, "_orders_old") is None and columns(catalog, "_orders_new") is None


def test_a_table_that_is_not_there_is_passed_over() -> None:
    """MariaDB: RENAME TABLE IF EXISTS. What has the new name already stays."""
    assert apply("RENAME TABLE IF EXISTS nope TO orders") == []
    assert apply("ALTER TABLE IF EXISTS nope RENAME TO orders") == []
    made = {m.name: m for m in apply("RENAME TABLE IF EXISTS nope TO x, orders TO o2, nope TO orders")}
    assert made["shop.o2"].columns and made["shop.orders"].dropped
