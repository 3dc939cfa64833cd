"""Detects a disk that does not answer: neither data nor an error comes back, and whoever waits would wait for ever.

Threads that write say when they begin and end a step. One thread of the process watches all steps and reports one that
takes too long to the step's owner. The owner fails what waits with `SyncStalled` and never acknowledges it, even if the
disk answers later. Time is counted in ticks of the watching thread, not read from a clock: a process that was stopped, or
a machine that slept, has not stalled. Nor does the time count that callers' own code takes (`paused`).
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import threading
from collections.abc import Callable, Iterator

from penstock.errors import OutcomeUnknown, Unavailable
from penstock.observe.metrics import METRICS
from penstock.threads import start_thread

STALL_SECONDS_MAX = 60.0  # far beyond what a working disk needs, retries of a failing one included
_TICK_SECONDS = 1.0
_TICKS_MIN = 4  # the shortest limit takes at least so many ticks

_numbers = itertools.count(1)  # 0: a step that is not watched
_logger = logging.getLogger(__name__)


class SyncStalled(OutcomeUnknown):
    """The disk does not answer. What fails with this error was not acknowledged; a later owner may find it or not."""


class _Step:
    __slots__ = ("left", "on_stall", "seconds_max", "what")

    def __init__(self, what: str, seconds_max: float, on_stall: Callable[[SyncStalled], None]) -> None:
        self.what = what
        self.seconds_max = seconds_max
        self.left = seconds_max
        self.on_stall = on_stall


class StallWatch:
    """Thread-safe. The thread starts with the first watched step and stops with the last user."""

    def __init__(self) -> None:
        self._reset()

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._wake = threading.Condition(self._lock)
        self._steps: dict[int, _Step] = {}
        self._tick_seconds = _TICK_SECONDS
        self._users = 0
        self._thread: threading.Thread | None = None

    def enter(self) -> None:
        with self._lock:
            self._users += 1

    def leave(self) -> None:
        """Leaving as the last user waits until the thread has ended, unless it is that thread that leaves."""
        with self._lock:
            self._users -= 1
            if self._users:
                return
            thread, self._thread = self._thread, None
            self._tick_seconds = _TICK_SECONDS
            self._wake.notify()
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def runs_here(self) -> bool:
        """Whether the caller is on the watching thread: in a callback of what a disk did not answer."""
        return threading.current_thread() is self._thread

    def begin(self, what: str, seconds_max: float | None, on_stall: Callable[[SyncStalled], None]) -> int:
        """A step begins; returns its number, for `end`. `on_stall` is called on the watching thread, at most once."""
        if seconds_max is None:
            return 0
        number = next(_numbers)  # never given again: a step that stalled is ended long after it was forgotten
        self._steps[number] = _Step(what, seconds_max, on_stall)
        if self._thread is None or seconds_max < _TICKS_MIN * self._tick_seconds:
            self._start(seconds_max)
        return number

    def end(self, number: int) -> None:
        self._steps.pop(number, None)

    @contextlib.contextmanager
    def paused(self, number: int) -> Iterator[None]:
        """What happens inside is not the disk's time: the step begins anew after it. Callers' own code runs in here."""
        step = self._steps.pop(number, None)
        try:
            yield
        finally:
            if step is not None:
                step.left = step.seconds_max
                self._steps[number] = step

    def _start(self, seconds_max: float) -> None:
        with self._lock:
            self._tick_seconds = min(self._tick_seconds, seconds_max / _TICKS_MIN)
            if self._thread is None:
                with contextlib.suppress(Unavailable):  # the next step tries again
                    self._thread = start_thread(self._serve, "penstock stall watch")
            self._wake.notify()

    def _serve(self) -> None:
        while True:
            with self._lock:
                if self._thread is not threading.current_thread():
                    return
                tick = self._tick_seconds
                if self._wake.wait(tick):
                    continue
            for number, step in list(self._steps.items()):
                step.left -= tick
                if step.left < tick / 2 and self._steps.pop(number, None) is not None:
                    self._report(step)

    @staticmethod
    def _report(step: _Step) -> None:
        error = SyncStalled(
            f"{step.what}: the disk has not answered for {step.seconds_max:g} s",
            hint="check the disk, then start again: what was acknowledged is safe, and what failed now may be there or not",
        )
        METRICS.log_stalls.inc()
        _logger.error("%s", error)
        try:
            step.on_stall(error)
        except Exception:
            _logger.exception("the owner of a stalled step failed to handle it")


WATCH = StallWatch()
os.register_at_fork(after_in_child=WATCH._reset)  # a forked child has none of these threads
