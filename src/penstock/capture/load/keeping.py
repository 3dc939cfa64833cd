"""Keeps what the log got since a chunk was begun, while that takes long: the chunk must be cleaned of it.

A condition without an index lets the server look for rows for an hour. Meanwhile every sink passes what came, and the log
would be trimmed: the chunk would be read again and again, and never appended. Most chunks take less than a second, and
need no pin. Where the log has no room for more, the pin goes: capture waits for that room, and the chunk for capture.
"""

from __future__ import annotations

import logging

from penstock.clock import Clock
from penstock.errors import BadInput
from penstock.log import Log
from penstock.log.position import Position

PIN = "capture.load"
LOOK_SECONDS = 5.0  # what is outstanding for two looks is pinned: each pin is a write of metadata

_logger = logging.getLogger(__name__)


class ChunkPin:
    """For the thread of the capture loop."""

    def __init__(self, log: Log, clock: Clock) -> None:
        self._log = log
        self._clock = clock
        self._due = clock.monotonic() + LOOK_SECONDS
        self._seen: Position | None = None  # the oldest ticket that was outstanding at the last look
        self._pinned: Position | None = log.pins().get(PIN)  # of a process that was killed
        self.release()

    def is_due(self) -> bool:
        return self._clock.monotonic() >= self._due

    def look(self, oldest: Position | None) -> None:
        """`oldest`: the end of the log at which the oldest chunk was begun that is not appended yet; None where there is
        none."""
        self._due = self._clock.monotonic() + LOOK_SECONDS
        before, self._seen = self._seen, oldest
        if oldest is None or oldest != before:
            self.release()
        elif oldest != self._pinned:
            try:
                self._log.pin(PIN, oldest)
                self._pinned = oldest
            except BadInput as error:  # gone already: the chunk is read again
                _logger.info("%s", error.message)

    def release(self) -> None:
        if self._pinned is not None:
            self._log.unpin(PIN)
            self._pinned = None
