"""The index of a file's frames, kept in memory while the file grows; a ledger's footer is made of it.

The time index has a mark for every 64th entry: the highest wall_ms up to and including that entry. Wall clocks go back at
times; the highest time so far never does, so the marks can be searched.
"""

from __future__ import annotations

from array import array

import numpy as np
import numpy.typing as npt

_TIME_INDEX_EVERY = 64

I64Array = npt.NDArray[np.int64]


class FrameIndex:
    """Where each frame of a file starts, and when the frames were written."""

    def __init__(self) -> None:
        self.offsets = array("Q")
        self.times = array("Q")  # pairs of (highest wall_ms so far, entry)
        self.first_ms = 0
        self.last_ms = 0
        self.messages = 0  # that all frames stand for

    def add_many(self, offsets: npt.NDArray[np.integer], wall_ms: npt.NDArray[np.integer] | int, messages: int) -> None:
        """Adds consecutive frames, which stand for so many messages; `wall_ms` is one time for all of them, or an array."""
        if not len(offsets):
            return
        self.messages += messages
        first = len(self.offsets)
        self.offsets.frombytes(offsets.astype(np.uint64).tobytes())
        if isinstance(wall_ms, int):
            self.first_ms = self.first_ms if first else wall_ms
            self.last_ms = max(self.last_ms, wall_ms)
            for entry in range(
                -(-first // _TIME_INDEX_EVERY) * _TIME_INDEX_EVERY, len(self.offsets), _TIME_INDEX_EVERY
            ):
                self.times.extend((self.last_ms, entry))
            return
        self.first_ms = self.first_ms if first else int(wall_ms[0])
        highest = np.maximum(np.maximum.accumulate(wall_ms), self.last_ms)
        for entry in range(-(-first // _TIME_INDEX_EVERY) * _TIME_INDEX_EVERY, len(self.offsets), _TIME_INDEX_EVERY):
            self.times.extend((int(highest[entry - first]), entry))
        self.last_ms = int(highest[-1])

    def truncated_to(self, entries: int, messages: int) -> FrameIndex:
        """The index of the first `entries` entries, which stand for so many messages. Its `last_ms` may be that of a later entry: too high, never too low."""
        shorter = FrameIndex()
        shorter.messages = messages
        shorter.offsets = self.offsets[:entries]
        shorter.times = self.times[: 2 * -(-entries // _TIME_INDEX_EVERY)]
        if entries:
            shorter.first_ms, shorter.last_ms = self.first_ms, self.last_ms
        return shorter

    def finished_times(self) -> array[int]:
        """The time index with a last mark for the last entry, as a footer has it."""
        last = len(self.offsets) - 1
        if last >= 0 and self.times[-1] != last:
            return self.times + array("Q", (self.last_ms, last))
        return self.times
