"""Requests to a capture that works: answered between transactions, once, and by an error that changes nothing."""

from __future__ import annotations

import queue
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.capture.loop import Capture
from penstock.capture.resumption import Resumption, resume_stopped
from penstock.errors import BadInput, Unavailable
from penstock.log import Log, LogReader
from penstock.log.position import Position
from penstock.operations.resume.definition import Definition
from penstock.operations.resume.plan import plan_resume
from penstock.process import Requests
from penstock.sources.settings import Tables
from penstock.sources.source import Chunk
from tests.capture.streams import StreamSource
from tests.operations.resume.shop import CREATE, DEFINITION, PARK, Shop, capture, replayed


class Asking(StreamSource):
    """Asks for a resumption once so many chunks were read: the plan is made of what the log has by then."""

    def __init__(self, stream: Shop, state_dir: Path, after: int, requests: queue.SimpleQueue[dict[str, Any]]) -> None:
        super().__init__(stream, events_per_chunk=1)
        self._state_dir, self._after, self._requests = state_dir, after, requests

    def open(self, position: Any) -> Iterator[Chunk]:
        for number, chunk in enumerate(super().open(position)):
            if number == self._after:
                self._requests.put({"request": 5, "op": "resume", **self._plan().to_json()})
            yield chunk

    def _plan(self) -> Resumption:
        """What was read may not be durable yet."""
        until = time.monotonic() + 30
        while True:
            try:
                return plan(self._state_dir)
            except BadInput:
                if time.monotonic() > until:
                    raise
                time.sleep(0.01)


def plan(state_dir: Path, text: str = DEFINITION) -> Resumption:
    reader = LogReader.open(state_dir / "log")
    try:
        return plan_resume(reader, "shop.orders", Definition(text, "a test").define).resumption
    finally:
        reader.close()


def shop() -> Shop:
    stream = Shop()
    stream.ddl(CREATE)
    stream.insert("orders", (1, 10))
    stream.ddl(PARK)
    for number in range(2, 8):
        stream.insert("orders", (number, 20, 200))
    return stream


def run(state_dir: Path, source: Any, requests: queue.SimpleQueue[dict[str, Any]]) -> list[dict[str, Any]]:
    said: list[dict[str, Any]] = []
    log = Log.open(state_dir / "log")
    try:
        asked = Requests(requests, said.append)
        Capture(log, source, report=said.append, requests=asked, entry_bytes=1).run(until_now=True)
    finally:
        log.close()
    return [event for event in said if event["event"] == "answer"]


@pytest.mark.parametrize("after", range(9, 33))
def test_between_any_two_events(tmp_path: Path, after: int) -> None:
    requests: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    (answer,) = run(tmp_path, Asking(shop(), tmp_path, after, requests), requests)
    assert answer == {"event": "answer", "request": 5, "result": {}}
    rows, replay = replayed(tmp_path)
    assert [row["id"] for row in rows["shop.orders"]] == list(range(1, 8)) and not replay.parked


def test_rows_that_come_later_and_do_not_fit_park_the_table_again(tmp_path: Path) -> None:
    stream = shop()
    stream.insert("orders", (8, 80))  # a DDL that the binlog does not have
    capture(tmp_path, shop())
    log = Log.open(tmp_path / "log")
    resume_stopped(plan(tmp_path), log, Tables())
    log.close()
    capture(tmp_path, stream)
    rows, replay = replayed(tmp_path)
    assert len(rows["shop.orders"]) == 7 and "2" in replay.parked["shop.orders"].reason


def test_a_request_that_is_refused_changes_nothing(tmp_path: Path) -> None:
    stream = shop()
    capture(tmp_path, stream)
    made = plan(tmp_path)
    log = Log.open(tmp_path / "log")
    try:
        end = log.end()
        resumption = Resumption(made.versions, {("shop", "orders"): 77}, made.seen)
        with pytest.raises(Unavailable, match="changed at the source"):
            resume_stopped(resumption, log, Tables())
        assert log.end() == end
    finally:
        log.close()
    # What came after the plan does not fit: rows of a shape that only the owner of the log has seen.
    stream.insert("orders", (8, 80))
    capture(tmp_path, stream)
    log = Log.open(tmp_path / "log")
    try:
        end = log.end()
        with pytest.raises(BadInput, match="does not fit"):
            resume_stopped(made, log, Tables())
        assert log.end() == end
    finally:
        log.close()
    with pytest.raises(BadInput, match="cannot be read"):
        Resumption.from_json({"versions": ["{"]})


def test_the_same_again_is_accepted_and_another_one_is_not(tmp_path: Path) -> None:
    capture(tmp_path, shop())
    made, other = plan(tmp_path), plan(tmp_path, DEFINITION.replace("`w`", "`other`"))
    log = Log.open(tmp_path / "log")
    try:
        resume_stopped(made, log, Tables())
        end = log.end()
    finally:
        log.close()
    log = Log.open(tmp_path / "log")
    try:
        resume_stopped(made, log, Tables())
        assert log.reader().next(end) > log.end()  # no further frame
    finally:
        log.close()
    log = Log.open(tmp_path / "log")
    try:
        with pytest.raises(Unavailable, match="resumed by somebody else"):
            resume_stopped(other, log, Tables())
    finally:
        log.close()
    assert replayed(tmp_path)[0]["shop.orders"][-1] == {"id": 7, "v": 20, "w": 200}


def test_requests_that_nobody_knows_are_answered(tmp_path: Path) -> None:
    capture(tmp_path, shop())
    requests: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    requests.put({"request": 1, "op": "dance"})
    requests.put({"request": 2, "op": "resume", "versions": [], "latest": [], "seen": str(Position(1, 0))})
    stream = shop()
    stream.insert("orders", (8, 20, 200))
    first, second = run(tmp_path, StreamSource(stream), requests)
    assert first["request"] == 1 and "dance" in first["error"]["message"]
    assert second == {"event": "answer", "request": 2, "result": {}}
