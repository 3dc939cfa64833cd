"""A real MariaDB and statements after which files and tables are easily held against each other wrongly: no false alarm in any
format, on disk or in a bucket; and what really differs is named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from penstock.cli.verify import exit_code
from penstock.operations.config.loading import load
from penstock.operations.verify.verify import verify
from penstock.sources.mysql.source import ServerSource
from penstock.sources.settings import ServerSettings
from tests.e2e.load import source_of
from tests.operations.verify.sinks import capture, deliver
from tools.components.mariadb import MariaDbServer

pytestmark = [pytest.mark.mariadb, pytest.mark.s3]
DATABASE = "verified"
BEFORE = """
CREATE TABLE moved (id int PRIMARY KEY, v varchar(20))
CREATE TABLE letters (k varchar(20) PRIMARY KEY, v int) COLLATE utf8mb4_general_ci
CREATE TABLE pair (a varchar(9), b int, v int, PRIMARY KEY (b, a)) COLLATE utf8mb4_general_ci
CREATE TABLE again (id int PRIMARY KEY, v int)
CREATE TABLE replaced (id int PRIMARY KEY, v int)
CREATE TABLE grown (id int PRIMARY KEY, v int)
CREATE TABLE days (id int PRIMARY KEY, d date, t datetime(3), s timestamp NULL)
CREATE TABLE widened (id int PRIMARY KEY, v int, t datetime)
CREATE TABLE keyless (v int)
CREATE TABLE named (id int PRIMARY KEY, v int)
CREATE TABLE emptied (id int PRIMARY KEY)
"""
STATEMENTS = """
INSERT INTO moved VALUES (1, 'a'), (2, 'b'), (3, 'c')
UPDATE moved SET id = id + 10 WHERE id < 3
UPDATE moved SET id = 1 WHERE id = 3
INSERT INTO letters VALUES ('abc', 1), ('def', 2), ('Ghi', 3)
UPDATE letters SET k = 'ABC' WHERE k = 'abc'
REPLACE INTO letters VALUES ('DEF', 4)
DELETE FROM letters WHERE k = 'gHI'
INSERT INTO letters VALUES ('GHI', 5)
INSERT INTO letters VALUES ('ghi', 6) ON DUPLICATE KEY UPDATE v = 7
INSERT INTO pair VALUES ('x', 1, 1), ('X', 2, 2)
UPDATE pair SET a = 'X', v = 3 WHERE b = 1
INSERT INTO again VALUES (1, 1), (2, 2)
DROP TABLE again
CREATE TABLE again (id int PRIMARY KEY, v int)
INSERT INTO again VALUES (2, 3)
INSERT INTO replaced VALUES (1, 1)
CREATE OR REPLACE TABLE replaced (id int PRIMARY KEY, w varchar(5))
INSERT INTO replaced VALUES (2, 'x')
INSERT INTO grown VALUES (1, 1), (2, 2)
ALTER TABLE grown ADD x int NOT NULL DEFAULT 5, ADD y varchar(9)
INSERT INTO grown VALUES (3, 3, 6, 'y')
UPDATE grown SET y = 'z' WHERE id = 1
INSERT INTO days VALUES (1, '0000-00-00', '0000-00-00 00:00:00', 0), (2, '2024-05-00', '2024-00-00 01:02:03.5', NULL)
INSERT INTO days VALUES (3, '2024-05-06', '2024-05-06 07:08:09.123', '2024-05-06 07:08:09')
INSERT INTO widened VALUES (1, 1, '2024-05-06 07:08:09')
ALTER TABLE widened MODIFY v bigint, MODIFY t datetime(3)
INSERT INTO widened VALUES (2, 3000000000, '2024-05-06 07:08:09.5')
INSERT INTO keyless VALUES (1), (1)
INSERT INTO named VALUES (1, 1)
RENAME TABLE named TO renamed
INSERT INTO renamed VALUES (2, 2)
INSERT INTO emptied VALUES (1), (2)
DELETE FROM emptied
"""
TABLES = 11
KEYED = TABLES - 1


def run(server: MariaDbServer, statements: str) -> None:
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SET sql_mode = ''")
        cursor.execute(f"USE {DATABASE}")
        for statement in statements.strip().splitlines():
            cursor.execute(statement)
        connection.commit()


def test_no_false_alarm_and_no_false_peace(mariadb_server: MariaDbServer, s3_url: str, tmp_path: Path) -> None:
    with mariadb_server.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"DROP DATABASE IF EXISTS {DATABASE}")
        cursor.execute(f"CREATE DATABASE {DATABASE}")
    run(mariadb_server, BEFORE)
    sinks = {
        "lake": {"format": "parquet", "url": "./lake"},
        "debezium": {"format": "debezium-json", "url": "./debezium"},
        "bucket": {"format": "canal-json", "url": s3_url},
    }
    value = {"version": 1, "state_dir": "./state", "source": source_of(mariadb_server, DATABASE), "sinks": sinks}
    path = tmp_path / "penstock.yaml"
    path.write_text(yaml.safe_dump(value))
    path.chmod(0o600)
    config = load(path)
    config.state_dir.mkdir(mode=0o700)
    assert isinstance(config.source, ServerSettings)
    for statements in ("", STATEMENTS):  # the first time it learns of the tables
        if statements:
            run(mariadb_server, statements)
        source = ServerSource(config.source, config.state_dir)
        try:
            capture(config, source)
        finally:
            source.close()
    deliver(config)

    def verified() -> tuple[int, dict[str, Any]]:
        report = verify(config)
        return exit_code(report), report.to_json()

    code, report = verified()
    assert code == 0 and report["equal"], report
    for sink in report["sinks"]:
        assert sink["source_equal"] == sink["compared_with_source"] == KEYED, sink
        notes = {table["table"].split(".")[1]: table["note"] for table in sink["tables"] if table["note"]}
        assert notes.keys() == {"grown", "widened", "keyless"}, notes
        assert "x compared with the log only" in notes["grown"] and "t compared" in notes["widened"]

    # What happens behind the binlog's back is nobody's fault but a difference all the same.
    run(
        mariadb_server,
        "SET sql_log_bin = 0\nUPDATE letters SET v = 99 WHERE k = 'abc'\nDELETE FROM moved WHERE id = 12",
    )
    code, report = verified()
    assert code == 1
    for sink in report["sinks"]:
        assert sink["source_equal"] == KEYED - 2, sink
        assert sink["lost"] == sink["wrong"] == 0
        said = "\n".join(sink["faults"])
        assert "verified.letters: k = 'ABC': v " in said and "id = " in said and "is not at the source" in said
