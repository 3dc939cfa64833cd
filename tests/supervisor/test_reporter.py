"""What `penstock status` says of the log and of tables that are tried again: true figures, and one text for one trouble."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.changefeed.facts import DispatcherFacts
from penstock.clock import ManualClock
from penstock.log import Log, LogReader, LogSettings
from penstock.log.position import Position
from penstock.supervisor.reporter import Reporter, Watched, _note

MIB = 1 << 20
PARTS = ("capture", "delivery", "driver")


def test_a_log_grows_by_what_is_appended_not_by_the_space_that_its_file_gets(tmp_path: Path) -> None:
    clock = ManualClock()
    settings = SimpleNamespace(state_dir=tmp_path, source={"type": "demo"}, limits={"log_disk": 100 * MIB})
    reporter: Any = Reporter(settings, {"capture": SimpleNamespace(state="running")}, clock, None)  # type: ignore[arg-type]
    assert reporter._log(()).full_seconds is None

    with closing(Log.open(tmp_path / "log", LogSettings(preallocate_bytes=16 * MIB))) as log:
        reporter.reader = LogReader.open(tmp_path / "log")
        with closing(reporter.reader):
            reporter._log(())
            clock.advance(10)
            log.append(b"state").result()
            clock.advance(10)
            idle = reporter._log(())
            assert idle.bytes >= 16 * MIB
            assert idle.full_seconds > 86_400

            log.append(bytes(2 * MIB)).result()
            clock.advance(20)
            busy = reporter._log(())
            assert busy.full_seconds == pytest.approx((100 * MIB - busy.bytes) / (2 * MIB / 40), rel=0.01)


def slots(**feed_notes: str) -> Any:
    return {
        name: SimpleNamespace(note="", silence="", state="running", feed_notes=feed_notes)
        for name in ("delivery", "driver")
    }


def test_a_table_that_is_tried_again_has_one_text_whatever_it_does_at_the_moment() -> None:
    table = {"schema": "shop", "table": "orders", "attempts": 3, "last_error": "no answer"}
    notes = {
        _note("lake", {"changefeeds": {"lake": {"dispatchers": {"a": {**table, "state": state}}}}}, slots())
        for state in ("busy", "retrying")
    }
    assert notes == {"shop.orders retrying, attempt 3: no answer"}


@pytest.mark.parametrize("state", ["left out", "stopped", "paused"])
def test_a_table_that_is_not_tried_again_is_not_called_so(state: str) -> None:
    """Its tries are over, and their number stays: a table is left out only after some."""
    table = {"schema": "shop", "table": "orders", "attempts": 3, "last_error": "no answer", "state": state}
    told = _note("lake", {"changefeeds": {"lake": {"dispatchers": {"a": table}}}}, slots())
    assert told == f"shop.orders {state}: no answer"


def test_a_sink_whose_run_begins_again_is_alone_in_that() -> None:
    assert _note("lake", {}, slots(lake="tries again: the bucket is gone")) == "driver tries again: the bucket is gone"
    assert _note("raw", {}, slots(lake="tries again: the bucket is gone")) == ""


def test_a_sink_that_begins_anew_has_a_rate_of_its_own(tmp_path: Path) -> None:
    """What one of its name had delivered, which was forgotten, counted against it: -8,771 rows a second."""
    clock = ManualClock()
    settings = SimpleNamespace(state_dir=tmp_path, source={"type": "demo"}, limits={})
    feeds = SimpleNamespace(settings={"lake": {}}, failed={})
    parts = {name: SimpleNamespace(state="running", note="", silence="", feed_notes={}, restarts=0) for name in PARTS}
    reporter: Any = Reporter(settings, parts, clock, feeds)  # type: ignore[arg-type]
    found = []
    for rows in (1_000_000, 50):
        keeper = keeper_with(rows)
        reporter.watched["lake"] = Watched(keeper, SimpleNamespace(seconds=lambda _now: 0.0))  # type: ignore[arg-type]
        for _ in range(3):
            found.append(reporter._feed("lake", "running", {}, clock.wall_ms()).rows_per_second)
            clock.advance(10)
    assert found == [None, 0.0, 0.0, None, 0.0, 0.0]


def keeper_with(rows: int) -> Any:
    facts = {"d": DispatcherFacts(1, "shop", "orders", rows=rows)}
    place = Position(1, 0)
    return SimpleNamespace(
        name="lake", snapshot=lambda: facts, left_out={}, paused_ms=None, backlog=lambda: 0, mark_delete=place,
        published_end=place, checkpoint_ts=0,
    )  # fmt: skip
