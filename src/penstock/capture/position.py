"""Which source position a frame may carry.

What the tracker promises, for every interleaving of reads and durable frames:

1. `durable` is at or before the start of the oldest transaction that is not yet in a durable frame.
2. Frames may be acknowledged in any order: `durable` is the end of the longest acknowledged prefix.
3. `durable` never goes backwards.
4. Once every frame is acknowledged and the source is idle, `durable` is the end of the last thing read.
5. Idle traffic (heartbeats, rotations, transactions without rows) moves the position only while no earlier frame is
   pending, and a frame for it is due at most once a second.
"""

from __future__ import annotations

from collections import deque

from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.errors import Corruption
from penstock.sources.position import SourcePosition

IDLE_SECONDS_MIN = 1.0  # between two frames that carry nothing but a position


class PositionTracker:
    """Follows what was read, what is in flight and what is durable. Not thread-safe: owned by the capture loop."""

    def __init__(self, start: SourcePosition, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._read = start
        self._durable = start
        self._in_flight: deque[tuple[int, SourcePosition]] = deque()
        self._acknowledged: set[int] = set()
        self._next_ticket = 0
        self._last_frame = clock.monotonic()

    @property
    def durable(self) -> SourcePosition:
        """Where a restart would continue."""
        return self._durable

    @property
    def read(self) -> SourcePosition:
        """The end of what was read so far: of a transaction, or of traffic without rows."""
        return self._read

    @property
    def pending(self) -> bool:
        return bool(self._in_flight)

    def appended(self, position: SourcePosition) -> int:
        """A frame that carries `position` is on its way. Returns its ticket, for `acknowledge`."""
        self._forward(position)
        ticket = self._next_ticket
        self._next_ticket += 1
        self._in_flight.append((ticket, position))
        self._last_frame = self._clock.monotonic()
        return ticket

    def acknowledge(self, ticket: int) -> None:
        """The frame of this ticket is durable. Tickets may come in any order."""
        self._acknowledged.add(ticket)
        while self._in_flight and self._in_flight[0][0] in self._acknowledged:
            done, position = self._in_flight.popleft()
            self._acknowledged.discard(done)
            self._durable = position

    def passed(self, position: SourcePosition) -> None:
        """Everything up to `position` held nothing to append, or was appended before."""
        if position.order > self._read.order:
            self._forward(position)

    def idle_due(self) -> SourcePosition | None:
        """The position for a frame with state only. None unless nothing is pending, something was passed since the last
        frame, and that frame is a second old."""
        if self._in_flight or self._read.order <= self._durable.order:
            return None
        if self._clock.monotonic() - self._last_frame < IDLE_SECONDS_MIN:
            return None
        return self._read

    def _forward(self, position: SourcePosition) -> None:
        if position.order < self._read.order:
            raise Corruption(
                f"the source went back from {self._read} to {position}",
                hint="is it still the same server, with the same binlog files?",
            )
        self._read = position
