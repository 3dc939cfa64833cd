"""ALTER TABLE: every clause that changes columns, keys, charsets or names."""

from __future__ import annotations

import pytest

from penstock.schema.model import ChangeKind, Column, DdlType, TableSchema
from tests.schema.ddl.shop import ORDERS, altered, apply, key, names, table, types


def test_add_and_drop() -> None:
    assert names(altered("add column w int default 5")) == ["id", "v", "n", "w"]
    assert names(altered("add z bigint first, drop column v")) == ["z", "id", "n"]
    assert names(altered("ADD (a INT, b VARCHAR(3) NOT NULL), ADD INDEX (a)")) == ["id", "v", "n", "a", "b"]
    assert names(altered("add column if not exists x int after `id`, algorithm=instant")) == ["id", "x", "v", "n"]
    assert names(altered("drop N, add column n text after id")) == ["id", "n", "v"]
    assert names(altered("add column n text after id, drop n")) == ["id", "n", "v"]
    assert names(altered("drop if exists nope, drop column if exists v")) == ["id", "n"]
    assert altered("add c char(3)").columns[-1].charset == "latin1"  # the table's default
    made = altered("drop v")
    assert (made.ddl_type, made.kind, made.version, made.charset) == (
        DdlType.DROP_COLUMN, ChangeKind.ALTER, 42, "latin1",
    )  # fmt: skip
    assert altered("add a int, drop v").ddl_type is DdlType.ADD_COLUMN
    assert apply("alter table orders add column if not exists v int") == []
    assert names(altered("add a int, add b int after a, add c int first")) == ["c", "id", "v", "n", "a", "b"]
    assert names(apply("alter online ignore table shop.orders wait 5 add x int")[0])[-1] == "x"


def test_modify_and_change() -> None:
    made = altered("MODIFY v text CHARACTER SET utf8mb4 NOT NULL")
    assert made.columns[1] == Column("v", "text", nullable=False, charset="utf8mb4")
    assert made.ddl_type is DdlType.MODIFY_COLUMN
    made = altered("CHANGE COLUMN v w bigint unsigned NOT NULL DEFAULT 5 AFTER n")
    assert names(made) == ["id", "n", "w"] and made.columns[2].mysql_type == "bigint unsigned"
    assert made.columns[2].default == "5" and made.ddl_type is DdlType.MODIFY_COLUMN
    assert names(altered("modify id int first, modify n int first")) == ["n", "id", "v"]
    assert names(altered("change v n int, change n v int")) == ["id", "n", "v"]
    assert names(altered("change id key_id int, add x int after key_id")) == ["key_id", "x", "v", "n"]
    # What a schema does not have may have changed: AUTO_INCREMENT, ON UPDATE.
    same = altered("modify v varchar(20) character set latin1 comment 'as it was'")
    assert same.columns == ORDERS.columns and same.ddl_type is DdlType.MODIFY_COLUMN
    assert altered("change n n int").ddl_type is DdlType.MODIFY_COLUMN
    assert altered("modify if exists nope int").columns == ORDERS.columns
    # A key follows its column, and keeps it from being null.
    made = altered("change id number bigint")
    assert key(made) == ["number"] and not made.columns[0].nullable


def test_a_key_stays_only_where_its_columns_do() -> None:
    for clause in ("add x int first", "drop v", "modify v int, comment 'x'"):
        assert altered(clause).keeps_key_of(ORDERS), clause
    replaced = altered("drop id, drop primary key, add id int not null primary key first")
    assert replaced.columns[0].name == "id" and not replaced.keeps_key_of(ORDERS)
    for clause in ("change id v int, change v id int", "rename column id to number", "modify id bigint"):
        assert not altered(clause).keeps_key_of(ORDERS), clause
    assert not altered("drop primary key").keeps_key_of(ORDERS)
    # Of a like definition, but with other values in every row: readers are told.
    assert altered("drop n, add n int").columns == ORDERS.columns
    assert altered("drop n, add n int").ddl_type is DdlType.MODIFY_COLUMN


def test_rename_column_and_defaults() -> None:
    assert names(altered("rename column v to n, rename column n to v")) == ["id", "n", "v"]
    assert altered("rename column v to w").ddl_type is DdlType.MODIFY_COLUMN
    assert names(altered("rename column v to w, add v int")) == ["id", "w", "n", "v"]
    made = altered("alter column n set default 7, alter v set default 'x'")
    assert [c.default for c in made.columns] == [None, "x", "7"] and made.ddl_type is DdlType.SET_DEFAULT
    assert altered("alter n set default (1 + 2)").columns[2].default == "(1 + 2)"
    assert apply("alter table orders alter n drop default") == []
    assert apply("alter table orders alter n set invisible, alter index i visible") == []


