"""Bad arguments: refused on the caller's thread, and the log goes on for everybody else."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import BadInput
from penstock.log import Log, LogSettings, RecordLog, StateChange
from tests.support.worlds import LogInMemory

SETTINGS = LogSettings(preallocate_bytes=4096, maintenance_interval_seconds=0)
SOON = 10.0

BAD_DATA: list[Any] = [
    "text",
    5,
    None,
    1.5,
    ["a"],
    [b"a", "b"],
    [1],
    {b"a": b"b"},
    (b"x" for _ in range(2)),
    object(),
    memoryview(bytes(8)).cast("I"),
    memoryview(bytes(8))[::2],
    memoryview(bytes(8)).cast("B", (2, 4)),
]
BAD_CHANGES: list[Any] = [
    5,
    "text",
    [1],
    [(1, b"k", b"v")],
    [StateChange(-1, b"k", b"v")],
    [StateChange(1 << 64, b"k", b"v")],
    [StateChange(1, b"k", b"v", delta=-1)],
    [StateChange(1, b"k", b"v", timestamp=-1)],
    [StateChange(1, "k", b"v")],  # type: ignore[arg-type]
    [StateChange(1, b"k", 7)],  # type: ignore[arg-type]
    [StateChange(1.0, b"k", b"v")],  # type: ignore[arg-type]
    b"no encoded changes",
]


@pytest.fixture
def world() -> Iterator[LogInMemory]:
    world = LogInMemory(SETTINGS, 1)
    yield world
    world.log.close()


@pytest.mark.parametrize("data", BAD_DATA, ids=range(len(BAD_DATA)))
def test_bad_data_is_refused_and_the_log_goes_on(world: LogInMemory, data: Any) -> None:
    with pytest.raises(BadInput):
        world.log.append(data)
    with pytest.raises(BadInput):
        world.log.append_many(data if not isinstance(data, memoryview) else [data])
    assert world.log.append(b"innocent").result(SOON).entry_id == 1


@pytest.mark.parametrize("changes", BAD_CHANGES, ids=range(len(BAD_CHANGES)))
def test_bad_changes_are_refused_and_the_log_goes_on(world: LogInMemory, changes: Any) -> None:
    with pytest.raises(BadInput):
        world.log.append(b"x", changes)
    assert world.log.append(b"innocent").result(SOON).entry_id == 1


def test_an_append_comes_after_an_append(world: LogInMemory) -> None:
    with pytest.raises(BadInput, match="after a str"):
        world.log.append(b"x", after="x")  # type: ignore[arg-type]


@pytest.mark.parametrize("bad", [("text", ()), ([1], ()), (b"x", [StateChange(-1, b"k", b"v")])], ids=range(3))
def test_a_record_log_refuses_the_same(tmp_path: Path, bad: tuple[Any, Any]) -> None:
    log = RecordLog.open(tmp_path, "r")
    try:
        with pytest.raises(BadInput):
            log.append(*bad)
        with pytest.raises(BadInput):
            log.rewrite([bad])
        with pytest.raises(BadInput):
            log.rewrite([5])  # type: ignore[list-item]
        assert log.append(b"innocent").result(SOON) == 0
    finally:
        log.close()


class Held:
    """Holds the writer thread of a log, so that what is appended meanwhile is one group."""

    def __init__(self, log: Log) -> None:
        self._go = threading.Event()
        self.task = log._parts.appender.on_writer_thread(lambda: self._go.wait(SOON))

    def release(self) -> None:
        self._go.set()


def test_a_buffer_that_is_taken_away_fails_its_own_append_alone(world: LogInMemory) -> None:
    held = Held(world.log)
    view = memoryview(bytes(100))
    before = world.log.append(b"before")
    bad = world.log.append(view)
    orphan = world.log.append(b"orphan", after=bad)
    behind = world.log.append([b"be", b"hind"])
    view.release()
    held.release()
    assert before.result(SOON).entry_id == 1
    assert isinstance(bad.exception(SOON), BadInput)
    assert isinstance(orphan.exception(SOON), BadInput)
    assert behind.result(SOON).entry_id == 2
    assert world.log.append(b"later").result(SOON).entry_id == 3
    entries = list(world.log.read(world.log.reader().first, world.log.end()))
    assert [bytes(entry.data) for entry in entries] == [b"0", b"before", b"behind", b"later"]


def test_a_record_whose_buffer_is_taken_away_fails_alone(tmp_path: Path) -> None:
    log = RecordLog.open(tmp_path, "r")
    try:
        go = threading.Event()
        log._commits.submit((), (), 0, lambda: go.wait(SOON) and None)  # type: ignore[func-returns-value]
        view = memoryview(bytes(100))
        bad, good = log.append(view), log.append(b"good")
        view.release()
        go.set()
        assert isinstance(bad.exception(SOON), BadInput)
        assert good.result(SOON) == 0
        assert [record.data for record in log.records()] == [b"good"]
    finally:
        log.close()
