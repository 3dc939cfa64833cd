"""Each table of a DDL gets a statement of its own, which means the same in a session that knows nothing of the source's."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.schema.catalog import Catalog
from penstock.schema.ddl import Statement
from penstock.schema.ddl.tokens import SqlMode
from penstock.schema.forwarding import without_statement
from penstock.schema.model import Column, DdlType, TableSchema
from penstock.schema.statements import alter_table, create_table, groups_of, rename_tables
from tests.schema.ddl.shop import ORDERS, table
from tests.schema.mirror import Mirror, forward, types_of

T = DdlType


def mirror(*tables: TableSchema) -> Mirror:
    return Mirror(Catalog([ORDERS, *tables]))


def given(sql: str, *tables: TableSchema, schema: str = "shop", sql_mode: int = 0) -> list[tuple[str, DdlType, str]]:
    return types_of(mirror(*tables).follow(Statement(sql, schema, sql_mode)))


def test_statements_are_qualified_and_keep_what_the_model_does_not_have() -> None:
    assert given("create table if not exists a (id int, key k (id)) partition by hash(id) partitions 4 -- x") == [
        ("shop.a", T.CREATE_TABLE, "CREATE TABLE IF NOT EXISTS `shop`.`a` (id int, key k (id)) DEFAULT CHARACTER SET utf8mb4 partition by hash(id) partitions 4")
    ]  # fmt: skip
    assert given("ALTER IGNORE TABLE orders ADD x datetime DEFAULT now(), ADD INDEX i (v)") == [
        ("shop.orders", T.ADD_COLUMN, "ALTER IGNORE TABLE `shop`.`orders` ADD x datetime DEFAULT now(), ADD INDEX i (v)")
    ]  # fmt: skip
    assert given("/*!50100 ALTER TABLE orders /*!50200 DROP n */ */") == [
        ("shop.orders", T.DROP_COLUMN, "ALTER TABLE `shop`.`orders` DROP n")
    ]
    assert given("CREATE TABLE b (x text) CHARSET latin1 START TRANSACTION") == [
        ("shop.b", T.CREATE_TABLE, "CREATE TABLE `shop`.`b` (x text) CHARSET latin1")
    ]


def test_a_session_reads_quotes_in_its_own_way() -> None:
    ansi, raw = int(SqlMode.ANSI_QUOTES), int(SqlMode.NO_BACKSLASH_ESCAPES)
    assert given('ALTER TABLE "orders" DROP "v"', sql_mode=ansi) == [
        ("shop.orders", T.DROP_COLUMN, "ALTER TABLE `shop`.`orders` DROP `v`")
    ]
    found = given(
        r"""ALTER TABLE orders ADD x varchar(9) DEFAULT 'a\n"', ADD y char(2) DEFAULT "it's" """, sql_mode=raw
    )
    assert found[0][2] == (
        r"""ALTER TABLE `shop`.`orders` ADD x varchar(9) DEFAULT 'a\\n"', ADD y char(2) DEFAULT 'it''s'"""
    )
    found = given(r"""ALTER TABLE orders ADD x varchar(9) DEFAULT 'a\\\'' 'b', ADD `y``z` bit(2) DEFAULT b'10'""")
    assert found[0][2].endswith(r"""DEFAULT 'a\\''' 'b', ADD `y``z` bit(2) DEFAULT b'10'""")


def test_a_string_that_is_too_long_is_asked_for_as_the_text_that_it_became() -> None:
    """A session without strict mode got it; a reader whose session is strict would be refused."""
    assert given(
        "CREATE TABLE a (v VARCHAR(70000) NOT NULL, b VARBINARY(66000), n NATIONAL VARCHAR (30000) COMMENT 'x', "
        "c CHARACTER VARYING(70000) CHARACTER SET binary, ok VARCHAR(9), KEY (v(9)))"
    )[0][2] == (
        "CREATE TABLE `shop`.`a` (v mediumtext NOT NULL, b mediumblob, n mediumtext CHARACTER SET utf8mb3 COMMENT 'x', "
        "c mediumtext CHARACTER SET binary, ok VARCHAR(9), KEY (v(9))) DEFAULT CHARACTER SET utf8mb4"
    )
    assert given(
        "ALTER TABLE orders ADD (x varchar(70000), INDEX (x(3))), MODIFY n varchar(70000) AFTER id, CHANGE v w varchar(66000) NOT NULL"
    )[0][2] == (
        "ALTER TABLE `shop`.`orders` ADD (x mediumtext, INDEX (x(3))), MODIFY n mediumtext AFTER id, "
        "CHANGE v w mediumtext NOT NULL"
    )
    wide = Column("v", "varchar(20000)", nullable=False, charset="latin1", default="x")
    big = TableSchema("shop", "big", 1, (wide, replace(wide, name="w")), charset="latin1")
    assert given("ALTER TABLE big CONVERT TO CHARACTER SET utf8mb4, MODIFY w varchar(9)", big)[0][2] == (
        "ALTER TABLE `shop`.`big` CONVERT TO CHARACTER SET utf8mb4, MODIFY w varchar(9), "
        "MODIFY COLUMN `v` mediumtext CHARACTER SET utf8mb4 NOT NULL DEFAULT 'x'"
    )


def test_what_a_session_decides_is_said() -> None:
    assert given("CREATE TABLE d.a (id int, FOREIGN KEY (id) REFERENCES orders (id), x int REFERENCES other.`t` (id))")[
        0
    ][2] == (
        "CREATE TABLE `d`.`a` (id int, FOREIGN KEY (id) REFERENCES `d`.`orders` (id), x int REFERENCES other.`t` (id)) "
        "DEFAULT CHARACTER SET utf8mb4"
    )
    assert given("ALTER TABLE orders ADD CONSTRAINT c FOREIGN KEY (n) REFERENCES `b` (id) ON DELETE SET NULL")[0][
        2
    ] == ("ALTER TABLE `shop`.`orders` ADD CONSTRAINT c FOREIGN KEY (n) REFERENCES `shop`.`b` (id) ON DELETE SET NULL")
    assert given("ALTER TABLE orders CONVERT TO CHARACTER SET DEFAULT")[0][2].endswith("TO CHARACTER SET utf8mb4")
    assert given("CREATE TABLE a (v text DEFAULT 'x') CHARSET = DEFAULT")[0][2].endswith(
        "DEFAULT 'x') CHARSET = utf8mb4"
    )


def test_how_the_source_had_to_do_it_is_not_forwarded() -> None:
    """A server that cannot do it at once would refuse the whole statement."""
    assert given("ALTER ONLINE TABLE orders ALGORITHM=INSTANT, ADD algorithm int FIRST, LOCK NONE")[0][2] == (
        "ALTER TABLE `shop`.`orders` ADD algorithm int FIRST"
    )
    assert given("CREATE ONLINE UNIQUE INDEX i ON orders (`lock`, v(3)) COMMENT 'x' ALGORITHM INPLACE LOCK = NONE")[0][
        2
    ] == ("CREATE UNIQUE INDEX i ON `shop`.`orders` (`lock`, v(3)) COMMENT 'x'")
    assert given("DROP INDEX i ON orders LOCK=NONE ALGORITHM=COPY")[0][2] == "DROP INDEX i ON `shop`.`orders`"


def test_a_redefinition_is_forwarded_though_the_columns_stay() -> None:
    """It may take AUTO_INCREMENT away, which a later DROP PRIMARY KEY needs."""
    assert given("ALTER TABLE orders MODIFY id int(11) NOT NULL") == [
        ("shop.orders", T.MODIFY_COLUMN, "ALTER TABLE `shop`.`orders` MODIFY id int(11) NOT NULL")
    ]
    assert given("ALTER TABLE orders CHANGE id id int(11) NOT NULL")[0][1] is T.MODIFY_COLUMN


@pytest.mark.parametrize(
    "clause", ["COLLATE latin1_bin", "CONVERT TO CHARACTER SET latin1 COLLATE latin1_bin", "DEFAULT CHARSET = latin1"]
)
def test_another_collation_is_forwarded(clause: str) -> None:
    """It decides which rows have the same key: without it a reader's REPLACE of 'A' would take 'a' away."""
    (found,) = given(f"ALTER TABLE orders {clause}")
    assert found[1:] == (T.MODIFY_TABLE_CHARSET, f"ALTER TABLE `shop`.`orders` {clause}")


