"""XA transactions in `penstock status`: those that pin the log, and those whose rows it does not have."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.cli.status import _show
from penstock.clock import ManualClock
from penstock.operations.config.model import Places
from penstock.operations.status import read_status
from penstock.supervisor.reporter import Reporter
from tests.capture.streams import Stream
from tests.operations.resume.shop import capture


def said_of_a_run(event: dict[str, Any]) -> Any:
    """What the status of a run shows once its capture has said this."""
    settings: Any = SimpleNamespace(source={"type": "mariadb"})
    slots: Any = {"capture": SimpleNamespace(state="running")}
    feeds: Any = None
    reporter = Reporter(settings, slots, ManualClock(), feeds)
    reporter.on_capture_event(event)
    return reporter._source("running").xa


def test_groups_without_an_outcome_and_missed_ones(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stream = Stream()
    stream.ddl("CREATE TABLE products (id int)")
    for xid in ("old", "young"):
        stream.xa_begin(xid)
        stream.statement(20)
        stream.xa_prepare(xid)
    stream.prepared["before"] = []
    stream.xa_commit("before")  # it was prepared before the log's start
    (*_, said) = (event for event in capture(tmp_path, stream) if "xa" in event)
    found = read_status(Places(state_dir=tmp_path)).xa
    assert said_of_a_run(said) == found
    assert [one.xid for one in found.held] == ["X'6f6c64',X'',1", "X'796f756e67',X'',1"] and found.held_count == 2
    assert found.held[0].pins_after is not None and found.held[0].since_ms > 0 and found.held[0].pos > 4
    assert [one.xid for one in found.missed] == ["X'6265666f7265',X'',1"] and found.missed_count == 1

    _show(read_status(Places(state_dir=tmp_path)))
    text = " ".join(capsys.readouterr().out.split())
    assert "2 XA transactions without an outcome; the oldest: X'6f6c64',X'',1" in text
    assert f"kept from {found.held[0].pins_after} on" in text
    assert "rows of the XA transaction X'6265666f7265',X'',1 are not in the log" in text

    stream.xa_commit("old")
    stream.xa_commit("young", rollback=True)
    capture(tmp_path, stream)
    found = read_status(Places(state_dir=tmp_path)).xa
    assert not found.held and found.held_count == 0 and found.missed_count == 1
