"""The real components themselves: what a test may count on when it asks for one, and what a run says of missing
ones."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.support.components import missing, skipped_line
from tools.components import MissingComponent, mariadb
from tools.components.mariadb import MariaDbServer


@pytest.mark.mariadb
def test_mariadb_writes_full_row_events_and_survives_kill(mariadb_server: MariaDbServer, tmp_path: Path) -> None:
    # A second server, so that the shared one is not killed under other tests; the fixture has skipped if there is none.
    server = MariaDbServer(tmp_path / "private").start()
    try:
        assert server.port != mariadb_server.port
        with server.connect() as connection, connection.cursor() as cursor:
            cursor.execute(
                "SELECT @@binlog_format, @@binlog_row_image, @@binlog_row_metadata, @@log_bin, @@server_id, @@gtid_strict_mode"
            )
            assert cursor.fetchone() == ("ROW", "FULL", "FULL", 1, 1, 1)
            cursor.execute("SHOW BINLOG EVENTS")
            assert not [row for row in cursor.fetchall() if "CREATE USER" in row[5]], "set-up stays out of the binlog"
            cursor.execute("CREATE DATABASE d")
            cursor.execute("CREATE TABLE d.t (a INT PRIMARY KEY)")
            cursor.execute("INSERT INTO d.t VALUES (1)")
        server.kill()
        server.start()
        with server.connect("d") as connection, connection.cursor() as cursor:
            cursor.execute("SELECT a FROM t")
            assert cursor.fetchall() == ((1,),)
        assert (server.binlog_directory / "binlog.000001").exists()
    finally:
        server.stop()


def test_a_missing_server_is_said_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mariadb, "_SEARCH_PATH", "/nowhere")
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.delenv("PENSTOCK_INSTALL", raising=False)
    with pytest.raises(MissingComponent, match="install"):
        mariadb.find_mariadbd()


def test_a_missing_component_skips_or_fails_in_strict_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "")
    monkeypatch.delenv("PENSTOCK_STRICT", raising=False)
    with pytest.raises(pytest.skip.Exception, match="no such server"):
        missing("no such server")
    monkeypatch.setenv("PENSTOCK_STRICT", "1")
    with pytest.raises(pytest.fail.Exception, match="no such server"):
        missing("no such server")


def test_one_line_says_what_was_skipped() -> None:
    def skipped(reason: str) -> SimpleNamespace:
        return SimpleNamespace(longrepr=("tests/test_x.py", 1, f"Skipped: {reason}"))

    assert skipped_line([]) == ""
    assert skipped_line([skipped("no Java")]) == "skipped: 1 test (1: no Java)"
    reports = [skipped("no Java"), skipped("no MariaDB: install it"), skipped("no MariaDB: install it")]
    assert skipped_line(reports) == "skipped: 3 tests (2: no MariaDB: install it; 1: no Java)"
