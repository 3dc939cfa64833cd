"""Changefeeds come, go and fail one by one, and the others never notice."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from penstock.errors import BadInput, Corruption
from penstock.process import EXIT_FAILED, EXIT_SOURCE, EXIT_TRY_AGAIN
from penstock.spark.changefeeds import Changefeeds
from penstock.spark.failure import PipelineFailure
from penstock.spark.jvm.engine import EngineLost
from tests.support.waiting import wait_until


class Runs:
    """Runs until it is stopped, or until a test ends it by an error."""

    def __init__(self, stop: threading.Event) -> None:
        self.stop = stop
        self.error: BaseException | None = None
        self.again = 0
        self.over = False

    def run(self) -> None:
        while not self.stop.wait(0.01):
            if self.error is not None:
                raise self.error
        self.over = True

    def begin_again(self) -> None:
        self.again += 1


class Driver:
    def __init__(self) -> None:
        self.said: list[dict[str, Any]] = []
        self.codes: list[int] = []
        self.made: dict[str, Runs] = {}
        self.changefeeds = Changefeeds(self.make, self.said.append, self.codes.append)

    def make(self, name: str, settings: dict[str, Any], stop: threading.Event) -> Runs:
        if settings.get("format") == "xml":
            raise BadInput("xml is no format")
        self.made[name] = Runs(stop)
        return self.made[name]

    def ask(self, op: str, **arguments: Any) -> dict[str, Any]:
        return self.changefeeds.handlers[op]({"op": op, **arguments})


@pytest.fixture
def driver() -> Any:
    made = Driver()
    for name in ("lake", "raw"):
        made.ask("add", changefeed=name, settings={})
    yield made
    made.changefeeds.stop()


def test_a_terminal_error_ends_one_and_is_said_once(driver: Driver) -> None:
    driver.made["lake"].error = PipelineFailure(Corruption("the log is damaged", hint="look at it"), "source")
    wait_until(lambda: bool(driver.said), "the failure")
    [said] = driver.said
    assert said == {"event": "failed", "changefeed": "lake", "code": EXIT_SOURCE, "kind": "Corruption",
                    "message": "the log is damaged", "hint": "look at it"}  # fmt: skip
    assert not driver.codes and not driver.made["raw"].over, "the other goes on"
    with pytest.raises(BadInput, match="does not run"):
        driver.ask("begin_again", changefeed="lake")
    driver.ask("add", changefeed="lake", settings={})  # what has failed begins again
    driver.ask("begin_again", changefeed="lake")
    assert driver.made["lake"].again == 1


def test_a_mistake_ends_one_alone_too(driver: Driver) -> None:
    driver.made["raw"].error = KeyError("x")
    wait_until(lambda: bool(driver.said), "the failure")
    assert (driver.said[0]["event"], driver.said[0]["code"]) == ("failed", EXIT_FAILED)
    assert "KeyError" in driver.said[0]["message"] and not driver.codes


def test_the_end_of_spark_is_everybodys(driver: Driver) -> None:
    driver.made["raw"].error = EngineLost("it was killed")
    wait_until(lambda: bool(driver.codes), "the end")
    assert driver.codes == [EXIT_TRY_AGAIN] and driver.said[0]["event"] == "error"


def test_one_is_removed_and_added_beside_the_other(driver: Driver) -> None:
    removed = driver.made["lake"]
    driver.ask("remove", changefeed="lake")
    assert removed.over and not driver.made["raw"].over
    driver.ask("remove", changefeed="lake")  # a repetition changes nothing
    with pytest.raises(BadInput, match="xml"):
        driver.ask("add", changefeed="lake", settings={"format": "xml"})
    driver.ask("add", changefeed="lake", settings={})
    assert not driver.made["lake"].over and not driver.said


def test_requests_that_make_no_sense_are_refused(driver: Driver) -> None:
    with pytest.raises(BadInput, match="runs already"):
        driver.ask("add", changefeed="lake", settings={})
    with pytest.raises(BadInput, match="names no changefeed"):
        driver.ask("remove")
    with pytest.raises(BadInput, match="without settings"):
        driver.ask("add", changefeed="new")
    with pytest.raises(BadInput, match="does not run"):
        driver.ask("begin_again", changefeed="nobody")
