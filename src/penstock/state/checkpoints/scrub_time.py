"""When the checkpoints of a state were last scrubbed, kept beside them: else a process that is started again every day
would wait a day each time, and never scrub.

The file `scrubbed` is one line of JSON. It is a hint: one that is lost or damaged counts as written now, and a time
in the future, which a clock that stepped back leaves, as now.
"""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

from penstock.clock import Clock
from penstock.errors import PenstockError
from penstock.files import Files, read_file, replace_file

NAME = "scrubbed"


class ScrubTime:
    """The time of the last scrub of the checkpoints in a directory. It never fails: a scrub is worth more than its
    time."""

    def __init__(self, files: Files, directory: Path, clock: Clock) -> None:
        self._files = files
        self._directory = directory
        self._clock = clock

    def note(self) -> None:
        """The checkpoints are sound as of now: they were read, or have just been written and read back."""
        text = json.dumps({"wall_ms": self._clock.wall_ms()}).encode()
        with contextlib.suppress(OSError, PenstockError):
            replace_file(self._files, self._directory / NAME, [text, b"\n"])

    def seconds_left(self, interval: float) -> float:
        """Until the next scrub is due: from 0 to `interval`. Where nobody knows when the last one was, it counts from
        now on."""
        try:
            last = int(json.loads(read_file(self._files, self._directory / NAME))["wall_ms"])
            if 0 <= last <= (now := self._clock.wall_ms()):
                return max(interval - (now - last) / 1000, 0.0)
        except (OSError, PenstockError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
            pass
        self.note()
        return interval
