"""Which child knows which changefeed: asked for until it is done, in the right order, and a refusal is no endless loop."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from penstock.clock import ManualClock
from penstock.errors import BadInput, PenstockError, Unavailable
from penstock.supervisor.feeds.changefeeds import ASK_AGAIN_SECONDS, Members


class Child:
    def __init__(self, *names: str) -> None:
        self.clock = ManualClock()
        self.slot: Any = SimpleNamespace(pid=7, state="running", started_with={"changefeeds": dict.fromkeys(names)})
        self.asked: list[dict[str, Any]] = []
        self.waiting: list[Callable[[Any], None]] = []
        requests: Any = self
        self.members = Members(self.slot, requests, self.clock)
        self.refused: list[str] = []

    def send(self, request: dict[str, Any], answered: Callable[[Any], None]) -> int:
        self.asked.append(request)
        self.waiting.append(answered)
        return len(self.asked)

    def want(self, *names: str) -> list[tuple[str, str]]:
        """What is asked of the child now that these are wanted."""
        self.asked = []
        self.members.add({name: {"of": name} for name in names}, self.refuse)
        self.members.remove(set(names))
        return sorted((one["op"], one["changefeed"]) for one in self.asked)

    def refuse(self, name: str, error: PenstockError) -> None:
        self.refused.append(f"{name}: {error.message}")

    def answer(self, what: Any = None) -> None:
        waiting, self.waiting = self.waiting, []
        for one in waiting:
            one({} if what is None else what)


def test_what_changed_is_asked_for_once_and_known_once_it_is_answered() -> None:
    child = Child("lake")
    assert child.want("lake") == []
    assert child.want("raw") == [("add", "raw"), ("remove", "lake")]
    assert child.want("raw") == [], "it has been asked"
    assert child.members.names == {"lake"}
    child.answer()
    assert child.members.names == {"raw"} and child.want("raw") == []


def test_a_process_that_is_gone_knows_nothing_and_its_answers_do_not_count() -> None:
    child = Child("lake")
    child.want("lake", "raw")
    child.slot.pid = None
    assert not child.members.has("lake")
    child.slot.pid, child.slot.started_with = 8, {"changefeeds": {"lake": {}, "raw": {}}}
    child.answer(Unavailable("it ended"))
    assert child.members.names == {"lake", "raw"} and child.want("lake", "raw") == []
    child.slot.state = "starting"
    assert child.want("lake") == [], "it does not listen yet"


def test_a_refusal_is_told_once_and_asked_again_only_when_somebody_wants_it() -> None:
    child = Child()
    child.want("lake")
    child.answer(Unavailable("not now"))
    assert child.want("lake") == []
    child.clock.sleep(ASK_AGAIN_SECONDS)
    assert child.want("lake") == [("add", "lake")]
    child.answer(BadInput("xml"))
    child.clock.sleep(ASK_AGAIN_SECONDS)
    assert child.want("lake") == [] and child.refused == ["lake: xml"]
    child.members.forgive("lake")
    assert child.want("lake") == [("add", "lake")]


def test_one_that_was_refused_goes_and_comes_back_with_other_settings() -> None:
    child = Child()
    child.want("lake")
    child.answer(BadInput("xml"))
    child.clock.sleep(ASK_AGAIN_SECONDS)
    assert child.want("lake") == [] and child.want() == []
    assert child.want("lake") == [("add", "lake")], "it would wait for ever, and nobody would say so"
