"""Sinks are added to a running flow and taken out of it, without a restart of anything, over kills of the children too."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.changefeed.keeper import Keeper
from penstock.errors import BadInput, OutcomeUnknown, PenstockError, Unavailable
from penstock.operations.forget import forget, left_sinks
from penstock.operations.plan.record import read_record
from penstock.operations.reload import reload
from penstock.process import EXIT_TRY_AGAIN
from penstock.supervisor.settings import RunSettings
from penstock.supervisor.status import RunStatus
from penstock.supervisor.supervisor import run
from penstock.wire import socket_path
from tests.supervisor.test_pause import append_one, feed, places
from tests.supervisor.test_supervisor import Running, delivered, importable, settings_of
from tests.support.waiting import wait_until

__all__ = ["importable"]


class Reloading(Running):
    """A run whose configuration a test changes: `wanted`, or `wrong` if it cannot be read."""

    def __init__(self, settings: RunSettings) -> None:
        self.wanted = settings
        self.wrong: PenstockError | None = None
        super().__init__(settings)

    def read_again(self) -> RunSettings:
        if self.wrong is not None:
            raise self.wrong
        return self.wanted

    def want(self, *names: str) -> None:
        settings = self.settings.changefeeds["lake"]
        record = {f"sinks.{name}.url": name for name in names}
        self.wanted = replace(self.wanted, changefeeds=dict.fromkeys(names, settings), record=record)

    def _run(self) -> None:
        self.summary = run(
            self.settings, on_progress=self.seen.append, stop_event=self.stop, read_again=self.read_again
        )


@contextmanager
def reloading(settings: RunSettings) -> Iterator[Reloading]:
    one = Reloading(settings)
    try:
        yield one
    finally:
        one.stop.request()
        one.stop.request()
        one.end()


def at(name: str, position: str) -> Callable[[RunStatus], bool]:
    return lambda s: any(f.name == name and f.mark_delete == position for f in s.changefeeds)


def names(status: RunStatus) -> list[str]:
    return [one.name for one in status.changefeeds]


def test_a_sink_is_added_and_taken_out_while_the_other_goes_on(tmp_path: Path) -> None:
    with reloading(replace(settings_of(tmp_path, capture=["more"]), record={"sinks.lake.url": "lake"})) as one:
        one.until(at("lake", "1:9"))
        pids = one.pid("driver"), one.pid("delivery"), one.pid("capture")
        one.want("lake", "raw")
        done = reload(places(tmp_path))
        assert (done.added, done.removed, done.restart) == (("raw",), (), ())
        one.until(at("raw", "1:9"))
        append_one(one)
        one.until(lambda s: at("lake", "1:10")(s) and at("raw", "1:10")(s))

        one.want("raw")
        done = reload(places(tmp_path))
        assert (done.added, done.removed) == ((), ("lake",))
        assert read_record(tmp_path) == {"sinks.raw.url": "raw"}, "what penstock plan compares with"
        wait_until(lambda: "delivery removed lake" in (tmp_path / "order.txt").read_text(), "the end of the sink")
        append_one(one)
        told = one.until(at("raw", "1:11"))
        assert names(told) == ["raw"]

        (left,) = left_sinks(places(tmp_path, "raw"))
        assert (left.name, left.mark_delete) == ("lake", "1:10"), "it keeps its place, and somebody says so"
        one.want("raw", "lake")  # put back, it goes on where it was
        wait_until(lambda: reloaded(tmp_path) == ("lake",), "the keeper to be closed")
        told = one.until(at("lake", "1:11"))
        assert feed(told, "lake").state == "running"
        assert pids == (one.pid("driver"), one.pid("delivery"), one.pid("capture")), "nothing was started again"
        one.stop.request()
        assert one.end().exit_code == 0
    order = (tmp_path / "order.txt").read_text().splitlines()
    assert order.index("driver removed lake") < order.index("delivery removed lake")
    assert sorted(delivered(tmp_path)) == sorted(2 * [f"1:{n}" for n in range(12)]), "each entry once in each sink"


def test_a_sink_whose_keeper_fails_as_it_is_taken_out_ends_the_run_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its close raised through the whole run: nobody learned the exit code, or what was left at the other sinks."""
    close = Keeper.close

    def failing(keeper: Keeper) -> None:
        close(keeper)
        if keeper.name == "lake":
            raise OutcomeUnknown("nobody knows whether the last records are on the disk", hint="repair the disk")

    monkeypatch.setattr(Keeper, "close", failing)
    with reloading(settings_of(tmp_path)) as one:
        one.until(at("lake", "1:9"))
        one.want("raw")
        assert reload(places(tmp_path)).removed == ("lake",)
        summary = one.end()
        assert (summary.exit_code, summary.hint) == (EXIT_TRY_AGAIN, "repair the disk")
        assert set(summary.mark_delete) == {"raw"}


