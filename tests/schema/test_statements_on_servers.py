"""A table of the start is created by a statement that is made from its columns: strict servers of both kinds take it, and
have the same columns, key and partitions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from penstock.schema.ddl import table_from_show_create
from penstock.schema.forwarding import without_statement
from tests.schema.ddl.server import described
from tools.components.database import DatabaseServer

SOURCE, READER = "made_source", "made_reader"
# Each is tried on both servers; `None`: that server does not know it.
TABLES = {
    "numbers": "(a tinyint, b smallint unsigned, c mediumint, d int(5) unsigned zerofill, e bigint unsigned default 18446744073709551615, "
    "f float, g double default -1.5e10, h decimal(65,30), i decimal(10,2) unsigned default 1.50, j bit(64), k bit(3) default b'101', "
    "l year default 2000, m bool default true, n float(7,3), o double(9,2) unsigned)",
    "times": "(a date default '2020-01-01', b time(3) default '-838:59:59', c datetime default now(), d datetime(6) default "
    "current_timestamp(6) on update current_timestamp(6), e timestamp null, f timestamp(3) not null default current_timestamp(3), "
    "g timestamp not null default '2020-01-01 00:00:01', h datetime not null default current_timestamp)",
    "strings": "(a char(5) default 'x y', b varchar(9) default 'it''s', c varchar(9) default '5', d varchar(9) not null default '', "
    "e varchar(9) default 'C:\\\\', f enum('a','b''c','d,e') default 'b''c', g set('x','y') default 'x,y', h char(3) charset latin1, "
    "i text charset utf8mb3, j binary(3) default 'abc', k varbinary(9), l longblob, m json, n varchar(20) default 'now()', "
    "o varchar(20) default '(x)', p varchar(40) default 'current_timestamp', q char(0), r varchar(9) default 'NULL')",
    "shapes": "(a geometry, b point not null, c linestring, d polygon)",
    "keys": "(b int, a varchar(20), c int, primary key (a, b), unique key (c))",
    "prefix": "(v text not null, b blob not null, n int not null, primary key (v(10), n, b(9)))",
    "one_prefix": "(v varchar(3000) not null, w int, primary key (v(700)))",
    "names": "(`a``b` int, `c d` int not null, `select` int, `表` varchar(3) default '表', primary key (`c d`, `a``b`))",
    "generated": "(a int, b int generated always as (a + 1) stored, c int generated always as (a * 2) virtual)",
    "binary_names": "(e enum('\\\\','a\\\\b','c''d') default '\\\\')",
}
ONLY = {
    "mariadb": {
        "own": "(a inet6, b uuid default uuid(), c int default (1 + 2), d text default 'x', e varchar(9) default concat('a','b'), "
        "f int default 5 check (f > 0), g blob default 'y', h int invisible default 1, i varchar(40) default (uuid()))",
    },
    "mysql": {"own": "(a json not null, b geometry srid 4326 not null)"},
}


@pytest.fixture
def connection(server: DatabaseServer) -> Iterator[Any]:
    connection = server.connect()
    with connection.cursor() as cursor:
        for name in (SOURCE, READER):
            cursor.execute(f"CREATE DATABASE {name} CHARACTER SET utf8mb4")
    yield connection
    with connection.cursor() as cursor:
        for name in (SOURCE, READER):
            cursor.execute(f"DROP DATABASE {name}")
    connection.close()


@pytest.mark.parametrize("name", [*TABLES, "own"])
def test_a_table_is_made_from_its_columns(server: DatabaseServer, connection: Any, name: str) -> None:
    mariadb = server.kind == "mariadb"
    with connection.cursor() as cursor:
        cursor.execute(f"CREATE TABLE {SOURCE}.`{name}` {TABLES.get(name) or ONLY[server.kind][name]}")
        cursor.execute(f"SHOW CREATE TABLE {SOURCE}.`{name}`")
        table = table_from_show_create(cursor.fetchone()[1], SOURCE, 1, mariadb=mariadb)
        made = without_statement(replace(table, schema=READER), first=True).query
        cursor.execute(made)
    theirs = described(connection, SOURCE, name, mariadb=mariadb)[name]
    assert described(connection, READER, name, mariadb=mariadb)[name] == theirs, made


PARTITIONED = {
    "ranges": "(a int, d date, primary key (a, d)) partition by range (year(d)) (partition p0 values less than (2020), partition "
    "`p ``1` values less than maxvalue comment = 'it''s')",
    "lists": "(a int, b varchar(9), key (b)) partition by list columns (b) (partition p0 values in ('x', 'y'), partition p1 values in ('z'))",
    "hashes": "(id int primary key, v int) partition by key () partitions 5",
    "within": "(a int, b int) partition by range (a) subpartition by hash (b) subpartitions 2 (partition p0 values less than (5))",
}


@pytest.mark.parametrize("name", [*PARTITIONED])
def test_a_partitioned_table_has_its_partitions(server: DatabaseServer, connection: Any, name: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"CREATE TABLE {SOURCE}.`{name}` {PARTITIONED[name]}")
        cursor.execute(f"SHOW CREATE TABLE {SOURCE}.`{name}`")
        table = table_from_show_create(cursor.fetchone()[1], SOURCE, 1, mariadb=server.kind == "mariadb")
        cursor.execute(without_statement(replace(table, schema=READER), first=True).query)
        cursor.execute(
            "SELECT table_schema, partition_name, subpartition_name, partition_method, partition_expression, "
            "partition_description, partition_comment FROM information_schema.partitions WHERE table_name = %s ORDER BY 1, 2, 3",
            (name,),
        )
        found = [tuple(map(str, row)) for row in cursor.fetchall()]
    assert [row[1:] for row in found if row[0] == READER] == [row[1:] for row in found if row[0] == SOURCE]
    assert all(row[3] != "None" for row in found) and len(found) > 1
