"""Requests to a child: each gets its own answer, an error that the child says, or one that says that it is gone."""

from __future__ import annotations

import queue
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from penstock.clock import SYSTEM_CLOCK
from penstock.errors import BadInput, Unavailable
from penstock.supervisor import requests
from penstock.supervisor.child import ChildSaid, Report
from penstock.supervisor.requests import Requests
from penstock.supervisor.restarts import Backoff, ChildSlot
from tests.support.waiting import LIMIT_SECONDS, wait_until

_CHILD = """
import json, sys
sys.stdin.readline()
print(json.dumps({"event": "ready"}), flush=True)
for line in sys.stdin:
    asked = json.loads(line)
    if asked["op"] == "die":
        sys.exit(1)
    said = {"error": {"kind": "BadInput", "message": "no", "hint": ""}} if asked["op"] == "no" else {"result": {"size": len(line)}}
    if asked["op"] != "silence":
        print(json.dumps({"event": "answer", "request": asked["request"], **said}), flush=True)
"""


class Parent:
    """What the run's thread does with the reports of one child."""

    def __init__(self, directory: Path) -> None:
        self.reports: queue.Queue[Report] = queue.Queue()
        self.slot = ChildSlot(
            "capture",
            (sys.executable, "-c", _CHILD),
            {},
            run_dir=directory,
            reports=self.reports,
            backoff=Backoff(60.0, 60.0, 60.0),
            clock=SYSTEM_CLOCK,
        )
        self.requests = Requests(self.slot)
        self.over = False

    def work(self) -> None:
        self.slot.start()
        while not self.over:
            try:
                report = self.reports.get(timeout=0.05)
            except queue.Empty:
                continue
            if not isinstance(report, ChildSaid):
                self.slot.on_end(report.code)
                self.requests.on_end()
                return
            self.slot.on_event(report.event)
            if report.event["event"] == "answer":
                self.requests.on_answer(report.event)
        self.slot.kill()


@pytest.fixture
def parent(tmp_path: Path) -> Any:
    parent = Parent(tmp_path)
    thread = threading.Thread(target=parent.work)
    thread.start()
    wait_until(lambda: parent.slot.state == "running", "a child that is ready")
    yield parent
    parent.over = True
    thread.join(LIMIT_SECONDS)


def test_every_request_gets_its_own_answer(parent: Parent) -> None:
    answers: dict[int, int] = {}

    def ask(number: int) -> None:
        answers[number] = parent.requests.ask({"op": "size", "text": "x" * number})["size"]

    sizes = [0, 100_000, 7, 300_000]  # larger than a pipe holds
    threads = [threading.Thread(target=ask, args=(number,)) for number in sizes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT_SECONDS)
    assert sorted(answers) == sorted(sizes) and all(0 < answers[n] - n < 60 for n in sizes)


def test_a_refusal_is_raised(parent: Parent) -> None:
    with pytest.raises(BadInput, match="no"):
        parent.requests.ask({"op": "no"})


def test_a_child_that_dies_or_is_silent(parent: Parent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "ANSWER_SECONDS_MAX", 0.2)
    with pytest.raises(Unavailable, match="did not answer"):
        parent.requests.ask({"op": "silence"})
    monkeypatch.setattr(requests, "ANSWER_SECONDS_MAX", LIMIT_SECONDS)
    with pytest.raises(Unavailable, match="ended before"):
        parent.requests.ask({"op": "die"})
    with pytest.raises(Unavailable, match="does not run now"):
        parent.requests.ask({"op": "size"})
