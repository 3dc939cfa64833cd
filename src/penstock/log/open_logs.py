"""The logs that this process owns: opening one again shares it; it is closed with its last opener."""

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
    """Thread-safe. A key is a file system (tests have several) and a directory."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._slots: dict[tuple[int, Path], _Slot[T]] = {}

    def forked(self) -> None:
        """Called in a forked child process, which owns none of its parent's logs."""
        self._lock = threading.Lock()
        self._slots = {}

    def open(
        self, key: tuple[int, Path], usable: Callable[[T], bool], make: Callable[[], T], check: Callable[[T], None]
    ) -> T:
        """The value that is open under the key, if it is `usable`; else `make()`. Concurrent openers share it.

        `check` is called with a value that is shared, and raises where this opener cannot share it.
        """
        with self._lock:
            slot = self._slots.setdefault(key, _Slot())
        with slot.lock:
            if slot.value is None or not usable(slot.value):
                slot.value = None
                slot.value = make()
                slot.openers = 0
            else:
                check(slot.value)
            slot.openers += 1
            return slot.value

    def leave(self, key: tuple[int, Path], value: T) -> bool:
        """Counts one opener less. True where it was the last: then the caller closes the value."""
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

    def return_to(self, key: tuple[int, Path], value: T) -> None:
        """The last opener, who was to close the value, could not, and has it still."""
        with self._lock:
            slot = self._slots.setdefault(key, _Slot())
        with slot.lock:
            if slot.value is None:
                slot.value, slot.openers = value, 1
