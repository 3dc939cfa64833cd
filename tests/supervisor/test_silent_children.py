"""A process that hangs without dying is told by `status`, and ends with the run all the same."""

from __future__ import annotations

import os
import queue
import signal
from pathlib import Path

import pytest

from penstock.clock import ManualClock
from penstock.operations.feeds import errors_of
from penstock.supervisor import restarts
from penstock.supervisor.reporter import _note
from penstock.supervisor.restarts import SILENT_SECONDS_MAX, Backoff, ChildSlot
from penstock.supervisor.status import is_well
from tests.supervisor.test_supervisor import importable, running, settings_of

__all__ = ["importable"]


def slots_of(clock: ManualClock) -> dict[str, ChildSlot]:
    slots = {
        name: ChildSlot(
            name, (), {}, run_dir=Path("run"), reports=queue.Queue(), backoff=Backoff(0.2, 10.0, 60.0), clock=clock
        )
        for name in ("delivery", "driver")
    }
    for slot in slots.values():
        slot.state = "starting"
        slot.on_event({"event": "ready"})
    return slots


@pytest.mark.parametrize("name", ["delivery", "driver"])
def test_a_process_that_was_not_heard_of_is_told_until_it_is(name: str) -> None:
    clock = ManualClock()
    slots = slots_of(clock)
    clock.advance(SILENT_SECONDS_MAX[name])
    for slot in slots.values():
        if slot.name != name:
            slot.heard()
    assert _note("lake", {}, slots) == ""
    clock.advance(1)
    told = f"{name} has said nothing for {SILENT_SECONDS_MAX[name] + 1:.0f} s; if it hangs, kill -9 None lets"
    assert _note("lake", {}, slots).startswith(told)
    slots[name].heard()
    assert _note("lake", {}, slots) == ""
    clock.advance(100)
    assert all(slot.silence for slot in slots.values())
    slots[name].on_end(-9)
    assert not slots[name].silence, "it does not run"


@pytest.mark.parametrize("name", ["delivery", "driver"])
def test_a_stopped_process_degrades_the_flow(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`status` said that all was well, for as long as delivery or the driver stood still."""
    monkeypatch.setitem(restarts.SILENT_SECONDS_MAX, name, 1.0)
    with running(settings_of(tmp_path)) as one:
        one.until(lambda status: status.rows >= 4)
        os.kill(one.pid(name), signal.SIGSTOP)
        found = one.until(lambda status: status.changefeeds[0].state == "recovering")
        assert f"{name} has said nothing for" in found.changefeeds[0].note and not is_well(found)
        [wrong] = errors_of(found, (), None)
        assert wrong.where == name and wrong.message.startswith("has said nothing for"), (
            "`errors` says what `status` does"
        )
        os.kill(one.pid(name), signal.SIGCONT)
        one.until(lambda status: status.changefeeds[0].state == "running")
