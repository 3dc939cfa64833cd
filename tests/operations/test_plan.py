"""`penstock plan`: what a run would do, against a real server, and what changes for a flow that is there already."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from penstock.cli.main import app
from penstock.clock import SYSTEM_CLOCK
from penstock.files import REAL_FILES
from penstock.log import Position
from penstock.operations.config.loading import load
from penstock.operations.plan.differences import differences
from penstock.operations.plan.flow_facts import FlowFacts, read_flow
from penstock.operations.plan.model import PlannedTable
from penstock.operations.plan.record import read_record, recorded_settings
from penstock.process import EXIT_SOURCE
from penstock.schema.parking import Parking
from penstock.supervisor.run_directory import write_settings_record
from tests.sources.mysql.conftest import own_server  # noqa: F401
from tests.sources.mysql.streaming import fresh, session
from tests.sources.mysql.streaming import run as capture
from tests.support.waiting import wait_until
from tools.components.database import DatabaseServer

MASK_KEY = "a-key-that-nobody-may-read-in-a-plan"


class Planned:
    """A configuration, and `penstock plan` of it."""

    def __init__(self, directory: Path, server: DatabaseServer) -> None:
        self.path = directory / "penstock.yaml"
        self.state_dir = directory / "state"
        base = {"type": "mysql", "unix_socket": str(server.socket), "user": server.user, "password": server.password}
        self.document: dict[str, Any] = {
            "version": 1,
            "state_dir": str(self.state_dir),
            "source": {**base, "start": "snapshot", "tables": {"include": ["plans.*"]}},
            "sinks": {"lake": {"url": "./lake", "format": "parquet"}},
        }

    def plan(self, *options: str) -> Result:
        self.path.write_text(yaml.safe_dump(self.document))
        return CliRunner().invoke(app, ["plan", "-c", str(self.path), *options])

    def read(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.plan("--json").stdout)
        return found

    def start_once(self) -> None:
        """As a first `penstock run` leaves it: the log with its state, and the record of its settings."""
        self.path.write_text(yaml.safe_dump(self.document))
        config = load(self.path)
        self.state_dir.mkdir(mode=0o700, exist_ok=True)
        source = dict(self.document["source"])
        capture(self.state_dir, config.source.model_validate(source))  # type: ignore[arg-type]
        write_settings_record(self.state_dir, recorded_settings(config), SYSTEM_CLOCK.wall_ms(), REAL_FILES)


@pytest.fixture
def planned(server: DatabaseServer, tmp_path: Path) -> Planned:
    with session(server) as cursor:
        fresh(cursor, "plans")
        fresh(cursor, "other")
        for table in ("plans.orders", "plans.tmp_1", "other.refunds"):
            cursor.execute(f"CREATE TABLE {table} (id int primary key, v varchar(20))")
        cursor.execute("INSERT INTO plans.orders VALUES (1, 'a'), (2, 'b'), (3, 'c')")
        cursor.execute("INSERT INTO other.refunds VALUES (1, 'a')")
        cursor.execute("ANALYZE TABLE plans.orders, plans.tmp_1, other.refunds")
    return Planned(tmp_path, server)


def test_a_new_flow(planned: Planned) -> None:
    planned.document["source"]["tables"]["exclude"] = ["plans.tmp_*"]
    done = planned.plan()
    assert done.exit_code == 0, done.output
    for line in (
        "(start: snapshot; a new flow)",
        "LOAD    1 table, about 3 rows",
        "at 100,000 rows/s (assumed; --rate states another)",
        "plans/orders/version=N/date=YYYY-MM-DD/CDC000001.parquet",
        "✓ nothing stands against it → penstock run",
    ):
        assert line in done.output, done.output
    found = planned.read()
    (table,) = found["tables"]
    assert (table["table"], table["rows"], table["primary_key"], table["load"]) == ("plans.orders", 3, True, True)
    assert table["paths"]["lake"].endswith("/lake/plans/orders")
    assert found["differences"] is None and found["flow"] == "new"
    assert found["disk"]["log_bytes"] > 0 and found["disk"]["free_bytes"] > 0
    assert not planned.state_dir.exists(), "a plan makes nothing"


def test_the_rate_decides_the_time(planned: Planned) -> None:
    planned.document["source"]["snapshot"] = {"max_rows_per_second": 2}
    assert planned.read()["load"]["stated"] == "source.snapshot.max_rows_per_second"
    assert planned.read()["load"]["seconds"] == 1.5
    assert json.loads(planned.plan("--rate", "1", "--json").stdout)["load"]["seconds"] == 3.0
    assert planned.plan("--rate", "0").exit_code == 2


@pytest.mark.parametrize(
    ("where", "glob", "said"),
    [
        ("include", "plans.order", "source.tables.include: plans.order matches no table that this user may see"),
        ("only", "plans.nothing", "sinks.lake.only: plans.nothing matches no table"),
        ("only", "other.*", "sinks.lake.only: other.* takes only tables that are left out by others"),
    ],
)
def test_a_glob_that_matches_nothing_is_an_error(planned: Planned, where: str, glob: str, said: str) -> None:
    if where == "include":
        planned.document["source"]["tables"]["include"].append(glob)
    else:
        planned.document["sinks"]["lake"]["only"] = ["plans.orders", glob]
    done = planned.plan()
    assert done.exit_code == 2
    assert said in done.stderr


@pytest.mark.mariadb
def test_a_table_whose_definition_nobody_understands_is_named_before_anything_begins(
    mariadb_server: DatabaseServer, tmp_path: Path
) -> None:
    with session(mariadb_server) as cursor:
        fresh(cursor, "plans")
        cursor.execute("CREATE TABLE plans.orders (id int primary key)")
        cursor.execute("CREATE TABLE plans.kept (id int primary key) WITH SYSTEM VERSIONING")
    planned = Planned(tmp_path, mariadb_server)
    done = planned.plan()
    assert done.exit_code == 3
    assert "plans.kept cannot be loaded: " in done.stderr and "a system-versioned table" in done.stderr
    assert 'source.snapshot.tables: {exclude: ["plans.kept"]}' in done.stderr
    found = planned.read()
    assert {one["table"]: one["load"] for one in found["tables"]} == {"plans.kept": False, "plans.orders": True}
    assert found["load"]["tables"] == 1


def test_tables_without_a_key_are_named_before_anything_begins(planned: Planned, server: DatabaseServer) -> None:
    with session(server) as cursor:
        cursor.execute("CREATE TABLE plans.audit (id int)")
    done = planned.plan()
    assert done.exit_code == 3
    assert "plans.audit cannot be loaded: no primary key" in done.stderr
    planned.document["source"]["start"] = "now"
    relaxed = planned.plan()
    assert relaxed.exit_code == 0
    assert "no primary key, so no load, and verify compares with the log alone: plans.audit" in relaxed.stdout


def test_what_changes_for_a_flow_that_is_there(planned: Planned) -> None:
    planned.document["sinks"]["old"] = {"url": "./old", "format": "csv"}
    planned.start_once()
    same = planned.read()
    assert same["flow"] == "stopped" and same["differences"] == [] and same["load"] is None
    planned.document["source"]["tables"] = {"include": ["plans.*", "other.refunds"], "exclude": ["plans.tmp_*"]}
    planned.document["sinks"]["lake"]["flush"] = {"every": "5m"}
    del planned.document["sinks"]["old"]
    planned.document["sinks"]["raw"] = {"url": "./raw", "format": "canal-json"}
    done = planned.plan()
    assert done.exit_code == 0, done.output
    for line in (
        "+ other.refunds (load about 1 row)",
        "- plans.tmp_1 (files stay)",
        "+ sink raw (gets everything that was captured)",
        "- sink old (files stay; the log keeps what it has not got)",
        "~ lake.flush.every 60s → 5m (no reload)",
    ):
        assert line in done.output, done.output
    assert planned.read()["load"]["tables"] == 1, "the others are loaded already"


def test_what_a_start_would_refuse_is_said_to_be_refused(planned: Planned) -> None:
    planned.start_once()
    planned.document["sinks"]["lake"]["format"] = "csv"
    planned.document["rules"] = [{"table": "plans.orders", "mask": {"v": "hmac-sha256"}}]
    planned.document["mask_key"] = MASK_KEY
    found = {one["what"].split()[0]: one for one in planned.read()["differences"]}
    assert found["lake.format"]["refused"] and not found["rules"]["refused"]
    assert found["rules"]["effect"].startswith("for changes from the next start on")
    assert MASK_KEY not in planned.plan().output


def test_a_binlog_that_the_server_has_purged_stands_against_the_next_start(
    own_server: DatabaseServer,  # noqa: F811
    tmp_path: Path,
) -> None:
    planned = Planned(tmp_path, own_server)
    with session(own_server) as cursor:
        cursor.execute("CREATE DATABASE plans")
        cursor.execute("CREATE TABLE plans.t (id INT PRIMARY KEY)")
        planned.start_once()
        assert planned.plan().exit_code == 0
        cursor.execute("INSERT INTO plans.t VALUES (1)")
        cursor.execute("FLUSH BINARY LOGS")
        cursor.execute("SHOW BINARY LOGS")
        newest = cursor.fetchall()[-1][0]

        def purged() -> bool:  # not while a connection that has just ended still reads one
            cursor.execute(f"PURGE BINARY LOGS TO '{newest}'")
            cursor.execute("SHOW BINARY LOGS")
            return len(cursor.fetchall()) == 1

        wait_until(purged, "the binlog to be purged")
    result = planned.plan()
    said = " ".join(result.output.split())
    assert result.exit_code == EXIT_SOURCE and "Nothing was skipped" in said and "new state_dir" in said


def test_a_flow_whose_settings_nobody_wrote_down(planned: Planned) -> None:
    planned.start_once()
    (planned.state_dir / "settings.json").write_text("{")
    done = planned.plan()
    assert done.exit_code == 0
    assert "nobody wrote down what this flow was started with" in done.output
    assert planned.read()["differences"] is None


def test_the_record_holds_no_secret(planned: Planned) -> None:
    planned.document["mask_key"] = MASK_KEY
    planned.start_once()
    text = (planned.state_dir / "settings.json").read_text()
    assert MASK_KEY not in text
    assert str(planned.document["source"]["password"]) not in text or not planned.document["source"]["password"]
    record = read_record(planned.state_dir)
    assert record is not None and record["mask_key"] == "(hidden)"
    assert read_record(planned.state_dir / "elsewhere") is None


def test_tables_of_a_flow_that_loads_nothing_by_itself() -> None:
    flow = FlowFacts(frozenset({"a.t"}), {}, None, Position(0, 0), whole=False)
    one = PlannedTable(table="a.new", globs=("a.*",), rows=7)
    found = differences({"source.tables.include": ["a.t"]}, {"source.tables.include": ["a.*"]}, [one], [], flow)
    assert (found[0].sign, found[0].what) == ("+", "a.new")
    assert "penstock backfill a.new" in found[0].effect


def test_a_command_can_be_copied_whatever_the_name_of_the_table_is() -> None:
    name = "shop.v$sales `id`"
    flow = FlowFacts(frozenset(), {}, None, Position(0, 0), True)
    table = PlannedTable(table=name, globs=(), rows=3)
    (found,) = differences({"source.tables.include": ["no.*"]}, {}, [table], [], flow)[:1]
    assert shlex.split(found.effect.partition("penstock backfill ")[2]) == [name]
    parked = Parking(name, 0, "", "", 0, False)
    assert shlex.split(parked.command) == ["penstock", "resume", name]
    assert Parking("shop.orders", 0, "", "", 0, False).command == "penstock resume shop.orders"


def test_without_a_log_there_is_no_flow(tmp_path: Path) -> None:
    assert read_flow(tmp_path) is None


def test_a_source_that_cannot_be_asked(planned: Planned) -> None:
    planned.document["source"]["password"] = "wrong"
    assert planned.plan().exit_code in (3, 70, 75)


def test_the_demo_needs_no_server(tmp_path: Path) -> None:
    path = tmp_path / "penstock.yaml"
    sinks = {"lake": {"url": "./lake", "format": "parquet"}}
    path.write_text(yaml.safe_dump({"source": {"type": "demo"}, "sinks": sinks}))
    done = CliRunner().invoke(app, ["plan", "-c", str(path), "--tables"])
    assert done.exit_code == 0, done.output
    assert "shop.orders" in done.output
    path.write_text(yaml.safe_dump({"source": {"type": "binlog-files", "path": "x"}, "sinks": sinks}))
    files = CliRunner().invoke(app, ["plan", "-c", str(path)])
    assert files.exit_code == 0 and "does not say which tables it has" in files.output
