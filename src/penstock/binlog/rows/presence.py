"""Which columns the images of rows have. A column that a server left out is absent, which is not NULL.

With `binlog_row_image` MINIMAL, NOBLOB or FULL_NODUP a before image may have the key alone, and an after image only what
a statement set. All rows of an event have the same columns, so there is one bitmap for each event.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class Presence:
    """For each row of one image: `bitmaps[which[row]]`, where the lowest bit of the first byte is the first column.

    It says nothing of rows that do not have the image: the before image of an insert, the after image of a delete.
    """

    bitmaps: npt.NDArray[np.uint8]  # one row of bytes for each event
    which: npt.NDArray[np.int64]

    def column(self, ordinal: int) -> npt.NDArray[np.bool_]:
        """Whether each row has this column."""
        bits = self.bitmaps[:, ordinal >> 3] >> np.uint8(ordinal & 7) & np.uint8(1)
        return bits.astype(np.bool_)[self.which]

    def slice(self, start: int, stop: int) -> Presence:
        return Presence(self.bitmaps, self.which[start:stop])

    def take(self, rows: npt.NDArray[np.int64]) -> Presence:
        """These rows, in this order."""
        return Presence(self.bitmaps, self.which[rows])


def joined_presence(parts: Sequence[Presence | None], lengths: Sequence[int], columns: int) -> Presence | None:
    """The presence of rows one after the other; None is that of rows that have all columns."""
    if all(part is None for part in parts):
        return None
    everything = np.full((1, (columns + 7) // 8), 0xFF, np.uint8)
    bitmaps, which, count = [], [], 0
    for part, length in zip(parts, lengths, strict=True):
        bitmaps.append(everything if part is None else part.bitmaps)
        which.append((np.zeros(length, np.int64) if part is None else part.which) + count)
        count += len(bitmaps[-1])
    return Presence(np.concatenate(bitmaps), np.concatenate(which))
