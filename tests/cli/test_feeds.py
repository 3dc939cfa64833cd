"""`penstock lag`, `errors`, `dispatchers` against a run, and `penstock config schema`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from penstock.cli.main import app
from penstock.files.private import make_private_directory
from penstock.operations.config.loading import BadConfig, parse
from penstock.operations.config.template import render
from penstock.supervisor.status import (
    ChangefeedStatus,
    ChildStatus,
    LogStatus,
    ParkedTable,
    RunStatus,
    SourceStatus,
)
from penstock.wire import Server, socket_path

STATUS = RunStatus(
    pid=1,
    started_ms=0,
    now_ms=60_000,
    phase="running",
    source=SourceStatus(type="mariadb", state="running"),
    log=LogStatus(),
    changefeeds=(
        ChangefeedStatus(name="lake", state="running", lag_seconds=2.0),
        ChangefeedStatus(name="raw", state="running", lag_seconds=120.0),
    ),
    children=(ChildStatus(name="driver", state="running"),),
)
CONFIG = """
state_dir: ./state
source: {type: demo}
sinks: {lake: {url: ./lake, format: parquet}, raw: {url: ./raw, format: canal-json}}
"""


class Flow:
    """The sockets of a run that say what a test wants."""

    def __init__(self, directory: Path) -> None:
        self.config = directory / "penstock.yaml"
        self.config.write_text(CONFIG)
        self.status = STATUS
        self.dispatchers: dict[str, dict[str, Any]] = {"lake": {}, "raw": {}}
        run = directory / "state" / "run"
        make_private_directory(run.parent)
        make_private_directory(run)
        self.servers = [
            Server(socket_path(run, "control"), {"status": lambda _a, _b: self.status.model_dump(mode="json")}),
            Server(socket_path(run, "delivery"), {"status": lambda _a, _b: self._delivery()}),
        ]

    def _delivery(self) -> dict[str, Any]:
        return {"changefeeds": {name: {"dispatchers": each} for name, each in self.dispatchers.items()}}

    def penstock(self, *arguments: str) -> Result:
        return CliRunner().invoke(app, [*arguments, "-c", str(self.config)])


@pytest.fixture
def flow(tmp_path: Path) -> Iterator[Flow]:
    one = Flow(tmp_path)
    yield one
    for server in one.servers:
        server.close()


def dispatcher(table: str, **more: Any) -> dict[str, Any]:
    return {"schema": "shop", "table": table, "state": "running", "epoch": 1, "rows": 5, "files": 1, "bytes": 9, **more}


def test_lag_ends_with_one_above_the_limit(flow: Flow) -> None:
    done = flow.penstock("lag")
    assert done.exit_code == 0 and "lake" in done.stdout and "2 m 0 s" in done.stdout
    assert flow.penstock("lag", "--max", "5m").exit_code == 0
    late = flow.penstock("lag", "--max", "60s", "--json")
    assert late.exit_code == 1
    assert json.loads(late.stdout)["late"] == ["raw"]
    assert flow.penstock("lag", "lake", "--max", "60s").exit_code == 0, "one sink alone"
    assert flow.penstock("lag", "nobody").exit_code == 2
    assert flow.penstock("lag", "--max", "soon").exit_code == 2


def test_lag_does_not_call_a_silent_source_up_to_date(flow: Flow) -> None:
    flow.status = STATUS.model_copy(update={"source": STATUS.source.model_copy(update={"problem": "it is down"})})
    done = flow.penstock("lag", "lake", "--max", "60s")
    assert done.exit_code == 1 and "source: it is down" in done.stdout


def test_status_of_one_sink_is_without_the_others(flow: Flow) -> None:
    lake, raw = STATUS.changefeeds
    flow.status = STATUS.model_copy(update={"changefeeds": (lake, raw.model_copy(update={"state": "failed"}))})
    assert flow.penstock("status").exit_code == 1
    done = flow.penstock("status", "--sink", "lake")
    assert done.exit_code == 0 and "lake" in done.stdout and "raw" not in done.stdout
    feeds = json.loads(flow.penstock("status", "--sink", "raw", "--json").stdout)["run"]["changefeeds"]
    assert [feed["name"] for feed in feeds] == ["raw"]
    assert flow.penstock("status", "--sink", "raw").exit_code == 1
    assert flow.penstock("status", "--sink", "nobody").exit_code == 2
    assert flow.penstock("status", "--sink", "lake", "--metrics").exit_code == 2


def test_errors_names_everything_that_is_wrong(flow: Flow) -> None:
    assert flow.penstock("errors").exit_code == 0
    flow.status = STATUS.model_copy(
        update={
            "parked": (
                ParkedTable(
                    table="shop.odd", since_ms=1, statement="ALTER", reason="why", command="penstock resume shop.odd"
                ),
            ),
            "parked_count": 1,
            "children": (ChildStatus(name="driver", state="waiting", restarts=3, note="ended: no memory"),),
        }
    )
    flow.dispatchers["raw"]["ab"] = dispatcher("orders", state="retrying", last_error="[red]no space", attempts=4)
    done = flow.penstock("errors")
    assert done.exit_code == 1
    for words in ("driver (attempt 3): ended: no memory", "shop.odd: parked: why", "→ penstock resume shop.odd"):
        assert words in done.stdout
    assert "raw: shop.orders (attempt 4): retrying: [red]no space" in done.stdout.replace("\n", " ")
    found = json.loads(flow.penstock("errors", "lake", "--json").stdout)["errors"]
    assert [one["where"] for one in found] == ["driver", "shop.odd"], "of this sink, and of the whole flow"


@pytest.mark.parametrize(
    ("state", "said"), [("busy", "retrying"), ("left out", "left out"), ("stopped", "stopped"), ("paused", "paused")]
)
def test_errors_calls_a_table_retrying_only_while_it_is_tried_again(flow: Flow, state: str, said: str) -> None:
    flow.dispatchers["raw"]["ab"] = dispatcher("orders", state=state, last_error="no space", attempts=4)
    assert f"shop.orders (attempt 4): {said}: no space" in flow.penstock("errors").stdout.replace("\n", " ")


def test_errors_names_a_sink_whose_run_begins_again_once(flow: Flow) -> None:
    feed = ChangefeedStatus(name="lake", state="recovering", note="driver tries again: the bucket is gone")
    flow.status = STATUS.model_copy(update={"changefeeds": (feed,)})
    done = flow.penstock("errors")
    assert done.exit_code == 1
    assert done.stdout == "! lake: driver: tries again: the bucket is gone\n"


def test_dispatchers_are_listed_by_sink_and_table(flow: Flow) -> None:
    assert flow.penstock("dispatchers").exit_code == 1, "nothing came yet"
    flow.dispatchers["lake"] = {"aa": dispatcher("orders"), "ab": dispatcher("items")}
    flow.dispatchers["raw"] = {"ba": dispatcher("orders")}
    done = flow.penstock("dispatchers", "--json")
    assert done.exit_code == 0
    found = [(one["sink"], one["table"]) for one in json.loads(done.stdout)["dispatchers"]]
    assert found == [("lake", "shop.items"), ("lake", "shop.orders"), ("raw", "shop.orders")]
    one = flow.penstock("dispatchers", "lake", "--table", "shop.orders")
    assert "shop.orders" in one.stdout and "shop.items" not in one.stdout and "1 table" in one.stdout


@pytest.mark.parametrize("command", ["lag", "errors", "dispatchers"])
def test_a_stopped_flow_has_its_own_exit_code(command: str, tmp_path: Path) -> None:
    (tmp_path / "penstock.yaml").write_text(CONFIG)
    done = CliRunner().invoke(app, [command, "-c", str(tmp_path / "penstock.yaml"), "--json"])
    assert done.exit_code == 5
    assert json.loads(done.stdout) == {"exit_code": 5}


def test_the_schema_knows_the_keys_of_the_file() -> None:
    schema = json.loads(CliRunner().invoke(app, ["config", "schema"]).stdout)
    written = yaml.safe_load(render("mariadb://me@db"))
    assert set(written) <= set(schema["properties"]) and schema["additionalProperties"] is False
    sink = schema["$defs"]["SinkSettings"]
    assert set(written["sinks"]["lake"]) <= set(sink["properties"]) and sink["additionalProperties"] is False
    server = schema["$defs"]["ServerSettings"]["properties"]
    assert set(written["source"]) <= set(server)
    assert {one.get("type") for one in schema["$defs"]["Keep"]["properties"]["for"]["anyOf"][0]["anyOf"]} == {
        "number",
        "string",
    }, "a time is written with its unit"


@pytest.mark.parametrize(
    ("line", "key", "nearest"),
    [
        ("state_dri: ./x", "state_dri", "state_dir"),
        ("limits: {log_dsk: 1GiB}", "limits.log_dsk", "log_disk"),
        ("log: {keep: {fro: 7d}}", "log.keep.fro", "for"),
        ("http: {listen: '127.0.0.1:1', allow_remot: true}", "http.allow_remot", "allow_remote"),
        ("log: {zzz: 1}", "log.zzz", None),
    ],
)
def test_an_unknown_key_is_refused_with_the_nearest_known_one(line: str, key: str, nearest: str | None) -> None:
    text = f"source: {{type: demo}}\nsinks: {{lake: {{url: ./l, format: parquet}}}}\n{line}\n"
    with pytest.raises(BadConfig) as caught:
        parse(text, Path("penstock.yaml"))
    [problem] = caught.value.problems
    assert problem.key == key
    assert problem.message == ("unknown key" if nearest is None else f"unknown key; did you mean {nearest}?")


def test_the_nearest_key_of_a_source_and_of_a_sink() -> None:
    text = "source: {type: mariadb, hots: db, user: u}\nsinks: {lake: {url: ./l, fromat: parquet}}\n"
    with pytest.raises(BadConfig) as caught:
        parse(text, Path("penstock.yaml"))
    messages = {problem.key: problem.message for problem in caught.value.problems}
    assert messages["source.hots"] == "unknown key; did you mean host?"
    assert messages["sinks.lake.fromat"] == "unknown key; did you mean format?"
