"""Values that no change brought: a real server of each family changes rows by itself, and verify raises no false alarm."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from penstock.cli.verify import exit_code
from penstock.operations.verify.verify import verify
from tests.operations.verify.sinks import deliver_from_server, run_statements, server_config
from tools.components.database import DatabaseServer

DATABASE = "by_itself"
SINKS = {
    "lake": {"format": "parquet", "url": "./lake"},
    "debezium": {"format": "debezium-json", "url": "./debezium"},
    "text": {"format": "canal-json", "url": "./text"},
}
# Each case: statements, of which those before the first empty line come before the log begins. Each has a table t.
CASES = {
    "a column that is dropped and added again": """
        CREATE TABLE t (id int PRIMARY KEY, v int, w int)

        INSERT INTO t VALUES (1, 1, 1), (2, 2, 2)
        ALTER TABLE t DROP COLUMN v
        ALTER TABLE t ADD COLUMN v int
        INSERT INTO t (id, v) VALUES (3, 3)""",
    "a column that is dropped and added again in another place": """
        CREATE TABLE t (id int PRIMARY KEY, v int, w int)

        INSERT INTO t VALUES (1, 1, 1), (2, 2, 2)
        ALTER TABLE t DROP COLUMN v, ADD COLUMN v int
        INSERT INTO t (id, v) VALUES (3, 3)""",
    "added again under the name that the table has later": """
        CREATE TABLE t0 (id int PRIMARY KEY, v int, w int)

        INSERT INTO t0 VALUES (1, 1, 1), (2, 2, 2)
        ALTER TABLE t0 DROP COLUMN v
        RENAME TABLE t0 TO t
        ALTER TABLE t ADD COLUMN v int
        INSERT INTO t (id, v) VALUES (3, 3)""",
    "columns that trade their names": """
        CREATE TABLE t (id int PRIMARY KEY, v int, w int)

        INSERT INTO t VALUES (1, 10, 20), (2, 2, 2)
        ALTER TABLE t CHANGE v w int, CHANGE COLUMN w v int
        INSERT INTO t VALUES (3, 3, 4)""",
    "columns that are given each other's names": """
        CREATE TABLE t (id int PRIMARY KEY, v int, w int)

        INSERT INTO t VALUES (1, 10, 20), (2, 2, 2)
        ALTER TABLE t RENAME COLUMN v TO w, RENAME COLUMN w TO v
        INSERT INTO t VALUES (3, 3, 4)""",
    "null that is no longer allowed": """
        CREATE TABLE t (id int PRIMARY KEY, v int, w varchar(9))

        INSERT INTO t VALUES (1, NULL, NULL), (2, 2, 'b')
        ALTER TABLE t MODIFY v int NOT NULL, MODIFY w varchar(9) NOT NULL""",
    "numbers that are cut": """
        CREATE TABLE t (id int PRIMARY KEY, v int, w int)

        INSERT INTO t VALUES (1, 300, -1), (2, 2, 2)
        ALTER TABLE t MODIFY v tinyint, MODIFY w int unsigned""",
    "texts that are cut": """
        CREATE TABLE t (id int PRIMARY KEY, v varchar(20), w text, c varchar(9))

        INSERT INTO t VALUES (1, 'abcdefgh', REPEAT('x', 400), 'a  '), (2, 'b', 'c', 'd')
        ALTER TABLE t MODIFY v varchar(3), MODIFY w tinytext, MODIFY c char(9)""",
    "another character set": """
        CREATE TABLE t (id int PRIMARY KEY, v varchar(20)) CHARACTER SET utf8mb4

        INSERT INTO t VALUES (1, 'Zoë 😀'), (2, 'b')
        ALTER TABLE t CONVERT TO CHARACTER SET latin1""",
    "another key": """
        CREATE TABLE t (id int PRIMARY KEY, v int, w int)

        INSERT INTO t VALUES (1, 10, 1), (2, 20, 2), (3, 30, 3)
        UPDATE t SET v = 11 WHERE id = 1
        ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY (v)
        UPDATE t SET w = 9 WHERE v = 20""",
    "a key for a table that had none": """
        CREATE TABLE t (id int, v int)

        INSERT INTO t VALUES (1, 10), (1, 10), (2, 20)
        DELETE FROM t WHERE id = 1 LIMIT 1
        ALTER TABLE t ADD PRIMARY KEY (id)
        INSERT INTO t VALUES (3, 30)""",
    "a computed column that is added": """
        CREATE TABLE t (id int PRIMARY KEY, v int)

        INSERT INTO t VALUES (1, 10), (2, 20)
        ALTER TABLE t ADD COLUMN g int AS (v * 2) STORED
        INSERT INTO t (id, v) VALUES (3, 30)""",
    "a virtual column": """
        CREATE TABLE t (id int PRIMARY KEY, v int, g int AS (v * 2) VIRTUAL)

        INSERT INTO t (id, v) VALUES (1, 10), (2, 20)
        UPDATE t SET v = 11 WHERE id = 1""",
    "a computed column with another expression": """
        CREATE TABLE t (id int PRIMARY KEY, v int, g int AS (v * 2) STORED)

        INSERT INTO t (id, v) VALUES (1, 10), (2, 20)
        ALTER TABLE t MODIFY COLUMN g int AS (v * 3) STORED
        INSERT INTO t (id, v) VALUES (3, 30)""",
    "moments that are filled in": """
        CREATE TABLE t (id int PRIMARY KEY)

        INSERT INTO t VALUES (1), (2)
        ALTER TABLE t ADD COLUMN made timestamp
        ALTER TABLE t ADD COLUMN seen datetime DEFAULT CURRENT_TIMESTAMP
        INSERT INTO t (id) VALUES (3)""",
    "images without all columns": """
        CREATE TABLE t (id int PRIMARY KEY, v int, w varchar(9) DEFAULT 'w', doc text)

        SET SESSION binlog_row_image = 'MINIMAL'
        INSERT INTO t (id, v, doc) VALUES (1, 10, 'one'), (2, 20, 'two'), (3, 30, 'three')
        UPDATE t SET v = 11 WHERE id = 1
        DELETE FROM t WHERE id = 2""",
    "images without texts": """
        CREATE TABLE t (id int PRIMARY KEY, v int, doc text)

        SET SESSION binlog_row_image = 'NOBLOB'
        INSERT INTO t VALUES (1, 10, 'one'), (2, 20, 'two'), (3, 30, 'three')
        UPDATE t SET v = 11 WHERE id = 1
        DELETE FROM t WHERE id = 2""",
    "days that are no days, as keys": """
        CREATE TABLE t (d date PRIMARY KEY, v int)

        INSERT INTO t VALUES ('0000-00-00', 1), ('2024-00-00', 2), ('2024-05-06', 3)
        UPDATE t SET v = 9 WHERE d = '0000-00-00'""",
    "a database that is made anew": """
        CREATE TABLE t (id int PRIMARY KEY)

        INSERT INTO t VALUES (1)
        CREATE TABLE other (id int PRIMARY KEY)
        INSERT INTO other VALUES (1)
        DROP DATABASE by_itself
        CREATE DATABASE by_itself
        USE by_itself
        CREATE TABLE t (id int PRIMARY KEY)
        INSERT INTO t VALUES (2)""",
    "keys that only case and accents tell apart": """
        CREATE TABLE t (k varchar(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci PRIMARY KEY, v int)

        INSERT INTO t VALUES ('Zoe', 1), ('abc  ', 2)
        UPDATE t SET k = 'zoë', v = 3 WHERE k = 'zoe'
        UPDATE t SET k = 'abc' WHERE k = 'abc'
        UPDATE t SET v = v + 1""",
    "keys of more than one name": """
        CREATE TABLE t (a binary(4), b decimal(40, 2), c bit(3), e enum('x', 'y'), v int, PRIMARY KEY (c, b, a, e))

        INSERT INTO t VALUES ('a', 1.5, b'101', 'x', 1), ('ab', -1.5, b'1', 'y', 2)
        UPDATE t SET b = 3, v = 4 WHERE c = 5
        DELETE FROM t WHERE e = 'y'""",
}


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> tuple[list[str], list[str]]:
    before, _, after = CASES[request.param].strip().partition("\n\n")
    return before.splitlines(), after.splitlines()


def test_no_false_alarm(server: DatabaseServer, case: tuple[list[str], list[str]], tmp_path: Path) -> None:
    before, after = case
    with contextlib.closing(server.connect()) as connection, connection.cursor() as cursor:
        cursor.execute(f"DROP DATABASE IF EXISTS {DATABASE}")
    run_statements(server, DATABASE, before)
    config = server_config(server, DATABASE, tmp_path, SINKS)
    deliver_from_server(config, server, DATABASE, after)
    report = verify(config)
    assert exit_code(report) == 0, report.to_json()
    assert [sink.whole for sink in report.sinks] == [True] * len(SINKS), report.to_json()
    for sink in report.sinks:
        table = sink.tables[f"{DATABASE}.t"]
        assert table.note or table.with_source is not None, sink
