"""The request to stop a run, and the signals that make it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Stop:
    """Requests to stop: the first one drains, the second one ends the run at once. Takes no lock, so a signal handler
    may use it."""

    def __init__(self) -> None:
        self._requests = 0

    def request(self) -> None:
        self._requests += 1

    def is_set(self) -> bool:
        return self._requests > 0

    @property
    def at_once(self) -> bool:
        return self._requests > 1


@contextmanager
def stop_on_signals(stop: Stop) -> Iterator[None]:
    """For the length of the block, Ctrl-C, SIGTERM and SIGHUP (the terminal is closed) request `stop`. A SIGHUP that was
    ignored, as nohup has it, still is. Outside the main thread this does nothing."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def handle(_number: int, _frame: FrameType | None) -> None:
        stop.request()

    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    before = {number: signal.signal(number, handle) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