def test_keys() -> None:
    assert key(altered("drop primary key")) == [] and not altered("drop primary key").columns[0].nullable
    assert altered("drop primary key").ddl_type is DdlType.DROP_PRIMARY_KEY
    for drop in ("drop index `PRIMARY`", "drop key `primary`", "drop constraint `PRIMARY`"):
        assert key(altered(drop)) == []
    assert key(apply("drop index `PRIMARY` on orders")[0]) == []
    made = altered("drop primary key, add primary key (n, v(5) desc)")
    assert key(made) == ["v", "n"] and not made.columns[1].nullable
    assert key(altered("drop primary key, add constraint c primary key using btree (n)")) == ["n"]
    assert key(altered("drop primary key, ADD (w INT, PRIMARY KEY (id, v))")) == ["id", "v"]
    assert key(altered("drop column id, add column id bigint auto_increment primary key first")) == ["id"]
    # A server keeps the key where a column of the same name comes in its place.
    assert key(altered("drop column id, add column id bigint first")) == ["id"]
    assert key(altered("drop id")) == []
    keyless = TableSchema("shop", "k", 1, (Column("a", "int"),))
    assert key(apply("alter table k add primary key if not exists (a)", keyless)[0]) == ["a"]
    assert key(apply("alter table k modify a int primary key", keyless)[0]) == ["a"]


def test_charsets() -> None:
    assert altered("default character set utf8mb4").charset == "utf8mb4"
    assert altered("default charset=utf8 collate utf8_bin").ddl_type is DdlType.MODIFY_TABLE_CHARSET
    assert altered("collate = utf8mb4_bin, add w text").columns[-1].charset == "utf8mb4"
    assert altered("engine=innodb charset gbk comment 'x', add w text").columns[-1].charset == "gbk"
    texts = TableSchema(
        "shop",
        "t",
        1,
        (
            Column("a", "varchar(20)", charset="latin1"), Column("b", "text", charset="latin1"), Column("c", "int"),
            Column("d", "enum('x')", charset="latin1", elements=("x",)), Column("e", "blob"),
            Column("f", "mediumtext", charset="latin1"), Column("g", "text", charset="utf8mb4"),
        ),
        charset="latin1",
    )  # fmt: skip
    (made,) = apply("alter table t convert to character set utf8mb4 collate utf8mb4_bin, add h text", texts)
    assert [(c.mysql_type, c.charset) for c in made.columns] == [
        ("varchar(20)", "utf8mb4"), ("mediumtext", "utf8mb4"), ("int", None), ("enum('x')", "utf8mb4"), ("blob", None),
        ("longtext", "utf8mb4"), ("text", "utf8mb4"), ("text", "utf8mb4"),
    ]  # fmt: skip
    assert made.charset == "utf8mb4"
    (made,) = apply("alter table t convert to charset binary", texts)
    assert [c.mysql_type for c in made.columns[:2]] == ["varbinary(20)", "blob"]


def test_what_the_server_does_with_several_charsets() -> None:
    """As MariaDB does it: CONVERT TO goes over what a new column says, DEFAULT over what CONVERT TO says of the table."""
    made = altered("convert to character set utf8mb4, add w text charset gbk, add x varbinary(5), add y json")
    assert [c.charset for c in made.columns] == [None, "utf8mb4", None, "utf8mb4", None, "utf8mb4"]
    for clauses in ("convert to charset gbk, default charset greek", "default charset greek, convert to charset gbk"):
        made = altered(clauses)
        assert made.charset == "greek" and made.columns[1].charset == "gbk"
    assert altered("add j json").columns[-1].mysql_type == "longtext"
    assert altered("add j json", mariadb=False).columns[-1].mysql_type == "json"


def test_a_column_that_is_added_and_modified_at_once() -> None:
    made = altered("add (c int, b int), modify c text first")
    assert [(c.name, c.mysql_type) for c in made.columns][:1] == [("c", "text")] and names(made)[-1] == "b"
    assert apply("alter table orders modify c text, add c int")[0].parked


def test_rows_that_come_or_go_without_row_events() -> None:
    for clause, kind in (
        ("drop partition p0, p1", DdlType.DROP_PARTITION),
        ("truncate partition all", DdlType.TRUNCATE_PARTITION),
    ):
        made = altered(clause)
        assert (made.ddl_type, made.kind, made.columns) == (kind, ChangeKind.TRUNCATE, ORDERS.columns)
    made, other = apply(
        "alter table orders exchange partition p0 with table b.t without validation", table("t", schema="b")
    )
    assert (made.name, made.kind, made.other) == ("shop.orders", ChangeKind.TRUNCATE, "b.t")
    assert (other.name, other.kind) == ("b.t", ChangeKind.TRUNCATE)
    (other,) = apply("alter table unknown exchange partition p0 with table orders")
    assert (other.name, other.ddl_type) == ("shop.orders", DdlType.EXCHANGE_PARTITION)
    made, other = apply("alter table orders convert partition p0 to table o2")
    assert made.kind is ChangeKind.TRUNCATE and other.name == "shop.o2" and other.parked
    (made,) = apply("truncate table orders")
    assert (made.kind, made.version, made.columns) == (ChangeKind.TRUNCATE, 42, ORDERS.columns)


