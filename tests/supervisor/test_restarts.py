"""When a child is started again, and when its end is a failure of the run. No process is started here."""

from __future__ import annotations

import errno
import os
import queue
from pathlib import Path
from typing import Any

import pytest

from penstock.clock import ManualClock
from penstock.supervisor import restarts
from penstock.supervisor.restarts import Backoff, ChildSlot


def slot(name: str = "capture") -> ChildSlot:
    made = ChildSlot(
        name,
        (),
        {},
        run_dir=Path("run"),
        reports=queue.Queue(),
        backoff=Backoff(0.2, 10.0, 60.0),
        clock=ManualClock(),
    )
    made.state = "starting"
    return made


def test_backoff_doubles_and_is_bounded() -> None:
    backoff = Backoff(0.2, 10.0, 60.0)
    assert [round(backoff.seconds(deaths), 1) for deaths in (1, 2, 3, 7, 100)] == [0.2, 0.4, 0.8, 10.0, 10.0]


def test_a_death_waits_for_the_backoff() -> None:
    child = slot()
    child.on_event({"event": "ready"})
    assert child.state == "running"
    assert child.on_end(-9) is None
    assert (child.state, child.note) == ("waiting", "ended: killed by signal 9; again in 0.2 s")


def test_a_process_that_cannot_be_started_now_is_started_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """No process, memory or descriptor left: that ended the whole run, with a traceback."""

    def none_left(*_arguments: Any) -> None:
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    monkeypatch.setattr(restarts, "Child", none_left)
    child = slot()
    child.start()
    assert (child.state, child.pid) == ("waiting", None)
    assert child.note == f"cannot be started: {os.strerror(errno.EAGAIN)}; again in 0.2 s"
    child._clock.sleep(0.2)
    child.start_if_due()
    assert (child.state, child.restarts, child.deaths_in_a_row) == ("waiting", 1, 2)


@pytest.mark.parametrize(
    ("name", "kind", "code", "expected"),
    [
        ("capture", None, 3, 3),
        ("driver", None, 4, 4),
        ("capture", "BadInput", 1, 2),
        ("capture", "NotSupported", 1, 2),
        ("capture", "Corruption", 1, 3),
        ("delivery", "Corruption", 1, 4),
        ("driver", "Corruption", 1, 1),
        ("driver", "Unavailable", 75, None),
        ("driver", "NoSuchKind", 1, None),
        ("driver", None, 1, None),
    ],
)
def test_errors_that_do_not_heal_are_failures(name: str, kind: str | None, code: int, expected: int | None) -> None:
    child = slot(name)
    if kind is not None:
        event: dict[str, Any] = {"event": "error", "kind": kind, "message": "why", "hint": "what next"}
        child.on_event(event)
    failure = child.on_end(code)
    assert (failure.exit_code if failure else None) == expected
    assert child.state == ("failed" if failure else "waiting")
    if failure and kind:
        assert (failure.message, failure.hint) == ("why", "what next")


def test_an_expected_end_is_no_death() -> None:
    child = slot()
    child.expect_end()
    assert child.on_end(0) is None
    assert (child.state, child.deaths_in_a_row) == ("stopped", 0)


def test_a_run_that_gives_up_says_why_the_last_process_ended_and_no_time_of_the_next() -> None:
    child = slot()
    child.on_event({"event": "error", "kind": "Unavailable", "message": "cannot connect to db:3306", "hint": ""})
    assert child.on_end(75) is None
    failure = child.give_up()
    assert (failure.exit_code, failure.hint) == (75, f"its log is {Path('run/capture.log')}")
    assert failure.message == "capture ended: cannot connect to db:3306, 1 time in a row"
    assert child.state == "failed"


def test_what_the_driver_tries_again_concerns_one_changefeed() -> None:
    child = slot("driver")
    child.on_event({"event": "ready"})
    child.on_event({"event": "restart", "changefeed": "lake", "message": "the bucket is gone"})
    child.on_event({"event": "progress", "changefeed": "raw"})
    assert (child.note, child.feed_notes) == ("", {"lake": "tries again: the bucket is gone"})
    child.on_event({"event": "progress", "changefeed": "lake"})
    assert child.feed_notes == {}
