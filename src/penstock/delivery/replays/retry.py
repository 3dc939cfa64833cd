"""When tables that were left out after errors are tried again: some time later, once the sink answers. While that fails again,
the pauses double.
"""

from __future__ import annotations

import contextlib

from penstock.delivery.sink import Sink
from penstock.delivery.writer import Writer
from penstock.errors import PenstockError

REPLAY_SECONDS_FIRST = 60.0
REPLAY_SECONDS_MAX = 3600.0


class Replay:
    """For one thread at a time, but for `due`."""

    def __init__(self) -> None:
        self.due = False  # they can be written again
        self.pause = REPLAY_SECONDS_FIRST
        self._at: float | None = None  # monotonic seconds of the next try; None while nobody was left out

    def begun(self) -> None:
        """They are replayed, or a new run begins."""
        self.due = False

    def look(self, writer: Writer, sink: Sink, now: float) -> None:
        if self.due:
            return
        if not any(not each.asked_out for each in writer.left_out()):
            if self._at is not None and now >= self._at and not writer.failing():
                self._at, self.pause = None, REPLAY_SECONDS_FIRST
            return
        if self._at is None:
            self._at = now + self.pause
        if now < self._at:
            return
        with contextlib.suppress(PenstockError):
            sink.probe()
            self.pause = min(2 * self.pause, REPLAY_SECONDS_MAX)
            self._at = now + self.pause
            self.due = True
