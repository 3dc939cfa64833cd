"""commit_ts: milliseconds << 18 plus a counter, as TiDB's, so that a consumer reads it as time.

Strictly growing whatever the clock does: a jump back keeps counting from the last one, a jump forward is followed. The
last one given is part of `SourcePosition`, so that a restart starts above it. 2^18 a millisecond are 262 million a
second; where a batch needs more, the milliseconds run ahead of the clock, never the order back.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from penstock.clock import SYSTEM_CLOCK, Clock

COUNTER_BITS = 18


class CommitClock:
    """Gives commit_ts. Not thread-safe: owned by the capture loop."""

    def __init__(self, last: int = 0, clock: Clock = SYSTEM_CLOCK) -> None:
        self._last = last
        self._clock = clock

    @property
    def last(self) -> int:
        """The largest one given so far."""
        return self._last

    def peek(self) -> int:
        """What `next` would give now."""
        return max(self._last + 1, self._clock.wall_ms() << COUNTER_BITS)

    def next(self) -> int:
        self._last = self.peek()
        return self._last

    def take(self, count: int) -> npt.NDArray[np.uint64]:
        """`count` of them, each one above the one before."""
        first = self.peek()
        if count:
            self._last = first + count - 1
        return np.arange(first, first + count, dtype=np.uint64)


def milliseconds(commit_ts: int) -> int:
    """The wall time that a commit_ts stands for."""
    return commit_ts >> COUNTER_BITS
