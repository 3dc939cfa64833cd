"""Appends frames to the log, each an entry with the state that belongs to it, and follows which of them are durable.

The position, the open transaction and new schemas are in the same frame as the entry: all survive a crash or none does.
What waits for the disk is bounded, so a slow disk slows reading down instead of filling the memory.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import Any

from penstock.capture.position import PositionTracker
from penstock.capture.schemas import SchemaTracker
from penstock.capture.transactions import FrameContent
from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.entries.stores import SCHEMA_HISTORY, SOURCE, SOURCE_OPEN, SOURCE_POSITION
from penstock.log import Pending
from penstock.sources.position import OpenTransaction, SourcePosition
from penstock.state import BucketState

WAITING_BYTES_MAX = 64 << 20
DURABLE_SECONDS_MAX = 60.0  # an append that takes longer is an error


class Recorder:
    """The writer of one capture. Not thread-safe: owned by the capture loop."""

    def __init__(self, state: BucketState, schemas: SchemaTracker, clock: Clock = SYSTEM_CLOCK) -> None:
        self._state = state
        self._schemas = schemas
        self._clock = clock
        self._positions = state.store(SOURCE_POSITION)
        self._opens = state.store(SOURCE_OPEN)
        self._history = state.store(SCHEMA_HISTORY)
        self._tracker: PositionTracker | None = None
        self._waiting: deque[tuple[Pending[Any], int, int]] = deque()
        self._waiting_bytes = 0
        stored = self._positions.get(SOURCE)
        if stored is not None:
            self._tracker = PositionTracker(stored, clock)
        self.open: OpenTransaction | None = self._opens.get(SOURCE)
        self.transactions = self.events = self.bytes = 0

    @property
    def position(self) -> SourcePosition | None:
        """The position of the last frame, durable or not; None for a new log."""
        return self._positions.get(SOURCE)

    @property
    def durable(self) -> SourcePosition | None:
        return self._tracker.durable if self._tracker else None

    @property
    def waiting(self) -> bool:
        """Whether an appended frame is not known to be durable yet."""
        return bool(self._waiting)

    def append(self, frame: FrameContent) -> None:
        """Hands the frame to the log. Blocks while more than WAITING_BYTES_MAX are not durable."""
        change = self._state.begin()
        self._positions.put(change, SOURCE, frame.position)
        if frame.open is not None:
            self._opens.put(change, SOURCE, frame.open)
        elif self.open is not None:
            self._opens.delete(change, SOURCE)
        self.open = frame.open
        for table in frame.schemas:
            self._history.put(change, self._schemas.record(table), table)
        size = sum(len(buffer) for buffer in frame.data)
        pending = self._state.commit(change, frame.data)
        if self._tracker is None:
            self._tracker = PositionTracker(frame.position, self._clock)
        ticket = self._tracker.appended(frame.position)
        self._waiting.append((pending, ticket, size))
        self._waiting_bytes += size
        self.transactions += frame.transactions
        self.events += frame.events
        self.bytes += size
        while self._waiting_bytes > WAITING_BYTES_MAX:
            self._settle(wait=True)
        self.settle()

    def settle(self) -> None:
        """Notes which frames have become durable. Raises the error of a failed append."""
        while self._waiting and self._waiting[0][0].done():
            self._settle(wait=False)

    def finish(self) -> None:
        """Returns once everything appended is durable."""
        while self._waiting:
            self._settle(wait=True)

    def passed(self, position: SourcePosition) -> None:
        """Everything before `position` is appended, or had nothing to append.

        While nothing else is pending, a frame with state only makes the position durable, at most once a second.
        """
        assert self._tracker is not None
        self.settle()
        self._tracker.passed(position)
        due = self._tracker.idle_due()
        if due is not None and self.open is None:
            self.append(FrameContent([], replace(due, commit_ts=max(due.commit_ts, position.commit_ts))))

    def _settle(self, *, wait: bool) -> None:
        assert self._tracker is not None
        pending, ticket, size = self._waiting[0]
        pending.result(DURABLE_SECONDS_MAX if wait else 0)
        self._waiting.popleft()
        self._waiting_bytes -= size
        self._tracker.acknowledge(ticket)
