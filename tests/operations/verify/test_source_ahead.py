"""A source that has gone on while no flow runs, and one whose rows are large."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from penstock.cli.verify import exit_code
from penstock.operations.verify import source_truth
from penstock.operations.verify.verify import verify
from tests.operations.verify.sinks import deliver_from_server, run_statements, server_config
from tools.components.database import DatabaseServer

DATABASE = "ahead"
SINKS = {"lake": {"format": "parquet", "url": "./lake"}}


def test_changes_that_nobody_has_read_yet_are_no_difference(server: DatabaseServer, tmp_path: Path) -> None:
    with contextlib.closing(server.connect()) as connection, connection.cursor() as cursor:
        cursor.execute(f"DROP DATABASE IF EXISTS {DATABASE}")
    run_statements(server, DATABASE, ["CREATE TABLE t (id int PRIMARY KEY, v int)"])
    config = server_config(server, DATABASE, tmp_path, SINKS)
    deliver_from_server(config, server, DATABASE, ["INSERT INTO t VALUES (1, 1)"])
    assert exit_code(verify(config)) == 0

    # Behind the binlog's back: the log has read everything that there is to read.
    run_statements(server, DATABASE, ["SET sql_log_bin = 0", "UPDATE t SET v = 2"])
    assert exit_code(verify(config)) == 1
    run_statements(server, DATABASE, ["SET sql_log_bin = 0", "UPDATE t SET v = 1"])

    run_statements(server, DATABASE, ["INSERT INTO t VALUES (2, 2)"])
    report = verify(config)
    assert exit_code(report) == 7, report.to_json()
    assert "ahead.t: the source has changes that were not in the log" in report.sinks[0].held[0]

    # What has gone on elsewhere does not keep tables from being equal.
    run_statements(server, DATABASE, ["DELETE FROM t WHERE id = 2"])
    assert exit_code(verify(config)) == 0


def test_a_chunk_is_bounded_in_bytes(server: DatabaseServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with contextlib.closing(server.connect()) as connection, connection.cursor() as cursor:
        cursor.execute(f"DROP DATABASE IF EXISTS {DATABASE}")
    run_statements(server, DATABASE, ["CREATE TABLE t (id int PRIMARY KEY, v longblob)"])
    config = server_config(server, DATABASE, tmp_path, SINKS)
    rows = ", ".join(f"({n}, REPEAT('x', {100 if n < 50 else 200_000}))" for n in range(80))
    deliver_from_server(config, server, DATABASE, [f"INSERT INTO t VALUES {rows}"])
    monkeypatch.setattr(source_truth, "CHUNK_BYTES", 1 << 20)
    sizes: list[int] = []
    taken = source_truth.inserts

    def measured(table, columns):  # type: ignore[no-untyped-def]
        sizes.append(sum(column.nbytes for column in columns))
        return taken(table, columns)

    monkeypatch.setattr(source_truth, "inserts", measured)
    report = verify(config)
    assert exit_code(report) == 0 and report.sinks[0].source_equal == 1, report.to_json()
    assert len(sizes) == 5 and max(sizes) < 1 << 21, sizes