def test_a_drop_of_several_tables_is_several_statements() -> None:
    assert given("DROP TABLE orders, other.u", table("u", schema="other")) == [
        ("other.u", T.DROP_TABLE, "DROP TABLE IF EXISTS `other`.`u`"),
        ("shop.orders", T.DROP_TABLE, "DROP TABLE IF EXISTS `shop`.`orders`"),
    ]
    assert given("truncate orders") == [("shop.orders", T.TRUNCATE_TABLE, "TRUNCATE TABLE `shop`.`orders`")]


def test_a_copy_of_another_table() -> None:
    assert given("CREATE OR REPLACE TABLE d.t4 (LIKE orders)") == [
        ("d.t4", T.CREATE_TABLE, "CREATE OR REPLACE TABLE `d`.`t4` LIKE `shop`.`orders`")
    ]
    (found,) = forward(
        Statement("CREATE TABLE d.t4 LIKE orders", "shop"), Catalog([ORDERS]), wanted=lambda schema, _t: schema == "d"
    )
    assert found.query == (
        "CREATE TABLE IF NOT EXISTS `d`.`t4` (`id` int(11) NOT NULL, `v` varchar(20) CHARACTER SET latin1 NULL, "
        "`n` int NULL, PRIMARY KEY (`id`)) DEFAULT CHARACTER SET latin1"
    )


