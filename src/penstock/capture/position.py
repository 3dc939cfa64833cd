"""Which source position is saved, and what status shows of it (docs/decisions/0009-positions-by-what-is-finished.md).

In the words of the specification: rows carry `snapshot`, the end of the last commit that was read; the saved position
is `pending_snapshot`. What the tracker promises, for every interleaving of reads and acknowledgements:

1. `pending_snapshot` is at or before the start of the oldest transaction that is not acknowledged or not read to its
   end.
2. Acknowledgements may come in any order: it is the end of the longest acknowledged prefix.
3. It never goes backwards, and is never absent.
4. Once everything is acknowledged and the source is idle, it is the end of the last commit.
5. Commits of tables that are not followed, heartbeats and rotations move it only while nothing earlier is pending, and
   a frame for them is due at most once a second. What came while something was pending is remembered.
"""

from __future__ import annotations

import itertools
from collections import deque
from dataclasses import asdict, dataclass
from typing import Any

from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.errors import Corruption
from penstock.sources.position import SourcePosition

UNFINISHED_SHOWN_MAX = 8  # of the transactions in flight: the oldest decide
IDLE_SECONDS_MIN = 1.0  # between two frames that carry nothing but a position


@dataclass(frozen=True, slots=True)
class PendingFrame:
    """A frame on its way. `restart`: where a restart reads on if it is lost, the end of the commit before it."""

    ticket: int
    restart: SourcePosition
    done: SourcePosition


class PositionTracker:
    """Follows what was read, what is in flight and what is durable. Not thread-safe: owned by the capture loop."""

    def __init__(self, start: SourcePosition, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._snapshot = start
        self._saved = start
        self._read = start
        self._inside = False
        self._in_flight: deque[PendingFrame] = deque()
        self._acknowledged: set[int] = set()
        self._next_ticket = 0
        self._last_frame = clock.monotonic()

    @property
    def pending_snapshot(self) -> SourcePosition:
        """The saved position: where a new process reads on."""
        return self._saved

    @property
    def snapshot(self) -> SourcePosition:
        """The end of the last commit that was read. Rows that are read now carry it, and a new connection of this process
        reads on there: the frames before it are on their way, or the process ends."""
        return self._snapshot

    @property
    def pending(self) -> bool:
        return bool(self._in_flight)

    def reading(self, read: SourcePosition, *, inside: bool) -> None:
        """How far events were read, and whether a transaction is open there. Saves nothing."""
        self._read = read
        self._inside = inside

    def appended(self, position: SourcePosition | None) -> int:
        """A frame that carries `position` is on its way; without one it carries `snapshot`. Returns its ticket."""
        done = position if position is not None else self._snapshot
        restart = self._snapshot
        self._forward(done)
        ticket = self._next_ticket
        self._next_ticket += 1
        self._in_flight.append(PendingFrame(ticket, restart, done))
        self._last_frame = self._clock.monotonic()
        return ticket

    def acknowledge(self, ticket: int) -> None:
        """The frame of this ticket is durable. Tickets may come in any order."""
        self._acknowledged.add(ticket)
        while self._in_flight and self._in_flight[0].ticket in self._acknowledged:
            frame = self._in_flight.popleft()
            self._acknowledged.discard(frame.ticket)
            self._saved = frame.done

    def passed(self, position: SourcePosition) -> None:
        """Everything up to `position`, the end of a transaction, held nothing to append, or was appended before."""
        if position.order > self._snapshot.order:
            self._forward(position)

    def idle_due(self) -> SourcePosition | None:
        """The position for a frame with state only. None unless nothing is pending or open, something was passed since the
        last frame, and that frame is a second old."""
        if self._in_flight or self._inside or self._snapshot.order <= self._saved.order:
            return None
        if self._clock.monotonic() - self._last_frame < IDLE_SECONDS_MIN:
            return None
        return self._snapshot

    def status(self) -> dict[str, Any]:
        """The positions, what is unfinished (the oldest of it), and which position is used when."""
        unfinished: list[dict[str, Any]] = [
            {"state": "in flight", "restart": asdict(frame.restart), "done": asdict(frame.done)}
            for frame in itertools.islice(self._in_flight, UNFINISHED_SHOWN_MAX)
        ]
        if self._inside and len(unfinished) < UNFINISHED_SHOWN_MAX:
            unfinished.append({"state": "open", "restart": asdict(self._snapshot), "done": None})
        return {
            "read": asdict(self._read),
            "snapshot": asdict(self._snapshot),
            "pending_snapshot": asdict(self._saved),
            "unfinished": unfinished,
            "unfinished_count": len(self._in_flight) + int(self._inside),
            "reconnect": "snapshot",
            "restart": "pending_snapshot",
        }

    def _forward(self, position: SourcePosition) -> None:
        if position.order < self._snapshot.order:
            raise Corruption(
                f"the source went back from {self._snapshot} to {position}",
                hint="is it still the same server, with the same binlog files?",
            )
        self._snapshot = position
