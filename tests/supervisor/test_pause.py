"""A paused changefeed: publishes nothing more, keeps its place over restarts, shows in status, and goes on."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.errors import BadInput, Unavailable
from penstock.operations.config.model import Places
from penstock.operations.pause import set_paused
from penstock.supervisor.settings import RunSettings
from penstock.supervisor.status import ChangefeedStatus, RunStatus
from penstock.supervisor.supervisor import run
from tests.supervisor.test_supervisor import Running, delivered, importable, running, settings_of
from tests.support.waiting import wait_until

__all__ = ["importable"]


def two_sinks(state_dir: Path, *, once: bool = False) -> RunSettings:
    settings = settings_of(state_dir, once=once, capture=["more"])
    return replace(settings, changefeeds=dict.fromkeys(("lake", "raw"), settings.changefeeds["lake"]))


def places(state_dir: Path, *sinks: str) -> Places:
    return Places(state_dir=state_dir, sinks=sinks or ("lake", "raw"))


def feed(status: RunStatus, name: str) -> ChangefeedStatus:
    return next(one for one in status.changefeeds if one.name == name)


def append_one(one: Running) -> None:
    more = one.settings.state_dir / "more"
    more.touch()
    wait_until(lambda: not more.exists(), "one more entry")


def test_a_paused_sink_stands_still_while_the_other_goes_on(tmp_path: Path) -> None:
    with running(two_sinks(tmp_path)) as one:
        one.until(lambda s: s.phase == "running" and all(f.mark_delete == "1:9" for f in s.changefeeds))
        assert set_paused(places(tmp_path), "lake", paused=True).changed
        assert not set_paused(places(tmp_path), "lake", paused=True).changed
        append_one(one)
        told = one.until(lambda s: feed(s, "raw").mark_delete == "1:10")
        assert (feed(told, "lake").mark_delete, feed(told, "lake").published_end) == ("1:9", "1:9")
        told = one.until(lambda s: feed(s, "lake").state == "paused" and feed(s, "raw").state == "running")
        assert "penstock resume lake" in feed(told, "lake").note
        assert told.log.pinned_by == "lake"
        os.kill(one.pid("delivery"), signal.SIGKILL)  # the next one is told when its run begins
        one.until(lambda s: any(c.name == "delivery" and c.restarts and c.state == "running" for c in s.children))
        append_one(one)
        told = one.until(lambda s: feed(s, "raw").mark_delete == "1:11")
        assert feed(told, "lake").mark_delete == "1:9"
        one.stop.request()
        summary = one.end()
    assert (summary.exit_code, summary.paused) == (0, ("lake",)), "nobody waits for what is paused"
    assert summary.left_bytes["lake"] > 0 == summary.left_bytes["raw"]

    again = run(two_sinks(tmp_path, once=True))
    assert (again.exit_code, again.mark_delete["lake"]) == (0, "1:9"), "still paused after a restart"

    with running(two_sinks(tmp_path)) as one:
        one.until(lambda s: s.phase == "running")
        assert set_paused(places(tmp_path), "lake", paused=False).changed
        one.until(lambda s: feed(s, "lake").backlog_entries == 0 and feed(s, "lake").state == "running")
        one.stop.request()
        assert one.end().exit_code == 0
    assert sorted(delivered(tmp_path)) == sorted(2 * [f"1:{n}" for n in range(12)]), "each entry once in each sink"


def test_nobody_to_ask_and_nobody_to_pause(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="no penstock run owns"):
        set_paused(places(tmp_path), "lake", paused=True)
    with pytest.raises(BadInput, match="no sink 'nobody'"):
        set_paused(places(tmp_path), "nobody", paused=True)
    config = tmp_path / "penstock.yaml"
    config.write_text("state_dir: ./state\nsource: {type: demo}\nsinks: {lake: {url: ./lake, format: parquet}}\n")
    for command in (["pause", "lake"], ["resume", "lake"]):
        assert CliRunner().invoke(app, [*command, "-c", str(config)]).exit_code == 75
    wrong = CliRunner().invoke(app, ["resume", "lake", "--schema", str(config), "-c", str(config)])
    assert wrong.exit_code == 2 and "lake is a sink" in wrong.stderr
