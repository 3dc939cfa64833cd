"""What a new log starts with: the server's tables and databases as they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.schema.model import ChangeKind, TableSchema
from penstock.sources.mysql.definitions import versions_of
from penstock.sources.mysql.source import ServerSource
from penstock.sources.settings import ServerSettings
from tools.components.mariadb import MariaDbServer


@pytest.mark.mariadb
def test_tables_databases_and_sequences(mariadb_server: MariaDbServer, tmp_path: Path) -> None:
    with mariadb_server.connect() as connection, connection.cursor() as cursor:
        for sql in (
            "CREATE OR REPLACE DATABASE defs CHARACTER SET latin1",
            "CREATE TABLE defs.t (id INT PRIMARY KEY, v VARCHAR(9))",
            "CREATE SEQUENCE defs.s",
            "CREATE TABLE defs.sv (a INT) WITH SYSTEM VERSIONING",
            "CREATE TABLE defs.secret (a INT)",
            "CREATE VIEW defs.v AS SELECT 1 AS a",
        ):
            cursor.execute(sql)
    settings = ServerSettings.model_validate(
        {
            "type": "mariadb", "host": mariadb_server.host, "port": mariadb_server.port, "user": mariadb_server.user,
            "password": mariadb_server.password, "tables": {"include": ["defs.*"], "exclude": ["defs.secret"]},
        }
    )  # fmt: skip
    source = ServerSource(settings, tmp_path)
    beginning = source.begin(7)
    found = {table.name: table for table in beginning.schemas}
    assert set(found) == {"defs.", "defs.t", "defs.s", "defs.sv"}
    assert found["defs."].charset == "latin1" and found["defs."].kind is ChangeKind.NONE
    assert [column.charset for column in found["defs.t"].columns] == [None, "latin1"]
    assert found["defs.s"].is_sequence and found["defs.sv"].parked
    assert {table.version for table in beginning.schemas} == {7}
    source.resume(beginning.position)
    assert source.lower_case_table_names == 0
    with mariadb_server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("DROP DATABASE defs")


def test_json_is_text_on_mariadb_only() -> None:
    definitions = {("d", "t"): "CREATE TABLE `t` (`j` json DEFAULT NULL) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4"}

    def kind(versions: tuple[TableSchema, ...]) -> str:
        return versions[0].columns[0].mysql_type

    assert kind(versions_of(definitions, 1, mariadb=True)) == "longtext"
    assert kind(versions_of(definitions, 1, mariadb=False)) == "json"