@pytest.mark.parametrize(
    "clauses",
    [
        "order by n desc, v",
        "check partition p0, p1",
        "rebuild partition all",
        "engine=InnoDB row_format=dynamic key_block_size=8, algorithm=inplace, lock=none",
        "auto_increment 500",
        "stats_persistent=1 stats_sample_pages=20",
        "data directory='/x' index directory='/y'",
        "encrypted=yes encryption_key_id=5",
        "`page_compressed`=1 anything_of_an_engine='x'",
        "disable keys",
        "comment = 'drop column v'",
        "",
        "force",
        "tablespace ts storage disk",
        "union=(a, b) insert_method=last",
        "alter index i not ignored",
        "secondary_engine=null",
        "secondary_load",
    ],
)
def test_clauses_that_change_no_column(clauses: str) -> None:
    assert apply(f"alter table orders {clauses}") == []


@pytest.mark.parametrize(
    ("sql", "kind"),
    [
        ("alter table orders add index (v), add unique key k (n)", DdlType.ADD_INDEX),
        ("alter table orders add vector index (v) m=6", DdlType.ADD_INDEX),
        ("alter table orders add constraint check (n > 0)", DdlType.ADD_INDEX),
        ("alter table orders add constraint c foreign key (n) references b (id)", DdlType.ADD_FOREIGN_KEY),
        ("alter table orders drop index x", DdlType.DROP_INDEX),
        ("alter table orders drop constraint z", DdlType.DROP_INDEX),
        ("alter table orders drop foreign key y", DdlType.DROP_FOREIGN_KEY),
        ("alter table orders rename index a to b, force", DdlType.RENAME_INDEX),
        ("alter table orders partition by hash(id) partitions 4", DdlType.ALTER_PARTITIONING),
        ("alter table orders partition by list columns(n, v) (partition p0 values in ((1,'a')))", DdlType.ALTER_PARTITIONING),
        ("alter table orders remove partitioning", DdlType.REMOVE_PARTITIONING),
        ("alter table orders reorganize partition p0 into (partition p2 values less than (9))", DdlType.REORGANIZE_PARTITION),
        ("alter table orders coalesce partition 2", DdlType.REORGANIZE_PARTITION),
        ("alter table orders add partition partitions 4", DdlType.ADD_PARTITION),
        ("create index i on orders (v)", DdlType.ADD_INDEX),
        ("create or replace unique index if not exists i using btree on shop.orders (v)", DdlType.ADD_INDEX),
        ("create fulltext index f on orders (v)", DdlType.ADD_INDEX),
        ("drop index i on orders", DdlType.DROP_INDEX),
    ],
)  # fmt: skip
def test_what_stands_beside_the_columns_makes_a_version_of_the_same_shape(sql: str, kind: DdlType) -> None:
    (made,) = apply(sql)
    assert (made.columns, made.ddl_type, made.kind) == (ORDERS.columns, kind, ChangeKind.ALTER)
    assert made.version == 42 and apply(sql.replace("orders", "unknown")) == []


def test_a_partition_clause_after_a_column() -> None:
    assert names(altered("add w int not null partition by hash(w) partitions 4")) == ["id", "v", "n", "w"]
    assert names(altered("drop v remove partitioning")) == ["id", "n"]


def test_what_the_server_changed_and_we_do_not_know_parks_the_table() -> None:
    for clauses, says in (
        ("add v int", "has a column v already"),
        ("drop nope", "has no column nope"),
        ("modify nope int", "has no column nope"),
        ("rename column nope to x", "has no column nope"),
        ("alter nope set default 1", "has no column nope"),
        ("add a int after nope", "has no column nope"),
        ("drop id, drop v, drop n", "no columns left"),
        ("add system versioning", "system-versioned"),
        ("import tablespace", "TABLESPACE"),
        ("frobnicate", "near 'frobnicate'"),
        ("add x int, swap with other", "near 'swap'"),
    ):
        (made,) = apply(f"alter table orders {clauses}")
        assert made.parked and says in made.reason, (clauses, made.reason)
        assert made.columns == () and made.query.endswith(clauses) and made.version == 42


def test_other_tables_do_what_they_like() -> None:
    for clauses in ("frobnicate", "add system versioning", "drop nope", "add foreign key (x) references orders (id)"):
        assert apply(f"alter table unknown {clauses}") == []


def test_a_clause_may_name_a_column_that_a_later_one_moves() -> None:
    assert names(altered("modify id int after n, modify n int first")) == ["n", "v", "id"]
    assert names(altered("add y int after v, modify v text first")) == ["v", "id", "y", "n"]
    assert names(altered("change id z int first, change v id text after z")) == ["z", "id", "n"]


def test_a_varchar_that_no_row_can_hold_is_a_text() -> None:
    """Without strict mode a server makes another type of it; in strict mode it refuses, and nothing is logged."""
    definitions = "a varchar(20000), b varbinary(70000), c varchar(16383), d varchar(30000) charset latin1"
    assert types(definitions) == ["mediumtext", "mediumblob", "varchar(16383)", "varchar(30000)"]
    (made,) = apply(f"create table x ({definitions})")
    (made,) = apply("alter table x convert to character set utf8mb4", made)
    assert [column.mysql_type for column in made.columns][2:] == ["varchar(16383)", "mediumtext"]
