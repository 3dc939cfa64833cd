"""Which logs this process owns: opening one twice gives the same one, closed when the last opener closes it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

T = TypeVar("T")


class _Slot(Generic[T]):
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.value: T | None = None
        self.openers = 0


class OpenLogs(Generic[T]):
    """Thread-safe. A key is a directory of one file system (tests have several)."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._slots: dict[tuple[int, Path], _Slot[T]] = {}

    def forked(self) -> None:
        """In a child process: the logs are the parent's."""
        self._lock = threading.Lock()
        self._slots = {}

    def open(self, key: tuple[int, Path], usable: Callable[[T], bool], make: Callable[[], T]) -> T:
        """The one that is open, if it is `usable`; else a new one. Concurrent openers share one recovery."""
        with self._lock:
            slot = self._slots.setdefault(key, _Slot())
        with slot.lock:
            if slot.value is None or not usable(slot.value):
                slot.value = None
                slot.value = make()
                slot.openers = 0
            slot.openers += 1
            return slot.value

    def leave(self, key: tuple[int, Path], value: T) -> bool:
        """One opener less; whether that was the last, so that it is to be closed now."""
        with self._lock:
            slot = self._slots.get(key)
        if slot is None:
            return True
        with slot.lock:
            if slot.value is not value:
                return True
            slot.openers -= 1
            if slot.openers > 0:
                return False
            slot.value = None
            return True
