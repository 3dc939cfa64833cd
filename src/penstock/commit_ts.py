"""commit_ts: milliseconds since the epoch << 18, plus a counter, as TiDB's, so that a consumer can read it as time.

It grows strictly, whatever the clock does: when the clock jumps back, counting goes on from the last commit_ts; a jump
forward is followed. The last one given is part of `SourcePosition`, so a restart continues above it. There are 2^18
numbers in a millisecond, 262 million in a second; a batch that needs more runs ahead of the clock, and the order still
holds.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from penstock.clock import SYSTEM_CLOCK, Clock

COUNTER_BITS = 18


def commit_ts_of(milliseconds: int) -> int:
    """The first commit_ts of a millisecond since the epoch."""
    return milliseconds << COUNTER_BITS


def milliseconds_of(commit_ts: int) -> int:
    """The wall time that a commit_ts stands for, in milliseconds since the epoch."""
    return commit_ts >> COUNTER_BITS


def milliseconds_of_all(commit_ts: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """`milliseconds_of`, for an array."""
    return commit_ts >> np.uint64(COUNTER_BITS)


class CommitClock:
    """Gives out commit_ts. Not thread-safe: owned by the capture loop."""

    def __init__(self, last: int = 0, clock: Clock = SYSTEM_CLOCK) -> None:
        self._last = last
        self._clock = clock

    @property
    def last(self) -> int:
        """The largest one given so far."""
        return self._last

    def peek(self) -> int:
        """What `next` would give now."""
        return max(self._last + 1, commit_ts_of(self._clock.wall_ms()))

    def next(self) -> int:
        self._last = self.peek()
        return self._last

    def next_open(self) -> int:
        """The next one, for a transaction that is open for a while; the number before it stays free, and lies above all that
        were given before."""
        self.next()
        return self.next()

    def take(self, count: int) -> npt.NDArray[np.uint64]:
        """The next `count` of them, ascending by one."""
        first = self.peek()
        if count:
            self._last = first + count - 1
        return np.arange(first, first + count, dtype=np.uint64)
