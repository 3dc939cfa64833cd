"""The row events of one layout: where the rows of each are, what it does to them, and which columns they have."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from penstock.binlog.bodies import FormatDescription
from penstock.binlog.errors import BadEvent
from penstock.binlog.events import Events
from penstock.binlog.rows import layouts
from penstock.binlog.rows.presence import Presence
from penstock.binlog.table_map import TableMap
from penstock.binlog.types import OP_DELETE, OP_INSERT


@dataclass(frozen=True, slots=True)
class RowEvents:
    """An element of each array for each event; of `bitmaps` and `counts`, one for each image of each event."""

    start: npt.NDArray[np.int64]
    end: npt.NDArray[np.int64]
    op: npt.NDArray[np.uint8]
    bitmaps: npt.NDArray[np.int64]  # where the bitmap of the present columns is
    counts: npt.NDArray[np.int64]  # how many are present
    options: npt.NDArray[np.bool_]  # value options stand before the after images: PARTIAL_UPDATE_ROWS
    columns: int

    def __len__(self) -> int:
        return len(self.start)

    @property
    def has_image(self) -> tuple[bool, bool]:
        """Whether any event has a before image, and an after image."""
        return bool(np.any(self.op != OP_INSERT)), bool(np.any(self.op != OP_DELETE))

    @property
    def rows_possible(self) -> int:
        """No walk can have more rows."""
        null_bytes = ((self.counts + 7) // 8).sum(axis=0)
        return int((self.end - self.start).sum()) // max(1, int(null_bytes.min(initial=self.columns))) + len(self)

    def presence(self, array: npt.NDArray[np.uint8], image: int, which: npt.NDArray[np.int64]) -> Presence | None:
        """Of rows that belong to the events `which`, ascending. None if all that have the image have all columns."""
        if not len(which):
            return None
        first, last = int(which[0]), int(which[-1]) + 1
        without = self.op[first:last] == (OP_INSERT if image == 0 else OP_DELETE)
        if np.all(without | (self.counts[image, first:last] == self.columns)):
            return None
        width = (self.columns + 7) // 8
        starts = np.where(without, 0, self.bitmaps[image, first:last])
        bitmaps = array[starts[:, None] + np.arange(width)]
        bitmaps[without] = 0xFF
        return Presence(bitmaps, which - first)


def open_row_events(
    array: npt.NDArray[np.uint8], events: Events, chosen: npt.NDArray[np.int64], table: TableMap, fde: FormatDescription
) -> RowEvents:
    """The events with these indexes. Raises `BadEvent` where one is cut, or has not the columns of `table`."""
    n, columns = len(chosen), len(table.columns)
    opened = RowEvents(
        np.empty(n, np.int64),
        np.empty(n, np.int64),
        np.empty(n, np.uint8),
        np.empty((2, n), np.int64),
        np.empty((2, n), np.int64),
        np.empty(n, np.bool_),
        columns,
    )
    status, bad = layouts.open_rows(
        array,
        events.offset[chosen],
        events.size[chosen],
        events.type[chosen],
        fde.table_id_bytes,
        fde.trailer_bytes,
        columns,
        opened.start,
        opened.end,
        opened.op,
        opened.bitmaps,
        opened.counts,
        opened.options,
    )
    if status != layouts.ST_OK or not columns:
        raise row_error(int(status), events, int(chosen[max(0, bad)]), table)
    return opened


def row_error(status: int, events: Events, i: int, table: TableMap, column: int = -1) -> BadEvent:
    """The error for event `i` that a kernel stopped at with this status."""
    where = f", column {table.columns[column].name or f'#{column + 1}'}" if column >= 0 else ""
    problem = {
        layouts.ST_COLUMNS: "not as many columns as its table map has",
        layouts.ST_SHORT: "the event ends inside a row",
    }.get(status, "bytes that no server writes")
    return bad_event(f"{table.name}{where}: {problem}", events, i)


def bad_event(message: str, events: Events, i: int) -> BadEvent:
    return BadEvent(message, offset=int(events.offset[i]), event_type=int(events.type[i]))
