"""`penstock backfill` against a run: what is asked of it, and what is shown of the answer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from penstock.cli.main import app
from penstock.errors import BadInput
from penstock.files.private import make_private_directory
from penstock.operations import backfill
from penstock.supervisor.status import LoadingTable, LoadStatus, RunStatus
from penstock.wire import Server, socket_path
from tests.cli.test_feeds import CONFIG, STATUS


class Flow:
    """The control socket of a run that loads what it is asked for within a few questions."""

    def __init__(self, directory: Path) -> None:
        self.config = directory / "penstock.yaml"
        self.config.write_text(CONFIG)
        self.asked: list[dict[str, Any]] = []
        self.loads = [
            None,
            LoadStatus(tables=3, done=3, rows=9, rows_left=0, begun_ms=4),  # of an earlier one
            LoadStatus(tables=1, done=0, rows=5, rows_left=5, begun_ms=5),
            LoadStatus(tables=1, done=1, rows=10, rows_left=0, begun_ms=5),
        ]
        run = directory / "state" / "run"
        make_private_directory(run.parent)
        make_private_directory(run)
        self.server = Server(socket_path(run, "control"), {"status": self._status, "backfill": self._backfill})

    def _status(self, _arguments: dict[str, Any], _body: memoryview) -> dict[str, Any]:
        load = self.loads.pop(0) if len(self.loads) > 1 else self.loads[0]
        source = STATUS.source.model_copy(update={"load": load})
        return RunStatus.model_validate({**STATUS.model_dump(), "source": source.model_dump()}).model_dump(mode="json")

    def _backfill(self, arguments: dict[str, Any], _body: memoryview) -> dict[str, Any]:
        self.asked.append({name: arguments[name] for name in ("tables", "where")})
        if arguments["tables"] == ["shop.bare"]:
            raise BadInput("shop.bare cannot be loaded: it has no primary key", hint="nothing was begun")
        refused = [{"table": "shop.bare", "reason": "it has no primary key"}]
        return {"tables": [{"table": "shop.a", "estimate": 10}], "refused": refused, "begun_ms": 5}

    def penstock(self, *arguments: str) -> Result:
        return CliRunner().invoke(app, ["backfill", *arguments, "-c", str(self.config)])


@pytest.fixture
def flow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Flow]:
    monkeypatch.setattr(backfill, "_POLL_SECONDS", 0.0)
    one = Flow(tmp_path)
    yield one
    one.server.close()


def test_what_is_asked_and_what_is_shown(flow: Flow) -> None:
    done = flow.penstock("shop.*", "crm.x", "--where", "id > 5")
    assert done.exit_code == 0, done.output
    assert flow.asked == [{"tables": ["shop.*", "crm.x"], "where": "id > 5"}]
    assert "shop.a is being loaded: about 10 rows" in done.stdout
    assert "shop.bare is not: it has no primary key" in done.stdout
    found = json.loads(flow.penstock("--all", "--json").stdout)
    assert flow.asked[1:] == [{"tables": ["*.*"], "where": ""}]
    assert [one["table"] for one in found["tables"]] == ["shop.a"] and found["begun_ms"] == 5


@pytest.mark.parametrize("condition", ["", "  "])
def test_a_condition_that_is_empty_does_not_mean_every_row(flow: Flow, condition: str) -> None:
    done = flow.penstock("shop.orders", "--where", condition)
    assert done.exit_code == 2 and "--where is empty" in done.output and flow.asked == []


def test_waiting_ends_with_the_load_that_was_asked_for(flow: Flow) -> None:
    done = flow.penstock("shop.a", "--wait")
    assert done.exit_code == 0 and "10 rows of 1 table in the log" in done.stdout
    assert len(flow.loads) == 1, "an earlier load that is done says nothing of this one"
    ended = LoadingTable(table="shop.a", rows=5, estimate=10, note="no such column")
    flow.loads = [flow.loads[0].model_copy(update={"ended": (ended,)})] if flow.loads[0] else []
    failed = flow.penstock("shop.a", "--wait", "--json")
    assert failed.exit_code == 1
    assert json.loads(failed.stdout)["load"]["ended"][0]["note"] == "no such column"


def test_refusals(flow: Flow) -> None:
    for arguments in ((), ("shop.a", "--all"), ("shop",), ("shop.bare",)):
        assert flow.penstock(*arguments).exit_code == 2, arguments
    assert flow.asked == [{"tables": ["shop.bare"], "where": ""}]
    flow.server.close()
    assert flow.penstock("shop.a").exit_code == 75
