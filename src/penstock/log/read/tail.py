"""Waiting for the end of a log to move: woken at once inside the owner's process, by looking again elsewhere."""

from __future__ import annotations

import threading

_LOOK_SECONDS_MIN = 0.001
_LOOK_SECONDS_MAX = 0.02  # what a reader in another process is late at most, when it waited long
_LOOK_SECONDS_TOLD = 0.25  # somebody notifies: looking is for the case that the owner changed


class Tail:
    """Counts what happened, so that nothing is missed between a look and a wait."""

    def __init__(self) -> None:
        self._changed = threading.Condition(threading.Lock())
        self._waiting = 0
        self._told = False
        self.count = 0

    def notify(self) -> None:
        """The end moved, or a waiter should look for another reason. Cheap while nobody waits."""
        self.count += 1
        self._told = True
        if self._waiting:
            with self._changed:
                self._changed.notify_all()

    def wait(self, seen: int, attempt: int, seconds_max: float | None) -> None:
        """Returns when `count` is not `seen` any more, or it is time for another look."""
        seconds = min(_LOOK_SECONDS_MIN * 2 ** min(attempt, 10), _LOOK_SECONDS_MAX)
        if self._told:
            seconds = _LOOK_SECONDS_TOLD
        if seconds_max is not None:
            seconds = min(seconds, seconds_max)
        with self._changed:
            self._waiting += 1
            try:
                if self.count == seen:
                    self._changed.wait(seconds)
            finally:
                self._waiting -= 1
