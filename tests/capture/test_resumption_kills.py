"""A resumption and kill -9, or the power, at every operation of the disk around it: all of it is there or nothing is."""

from __future__ import annotations

import contextlib
import queue
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.capture.loop import Capture
from penstock.capture.resumption import Resumption
from penstock.clock import ManualClock
from penstock.entries.stores import SCHEMA_RESUMED
from penstock.errors import BadInput, PenstockError
from penstock.files.memory import MemoryFiles, PowerCut
from penstock.log import Log, LogReader, LogSettings
from penstock.metadata.memory import MemoryMetadata
from penstock.operations.resume.definition import Definition
from penstock.operations.resume.plan import plan_resume
from penstock.operations.verify.log_replay import LogReplay
from penstock.process import Requests
from penstock.sources.source import Chunk
from penstock.state import StateReader
from tests.capture.streams import StreamSource
from tests.operations.resume.shop import CREATE, DEFINITION, PARK, Shop
from tests.support.budget import scaled

DIRECTORY = Path("/log")
ASK_AFTER = 24  # chunks of one event: the plan has the statement and some rows, and more come after it
VERSIONS = 3  # of the plan: the statement that parks, a copy of the table, a statement that is held back


def shop() -> Shop:
    stream = Shop()
    stream.ddl(CREATE)
    stream.insert("orders", (1, 10))
    stream.ddl(PARK)
    stream.insert("orders", (2, 20, 200))
    stream.ddl("CREATE TABLE twin LIKE orders")
    stream.insert("twin", (9, 90, 900), table_id=90)
    stream.ddl("ALTER TABLE orders ADD x int")
    for number in range(3, 6):
        stream.insert("orders", (number, 30, 300, 3000), table_id=75)
    return stream


class Disk:
    """What is left of one machine after the other."""

    def __init__(self) -> None:
        self.files, self.metadata = MemoryFiles(), MemoryMetadata(self._check_power)

    def _check_power(self) -> None:
        if self.files.power_is_off:
            raise PowerCut("the power is off")

    def reader(self) -> LogReader:
        return LogReader.open(DIRECTORY, self.files, self.metadata)

    def after(self, rng: random.Random, *, power: bool) -> None:
        if power:
            self.files, self.metadata = self.files.crash(rng), self.metadata.crashed(rng)
        else:
            self.files, self.metadata = self.files.kill(), self.metadata.killed(rng)


class Asking(StreamSource):
    """Asks for the resumption before chunk number `after`, or as soon as the log has the statement that parks: what the
    power took comes again. Not for a table that is resumed.

    All that was read is durable when it asks: capture refuses a plan that was made without the latest statement, and
    how far the log's own thread has come is a matter of how busy the machine is."""

    def __init__(self, disk: Disk, after: int, cut_after: int | None) -> None:
        super().__init__(shop(), events_per_chunk=1)
        self._disk, self._after, self._cut_after = disk, after, cut_after
        self.requests: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self.make_durable: Callable[[], None] = lambda: None
        self.asked_at = 0
        self._done = False

    def open(self, position: Any) -> Iterator[Chunk]:
        for number, chunk in enumerate(super().open(position)):
            if number >= self._after:
                self.ask()
            yield chunk

    def ask(self) -> None:
        if self._done:
            return
        self.make_durable()
        try:
            request = plan(self._disk)
        except BadInput:
            self._done = resumed(self._disk) == VERSIONS
        else:
            self.requests.put({"request": 1, "op": "resume", **request.to_json()})
            self._done = True
            self.asked_at = self._disk.files.operations
            if self._cut_after is not None:
                self._disk.files.cut_power_at(self.asked_at + self._cut_after)


def plan(disk: Disk) -> Resumption:
    return plan_resume(disk.reader(), "shop.orders", Definition(DEFINITION, "a test").define).resumption


def run(disk: Disk, after: int, cut_after: int | None = None) -> tuple[list[dict[str, Any]], int]:
    """Capture to the end, or to the cut: its answers, and how many operations came after the request."""
    said: list[dict[str, Any]] = []
    source = Asking(disk, after, cut_after)
    clock = ManualClock()
    log = Log.open(DIRECTORY, LogSettings(), disk.files, clock, disk.metadata)
    try:
        asked = Requests(source.requests, said.append)
        capture = Capture(log, source, clock=clock, report=said.append, requests=asked, entry_bytes=1)
        source.make_durable = capture._recorder.finish
        capture.run(until_now=True)
        source.ask()
        capture.answer()
    except PenstockError:
        assert cut_after is not None
    finally:
        with contextlib.suppress(PenstockError):
            log.close()
    return [one for one in said if one["event"] == "answer"], disk.files.operations - source.asked_at


def resumed(disk: Disk) -> int:
    state = StateReader.open(disk.reader())
    try:
        return sum(1 for _ in state.store(SCHEMA_RESUMED).items())
    finally:
        state.close()


def delivered(disk: Disk) -> tuple[dict[str, list[int]], set[str]]:
    """The ids of each table's rows as a changefeed reads them, and the tables that are held back."""
    reader = disk.reader()
    replay = LogReplay(reader, reader.end())
    rows: dict[str, list[int]] = {}
    for batch, _ in replay.changes():
        at = [column.name for column in batch.table.columns].index("id")
        rows.setdefault(batch.table.name, []).extend(batch.after[at].to_pylist())
    return rows, set(replay.parked)


@pytest.mark.parametrize("power", [False, True])
def test_killed_at_every_operation_of_a_resumption(power: bool) -> None:
    disk = Disk()
    ((answer,), operations) = run(disk, ASK_AFTER)
    assert answer == {"event": "answer", "request": 1, "result": {}} and operations > 10
    whole = ({"shop.orders": [1, 2, 3, 4, 5], "shop.twin": [9]}, set[str]())
    assert delivered(disk) == whole and resumed(disk) == VERSIONS
    rng = random.Random(7)
    found: set[tuple[int, bool]] = set()
    for cut in range(1, min(operations, scaled(80)) + 1):
        disk = Disk()
        answers, _ = run(disk, ASK_AFTER, cut)
        disk.after(rng, power=power)
        # A reader knows only what an owner said to be durable; the next owner finds the rest.
        Log.open(DIRECTORY, LogSettings(), disk.files, ManualClock(), disk.metadata).close()
        there = resumed(disk)
        assert there in (0, VERSIONS), f"a part of it after operation {cut}"
        assert there or not any("result" in one for one in answers), f"answered, and lost after operation {cut}"
        found.add((there, bool(answers)))
        rows, held = delivered(disk)
        found_rows = rows.get("shop.orders", [])  # what was not durable yet comes again
        assert found_rows == [1, 2, 3, 4, 5][: len(found_rows)] and (there or len(found_rows) <= 1), cut
        assert not (there and held) and not (power is False and not there and not held), cut
        run(disk, rng.randrange(1, 4))  # the same command again, early: or it is answered as done
        assert delivered(disk) == whole and resumed(disk) == VERSIONS, cut
    assert {there for there, _ in found} == {0, VERSIONS}
