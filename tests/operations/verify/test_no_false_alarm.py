"""What a flow of today meets at a real server, and verify once took for a difference, or could not compare at all."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

import pytest

from penstock.cli.verify import exit_code
from penstock.entries.format import parse_entry
from penstock.log import LogReader
from penstock.log.position import Position
from penstock.operations.config.model import Config
from penstock.operations.verify import log_replay
from penstock.operations.verify import verify as module
from penstock.operations.verify.verify import verify
from penstock.rules.settings import Rule
from penstock.rules.versions import BEGINNING, RowSettings, SettingsVersion
from tests.operations.verify.planted import rewrite
from tests.operations.verify.sinks import capture_server, deliver, deliver_from_server, run_statements, server_config
from tools.components.mariadb import MariaDbServer

pytestmark = pytest.mark.mariadb
DATABASE = "no_alarm"
SINKS = {"lake": {"format": "parquet", "url": "./lake"}, "text": {"format": "canal-json", "url": "./text"}}


def begin(server: MariaDbServer, directory: Path, *statements: str) -> Config:
    """A flow from a database in which the statements were run before."""
    with contextlib.closing(server.connect()) as connection, connection.cursor() as cursor:
        cursor.execute(f"DROP DATABASE IF EXISTS {DATABASE}")
    run_statements(server, DATABASE, statements)
    return server_config(server, DATABASE, directory, SINKS)


def test_rows_from_before_the_log_began(
    mariadb_server: MariaDbServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = ("CREATE TABLE t (id int PRIMARY KEY, v int)", "INSERT INTO t VALUES (1, 1), (2, 2), (3, 3), (4, 4)")
    config = begin(mariadb_server, tmp_path, *before)
    changes = ["INSERT INTO t VALUES (5, 5)", "UPDATE t SET v = 9 WHERE id = 1", "DELETE FROM t WHERE id = 2"]
    deliver_from_server(config, mariadb_server, DATABASE, changes)
    report = verify(config)
    assert exit_code(report) == 0, report.to_json()
    for sink in report.sinks:
        found = sink.tables[f"{DATABASE}.t"].with_source
        assert found is not None and found.before_log == 2 and found.rows_at_source == 4, sink
        assert re.search(rf"2 rows of the source were there before.*backfill {DATABASE}\.t", "".join(sink.notes))

    # A row that the sink says is deleted is no such row; one that is lost at the sink is found by the log.
    run_statements(mariadb_server, DATABASE, ["SET sql_log_bin = 0", "INSERT INTO t VALUES (2, 2)"])
    assert exit_code(verify(config)) == 1
    run_statements(mariadb_server, DATABASE, ["SET sql_log_bin = 0", "DELETE FROM t WHERE id = 2"])
    (file,) = (tmp_path / "lake" / DATABASE / "t").glob("*/*/CDC*.parquet")
    rewrite(file, lambda rows: rows[1:])
    assert exit_code(verify(config, sink="lake")) == 1

    # In a trimmed log nobody can tell them from rows that are lost.
    monkeypatch.setattr(log_replay.LogReplay, "complete", False)
    report = verify(config, sink="text")
    assert exit_code(report) == 7 and "before the log began, or their changes are lost" in report.sinks[0].held[0]


def test_any_name_of_a_column_and_files_of_others(mariadb_server: MariaDbServer, tmp_path: Path) -> None:
    config = begin(
        mariadb_server,
        tmp_path,
        "CREATE TABLE a (`.id` int PRIMARY KEY, `sink` int, `[0]` int)",
        "CREATE TABLE b (`sink` int PRIMARY KEY, `source` int, n int, k0 int)",
        "CREATE TABLE c (_op int PRIMARY KEY, _seq int)",
    )
    only = [f"{DATABASE}.a", f"{DATABASE}.b"]  # no Parquet file can have c
    sinks = {
        name: sink.model_copy(update={"only": only}) if name == "lake" else sink for name, sink in config.sinks.items()
    }
    config = config.model_copy(update={"sinks": sinks})
    changes = [
        "INSERT INTO a VALUES (3, 3, 3), (4, 4, 4)",
        "INSERT INTO b VALUES (1, 2, 3, 4)",
        "INSERT INTO c VALUES (1, 2)",
    ]
    deliver_from_server(config, mariadb_server, DATABASE, changes)
    for name in ("CDC1.json", "a/CDC1.json", "a/b/c/CDC1.json", "a/b/c/d/CDC1.json", "a/b/c/d/meta/CDC.index"):
        path = tmp_path / "text" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("not ours")
    report = verify(config)
    assert exit_code(report) == 0, report.to_json()
    for sink in report.sinks:
        for table in sink.tables.values():
            assert (table.with_source is not None) == (table.name != f"{DATABASE}.c"), table
            assert bool(table.note) == (table.name == f"{DATABASE}.c"), table


def test_a_table_that_had_the_name_of_one_that_is_routed_later(
    mariadb_server: MariaDbServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where last year's table is set aside, and the new one under its name gets a route."""
    config = begin(mariadb_server, tmp_path, "CREATE TABLE orders (id int PRIMARY KEY, v int)")
    config.state_dir.mkdir(mode=0o700)
    capture_server(config)
    statements = [
        "INSERT INTO orders VALUES (1, 1), (2, 2)",
        "RENAME TABLE orders TO orders_2025",
        "CREATE TABLE orders (id int PRIMARY KEY, v int)",
        "INSERT INTO orders VALUES (7, 7)",
    ]
    run_statements(mariadb_server, DATABASE, statements)
    capture_server(config)
    with contextlib.closing(LogReader.open(config.state_dir / "log")) as reader:
        end = reader.end()
        entries = [parse_entry(entry.data) for entry in reader.read(reader.first, end) if len(entry.data)]
    last = max(int(entry.transactions["commit_ts"].max()) for entry in entries)
    run_statements(mariadb_server, DATABASE, ["INSERT INTO orders VALUES (8, 8)", "UPDATE orders_2025 SET v = 3"])
    capture_server(config)
    route = Rule.model_validate({"table": f"{DATABASE}.orders", "route": "sales.orders"})
    since = Position(end.ledger_id, end.entry_id + 1)
    versions = (
        SettingsVersion(BEGINNING, 0, RowSettings()),
        SettingsVersion(since, last + 1, RowSettings((route,))),
    )
    monkeypatch.setattr(module, "settings_versions", lambda *_: versions)
    deliver(config)
    report = verify(config)
    assert exit_code(report) == 0, report.to_json()
    for sink in report.sinks:
        found = sink.tables[f"{DATABASE}.orders_2025"].with_source
        assert found is not None and (found.rows_at_sink, found.before_log) == (2, 0), sink
        assert sink.tables["sales.orders"].note.startswith("its settings changed")


