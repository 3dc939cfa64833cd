"""A terminal error of one changefeed stops that one: the others go on, status says so, and the exit code at the end."""

from __future__ import annotations

from pathlib import Path

from penstock.operations.feeds import errors_of
from penstock.operations.pause import set_paused
from penstock.process import EXIT_SINK
from penstock.supervisor.status import is_well
from penstock.supervisor.supervisor import run
from tests.supervisor.test_pause import append_one, feed, places, two_sinks
from tests.supervisor.test_supervisor import importable, running, settings_of

__all__ = ["importable"]


def test_the_other_sink_goes_on_and_status_says_which_stands_still(tmp_path: Path) -> None:
    with running(two_sinks(tmp_path)) as one:
        one.until(lambda s: all(f.mark_delete == "1:9" for f in s.changefeeds))
        driver = one.pid("driver")
        (tmp_path / "fail-lake").touch()
        told = one.until(lambda s: feed(s, "lake").state == "failed")
        assert "the sink refuses" in feed(told, "lake").note and "penstock resume lake" in feed(told, "lake").note
        assert not is_well(told)
        [wrong] = errors_of(told, (), None)
        assert (wrong.sink, wrong.command) == ("lake", "penstock resume lake")
        append_one(one)
        told = one.until(lambda s: feed(s, "raw").mark_delete == "1:10")
        assert feed(told, "raw").state == "running"
        assert (feed(told, "lake").state, feed(told, "lake").mark_delete) == ("failed", "1:9")

        (tmp_path / "fail-lake").unlink()  # what was wrong is mended
        assert set_paused(places(tmp_path), "lake", paused=False).again
        one.until(lambda s: feed(s, "lake").mark_delete == "1:10" and is_well(s))
        assert one.pid("driver") == driver, "without a restart of Spark"
        assert not set_paused(places(tmp_path), "lake", paused=False).again, "nothing is left to try"

        (tmp_path / "fail-lake").touch()
        one.until(lambda s: feed(s, "lake").state == "failed")
        one.stop.request()
        summary = one.end()
    assert (summary.exit_code, summary.message) == (EXIT_SINK, "lake: the sink refuses")
    assert summary.failed == {"lake": "the sink refuses"} and summary.hint == "ask it why"


def test_once_catches_up_with_the_others_and_fails(tmp_path: Path) -> None:
    (tmp_path / "fail-lake").touch()
    summary = run(two_sinks(tmp_path, once=True))
    assert (summary.exit_code, summary.message) == (EXIT_SINK, "lake: the sink refuses")
    assert summary.mark_delete["raw"] == "1:9"
    assert summary.left_bytes["lake"] > 0 == summary.left_bytes["raw"]


def test_the_run_ends_once_all_of_them_have_failed(tmp_path: Path) -> None:
    (tmp_path / "fail-lake").touch()
    summary = run(settings_of(tmp_path))
    assert (summary.exit_code, summary.message) == (EXIT_SINK, "the sink refuses")
