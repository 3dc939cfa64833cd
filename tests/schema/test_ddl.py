"""DDL as servers log it → schemas, no change, or a refusal by name."""

from __future__ import annotations

import pytest

from penstock.errors import NotSupported
from penstock.schema.ddl import SchemaDrift, apply_ddl, is_ddl
from penstock.schema.model import Column, DdlType, TableSchema

KNOWN = TableSchema(
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


def lookup(schema: str, table: str) -> TableSchema | None:
    return KNOWN if (schema, table) == ("shop", "orders") else None


def apply(sql: str, default: str = "shop") -> list[TableSchema]:
    return apply_ddl(sql, default, 42, lookup)


def columns(sql: str) -> dict[str, Column]:
    (table,) = apply(sql)
    return {column.name: column for column in table.columns}


def types(sql: str) -> list[str]:
    return [column.mysql_type for column in columns(f"create table x ({sql})").values()]


def test_create_table() -> None:
    sql = """CREATE TABLE `t` (
      `id` int(11) NOT NULL AUTO_INCREMENT COMMENT 'a, (b) ''c''',
      `Name` varchar(64) CHARACTER SET latin1 COLLATE latin1_bin NOT NULL DEFAULT 'x',
      `b` bigint(20) unsigned DEFAULT NULL,
      `d` decimal(10,2) NOT NULL DEFAULT -1.50,
      `e` enum('a','B''x') DEFAULT 'a',
      `ts` timestamp(3) NOT NULL DEFAULT current_timestamp(3) ON UPDATE current_timestamp(3),
      `g` int GENERATED ALWAYS AS (`id` + 1) STORED,
      PRIMARY KEY (`id`,`Name`(10)) USING BTREE,
      UNIQUE KEY `u` (`b`), KEY `k` (`e`), CONSTRAINT `f` FOREIGN KEY (`b`) REFERENCES `o` (`id`) ON DELETE CASCADE,
      CHECK (`b` > 0)
    ) ENGINE=InnoDB AUTO_INCREMENT=5 DEFAULT CHARSET=utf8 COLLATE=utf8_bin COMMENT='CHARSET=big5' /*!50100 PARTITION BY HASH (id) */"""
    (table,) = apply(sql)
    assert (table.schema, table.table, table.version, table.ddl_type) == ("shop", "t", 42, DdlType.CREATE_TABLE)
    assert table.query == sql and table.charset == "utf8mb3"
    found = {c.name: c for c in table.columns}
    assert list(found) == ["id", "Name", "b", "d", "e", "ts", "g"]
    assert found["id"] == Column("id", "int(11)", nullable=False, primary_key=True)
    assert found["Name"] == Column("Name", "varchar(64)", False, True, "latin1", default="x")
    assert found["b"].mysql_type == "bigint(20) unsigned" and found["b"].unsigned and found["b"].default is None
    assert found["d"].arguments == (10, 2) and found["d"].default == "-1.50"
    assert found["e"] == Column("e", "enum('a','B''x')", charset="utf8mb3", elements=("a", "B'x"), default="a")
    assert found["ts"].mysql_type == "timestamp(3)" and found["ts"].default == "current_timestamp(3)"
    assert table.primary_key == (0, 1)


def test_spellings() -> None:
    assert types("a INTEGER(5) UNSIGNED ZEROFILL, b BOOL, c DEC, d NUMERIC(5), e DOUBLE PRECISION, f REAL") == [
        "int(5) unsigned zerofill", "tinyint(1)", "decimal(10,0)", "decimal(5,0)", "double", "double",
    ]  # fmt: skip
    assert types("a FLOAT(10), b FLOAT(30), c FLOAT(7,3), d BIT, e CHAR, f BINARY, g YEAR(4), h DATETIME(0)") == [
        "float", "double", "float(7,3)", "bit(1)", "char(1)", "binary(1)", "year(4)", "datetime",
    ]  # fmt: skip
    assert types("a SERIAL, b LONG, c LONG VARBINARY, d CHARACTER VARYING(5), e NATIONAL VARCHAR(9), f JSON, g POINT") == [
        "bigint unsigned", "mediumtext", "mediumblob", "varchar(5)", "varchar(9)", "json", "point",
    ]  # fmt: skip
    assert types("a TEXT(10), b TEXT(100), c BLOB(70000), d CHAR(5) CHARSET binary, e TEXT CHARACTER SET binary") == [
        "tinytext", "text", "mediumblob", "binary(5)", "blob",
    ]  # fmt: skip
    found = columns("create table x (a char(3) ascii, b text collate utf8mb4_bin, c nchar(3), d int, e varchar(9))")
    assert [c.charset for c in found.values()] == ["latin1", "utf8mb4", "utf8mb3", None, "utf8mb4"]


def test_where_the_table_is() -> None:
    assert apply("create table other.t (a int)")[0].name == "other.t"
    assert apply("CREATE TABLE IF NOT EXISTS `we``ird 表` (`co l` int primary key)")[0].table == "we`ird 表"
    assert apply("create /* c */ table -- d\n t (a int) # e")[0].name == "shop.t"
    assert apply("create or replace table orders (a int)")[0].columns == (Column("a", "int"),)
    assert apply("create table if not exists orders (a int)") == []
    like = apply("create table copy like orders")[0]
    assert like.columns == KNOWN.columns and like.table == "copy" and like.ddl_type is DdlType.CREATE_TABLE


def test_alter_adds_and_drops() -> None:
    def names(sql: str) -> list[str]:
        return list(columns(sql))

    assert names("alter table orders add column w int default 5") == ["id", "v", "n", "w"]
    assert names("alter table shop.orders add z bigint first, drop column v") == ["z", "id", "n"]
    assert names("ALTER TABLE orders ADD (a INT, b VARCHAR(3) NOT NULL), ADD INDEX (a)") == ["id", "v", "n", "a", "b"]
    assert names("alter online ignore table orders add column if not exists x int after `id`, algorithm=instant") == [
        "id",
        "x",
        "v",
        "n",
    ]
    assert names("alter table orders drop N, add column n text after id") == ["id", "n", "v"]
    assert names("alter table orders drop if exists nope, drop column if exists v") == ["id", "n"]
    added = columns("alter table orders add c char(3)")["c"]
    assert added.charset == "latin1"  # the table's default
    (table,) = apply("alter table orders drop v")
    assert table.ddl_type is DdlType.DROP_COLUMN and table.version == 42 and table.charset == "latin1"
    assert apply("alter table orders add a int, drop v")[0].ddl_type is DdlType.ADD_COLUMN
    assert apply("alter table orders add column if not exists v int") == []


def test_drop_and_databases() -> None:
    (gone,) = apply("DROP TABLE IF EXISTS `shop`.`orders`,`unknown` /* generated by server */")
    assert gone.dropped and gone.columns == () and gone.name == "shop.orders"
    assert apply("drop temporary table orders") == []
    (made,) = apply("create database if not exists t2 default character set latin1")
    assert (made.schema, made.table, made.ddl_type) == ("t2", "", DdlType.CREATE_SCHEMA)
    assert apply("drop schema t2")[0].ddl_type is DdlType.DROP_SCHEMA


@pytest.mark.parametrize(
    "sql",
    [
        "create index i on orders (v)",
        "create unique index i on orders (v)",
        "alter table orders add index (v), add unique key k (n), drop index x, drop foreign key y, drop constraint z",
        "alter table orders add constraint c foreign key (n) references b (id), add constraint check (n > 0)",
        "alter table orders engine=innodb comment 'modify column' row_format=dynamic",
        "alter table orders alter column n set default 5, rename index a to b, force",
        "alter table orders add partition (partition p1 values less than (10))",
        "alter table unknown modify a int",
        "rename table unknown to other",
        "truncate table unknown",
        "create user 'u'@'localhost'",
        "grant all on *.* to 'u'@'%'",
        "flush tables",
        "analyze table orders",
        "CREATE ALGORITHM=UNDEFINED DEFINER=`root`@`localhost` SQL SECURITY DEFINER VIEW `v` AS select 1",
        "CREATE DEFINER=`root`@`localhost` TRIGGER t BEFORE INSERT ON orders FOR EACH ROW SET NEW.v = 'alter table'",
        "create temporary table orders (a int)",
        "create table mysql.x (a int)",
        "drop view v",
        "",
        "/* nothing */",
    ],
)
def test_no_change(sql: str) -> None:
    assert apply(sql) == []


@pytest.mark.parametrize(
    ("sql", "says"),
    [
        ("rename table orders to o2", "RENAME TABLE of shop.orders"),
        ("rename table x to y, shop.orders to z", "RENAME TABLE of shop.orders"),
        ("truncate orders", "TRUNCATE TABLE"),
        ("alter table orders modify v text", "MODIFY"),
        ("alter table orders add a int, change v w text", "CHANGE"),
        ("alter table orders rename column v to w", "RENAME COLUMN"),
        ("alter table orders rename to o2", "RENAME"),
        ("alter table orders convert to character set utf8mb4", "CONVERT"),
        ("alter table orders drop primary key", "DROP PRIMARY KEY"),
        ("alter table orders add primary key (n)", "ADD PRIMARY KEY"),
        ("alter table orders add constraint c primary key (n)", "ADD PRIMARY KEY"),
        ("alter table orders drop partition p0", "PARTITION"),
        ("alter table orders truncate partition p0", "PARTITION"),
        ("alter table orders add system versioning", "VERSIONING"),
        ("create table t as select 1", "SELECT"),
        ("create table t (a int) select 1", "SELECT"),
        ("create table t like unknown", "unknown"),
        ("create sequence s", "SEQUENCE"),
        ("create table t (a int", "cannot read"),
        ("create table t (a int default 'x", "quote"),
        ("create table t (, a int)", "cannot read"),
    ],
)
def test_refused_by_name(sql: str, says: str) -> None:
    with pytest.raises(NotSupported, match=says):
        apply(sql)


def test_drift_is_told() -> None:
    for sql in (
        "alter table orders add v int",
        "alter table orders drop nope",
        "alter table orders add a int after nope",
    ):
        with pytest.raises(SchemaDrift, match=r"shop\.orders"):
            apply(sql)


def test_is_ddl() -> None:
    assert is_ddl("  /* hint */ CREATE TABLE t (a int)")
    assert is_ddl("/*!40000 ALTER TABLE t DISABLE KEYS */")
    for sql in ("BEGIN", "COMMIT", "insert into t values ('create')", "SAVEPOINT s", "XA COMMIT X'61'", ""):
        assert not is_ddl(sql)


def test_json_round_trip() -> None:
    (table,) = apply("create table t (a enum('x','y'), b varchar(3) character set latin1 primary key)")
    assert TableSchema.from_json(table.to_json()) == table