def test_a_rename_is_with_the_new_name() -> None:
    assert given("RENAME TABLE orders TO d.o") == [
        ("d.o", T.RENAME_TABLE, "RENAME TABLE `shop`.`orders` TO `d`.`o`"),
        ("shop.orders", T.RENAME_TABLE, ""),
    ]
    assert given("ALTER TABLE orders RENAME d.o")[0] == (
        "d.o",
        T.RENAME_TABLE,
        "RENAME TABLE `shop`.`orders` TO `d`.`o`",
    )
    assert given("ALTER TABLE orders RENAME TO o, ADD x int") == [
        ("shop.o", T.MODIFY_COLUMN, "ALTER TABLE `shop`.`orders` RENAME TO `shop`.`o`, ADD x int"),
        ("shop.orders", T.RENAME_TABLE, ""),
    ]


def test_names_that_are_traded_are_one_statement() -> None:
    """As online schema changes do it."""
    new = table("_orders_gho", "id", "more")
    assert given("RENAME TABLE orders TO _orders_del, _orders_gho TO orders", new) == [
        (
            "shop._orders_del",
            T.RENAME_TABLE,
            "RENAME TABLE `shop`.`orders` TO `shop`.`_orders_del`, `shop`.`_orders_gho` TO `shop`.`orders`",
        ),
        ("shop.orders", T.NONE, ""),
        ("shop._orders_gho", T.RENAME_TABLE, ""),
    ]
    swap = given("RENAME TABLE orders TO x, b TO orders, x TO b", table("b", "z"))
    assert swap[0] == (
        "shop.b",
        T.RENAME_TABLE,
        "RENAME TABLE `shop`.`b` TO `shop`.`_penstock_42`, `shop`.`orders` TO `shop`.`b`, "
        "`shop`.`_penstock_42` TO `shop`.`orders`",
    )
    apart = given("RENAME TABLE orders TO o2, b TO b2", table("b"))
    assert [query for _, _, query in apart if query] == [
        "RENAME TABLE `shop`.`b` TO `shop`.`b2`",
        "RENAME TABLE `shop`.`orders` TO `shop`.`o2`",
    ]


