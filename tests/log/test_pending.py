"""The answer to an append: what a caller may do wrong with it, and that nobody else is harmed by it."""

from __future__ import annotations

import asyncio
import dataclasses
import math
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import BadInput
from penstock.log import Log, LogSettings, Pending, Position, RecordLog
from penstock.log.pending import wait_all
from penstock.log.records import record_log
from tests.support.waiting import LIMIT_SECONDS

SETTINGS = LogSettings(preallocate_bytes=4096, maintenance_interval_seconds=0)


def end_the_task(_: Pending[Any]) -> None:
    raise asyncio.CancelledError


def end_the_thread(_: Pending[Any]) -> None:
    sys.exit(3)


def fail(_: Pending[Any]) -> None:
    raise RuntimeError("a callback's own mistake")


@pytest.mark.parametrize("callback", [end_the_task, end_the_thread, fail])
def test_whatever_a_callback_raises_the_log_goes_on(
    tmp_path: Path, callback: Callable[[Pending[Any]], None], caplog: pytest.LogCaptureFixture
) -> None:
    with Log.open(tmp_path / "log", SETTINGS) as log:
        held = threading.Event()
        log._appender.on_writer_thread(lambda: held.wait(10))
        first, second = log.append(b"first"), log.append(b"second")
        first.add_done_callback(callback)  # not done yet: called on the log's own thread
        held.set()
        assert first.result(10).entry_id == 0
        assert second.result(10).entry_id == 1
        first.add_done_callback(callback)  # done: called here
        assert log.append(b"after").result(10).entry_id == 2
        assert caplog.text.count("a callback of a pending result failed") == 2


def test_a_wrong_timeout_or_callback_is_refused_at_once() -> None:
    pending: Pending[int] = Pending()
    wrong: list[Any] = ["1", math.nan, [], b"", True]
    for timeout in wrong:
        for call in (pending.result, pending.exception, lambda timeout: wait_all([pending], timeout)):
            with pytest.raises(BadInput, match="timeout"):
                call(timeout)
    nothing: Any = None
    with pytest.raises(BadInput, match="callback"):
        pending.add_done_callback(nothing)


@pytest.mark.parametrize("timeout", [math.inf, 1e30])
def test_a_timeout_that_never_comes_is_fine(timeout: float) -> None:
    pending: Pending[int] = Pending()
    threading.Timer(0.05, pending.complete, (7,)).start()
    assert pending.result(timeout) == 7


def in_a_callback(append: Callable[[], Pending[Any]], call: Callable[[], Any], held: threading.Event) -> Pending[Any]:
    """What `call` gives or raises in a callback of an append, which waits there until `held` is set."""
    answer: Pending[Any] = Pending()
    entered = threading.Event()

    def callback(_: Pending[Any]) -> None:
        entered.set()
        assert held.wait(LIMIT_SECONDS)
        try:
            answer.complete(call())
        except Exception as error:
            answer.fail(error)

    append().add_done_callback(callback)
    assert entered.wait(LIMIT_SECONDS)
    return answer


def test_a_callback_may_append_however_much_waits(tmp_path: Path) -> None:
    held = threading.Event()
    with Log.open(tmp_path / "log", dataclasses.replace(SETTINGS, waiting_bytes_max=1000)) as log:
        first = in_a_callback(lambda: log.append(b"x"), lambda: log.append(b"of the callback"), held)
        waiting = [log.append(bytes(600), wait=False) for _ in range(3)]
        held.set()
        assert [one.result(LIMIT_SECONDS).entry_id for one in waiting] == [1, 2, 3]
        assert first.result(LIMIT_SECONDS).result(LIMIT_SECONDS).entry_id == 4


def test_a_callback_may_append_records_however_many_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_log, "_WAITING_BYTES_MAX", 1000)
    held = threading.Event()
    with RecordLog.open(tmp_path, "records") as records:
        first = in_a_callback(lambda: records.append(b"x"), lambda: records.append(b"of the callback"), held)
        waiting = [records.append(bytes(600), wait=False) for _ in range(3)]
        held.set()
        assert [one.result(LIMIT_SECONDS) for one in waiting] == [1, 2, 3]
        assert first.result(LIMIT_SECONDS).result(LIMIT_SECONDS) == 4


@pytest.mark.parametrize(
    "call",
    [Log.roll, Log.clear, Log.maintain, Log.terminate, lambda log: log.truncate(Position(1, 0), force=True)],
)
def test_what_would_wait_for_the_thread_of_a_callback_is_refused_there(
    tmp_path: Path, call: Callable[[Log], Any]
) -> None:
    held = threading.Event()
    held.set()
    with Log.open(tmp_path / "log", SETTINGS) as log:
        cursor = log.open_cursor("c")
        cursor.mark_delete(log.append_many([b"x"] * 5).result(LIMIT_SECONDS).last).result(LIMIT_SECONDS)
        with pytest.raises(BadInput, match="callback of an append"):
            in_a_callback(lambda: log.append(b"x"), lambda: call(log), held).result(LIMIT_SECONDS)
        assert cursor.mark_delete_position == Position(1, 4)
        assert log.append(b"y").result(LIMIT_SECONDS) == Position(1, 6)
