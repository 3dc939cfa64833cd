"""`penstock check` asks the server: what it lacks stands there with the statement that gives it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from penstock.cli.main import app
from penstock.process import EXIT_SOURCE
from penstock.sources.mysql import checks
from tests.sources.mysql.streaming import fresh, session
from tools.components.database import DatabaseServer


def penstock_check(directory: Path, server: DatabaseServer, *options: str, **source: Any) -> Result:
    base = {"type": "mysql", "unix_socket": str(server.socket), "user": server.user, "password": server.password}
    path = directory / "penstock.yaml"
    document = {"version": 1, "source": {**base, **source}, "sinks": {"lake": {"url": "./lake", "format": "parquet"}}}
    path.write_text(yaml.safe_dump(document))
    return CliRunner().invoke(app, ["check", "-c", str(path), *options])


def test_a_server_that_is_ready(server: DatabaseServer, tmp_path: Path) -> None:
    with session(server) as cursor:
        fresh(cursor, "ready")
        cursor.execute("CREATE TABLE ready.t (id int primary key)")
    done = penstock_check(tmp_path, server, tables={"include": ["ready.*"]})
    assert done.exit_code == 0, done.output
    assert "✓ binlog_format is ROW" in done.output
    assert "✓ 1 table chosen by" in done.output
    assert "✗" not in done.output


def test_rows_that_a_foreign_key_changes_by_itself_are_named(server: DatabaseServer, tmp_path: Path) -> None:
    """No server logs them: a sink would keep rows that are gone at the source, and nobody would say so."""
    with session(server) as cursor:
        fresh(cursor, "cascading")
        cursor.execute("CREATE TABLE cascading.orders (id int primary key)")
        for name, action in (("items", "ON DELETE CASCADE"), ("notes", "ON UPDATE SET NULL"), ("plain", "")):
            cursor.execute(
                f"CREATE TABLE cascading.{name} (id int primary key, o int, FOREIGN KEY (o) REFERENCES orders (id) {action})"
            )
    source = {"tables": {"include": ["cascading.*"]}}
    done = penstock_check(tmp_path, server, **source)
    assert done.exit_code == 0, done.output
    assert "! the server changes rows of cascading.items, cascading.notes by foreign keys" in done.output
    without = penstock_check(tmp_path, server, tables={"include": ["cascading.orders", "cascading.plain"]})
    assert "foreign keys" not in without.output


def test_a_table_that_cannot_be_loaded_is_named_before_anything_begins(server: DatabaseServer, tmp_path: Path) -> None:
    with session(server) as cursor:
        fresh(cursor, "bareness")
        cursor.execute("CREATE TABLE bareness.t (id int primary key)")
        cursor.execute("CREATE TABLE bareness.audit (id int)")
    source: dict[str, Any] = {"tables": {"include": ["bareness.*"]}, "start": "snapshot"}
    done = penstock_check(tmp_path, server, **source)
    assert done.exit_code == 3
    assert "✗ cannot load bareness.audit: it has no primary key" in done.output
    assert "ALTER TABLE `bareness`.`audit` ADD PRIMARY KEY" in done.output
    (tmp_path / "penstock-data" / "log").mkdir(parents=True)  # a log that began before the table came
    assert penstock_check(tmp_path, server, **source).exit_code == 0
    (tmp_path / "penstock-data" / "log").rmdir()
    without = penstock_check(tmp_path, server, **source, snapshot={"tables": {"exclude": ["bareness.audit"]}})
    assert without.exit_code == 0 and "every table that is loaded has a primary key" in without.output


@pytest.mark.mariadb
def test_a_table_whose_definition_nobody_understands_is_named_before_anything_begins(
    mariadb_server: DatabaseServer, tmp_path: Path
) -> None:
    """The catalogue calls a table with a history by another name than all others, and the run refused what check had passed."""
    with session(mariadb_server) as cursor:
        fresh(cursor, "remembering")
        cursor.execute("CREATE TABLE remembering.t (id int primary key) WITH SYSTEM VERSIONING")
    source: dict[str, Any] = {"tables": {"include": ["remembering.*"]}, "start": "snapshot"}
    done = penstock_check(tmp_path, mariadb_server, **source)
    assert done.exit_code == 3
    assert "✗ cannot load remembering.t: " in done.output and "a system-versioned table" in done.output
    assert 'source.snapshot.tables: {exclude: ["remembering.t"]}' in done.output
    without = penstock_check(tmp_path, mariadb_server, **source, snapshot={"tables": {"exclude": ["remembering.t"]}})
    assert without.exit_code == 0, without.output
    assert "1 table chosen by source.tables" in without.output


def test_each_thing_that_is_missing_with_what_gives_it(server: DatabaseServer, tmp_path: Path) -> None:
    with session(server) as cursor:
        cursor.execute("CREATE USER IF NOT EXISTS poor IDENTIFIED BY 'x'")
        cursor.execute("SET GLOBAL binlog_format = 'MIXED'")
        try:
            done = penstock_check(tmp_path, server, user="poor", password="x")
            told = json.loads(penstock_check(tmp_path, server, "--json", user="poor", password="x").stdout)
        finally:
            cursor.execute("SET GLOBAL binlog_format = 'ROW'")
    assert done.exit_code == 3
    for line in (
        "✗ binlog_format is MIXED, must be ROW",
        "SET GLOBAL binlog_format = 'ROW';",
        "✗ the user lacks REPLICATION SLAVE",
        "GRANT REPLICATION SLAVE ON *.* TO 'poor'@'%';",
        "! source.tables chooses no table",
    ):
        assert line in done.output
    assert told["ok"] is False
    missing = {check["name"] for check in told["source"]["checks"] if not check["passed"]}
    assert {"binlog_format", "REPLICATION SLAVE"} <= missing


def test_the_statements_mend_what_they_stand_for(server: DatabaseServer, tmp_path: Path) -> None:
    """Each one, executed as it stands there."""
    metadata = "NO_LOG" if server.kind == "mariadb" else "MINIMAL"
    with session(server) as cursor:
        fresh(cursor, "mended")
        cursor.execute("CREATE TABLE mended.t (id int primary key)")
        cursor.execute("DROP USER IF EXISTS poor2@'%'")
        cursor.execute("CREATE USER poor2@'%' IDENTIFIED BY 'x'")
        cursor.execute("GRANT ALL ON mended.* TO poor2@'%'")  # replication is no right on one database
        if server.kind == "mariadb":
            cursor.execute("GRANT REPLICATION SLAVE ADMIN ON *.* TO poor2@'%'")  # another right with such a name
        for sql in ("binlog_format = 'MIXED'", "binlog_row_image = 'MINIMAL'", f"binlog_row_metadata = '{metadata}'"):
            cursor.execute(f"SET GLOBAL {sql}")
        if server.kind == "mysql":
            cursor.execute("SET GLOBAL server_id = 0")
        try:
            first = penstock_check(tmp_path, server, "--json", user="poor2", password="x")
            missing = [check for check in json.loads(first.stdout)["source"]["checks"] if not check["passed"]]
        finally:
            for sql in (
                "binlog_format = 'ROW'",
                "binlog_row_image = 'FULL'",
                "binlog_row_metadata = 'FULL'",
                "server_id = 1",
            ):
                cursor.execute(f"SET GLOBAL {sql}")
        names = {"binlog_format", "binlog_row_image", "binlog_row_metadata", "REPLICATION SLAVE", "REPLICATION CLIENT"}
        assert {check["name"] for check in missing} == names | ({"server_id"} if server.kind == "mysql" else set())
        for check in missing:
            if check["sql"].startswith("SET"):
                name = check["sql"].split()[2]
                cursor.execute(f"SET GLOBAL {name} = DEFAULT")
            cursor.execute(check["sql"])
        done = penstock_check(tmp_path, server, "--json", user="poor2", password="x")
        cursor.execute("DROP USER poor2@'%'")
    assert done.exit_code == 0
    assert [check for check in json.loads(done.stdout)["source"]["checks"] if not check["passed"]] == []


def test_a_wrong_password_is_the_servers_answer(server: DatabaseServer, tmp_path: Path) -> None:
    done = penstock_check(tmp_path, server, password="wrong")
    assert done.exit_code == EXIT_SOURCE
    assert "Access denied" in done.stderr and "source.password" in done.stderr
    assert "Traceback" not in done.output
    told = json.loads(penstock_check(tmp_path, server, "--json", password="wrong").stderr)
    assert told["error"]["kind"] == "SourceError"
    assert penstock_check(tmp_path, server, "--offline", password="wrong").exit_code == 0


@pytest.mark.mariadb
def test_a_hosted_server_is_set_elsewhere(
    mariadb_server: DatabaseServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "hosted_form", lambda _: "in the parameter group, set {name} = {value}")
    with session(mariadb_server) as cursor:
        cursor.execute("SET GLOBAL binlog_format = 'MIXED'")
        try:
            done = penstock_check(tmp_path, mariadb_server)
        finally:
            cursor.execute("SET GLOBAL binlog_format = 'ROW'")
    assert "in the parameter group, set binlog_format = ROW" in done.output
    assert "SET GLOBAL" not in done.output
