"""What a spool holds, in bytes, and what follows from it: suppression with hysteresis, and the wakes that wait for its end.

The lock is a leaf: whoever holds it takes no other. Wakes run outside every lock (`due`).
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable

from penstock.delivery.spool.limits import SpoolLimits

_LOG = logging.getLogger(__name__)


class Wake:
    """Lets upstream send more. Given with several enqueues of one round, it still runs once. It says nothing about the
    sink: that is `post_flush`."""

    __slots__ = ("callback", "state")

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback = callback
        self.state = "new"  # then "kept" or "run"; changed by the account, under its lock


class Account:
    """Bytes and items of one spool. `disk_error` is why nothing can be spilled now; None while the disk works."""

    def __init__(self, limits: SpoolLimits, name: str = "") -> None:
        self.limits = limits
        self.memory_bytes = 0
        self.disk_bytes = 0
        self.staged_bytes = 0  # a part of the two above
        self.reading_bytes = 0  # read back, and files that are put together: a part of memory
        self.items = 0
        self.staged_items = 0  # a part of them
        self.disk_items = 0  # a part of them
        self.suppressed = False
        self.disk_error: str | None = None
        self.wakes = 0
        self.wakes_suppressed = 0
        self.suppressions = 0
        self._name = name
        self._lock = threading.Lock()
        self._kept: deque[Wake] = deque()

    @property
    def bytes(self) -> int:
        return self.memory_bytes + self.disk_bytes

    @property
    def kept_wakes(self) -> int:
        return len(self._kept)

    def move(
        self,
        *,
        memory: int = 0,
        disk: int = 0,
        staged: int = 0,
        items: int = 0,
        reading: int = 0,
        disk_items: int = 0,
        staged_items: int = 0,
    ) -> None:
        with self._lock:
            self.memory_bytes += memory + reading
            self.disk_bytes += disk
            self.staged_bytes += staged
            self.items += items
            self.disk_items += disk_items
            self.staged_items += staged_items
            self.reading_bytes += reading
            self._watermarks()

    def set_disk_error(self, error: str | None) -> None:
        with self._lock:
            self.disk_error = error
            self._watermarks()

    def offer(self, wake: Wake) -> None:
        """The wake runs with the next `due`, or is kept until suppression ends. Once a wake, however often it is offered."""
        with self._lock:
            if wake.state != "new":
                return
            wake.state = "kept"
            self._kept.append(wake)
            if self.suppressed:
                self.wakes_suppressed += 1

    def due(self) -> list[Wake]:
        """The wakes that may run now; the caller runs them, outside every lock."""
        if not self._kept:  # read without the lock: who offers a wake calls this afterwards
            return []
        with self._lock:
            if self.suppressed:
                return []
            wakes = list(self._kept)
            self._kept.clear()
            for wake in wakes:
                wake.state = "run"
            self.wakes += len(wakes)
            return wakes

    def _watermarks(self) -> None:
        """Between the marks everything stays as it is. Where the disk does not work, memory's low mark is all there is."""
        limits, memory, total = self.limits, self.memory_bytes, self.memory_bytes + self.disk_bytes
        if (
            total > limits.high_bytes
            or memory > limits.memory_high_bytes
            or (self.disk_error is not None and memory > limits.memory_low_bytes)
        ):
            if not self.suppressed:
                self.suppressed = True
                self.suppressions += 1
                _LOG.info("the spool suppresses wakes", extra=self._facts())
        elif self.suppressed and total <= limits.low_bytes and memory <= limits.memory_low_bytes:
            self.suppressed = False
            _LOG.info("the spool wakes again", extra=self._facts())

    def _facts(self) -> dict[str, object]:
        return {
            "changefeed": self._name,
            "memory_bytes": self.memory_bytes,
            "disk_bytes": self.disk_bytes,
            "disk_error": self.disk_error or "",
        }
