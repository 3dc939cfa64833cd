"""How much may be in memory of what writers read back from segments, all of them together."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from penstock.delivery.spool.account import Account


class ReadBack:
    """A share of memory that writers take before they read and give back when the bytes are gone. One who wants more than
    all of it gets it alone. A thread holds one grant at a time, so nobody waits for ever."""

    def __init__(self, limit: int, account: Account) -> None:
        self.limit = limit
        self.read_bytes = 0  # since the start
        self.waits = 0
        self._account = account
        self._taken = 0
        self._condition = threading.Condition()

    @property
    def taken(self) -> int:
        return self._taken

    @contextlib.contextmanager
    def grant(self, size: int) -> Iterator[None]:
        if not size:
            yield
            return
        with self._condition:
            if self._taken and self._taken + size > self.limit:
                self.waits += 1
                self._condition.wait_for(lambda: not self._taken or self._taken + size <= self.limit)
            self._taken += size
            self.read_bytes += size
        self._account.move(reading=size)
        try:
            yield
        finally:
            self._account.move(reading=-size)
            with self._condition:
                self._taken -= size
                self._condition.notify_all()
