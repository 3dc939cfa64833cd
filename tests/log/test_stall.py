"""A disk that does not answer: callers get an error, nothing is acknowledged late, and nobody waits for ever."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import PenstockError
from penstock.files import File
from penstock.files.memory import MemoryFiles
from penstock.log import Log, LogSettings, LogState, Pending, RecordLog, SyncStalled, stall
from penstock.metadata import MemoryMetadata
from penstock.observe.metrics import METRICS
from tests.support.waiting import wait_until

DIRECTORY = Path("/s/log")
LIMIT = 0.3
SETTINGS = LogSettings(preallocate_bytes=4096, maintenance_interval_seconds=0, stall_seconds_max=LIMIT)
SOON = 30.0  # seconds: far above the limit of these tests, and below the product's


class HungFile:
    """A file whose syncs wait while the disk hangs."""

    def __init__(self, disk: HungDisk, file: File) -> None:
        self._disk = disk
        self._file = file

    def datasync(self) -> None:
        if self._file.path.name.endswith(self._disk.hangs):
            self._disk.hanging.set()
            self._disk.answers.wait(60)
        self._file.datasync()

    def __getattr__(self, name: str) -> object:
        return getattr(self._file, name)


class HungDisk:
    """A file system whose syncs of files with one ending do not return until `answers` is set."""

    def __init__(self) -> None:
        self.files = MemoryFiles()
        self.hangs: str | tuple[str, ...] = ()
        self.hanging = threading.Event()
        self.answers = threading.Event()

    def __getattr__(self, name: str) -> object:
        found = getattr(self.files, name)
        if name in {"create", "open"}:
            return lambda *arguments, **named: HungFile(self, found(*arguments, **named))
        return found


@pytest.fixture
def disk() -> Iterator[HungDisk]:
    disk = HungDisk()
    yield disk
    disk.answers.set()


@pytest.fixture(autouse=True)
def short_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stall, "STALL_SECONDS_MAX", LIMIT)


def error_of(call: Callable[[], object]) -> BaseException:
    with pytest.raises(PenstockError) as raised:
        call()
    return raised.value


def stalls() -> float:
    return METRICS.registry.get_sample_value("penstock_log_stalls_total") or 0.0


def test_appends_on_a_hung_disk_fail_and_are_never_acknowledged(
    disk: HungDisk, caplog: pytest.LogCaptureFixture
) -> None:
    metadata = MemoryMetadata()
    log = Log.open(DIRECTORY, SETTINGS, disk, metadata=metadata)
    first = log.append(b"first").result(SOON)
    before = stalls()
    disk.hangs = ".log"
    with caplog.at_level(logging.ERROR):
        in_flight = log.append(b"in flight")
        assert disk.hanging.wait(SOON)
        waiting = log.append(b"waiting")
        rolled: list[BaseException] = []
        task = threading.Thread(target=lambda: rolled.append(error_of(log.roll)))
        task.start()
        for pending in (in_flight, waiting):
            with pytest.raises(SyncStalled, match="has not answered"):
                pending.result(SOON)
    task.join(SOON)
    assert isinstance(rolled[0], SyncStalled)
    assert stalls() == before + 1
    assert "has not answered" in caplog.text
    with pytest.raises(SyncStalled):
        log.append(b"later")
    assert log.end() == first
    assert [bytes(entry.data) for entry in log.read(first, log.end())] == [b"first"]
    told: list[object] = []
    in_flight.add_done_callback(told.append)
    disk.answers.set()  # the disk answers after all
    time.sleep(0.1)
    assert isinstance(in_flight.exception(0), SyncStalled)
    assert told == [in_flight]
    assert log.end() == first, "a late answer counts for nothing"
    log.close()
    disk.hangs = ()
    again = Log.open(DIRECTORY, SETTINGS, disk, metadata=metadata)
    found = [bytes(entry.data) for entry in again.read(again.reader().first, again.end())]
    assert found[0] == b"first"
    assert set(found) <= {b"first", b"in flight"}
    again.append(b"on").result(SOON)
    again.close()


def test_a_log_whose_disk_hangs_can_be_closed(disk: HungDisk) -> None:
    log = Log.open(DIRECTORY, SETTINGS, disk, metadata=MemoryMetadata())
    log.append(b"x").result(SOON)
    disk.hangs = ".log"  # the footer's sync never returns
    started = time.monotonic()
    with pytest.raises(SyncStalled):
        log.close()
    assert time.monotonic() - started < SOON


def test_acks_on_a_hung_disk_fail_and_other_cursors_go_on(disk: HungDisk) -> None:
    log = Log.open(DIRECTORY, SETTINGS, disk, metadata=MemoryMetadata())
    position = log.append(b"x").result(SOON)
    cursors = [log.open_cursor(f"c{n}") for n in range(6)]
    generations = [name for name in disk.files.list(DIRECTORY / "cursors") if name.endswith(".rlog")]
    disk.hangs = tuple(name for name in generations if name.startswith(("c0", "c1", "c2", "c3", "c4")))
    stuck = [cursor.ack(position) for cursor in cursors[:5]]  # more than the lane has threads
    for pending in stuck[:4]:
        with pytest.raises(SyncStalled):
            pending.result(SOON)
    cursors[5].ack(position).result(SOON)
    with pytest.raises(SyncStalled):
        stuck[4].result(SOON)
    disk.answers.set()
    for cursor in cursors[:5]:
        assert cursor.failed
        assert cursor.mark_delete_position < position
    disk.hangs = ()
    assert log.open_cursor("c0").backlog() in (0, 1)
    log.close()


def test_a_compaction_on_a_hung_disk_is_given_up_and_records_go_on(disk: HungDisk) -> None:
    log = RecordLog.open(DIRECTORY, "r", disk)
    log.append(b"first").result(SOON)
    (in_force,) = [name for name in disk.files.list(DIRECTORY) if name.endswith(".rlog")]
    disk.hangs = f"{int(in_force[2:-5]) + 1:016d}.rlog"
    compaction = log.compact(lambda: b"all")
    assert disk.hanging.wait(SOON)
    log.append(b"beside").result(SOON)
    with pytest.raises(SyncStalled):
        compaction.result(SOON)
    log.append(b"after").result(SOON)
    disk.answers.set()
    time.sleep(0.1)
    assert [record.data for record in log.records()] == [b"first", b"beside", b"after"]
    log.compact(lambda: b"all").result(SOON)
    assert [record.data for record in log.records()] == [b"all"]
    log.close()


def test_a_record_log_whose_disk_hangs_can_be_closed(disk: HungDisk) -> None:
    before = stall.WATCH._users
    log = RecordLog.open(DIRECTORY, "r", disk)
    log.append(b"first").result(SOON)
    disk.hangs = ".end"
    with pytest.raises(SyncStalled):
        log.close()
    assert stall.WATCH._users == before, "somebody still counts on the watch"


def test_a_slow_disk_is_not_a_hung_one(disk: HungDisk) -> None:
    log = Log.open(DIRECTORY, SETTINGS, disk, metadata=MemoryMetadata())
    disk.hangs = ".log"
    pending = log.append(b"slow")
    assert disk.hanging.wait(SOON)
    time.sleep(LIMIT / 2)
    disk.answers.set()
    pending.result(SOON)
    log.close()


@pytest.mark.parametrize("what", ["log", "record log", "cursor"])
def test_a_callback_may_close_what_the_disk_does_not_answer(disk: HungDisk, what: str) -> None:
    """It runs on the thread that watches the disk, for which everybody else waits."""
    log = Log.open(DIRECTORY, SETTINGS, disk, metadata=MemoryMetadata())  # type: ignore[arg-type]
    first = log.append(b"first").result(SOON)
    cursor = log.open_cursor("reader")
    records = RecordLog.open(DIRECTORY / "other", "records", disk)  # type: ignore[arg-type]
    calls: dict[str, tuple[str, Any, Callable[[], Pending[Any]]]] = {
        "log": (".log", log, lambda: log.append(b"in flight")),
        "record log": (".rlog", records, lambda: records.append(b"in flight")),
        "cursor": (".rlog", cursor, lambda: cursor.ack(first)),
    }
    disk.hangs, closing, append = calls[what]
    closed, watched = threading.Event(), threading.Event()

    def close(_: object) -> None:
        closing.close()
        closed.set()

    pending = append()
    pending.add_done_callback(close)
    assert isinstance(pending.exception(SOON), SyncStalled)
    assert closed.wait(SOON)
    stall.WATCH.begin("another disk", LIMIT, lambda _: watched.set())
    assert watched.wait(SOON), "the watch goes on"
    disk.answers.set()
    wait_until(lambda: closing.state is LogState.CLOSED if closing is log else closing._closed, "closed")
    for one in (records, log):
        one.close()


def test_a_slow_callback_is_no_slow_disk(tmp_path: Path) -> None:
    log = Log.open(tmp_path / "log", SETTINGS)
    try:
        before = stalls()
        for _ in range(2):
            answer = log.append(b"x")
            answer.add_done_callback(lambda _: time.sleep(3 * LIMIT))
        log.append(b"y").result(SOON)
        log._parts.appender.on_writer_thread(lambda: None).add_done_callback(lambda _: time.sleep(3 * LIMIT))
        assert log.append(b"z").result(SOON).entry_id == 3
        assert stalls() == before
    finally:
        log.close()


def test_a_slow_callback_of_a_record_log_is_no_slow_disk(tmp_path: Path) -> None:
    records = RecordLog.open(tmp_path, "r")
    try:
        records.append(b"x").add_done_callback(lambda _: time.sleep(3 * LIMIT))
        assert records.append(b"y").result(SOON) == 1
        assert records.append(b"z").result(SOON) == 2
    finally:
        records.close()


def test_after_a_slow_callback_the_disk_is_watched_again(disk: HungDisk) -> None:
    log = Log.open(DIRECTORY, SETTINGS, disk, metadata=MemoryMetadata())  # type: ignore[arg-type]
    answer = log.append(b"x")
    answer.add_done_callback(lambda _: time.sleep(2 * LIMIT))
    answer.result(SOON)
    disk.hangs = ".log"
    assert isinstance(log.append(b"y").exception(SOON), SyncStalled)
    assert isinstance(error_of(lambda: log.append(b"z")), SyncStalled)
    disk.answers.set()
    log.close()


def test_the_late_end_of_a_stalled_step_ends_no_other_one() -> None:
    watch, stalled = stall.StallWatch(), threading.Event()
    watch.enter()
    first = watch.begin("a disk that hangs", 0.02, lambda _: stalled.set())
    assert stalled.wait(SOON)
    slow = watch.begin("a slow disk", SOON, lambda _: None)
    wait_until(lambda: watch._steps[slow].left < SOON, "the watch has looked on, and forgotten the first one")
    again = threading.Event()
    others = [watch.begin("another disk that hangs", 0.5, lambda _: again.set()) for _ in range(20)]
    watch.end(first)  # the disk answers at last
    assert watch._steps.keys() == {slow, *others}
    assert again.wait(SOON)
    watch.leave()