def test_a_table_that_leaves_or_enters_what_the_sink_takes() -> None:
    def shop(schema: str, _table: str) -> bool:
        return schema == "shop"

    statement = Statement("RENAME TABLE orders TO old.orders, new.orders TO orders", "shop")
    found = forward(statement, Catalog([ORDERS, table("orders", "z", schema="new")]), wanted=shop)
    # Readers have the old one by that name: IF NOT EXISTS would leave it, and rows of the new one would not fit.
    assert types_of(found) == [
        ("shop.orders", T.CREATE_TABLE, "CREATE OR REPLACE TABLE `shop`.`orders` (`z` int NULL)")
    ]
    found = forward(Statement("RENAME TABLE new.z TO z", "shop"), Catalog([table("z", "z", schema="new")]), wanted=shop)
    assert types_of(found) == [("shop.z", T.CREATE_TABLE, "CREATE TABLE IF NOT EXISTS `shop`.`z` (`z` int NULL)")]
    found = forward(Statement("RENAME TABLE orders TO old.orders", "shop"), Catalog([ORDERS]), wanted=shop)
    assert types_of(found) == [("shop.orders", T.DROP_TABLE, "DROP TABLE IF EXISTS `shop`.`orders`")]


def test_a_table_that_enters_over_one_that_the_sink_keeps_under_another_name_replaces_nothing() -> None:
    """The two names have a statement each, which readers run in any order: the rows of the old table are there in all."""

    def shop(schema: str, _table: str) -> bool:
        return schema == "shop"

    for old in ("orders_old", "a"):  # after the name that is taken, and before it
        statement = Statement(f"RENAME TABLE orders TO {old}, new.orders TO orders", "shop")
        found = forward(statement, Catalog([ORDERS, table("orders", "z", schema="new")]), wanted=shop)
        assert sorted(types_of(found)) == sorted(
            [
                ("shop.orders", T.CREATE_TABLE, "CREATE TABLE IF NOT EXISTS `shop`.`orders` (`z` int NULL)"),
                (f"shop.{old}", T.RENAME_TABLE, f"RENAME TABLE `shop`.`orders` TO `shop`.`{old}`"),
            ]
        )


def test_an_exchange_has_one_statement_for_both() -> None:
    sql = "ALTER TABLE orders EXCHANGE PARTITION p0 WITH TABLE b WITHOUT VALIDATION"
    assert given(sql, table("b")) == [
        ("shop.orders", T.EXCHANGE_PARTITION, "ALTER TABLE `shop`.`orders` EXCHANGE PARTITION p0 WITH TABLE `shop`.`b` WITHOUT VALIDATION"),
        ("shop.b", T.EXCHANGE_PARTITION, ""),
    ]  # fmt: skip
    both = Catalog([ORDERS, table("b")])
    for only in ("orders", "b"):
        (found,) = forward(Statement(sql, "shop"), both, wanted=lambda _s, t, only=only: t == only)  # type: ignore[misc]
        assert found.parked and found.columns and "this sink does not have" in found.reason


def test_partitions_go_with_their_rows() -> None:
    assert given("ALTER TABLE orders DROP PARTITION p0, p1")[0][1:] == (
        T.DROP_PARTITION,
        "ALTER TABLE `shop`.`orders` DROP PARTITION p0, p1",
    )
    assert given("ALTER TABLE orders TRUNCATE PARTITION ALL")[0][1] is T.TRUNCATE_PARTITION


def test_databases() -> None:
    assert given("CREATE DATABASE x COLLATE latin1_bin") == [
        ("x.", T.CREATE_SCHEMA, "CREATE DATABASE IF NOT EXISTS `x` CHARACTER SET latin1")
    ]
    assert given("ALTER DATABASE CHARACTER SET latin1") == [
        ("shop.", T.MODIFY_SCHEMA_CHARSET, "ALTER DATABASE `shop` CHARACTER SET latin1")
    ]
    assert given("DROP DATABASE shop") == [("shop.", T.DROP_SCHEMA, "DROP DATABASE IF EXISTS `shop`")]


