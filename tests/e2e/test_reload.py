"""Sinks come, fail, are tried again and go, in one run of real processes: Spark and the other sink never notice."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.flow import Flow, penstock

pytestmark = [pytest.mark.spark]
LAKE = {"format": "parquet", "flush": {"size": "1MiB", "every": "1s"}}
RAW = {"format": "canal-json", "flush": {"size": "1MiB", "every": "1s"}}


def sink(status: dict[str, Any], name: str) -> dict[str, Any]:
    return next((one for one in status["changefeeds"] if one["name"] == name), {"state": "", "rows": 0})


def ask(flow: Flow, command: str, *arguments: str) -> dict[str, Any]:
    done = penstock(command, *arguments, "-c", flow.config, "--json")
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def test_a_sink_is_added_fails_goes_on_and_stays_alone(tmp_path: Path) -> None:
    flow = Flow(tmp_path, {"type": "demo", "seed": 7, "changes": 10_000_000, "rate": 500}, {"lake": dict(LAKE)})
    owner = tmp_path / "raw" / "_penstock" / "owner.json"
    owner.parent.mkdir(parents=True)
    owner.write_text("this is nobody")
    try:
        flow.start(once=False)
        flow.wait_for("the first rows", lambda s: s["rows"] > 0)
        flow.configure_sinks(lake=dict(LAKE), raw=dict(RAW))
        assert ask(flow, "reload") == {"added": ["raw"], "removed": [], "restart": []}
        flow.wait_for("a sink that is refused", lambda s: sink(s, "raw")["state"] == "failed")
        assert "owner.json cannot be read" in sink(flow.last, "raw")["note"]
        rows = sink(flow.last, "lake")["rows"]
        flow.wait_for("rows of the other", lambda s: sink(s, "lake")["rows"] > rows)
        assert penstock("status", "-c", flow.config).returncode == 1

        owner.unlink()
        assert ask(flow, "resume", "raw")["again"] is True
        flow.wait_for(
            "rows of the new one", lambda s: sink(s, "raw")["rows"] > 0 and sink(s, "raw")["state"] == "running"
        )

        flow.configure_sinks(raw=dict(RAW))
        assert ask(flow, "reload") == {"added": [], "removed": ["lake"], "restart": []}
        rows = sink(flow.last, "raw")["rows"]
        flow.wait_for("more rows", lambda s: sink(s, "raw")["rows"] > rows and len(s["changefeeds"]) == 1)
        flow.interrupt()
        summary = flow.finish()
        assert summary["exit_code"] == 0 and set(summary["restarts"].values()) == {0}, summary
        code, report = flow.verify("--no-source")
    finally:
        flow.kill()
    assert code == 0, report
    [compared] = report["sinks"]
    assert compared["name"] == "raw" and compared["equal"] and compared["changes"] > 0, report
