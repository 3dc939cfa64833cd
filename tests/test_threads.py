"""Where the system gives no thread, nothing is left half made: the next call, roll or checkpoint tries again."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.errors import Unavailable
from penstock.log import Log, LogSettings
from penstock.log.stall import WATCH
from penstock.state import BucketState, StateSettings
from penstock.threads import start_thread
from tests.support.waiting import LIMIT_SECONDS

SETTINGS = LogSettings(preallocate_bytes=4096, maintenance_interval_seconds=0)
Without = Callable[[str], contextlib.AbstractContextManager[None]]


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch) -> Without:
    """Inside, no thread starts whose name has that text in it."""
    start = threading.Thread.start

    @contextlib.contextmanager
    def refusing(text: str) -> Iterator[None]:
        def limited(thread: threading.Thread) -> None:
            if text in thread.name:
                raise RuntimeError("can't start new thread")
            start(thread)

        with monkeypatch.context() as limit:
            limit.setattr(threading.Thread, "start", limited)
            yield

    return refusing


def test_it_says_which_thread_and_what_to_do(without: Without) -> None:
    with without("the worker"), pytest.raises(Unavailable, match="no thread for the worker: can't start") as refused:
        start_thread(lambda: None, "the worker")
    assert "limit of threads" in refused.value.hint
    start_thread(lambda: None, "the worker").join(LIMIT_SECONDS)


@pytest.mark.parametrize("name", ["log", "maintenance"])
def test_an_open_that_gets_no_thread_leaves_nothing_open(tmp_path: Path, without: Without, name: str) -> None:
    settings = LogSettings(preallocate_bytes=4096)
    with Log.open(tmp_path / "log", settings) as log:
        log.append(b"before").result(LIMIT_SECONDS)
    before = len(os.listdir("/proc/self/fd")), set(threading.enumerate()), WATCH._users
    for _ in range(3):
        with without(name), pytest.raises(Unavailable, match="no thread for log"):
            Log.open(tmp_path / "log", settings)
    assert (len(os.listdir("/proc/self/fd")), set(threading.enumerate()), WATCH._users) == before
    with Log.open(tmp_path / "log", settings) as log:
        log.append(b"after").result(LIMIT_SECONDS)
        assert [entry.data for entry in log.read(log.reader().first, log.end())] == [b"before", b"after"]


def test_an_offload_that_gets_no_thread_is_made_later(tmp_path: Path, without: Without) -> None:
    settings = LogSettings(
        preallocate_bytes=4096,
        maintenance_interval_seconds=0,
        offload_url=(tmp_path / "objects").as_uri(),
        offload_threshold_bytes=0,
    )
    with Log.open(tmp_path / "log", settings) as log:
        log.append(b"x").result(LIMIT_SECONDS)
        log.roll()
        with without("offload"), pytest.raises(Unavailable, match="no thread"):
            log.maintain()


@pytest.mark.parametrize("name", ["scrub", "merge"])
def test_a_checkpoint_that_gets_no_thread_for_more_is_one(tmp_path: Path, without: Without, name: str) -> None:
    with Log.open(tmp_path / "log", SETTINGS) as log:
        state = BucketState.open(log, StateSettings(merge_runs_max=1))
        store = state.raw_store("s", "o")
        with without(name):
            for key in (b"1", b"2", b"3"):
                store.write({key: b"v"}).result(LIMIT_SECONDS)
                assert state.checkpoint() is not None
        store.write({b"4": b"v"}).result(LIMIT_SECONDS)
        assert state.checkpoint() is not None  # with threads again
        assert [thread for thread in threading.enumerate() if "scrub" in thread.name]
        assert state.engine._merger is not None  # type: ignore[attr-defined]
        state.close()


def test_a_state_that_gets_no_thread_for_its_scrubs_can_be_used_and_closed(tmp_path: Path, without: Without) -> None:
    for _ in range(2):
        with Log.open(tmp_path / "log", SETTINGS) as log, without("scrub"), BucketState.open(log) as state:
            state.raw_store("s", "o").write({b"k": b"v"}).result(LIMIT_SECONDS)
            assert state.checkpoint() is not None


def test_a_log_whose_close_in_a_callback_gets_no_thread_can_be_closed_later(tmp_path: Path, without: Without) -> None:
    log = Log.open(tmp_path / "log", SETTINGS)
    state = BucketState.open(log)
    refused: list[Exception] = []

    def close(_: object) -> None:
        for part in (state, log):
            try:
                part.close()
            except Exception as error:
                refused.append(error)

    with without("close of"):
        log.append(b"0").add_done_callback(close)
        log.append(b"1").result(LIMIT_SECONDS)
    assert [type(error) for error in refused] == [Unavailable, Unavailable]
    with Log.open(tmp_path / "log", SETTINGS) as other:
        assert other.epoch == log.epoch, "it is open here, and shared"
    state.raw_store("s", "o").write({b"k": b"v"}).result(LIMIT_SECONDS)
    log.append(b"2").result(LIMIT_SECONDS)
    epoch = log.epoch
    log.close()
    with Log.open(tmp_path / "log", SETTINGS) as again:
        assert again.epoch > epoch
        assert again.statistics().entries == 4