def reloaded(state_dir: Path) -> tuple[str, ...]:
    try:
        return reload(places(state_dir)).added
    except Unavailable:  # it is still being removed
        return ()


@pytest.mark.parametrize("child", ["driver", "delivery"])
def test_a_child_that_dies_meanwhile_comes_back_with_the_sinks_of_now(tmp_path: Path, child: str) -> None:
    with reloading(settings_of(tmp_path, capture=["more"])) as one:
        one.until(at("lake", "1:9"))
        os.kill(one.pid(child), signal.SIGKILL)
        one.want("raw", "new")
        assert reload(places(tmp_path)).added == ("raw", "new")
        one.until(lambda s: names(s) == ["raw", "new"] and at("raw", "1:9")(s) and at("new", "1:9")(s))
        one.stop.request()
        assert one.end().exit_code == 0


def test_what_needs_a_restart_is_named_and_a_mistake_changes_nothing(tmp_path: Path) -> None:
    with reloading(settings_of(tmp_path)) as one:
        one.until(at("lake", "1:9"))
        changed = {"lake": {**one.settings.changefeeds["lake"], "every_seconds": 7}}
        one.wanted = replace(one.settings, changefeeds=changed, spark={"master": "local[7]"}, http_listen="127.0.0.1:1")
        done = reload(places(tmp_path))
        assert (done.added, done.removed, done.restart) == ((), (), ("spark", "http", "sinks.lake"))
        one.wrong = BadInput("sinks.lake.format: xml")
        with pytest.raises(BadInput, match="xml"):
            reload(places(tmp_path))
        one.wrong = None
        one.want("lake")
        assert reload(places(tmp_path)).added == ()
        assert names(one.until(at("lake", "1:9"))) == ["lake"]


def test_a_run_that_has_no_configuration_or_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="no penstock run owns"):
        reload(places(tmp_path))
    assert not socket_path(tmp_path / "run", "control").exists()
    one = Running(settings_of(tmp_path))
    try:
        one.until(at("lake", "1:9"))
        with pytest.raises(Unavailable, match="no configuration"):
            reload(places(tmp_path))
    finally:
        one.stop.request()
        one.end()


def test_a_sink_that_was_taken_out_is_forgotten_while_the_other_goes_on(tmp_path: Path) -> None:
    with reloading(settings_of(tmp_path, capture=["more"])) as one:
        one.until(at("lake", "1:9"))
        with pytest.raises(BadInput, match="lake is a sink of this run"):
            forget_of_a_stale_configuration(tmp_path)
        one.want("raw")
        assert reload(places(tmp_path)).removed == ("lake",)

        def forgotten() -> bool:
            try:
                return forget(places(tmp_path, "raw"), "lake", yes=True).done
            except Unavailable:  # it is still being removed
                return False

        assert not forget(places(tmp_path, "raw"), "lake", yes=False).done
        wait_until(forgotten, "lake to be forgotten")
        assert left_sinks(places(tmp_path, "raw")) == ()
        with pytest.raises(BadInput, match="no sink 'lake'"):
            forget(places(tmp_path, "raw"), "lake", yes=True)
        append_one(one)
        one.until(at("raw", "1:10"))
        one.want("raw", "lake")  # as a new one
        assert reload(places(tmp_path)).added == ("lake",)
        one.until(at("lake", "1:10"))
        one.stop.request()
        assert one.end().exit_code == 0
    assert delivered(tmp_path).count("1:0") == 3, "lake had it, raw has it, and the new lake has it again"
    with pytest.raises(BadInput, match="is in the configuration"):
        forget(places(tmp_path, "lake", "raw"), "lake", yes=True)
    assert forget(places(tmp_path, "raw"), "lake", yes=True).done, "also while no flow runs"
    assert [one.name for one in left_sinks(places(tmp_path, "other"))] == ["raw"]


def forget_of_a_stale_configuration(state_dir: Path) -> None:
    forget(places(state_dir, "raw"), "lake", yes=True)
