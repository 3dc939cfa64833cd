"""Several tables of a real MariaDB that are one at the sink: held against all of them together."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from penstock.cli.verify import exit_code
from penstock.operations.verify.report import VerifyReport
from penstock.operations.verify.verify import verify
from penstock.process import EXIT_DIFFERENT
from tests.operations.verify.planted import rewrite, without_a_row
from tests.operations.verify.sinks import deliver_from_server, run_statements, server_config
from tools.components.mariadb import MariaDbServer

pytestmark = pytest.mark.mariadb
STATEMENTS = (
    "CREATE TABLE inv_1 (id int PRIMARY KEY, total int)",
    "CREATE TABLE inv_2 (id int PRIMARY KEY, total int)",
    "CREATE TABLE other (id int PRIMARY KEY)",
    "BEGIN",
    "INSERT INTO inv_1 SELECT seq, seq FROM seq_1_to_50",
    "INSERT INTO inv_2 SELECT 100 + seq, seq FROM seq_1_to_50",
    "UPDATE inv_1 SET total = total + 1",
    "DELETE FROM inv_2 WHERE id > 140",
    "UPDATE inv_1 SET id = id + 1000 WHERE id > 40",
    "COMMIT",
    "ALTER TABLE inv_2 ADD note varchar(9)",
    "INSERT INTO inv_2 VALUES (200, 1, 'n')",
    "INSERT INTO inv_1 VALUES (60, 1)",
    "DELETE FROM inv_1 WHERE id = 5",
    "INSERT INTO inv_2 (id, total) VALUES (5, 5)",
    "INSERT INTO other VALUES (1)",
)


def verified(
    server: MariaDbServer, directory: Path, database: str, more: Sequence[str] = (), fmt: str = "parquet"
) -> tuple[VerifyReport, Path]:
    rules = [{"table": f"{database}.inv_*", "compute": {"twice": "total * 2"}, "route": "lake.invoices"}]
    sinks = {"lake": {"url": "./lake", "format": fmt, "rules": rules}}
    config = server_config(server, database, directory, sinks)
    deliver_from_server(config, server, database, (*STATEMENTS, *more))
    return verify(config), directory / "lake"


@pytest.mark.parametrize("fmt", ["parquet", "canal-json"])
def test_all_of_them_together(mariadb_server: MariaDbServer, tmp_path: Path, fmt: str) -> None:
    database = f"whole_{fmt.replace('-', '_')}"
    report, lake = verified(mariadb_server, tmp_path, database, fmt=fmt)
    assert exit_code(report) == 0, report.to_json()
    table = report.sinks[0].tables["lake.invoices"]
    assert table.with_source is not None and table.with_source.rows_at_sink == 49 + 1 + 40 + 2, report.to_json()
    assert sorted(report.sinks[0].tables) == ["lake.invoices", f"{database}.other"]
    assert not (lake / database / "inv_1").exists()


def test_a_row_that_is_missing_or_differs_is_found(mariadb_server: MariaDbServer, tmp_path: Path) -> None:
    report, lake = verified(mariadb_server, tmp_path, "whole_missing")
    config = server_config(mariadb_server, "whole_missing", tmp_path, {"lake": {"url": "./lake", "format": "parquet", "rules": [{"table": "whole_missing.inv_*", "compute": {"twice": "total * 2"}, "route": "lake.invoices"}]}})  # fmt: skip
    file = sorted((lake / "lake" / "invoices").rglob("CDC*.parquet"))[0]
    before = file.read_bytes()
    rewrite(file, without_a_row)
    assert exit_code(verify(config)) == EXIT_DIFFERENT
    file.write_bytes(before)
    run_statements(
        mariadb_server, "whole_missing", ["SET sql_log_bin = 0", "UPDATE inv_2 SET total = 77 WHERE id = 200"]
    )
    (sink,) = verify(config).sinks
    assert any("total 1 at the sink, 77 at the source" in fault for fault in sink.faults), sink.to_json()
    assert exit_code(report) == 0


def test_a_key_in_two_of_them_is_found(mariadb_server: MariaDbServer, tmp_path: Path) -> None:
    report, _ = verified(mariadb_server, tmp_path, "whole_met", ["INSERT INTO inv_2 (id, total) VALUES (7, 8)"])
    assert exit_code(report) == EXIT_DIFFERENT
    assert any("1 of its keys are in more than one of its tables" in fault for fault in report.sinks[0].faults)


def test_rows_of_a_table_that_went_stay(mariadb_server: MariaDbServer, tmp_path: Path) -> None:
    report, _ = verified(
        mariadb_server, tmp_path, "whole_went", ["DROP TABLE inv_1", "DELETE FROM inv_2 WHERE id = 200"]
    )
    assert exit_code(report) == 0, report.to_json()
    assert any("whole_went.inv_1 went" in note for note in report.sinks[0].notes), report.to_json()