def test_another_dialect_is_made_from_the_columns() -> None:
    oracle = int(SqlMode.ORACLE)
    assert given("CREATE TABLE o (a DATE, b VARCHAR2(3))", sql_mode=oracle)[0][2] == (
        "CREATE TABLE IF NOT EXISTS `shop`.`o` (`a` datetime NULL, `b` varchar(3) CHARACTER SET utf8mb4 NULL) "
        "DEFAULT CHARACTER SET utf8mb4"
    )
    assert given("ALTER TABLE orders ADD d DATE FIRST, MODIFY n bigint", sql_mode=oracle)[0][2] == (
        "ALTER TABLE `shop`.`orders` ADD COLUMN `d` datetime NULL FIRST, MODIFY COLUMN `n` bigint NULL"
    )
    (found,) = forward(
        Statement("ALTER TABLE orders CHANGE v w DATE", "shop", sql_mode=oracle), Catalog([ORDERS])
    )  # whether it was renamed or replaced cannot be told from the columns
    assert found.parked and found.columns


def test_a_table_that_no_statement_made() -> None:
    first = without_statement(ORDERS, first=True)
    assert first.ddl_type is T.CREATE_TABLE and first.query == create_table(ORDERS)
    later = without_statement(ORDERS, first=False)
    assert (later.ddl_type, later.query) == (T.NONE, "")


@pytest.mark.parametrize(
    ("kind", "default", "text"),
    [
        ("int", "5", "5"),
        ("bit(3)", "b'101'", "b'101'"),
        ("varchar(9)", "5", "'5'"),
        ("varchar(9)", "it's \\", "'it''s \\\\'"),
        ("datetime", "NOW()", "NOW()"),
        ("datetime(3)", "current_timestamp(3)", "current_timestamp(3)"),
        ("datetime", "2020-01-01", "'2020-01-01'"),
        ("varchar(40)", "uuid()", "(uuid())"),
        ("varchar(40)", "(none)", "'(none)'"),
        ("varchar(40)", "(uuid())", "(uuid())"),
        ("enum('a''b','\\')", "a'b", "'a''b'"),
    ],
)
def test_defaults(kind: str, default: str, text: str) -> None:
    computed = text == "(uuid())"
    made = create_table(TableSchema("s", "t", 1, (Column("c", kind, default=default, computed=computed),)))
    assert made == f"CREATE TABLE IF NOT EXISTS `s`.`t` (`c` {kind.replace(chr(92), chr(92) * 2)} NULL DEFAULT {text})"


def test_the_columns_of_one_shape_from_those_of_another() -> None:
    before = TableSchema("s", "t", 1, tuple(Column(c, "int", nullable=c != "a", primary_key=c == "a") for c in "abcd"))
    columns = (
        Column("d", "int"),
        Column("n", "text", charset="latin1"),
        Column("a", "bigint"),
        Column("b", "int", nullable=False, primary_key=True),
    )
    after = TableSchema("s", "t", 2, columns)
    made = alter_table(before, after)
    assert made is not None
    reader = Mirror(Catalog([before]))
    reader.source.take(after)
    reader.take([TableSchema("s", "t", 2, (), made, T.MODIFY_COLUMN)])
    assert alter_table(before, before) is None


def test_groups_and_circles() -> None:
    a, b, c, d, e = (("s", name) for name in "abcde")
    assert groups_of({a: b, c: d}) == [{a: b}, {c: d}]
    assert groups_of({a: b, b: c, d: e}) == [{a: b, b: c}, {d: e}] or len(groups_of({a: b, b: c, d: e})) == 2
    assert rename_tables({a: b, b: c, c: a}, 7).startswith("RENAME TABLE `s`.`a` TO `s`.`_penstock_7`, ")
