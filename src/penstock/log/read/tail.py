"""Waits for the end of a log to move: notified at once in the owner's process; by polling in other processes."""

from __future__ import annotations

import threading
from collections.abc import Callable

_POLL_SECONDS_MIN = 0.001
_POLL_SECONDS_MAX = 0.02  # how late a reader in another process is at most
_POLL_SECONDS_NOTIFIED = 0.25  # where the owner notifies, polling is only for the case that the log got another owner


class Tail:
    """A version counter: waiters pass the count that they saw last, so no change is missed before the wait."""

    def __init__(self, *, is_notified: bool = False) -> None:
        """`is_notified`: the owner's own; every change is notified."""
        self._changed = threading.Condition(threading.Lock())
        self._waiting = 0  # threads and watchers
        self._watchers: list[Callable[[], None]] = []
        self._is_notified = is_notified
        self.count = 0

    def notify(self) -> None:
        """Wakes the waiters: the end moved, or there is another reason to look. Cheap while nobody waits."""
        self.count += 1
        self._is_notified = True
        if self._waiting:
            with self._changed:
                self._changed.notify_all()
                for watcher in self._watchers:
                    watcher()

    def watch(self, watcher: Callable[[], None]) -> None:
        """Calls it with each notification, on the thread that notifies, until `unwatch`. It must be quick."""
        with self._changed:
            self._watchers.append(watcher)
            self._waiting += 1

    def unwatch(self, watcher: Callable[[], None]) -> None:
        with self._changed:
            self._watchers.remove(watcher)
            self._waiting -= 1

    def wait(self, seen: int, attempt: int, seconds_max: float | None) -> None:
        """Returns when `count` is no longer `seen`, or when it is time to poll again. `attempt` counts the polls so far."""
        seconds = self.poll_seconds(attempt, seconds_max)
        with self._changed:
            self._waiting += 1
            try:
                if self.count == seen:
                    self._changed.wait(seconds)
            finally:
                self._waiting -= 1

    def poll_seconds(self, attempt: int, seconds_max: float | None) -> float:
        """How long to wait for a notification before the log is looked at all the same."""
        seconds: float = min(_POLL_SECONDS_MIN * 2 ** min(attempt, 10), _POLL_SECONDS_MAX)
        if self._is_notified:
            seconds = _POLL_SECONDS_NOTIFIED
        return seconds if seconds_max is None else max(min(seconds, seconds_max), 0.0)
