"""The threads that all record logs share."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from penstock.errors import Unavailable
from penstock.files.memory import MemoryFiles
from penstock.log import Log, LogSettings, RecordLog
from penstock.log.records.workers import Workers
from penstock.log.stall import StallWatch
from penstock.state import BucketState
from tests.support.waiting import LIMIT_SECONDS


def no_threads(_: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


def test_a_record_log_goes_on_once_the_system_gives_threads_again(monkeypatch: pytest.MonkeyPatch) -> None:
    log = RecordLog.open(Path("/r"), "r", MemoryFiles())
    with monkeypatch.context() as limited:
        limited.setattr(threading.Thread, "start", no_threads)
        with pytest.raises(Unavailable, match="can't start new thread"):
            log.append(b"refused")
    log.append(b"taken").result(LIMIT_SECONDS)
    assert [record.data for record in log.records()] == [b"taken"]
    log.close()


def test_a_lane_goes_on_with_the_threads_that_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    lane, begun, go, done = Workers("test", 2), threading.Event(), threading.Event(), threading.Event()
    lane.enter()

    def wait() -> None:
        begun.set()
        go.wait(LIMIT_SECONDS)

    lane.run(wait)
    assert begun.wait(LIMIT_SECONDS)
    with monkeypatch.context() as limited:
        limited.setattr(threading.Thread, "start", no_threads)
        lane.run(done.set)
    go.set()
    assert done.wait(LIMIT_SECONDS)
    lane.leave()


def test_the_disk_is_watched_once_the_system_gives_threads_again(monkeypatch: pytest.MonkeyPatch) -> None:
    watch, stalled = StallWatch(), threading.Event()
    watch.enter()
    with monkeypatch.context() as limited:
        limited.setattr(threading.Thread, "start", no_threads)
        watch.begin("a disk that hangs", 0.02, lambda _: stalled.set())
    watch.end(watch.begin("another", 60, lambda _: None))
    assert stalled.wait(LIMIT_SECONDS)
    watch.leave()


def test_a_roll_goes_on_where_no_thread_can_write_a_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Log.open(tmp_path / "log", LogSettings(preallocate_bytes=4096)) as log, BucketState.open(log) as state:
        state.raw_store("s", "o").write({b"k": b"v"}).result(LIMIT_SECONDS)
        with monkeypatch.context() as limited:
            limited.setattr(threading.Thread, "start", no_threads)
            assert log.roll()
        log.append(b"goes on").result(LIMIT_SECONDS)
