"""One table of a sink is paused and goes on by command, over a kill -9 of delivery, while the others flow."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from penstock.operations.feeds import DispatcherState, read_dispatchers
from tests.e2e.flow import Flow, penstock
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.spark]
TABLE = "shop.orders"


def ask(flow: Flow, command: str, *arguments: str) -> dict[str, Any]:
    done = penstock(command, *arguments, "-c", flow.config, "--json")
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def table(flow: Flow) -> DispatcherState:
    """What `penstock dispatchers` shows of it, without a process for each look."""
    found = read_dispatchers(flow.state_dir, "lake", TABLE)
    return found[0] if found else DispatcherState(sink="", dispatcher="", table="", state="", epoch=0)


def test_a_table_is_paused_and_comes_back_while_the_others_flow(tmp_path: Path) -> None:
    lake = {"format": "canal-json", "flush": {"size": "1MiB", "every": "500ms"}}
    flow = Flow(tmp_path, {"type": "demo", "seed": 7, "changes": 10_000_000, "rate": 400}, {"lake": lake})
    try:
        flow.start(once=False)
        flow.wait_for("the first rows", lambda s: s["rows"] > 0)
        wait_until(lambda: bool(table(flow).progress), "rows of the table", flow.errors)
        assert penstock("pause", "lake", "--table", "shop.order", "-c", flow.config).returncode == 2, "a typing error"
        assert ask(flow, "pause", "lake", "--table", TABLE)["changed"]
        wait_until(lambda: table(flow).state == "paused", "its pause", flow.errors)
        progress, rows = table(flow).progress, flow.last["rows"]

        flow.wait_for("rows of the others", lambda s: s["rows"] > rows)
        flow.kill_victim("delivery")
        rows = flow.last["rows"]
        flow.wait_for("rows after the kill", lambda s: s["rows"] > rows)
        wait_until(lambda: table(flow).held_rows > 0, "held rows", flow.errors)
        [shown] = ask(flow, "dispatchers", "lake", "--table", TABLE)["dispatchers"]
        assert shown["state"] == "paused" and shown["held_rows"] > 0
        assert (table(flow).state, table(flow).progress) == ("paused", progress), "over the kill too"
        flow.wait_for("the sink to be well after the kill", lambda s: s["changefeeds"][0]["state"] == "running")
        [paused] = flow.last["changefeeds"][0]["paused_tables"]
        assert paused["table"] == TABLE

        epoch = table(flow).epoch
        assert ask(flow, "resume", "lake", "--table", TABLE)["changed"]
        wait_until(
            lambda: table(flow).epoch == epoch + 1 and table(flow).state not in ("paused", "replaying"),
            "its return",
            lambda: f"{table(flow)}; {flow.errors()}",
        )
        flow.interrupt()
        summary = flow.finish()
        code, report = flow.verify("--no-source")
    finally:
        flow.kill()
    assert summary["exit_code"] == 0 and summary["restarts"]["delivery"] == 1 and not summary["restarts"]["driver"], (
        summary
    )
    assert code == 0, report
    [compared] = report["sinks"]
    assert compared["equal"] and compared["changes"] > 0, report
