"""When tables that were left out are tried again.

A run ends some time after a table was left out, once the sink answers: the next run replays it from the log, and with it
what was not written of the others. Replaying one table alone would need a range of its own in the plan. While that fails again,
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
    """For one thread at a time, but for `due`, which is set once."""

    def __init__(self) -> None:
        self.due = False  # they can be written again: the run is over
        self.pause = REPLAY_SECONDS_FIRST
        self._at: float | None = None  # monotonic seconds of the next try; None while nobody was left out

    def begin_run(self) -> None:
        self.due = False

    def look(self, writer: Writer, sink: Sink, now: float) -> None:
        if self.due:
            return
        if not writer.left_out():
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
