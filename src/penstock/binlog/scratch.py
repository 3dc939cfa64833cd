"""Where the row decoder puts the values of some rows before they become Arrow columns.

A walk ends when the scratch is full. So many rows that the cost of a walk is small beside theirs, so few that they stay
in the processor's cache; and never so many that they take more than a given number of bytes, however wide the table is
and however little its rows take in the binlog (a NULL is one bit there, an empty BINARY(255) one byte).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.binlog import kernels as k
from penstock.binlog.columns import ColumnPlan, fixed_array, sliced_array

ROWS_MAX = 16_384
WALK_BYTES_MAX = 64 << 20
_GROWTH_MAX = 8  # how much longer a value can be in a column: JSON as text, padding apart


def _row_bytes(plan: ColumnPlan) -> int:
    """What a value of this column takes however short it is: in the scratch, and as Arrow with its padding."""
    if plan.words:
        return 8 * plan.words + 1 + 16
    return 16 + 1 + 4 + (plan.a + 3 if plan.kind == k.K_RAW else plan.pad)


class Scratch:
    """The arrays that `walk_rows` fills, used again for every walk.

    `images`: how many a row has. `rows_possible`: no walk can have more rows. `bytes_max`: what the rows of a walk may
    take, here and in columns.
    """

    def __init__(self, plans: list[ColumnPlan], images: int, rows_possible: int, bytes_max: int) -> None:
        bytes_max = min(bytes_max, WALK_BYTES_MAX)
        self._raw_bytes_max = max(1, bytes_max // _GROWTH_MAX)  # at least one row a walk
        rows = max(1, min(ROWS_MAX, rows_possible, bytes_max // (images * sum(map(_row_bytes, plans)) + 1)))
        self._slots = np.zeros(len(plans), np.int64)
        words = slices = 0
        for c, plan in enumerate(plans):
            self._slots[c] = words if plan.words else slices
            words += plan.words
            slices += not plan.words
        self._kinds = np.array([plan.kind for plan in plans], np.int64)
        self._widths = np.array([plan.width for plan in plans], np.int64)
        self._a = np.array([plan.a for plan in plans], np.int64)
        self._b = np.array([plan.b for plan in plans], np.int64)
        self._values = np.empty((2, words, rows), np.int64)
        self._start = np.empty((2, slices, rows), np.int64)
        self._length = np.empty((2, slices, rows), np.int64)
        self._valid = np.empty((2, len(plans), rows), np.uint8)
        self.row_op = np.empty(rows, np.uint8)
        self.row_event = np.empty(rows, np.int64)
        self.row_number = np.empty(rows, np.uint32)

    def walk(  # noqa: PLR0917
        self,
        array: npt.NDArray[np.uint8],
        start: npt.NDArray[np.int64],
        end: npt.NDArray[np.int64],
        op: npt.NDArray[np.uint8],
        state: npt.NDArray[np.int64],
        has_image: tuple[bool, bool],
    ) -> tuple[int, int]:
        rows, status = k.walk_rows(
            array,
            start,
            end,
            op,
            state,
            self._kinds,
            self._widths,
            self._a,
            self._b,
            self._slots,
            self._values,
            self._start,
            self._length,
            self._valid,
            self.row_op,
            self.row_event,
            self.row_number,
            0 if has_image[0] else 1,
            1 if has_image[1] else 0,
            self._raw_bytes_max,
        )
        return int(rows), int(status)

    def column(self, array: npt.NDArray[np.uint8], plan: ColumnPlan, image: int, c: int, n: int) -> pa.Array[Any]:
        """The first `n` values of a column, copied, because the next walk overwrites the scratch."""
        slot = int(self._slots[c])
        valid = self._valid[image, c, :n]
        if plan.words:
            return fixed_array(plan, self._values[image, slot : slot + plan.words, :n], valid)
        return sliced_array(plan, array, self._start[image, slot, :n], self._length[image, slot, :n], valid)