def test_a_table_made_anew_with_types_of_another_kind_is_compared(
    mariadb_server: MariaDbServer, tmp_path: Path
) -> None:
    config = begin(mariadb_server, tmp_path)
    statements = [
        "CREATE TABLE t (id int PRIMARY KEY, v int)",
        "INSERT INTO t VALUES (1, 1)",
        "DROP TABLE t",
        "CREATE TABLE t (id int PRIMARY KEY, v datetime)",
        "INSERT INTO t VALUES (2, '2026-11-20 01:02:03')",
    ]
    deliver_from_server(config, mariadb_server, DATABASE, statements)
    report = verify(config)
    assert exit_code(report) == 0, report.to_json()
    assert [sink.source_equal for sink in report.sinks] == [1, 1], report.to_json()
    run_statements(mariadb_server, DATABASE, ["SET sql_log_bin = 0", "UPDATE t SET v = '2026-11-20 01:02:04'"])
    assert exit_code(verify(config)) == 1


def test_a_table_that_takes_the_name_to_which_another_is_routed(mariadb_server: MariaDbServer, tmp_path: Path) -> None:
    """From there on both stop; what was delivered before is no row that the log does not have."""
    sinks = {"text": {**SINKS["text"], "rules": [{"table": f"{DATABASE}.users", "route": f"{DATABASE}.people"}]}}
    begin(mariadb_server, tmp_path)
    config = server_config(mariadb_server, DATABASE, tmp_path, sinks)
    statements = [
        "CREATE TABLE users (id int PRIMARY KEY)",
        "INSERT INTO users VALUES (1), (2)",
        "CREATE TABLE people (id int PRIMARY KEY)",
        "INSERT INTO users VALUES (3)",
    ]
    deliver_from_server(config, mariadb_server, DATABASE, statements)
    for some in ((), ["DROP TABLE people", "INSERT INTO users VALUES (4)"]):
        run_statements(mariadb_server, DATABASE, some)
        capture_server(config)
        report = verify(config)
        (sink,) = report.sinks
        assert exit_code(report) == 7 and "would both be" in sink.held[0], report.to_json()
        assert sink.tables[f"{DATABASE}.people"].differences.changes == 2, sink
