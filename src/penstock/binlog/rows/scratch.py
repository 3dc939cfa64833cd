"""Where the row decoder notes the values of some rows before they become Arrow columns.

A walk ends when the scratch is full. So many rows that the cost of a walk is small beside theirs, so few that they stay
in the processor's cache; and never so many that they take more than a given number of bytes, however wide the table is
and however little its rows take in the binlog (a NULL is one bit there, an empty BINARY(255) one byte).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from penstock.binlog.rows.plan import ColumnPlan
from penstock.binlog.rows.row_events import RowEvents
from penstock.binlog.rows.walk import Walk, walk_rows

ROWS_MAX = 16_384
WALK_BYTES_MAX = 64 << 20
_PLACE_BYTES = 4


class Scratch:
    """The arrays that `walk_rows` fills, used again for every walk.

    `bytes_max`: what the rows of a walk may take, here and in columns.
    """

    def __init__(self, plans: list[ColumnPlan], events: RowEvents, bytes_max: int) -> None:
        bytes_max = min(bytes_max, WALK_BYTES_MAX)
        self._raw_bytes_max = max(1, bytes_max // max(plan.growth for plan in plans))  # at least one row a walk
        row_bytes = sum(events.has_image) * sum(_PLACE_BYTES + plan.least for plan in plans)
        rows = max(1, min(ROWS_MAX, events.rows_possible, bytes_max // (row_bytes + 1)))
        self._events = events
        self._widths = np.array([plan.width for plan in plans], np.int64)
        self._variable = np.array([plan.variable for plan in plans], np.bool_)
        self._is_json = np.array([plan.is_json for plan in plans], np.bool_)
        self._state = np.array([0, -1, 0, -1], np.int64)  # indexed by Walk
        self.places = np.empty((2, len(plans), rows), np.int32)  # of the last walk; from `base` on
        self.base = 0
        self.row_op = np.empty(rows, np.uint8)
        self.row_event = np.empty(rows, np.int64)
        self.row_number = np.empty(rows, np.uint32)

    @property
    def at_end(self) -> bool:
        return bool(self._state[Walk.EVENT] >= len(self._events))

    @property
    def failed(self) -> tuple[int, int]:
        """Where a walk stopped that did not return `ST_OK`: (event, column or -1)."""
        return int(self._state[Walk.EVENT]), int(self._state[Walk.FAILED_COLUMN])

    def walk(self, array: npt.NDArray[np.uint8]) -> tuple[int, int]:
        """(rows noted, status) of the next rows."""
        events, state = self._events, self._state
        at = int(state[Walk.AT])
        self.base = at if at >= 0 else int(events.start[state[Walk.EVENT]])
        rows, status = walk_rows(
            array,
            events.start,
            events.end,
            events.op,
            events.bitmaps,
            events.counts,
            events.options,
            state,
            self._widths,
            self._variable,
            self._is_json,
            self.places,
            self.row_op,
            self.row_event,
            self.row_number,
            0 if events.has_image[0] else 1,
            1 if events.has_image[1] else 0,
            self.base,
            self._raw_bytes_max,
        )
        return int(rows), int(status)
