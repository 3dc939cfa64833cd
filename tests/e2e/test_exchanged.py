"""A whole flow over statements that trade tables, and over rows that a format refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.consumer.consumer import read_sink, settings_for
from tests.e2e.flow import Flow
from tests.e2e.load import source_of
from tools.components.mariadb import MariaDbServer

pytestmark = [pytest.mark.spark, pytest.mark.mariadb]
DATABASE = "exchanged"
START = (
    f"USE {DATABASE}",
    "CREATE TABLE a (id int PRIMARY KEY, v varchar(20))",
    "CREATE TABLE b (id int PRIMARY KEY, v varchar(20), n int)",
    "CREATE TABLE p (id int PRIMARY KEY, v varchar(20)) PARTITION BY RANGE (id) "
    "(PARTITION p0 VALUES LESS THAN (10), PARTITION p1 VALUES LESS THAN MAXVALUE)",
    "CREATE TABLE q (id int PRIMARY KEY, v varchar(20))",
    "CREATE TABLE e (id int PRIMARY KEY, v enum('x', 'y'))",
)
TRADES = (
    "INSERT INTO a VALUES (1, 'a1'), (2, 'a2')",
    "INSERT INTO b VALUES (1, 'b1', 1)",
    "RENAME TABLE a TO tmp, b TO a, tmp TO b",
    "INSERT INTO a VALUES (2, 'b2', 2)",
    "UPDATE b SET v = 'a1 later' WHERE id = 1",
    "RENAME TABLE a TO tmp, b TO a, tmp TO b",
    "DELETE FROM a WHERE id = 2",
    "UPDATE b SET n = 7",
    "RENAME TABLE a TO tmp, b TO a, tmp TO b",
    "INSERT INTO p VALUES (1, 'p1'), (11, 'p11')",
    "INSERT INTO q VALUES (2, 'q2'), (3, 'q3')",
    "ALTER TABLE p EXCHANGE PARTITION p0 WITH TABLE q",
    "UPDATE p SET v = CONCAT(v, ' in p')",
    "UPDATE q SET v = CONCAT(v, ' in q')",
    "INSERT INTO q VALUES (4, 'q4')",
)
POISON = (
    "INSERT INTO e VALUES (1, 'x')",
    "SET sql_log_bin = 0",  # the statement is in no binlog, so that a row after it has a value that nobody knows of
    "ALTER TABLE e MODIFY v enum('x', 'y', 'z')",
    "SET sql_log_bin = 1",
    "INSERT INTO e VALUES (2, 'z')",
    "INSERT INTO e VALUES (3, 'y')",
)


# Of each sink: canal-json has the numbers, and refuses none of them.
MEMBERS = {"text": {"1": "1", "2": "3", "3": "2"}, "letters": {"1": "x", "3": "y"}, "parks": {"1": "x"}}


def run(server: MariaDbServer, *statements: str) -> None:
    with server.connect() as connection, connection.cursor() as cursor:
        for sql in statements:
            cursor.execute(sql)
            connection.commit()


def rows_of(server: MariaDbServer, table: str) -> list[dict[str, str | None]]:
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"SELECT * FROM {DATABASE}.{table} ORDER BY 1")
        names = [column[0] for column in cursor.description]
        return [
            {name: None if value is None else str(value) for name, value in zip(names, row, strict=True)}
            for row in cursor.fetchall()
        ]


def test_tables_that_are_traded_and_rows_that_are_refused(mariadb_server: MariaDbServer, tmp_path: Path) -> None:
    flush = {"size": "1MiB", "every": "300ms"}
    flow = Flow(
        tmp_path,
        source_of(mariadb_server, DATABASE),
        {
            "parks": {"format": "csv", "flush": flush},
            "letters": {"format": "csv", "flush": flush, "poison": "dead-letter"},
            "text": {"format": "canal-json", "flush": flush},
        },
    )
    # Without the names of its members in the binlog an enum is what the last statement said.
    run(mariadb_server, "SET GLOBAL binlog_row_metadata = 'NO_LOG'", f"CREATE DATABASE {DATABASE}")
    try:
        flow.start(once=False)
        flow.wait_for("a capture that follows the server", lambda s: s["source"]["position"] is not None)
        run(mariadb_server, *START, *TRADES, *POISON)
        flow.wait_for(
            "all rows but those that are refused", lambda s: _rows(s) == {"text": 20, "letters": 19, "parks": 18}
        )
        parked = next(each for each in flow.last["changefeeds"] if each["name"] == "parks")
        assert "e stopped" in parked["note"] and "enum('x','y') does not have" in parked["note"]
        flow.interrupt()
        flow.finish()
    finally:
        flow.kill()
        run(mariadb_server, "SET GLOBAL binlog_row_metadata = 'FULL'")
    for sink, protocol in (("text", "canal-json"), ("letters", "csv"), ("parks", "csv")):
        rebuilt = read_sink(tmp_path / sink, settings_for(protocol, settled=False))
        for name in "abpq":
            rows = sorted(rebuilt.tables[DATABASE, name].rows.values(), key=lambda row: int(row["id"]))
            assert rows == rows_of(mariadb_server, name), (sink, name)
        members = {row["id"]: row["v"] for row in rebuilt.tables[DATABASE, "e"].rows.values()}
        assert members == MEMBERS[sink]
    (letter,) = (tmp_path / "letters/_penstock/dead").rglob("*.json")
    assert json.loads(letter.read_text())["after"] == {"id": 2, "v": 3}
    verified = {each["name"]: each for each in flow.verify()[1]["sinks"]}["text"]
    assert verified["equal"] and verified["changes"] == 20 and verified["source_equal"] == 3


def _rows(snapshot: dict[str, Any]) -> dict[str, int]:
    return {each["name"]: each["rows"] for each in snapshot["changefeeds"]}
