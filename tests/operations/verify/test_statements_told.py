"""Readers learn of a statement by its schema file alone, also where no row comes after it: none of them may be missing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from penstock.cli.verify import exit_code
from penstock.operations.verify.verify import verify
from tests.operations.verify.sinks import deliver_from_server, server_config
from tools.components.mariadb import MariaDbServer

pytestmark = pytest.mark.mariadb
DATABASE = "told"
SINKS = {"lake": {"format": "parquet", "url": "./lake"}, "text": {"format": "canal-json", "url": "./text"}}
STATEMENTS = (
    "CREATE TABLE emptied (id int PRIMARY KEY)",
    "INSERT INTO emptied VALUES (1)",
    "TRUNCATE TABLE emptied",
    "CREATE TABLE gone (id int PRIMARY KEY)",
    "INSERT INTO gone VALUES (1)",
    "DROP TABLE gone",
    "CREATE TABLE moved (id int PRIMARY KEY)",
    "INSERT INTO moved VALUES (1)",
    "RENAME TABLE moved TO came",
    "ALTER TABLE came ADD note varchar(9)",
    "CREATE TABLE empty (id int PRIMARY KEY)",
)


def test_a_schema_file_that_is_missing_is_named(mariadb_server: MariaDbServer, tmp_path: Path) -> None:
    config = server_config(mariadb_server, DATABASE, tmp_path, SINKS)
    deliver_from_server(config, mariadb_server, DATABASE, STATEMENTS)
    assert exit_code(verify(config)) == 0
    for name in SINKS:
        files = [path for path in (tmp_path / name).rglob("schema_*.json") if path.parent.parent.name != DATABASE]
        queries = {json.loads(path.read_text())["Query"].split()[0] for path in files}
        assert len(files) == 8 and queries >= {"TRUNCATE", "DROP", "RENAME", "ALTER", "CREATE"}, files
        for path in files:
            content = path.read_bytes()
            path.unlink()
            report = verify(config, sink=name, with_source=False)
            assert exit_code(report) == 1, path
            assert path.name in report.sinks[0].faults[0], report.sinks[0].faults
            changed = json.loads(content)
            changed["TableColumns"] = [*(changed["TableColumns"] or []), {"ColumnName": "x", "ColumnType": "INT"}]
            path.write_text(json.dumps(changed))
            assert exit_code(verify(config, sink=name, with_source=False)) == 1, path
            path.write_bytes(content)
