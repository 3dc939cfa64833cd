"""Clocks. Time comes in through constructors, so that a test decides what time it is."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    def wall_ms(self) -> int:
        """Milliseconds since the Unix epoch. May jump in either direction."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go back. Only differences mean anything."""
        ...

    def sleep(self, seconds: float) -> None: ...


class SystemClock:
    """The machine's own clock."""

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


class ManualClock:
    """A clock that stands still until a test moves it."""

    def __init__(self, wall_ms: int = 1_700_000_000_000) -> None:
        self._wall_ms = wall_ms
        self._monotonic = 0.0

    def wall_ms(self) -> int:
        return self._wall_ms

    def monotonic(self) -> float:
        return self._monotonic

    def sleep(self, seconds: float) -> None:
        self.advance(seconds)

    def advance(self, seconds: float) -> None:
        """Moves both clocks forward."""
        self._monotonic += seconds
        self._wall_ms += round(seconds * 1000)

    def jump(self, seconds: float) -> None:
        """Moves only the wall clock, as an operator or NTP does."""
        self._wall_ms += round(seconds * 1000)


SYSTEM_CLOCK = SystemClock()
