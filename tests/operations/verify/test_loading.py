"""Rows that nobody has loaded, and rows that no binlog had: no ✓, and no ✗ for what is only not there yet."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from penstock.capture.load import tables
from penstock.capture.loop import Capture, open_log
from penstock.cli.verify import exit_code
from penstock.operations.config.loading import load
from penstock.operations.config.model import Config
from penstock.operations.verify.verify import verify
from penstock.sources.mysql.load.reader import ServerTableReader
from penstock.sources.mysql.source import ServerSource
from penstock.sources.settings import ServerSettings
from penstock.sources.source import SourceError
from tests.e2e.load import source_of
from tests.operations.verify.sinks import deliver
from tools.components.mariadb import MariaDbServer

pytestmark = [pytest.mark.mariadb]
DATABASE = "unloaded"


@pytest.fixture
def cursor(mariadb_server: MariaDbServer) -> Iterator[Any]:
    with contextlib.closing(mariadb_server.connect()) as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE DATABASE {DATABASE}")
        cursor.execute(f"USE {DATABASE}")
        yield cursor
        cursor.execute(f"DROP DATABASE {DATABASE}")


def configured(server: MariaDbServer, directory: Path, **source: Any) -> Config:
    path = directory / "penstock.yaml"
    (directory / "state").mkdir(mode=0o700)
    value = {
        "version": 1,
        "state_dir": "./state",
        "source": {**source_of(server, DATABASE), **source},
        "sinks": {"lake": {"url": "./lake", "format": "parquet"}},
    }
    path.write_text(yaml.safe_dump(value))
    return load(path)


def catch_up(config: Config) -> None:
    settings = config.source
    assert isinstance(settings, ServerSettings)
    source = ServerSource(settings, config.state_dir)
    log = open_log(config.state_dir)
    try:
        assert Capture(log, source, tables=settings.tables, snapshot=settings.snapshot).run(until_now=True)
    finally:
        source.close()
        log.close()


def test_a_load_that_is_not_done(
    mariadb_server: MariaDbServer, cursor: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for table in ("a", "b"):
        cursor.execute(f"CREATE TABLE {table} (id int PRIMARY KEY)")
        cursor.execute(f"INSERT INTO {table} SELECT seq FROM seq_1_to_20")
    config = configured(mariadb_server, tmp_path, start="snapshot", snapshot={"parallel": 1})
    monkeypatch.setattr(tables, "ROWS_FIRST", 7)
    monkeypatch.setattr(tables, "ROWS_MAX", 7)
    read = ServerTableReader.read
    left = [1, 2]  # chunks of the first table; the other one is not begun

    def ends(self: ServerTableReader, *arguments: Any) -> Any:
        if not left:
            raise SourceError("the load ends here")
        left.pop()
        return read(self, *arguments)

    monkeypatch.setattr(ServerTableReader, "read", ends)
    with pytest.raises(SourceError, match="ends here"):
        catch_up(config)
    monkeypatch.undo()
    deliver(config)
    report = verify(config)
    (lake,) = report.sinks
    assert lake.equal and len(lake.loading) == 2, (lake.faults, lake.loading)
    assert "its initial load has" in lake.loading[0] and not lake.compared_with_source
    assert exit_code(report) == 7


def test_rows_that_no_binlog_had(mariadb_server: MariaDbServer, cursor: Any, tmp_path: Path) -> None:
    cursor.execute("CREATE TABLE loaded (id int PRIMARY KEY)")
    config = configured(mariadb_server, tmp_path, start="snapshot")
    catch_up(config)
    for sql in (
        "CREATE TABLE made (id int PRIMARY KEY)",
        "CREATE TABLE other (id int PRIMARY KEY)",
        "INSERT INTO other VALUES (1)",
    ):
        cursor.execute(sql)
    catch_up(config)
    deliver(config)
    report = verify(config)
    (lake,) = report.sinks
    assert exit_code(report) == 0 and lake.compared_with_source == lake.source_equal == 3, lake
    cursor.execute("SET sql_log_bin = 0")
    for table in ("loaded", "made"):
        cursor.execute(f"INSERT INTO {table} VALUES (7)")
    cursor.execute("SET sql_log_bin = 1")
    report = verify(config)
    assert exit_code(report) == 1
    assert [fault for fault in report.sinks[0].faults if "id = 7" in fault] == [
        f"{DATABASE}.loaded: id = 7 is not at the sink",
        f"{DATABASE}.made: id = 7 is not at the sink",
    ]
