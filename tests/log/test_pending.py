"""The answer to an append: what a caller may do wrong with it, and that nobody else is harmed by it."""

from __future__ import annotations

import asyncio
import math
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import BadInput
from penstock.log import Log, LogSettings, Pending
from penstock.log.pending import wait_all

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
