"""`--schema` and `--server`: names and types of columns that the files do not tell."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.errors import BadInput
from penstock.operations.binlog.decode import DecodeOptions, decode_files
from penstock.operations.binlog.schema_options import tables_from_sql, tables_of_server
from penstock.operations.binlog.table_filter import TableFilter
from tests.operations.binlog.build import BinlogFile, decoded
from tools.components.mariadb import MariaDbServer

DUMP = """
-- a dump
/*!40101 SET NAMES utf8mb4 */;
USE `shop`;
DROP TABLE IF EXISTS `item`;
/*!40101 SET character_set_client = utf8mb4 */;
CREATE TABLE `item` (
  `id` int(10) unsigned NOT NULL COMMENT 'a ; in a comment',
  `name` varchar(20) DEFAULT 'x;y',
  PRIMARY KEY (`id`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4;
DELIMITER ;;
/*!50003 CREATE TRIGGER t BEFORE INSERT ON item FOR EACH ROW BEGIN DROP TABLE item; END */;;
DELIMITER ;
CREATE TABLE other.stock (id int);
CREATE VIEW v AS SELECT 1;
"""


def test_a_dump_names_the_columns(tmp_path: Path) -> None:
    sql = tmp_path / "dump.sql"
    sql.write_text(DUMP)
    tables = tables_from_sql(str(sql))
    assert [table.name for table in tables] == ["shop.item", "other.stock"]
    file = BinlogFile()
    file.inserts("item", [-1])
    path = file.write(tmp_path)
    notes: list[str] = []
    assert decoded(path, given=tables, note=notes.append)[0]["after"] == {"id": 2**32 - 1, "name": "n"}
    assert not notes


def test_a_schema_that_does_not_fit_is_not_used_and_that_is_said_once(tmp_path: Path) -> None:
    sql = tmp_path / "dump.sql"
    sql.write_text("CREATE TABLE item (id int, name varchar(20), more int);")
    notes: list[str] = []
    file = BinlogFile()
    file.inserts("item", [1])
    file.inserts("item", [2])
    lines = decoded(file.write(tmp_path), given=tables_from_sql(f"shop={sql}"), note=notes.append)
    assert [list(line["after"]) for line in lines] == [["@1", "@2"]] * 2
    assert len(notes) == 1 and notes[0].startswith("shop.item: what --schema or --server says does not fit its rows")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("CREATE TABLE item (id int)", "no USE comes before the table item"),
        ("USE s; CREATE TABLE item (id nonsense_type(", "--schema"),
        ("SELECT 1;", "has no CREATE TABLE"),
    ],
)
def test_what_is_wrong_with_a_schema_is_said(tmp_path: Path, text: str, message: str) -> None:
    sql = tmp_path / "dump.sql"
    sql.write_text(text)
    with pytest.raises(BadInput, match=message):
        tables_from_sql(str(sql))


@pytest.mark.mariadb
def test_a_server_names_the_columns(mariadb_server: MariaDbServer, tmp_path: Path) -> None:
    with mariadb_server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("CREATE DATABASE IF NOT EXISTS names_of_columns")
        cursor.execute("CREATE TABLE names_of_columns.t (a INT, b VARCHAR(5))")
    config = tmp_path / "penstock.yaml"
    address = f"host: 127.0.0.1\n  port: {mariadb_server.port}"
    config.write_text(
        f"state_dir: data\nsource:\n  type: mariadb\n  {address}\n  user: {mariadb_server.user}\n"
        f"  password: {mariadb_server.password}\nsinks:\n  lake:\n    url: file://{tmp_path}/lake\n"
        "    format: parquet\n"
    )
    config.chmod(0o600)
    tables = {table.name: table for table in tables_of_server(config)}
    assert [column.name for column in tables["names_of_columns.t"].columns] == ["a", "b"]


def test_only_some_tables(tmp_path: Path) -> None:
    file = BinlogFile()
    file.ddl("CREATE TABLE item (id INT, name VARCHAR(20))")
    file.ddl("CREATE TABLE stock (id INT)")
    file.begin()
    file.insert("item", [1])
    file.insert("stock", [2])
    file.commit()
    file.begin()
    file.rollback()
    out: list[bytes] = []
    notes: list[str] = []
    options = DecodeOptions(tables=("shop.st*", "shop.itme"))
    decode_files([file.write(tmp_path)], options, lambda data: out.append(bytes(data)), note=notes.append)
    lines = b"".join(out).decode().splitlines()
    assert len(lines) == 2
    assert all('"stock"' in line for line in lines)
    with pytest.raises(BadInput, match="--table shop names no table"):
        TableFilter(["shop"])
    assert notes == ["--table shop.itme: no row and no DDL in the files is of such a table"]


def test_brackets_in_names_of_tables_stand_for_themselves() -> None:
    wanted = TableFilter(["s.a[b]?*"])
    assert wanted("s", "a[b]cd") and not wanted("s", "abcd") and not wanted("s", "a[b]") and not wanted("x", "s.a[b]c")
