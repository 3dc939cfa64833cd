"""Row events of one layout → columns, many events at once.

`group_rows` finds the table map of every row event in a buffer. `decode_rows` reads all rows of the events of one
layout, in order, inserts, updates and deletes together, into before and after images in the forms of schema/changes.py.
No Python runs per event or per row. Images without all columns, and events that this version does not read, are refused
by name.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.binlog import kernels as k
from penstock.binlog.bodies import FormatDescription, refuse_unsupported
from penstock.binlog.columns import ColumnPlan, plan_column
from penstock.binlog.errors import BadEvent, not_supported
from penstock.binlog.events import Buffer, Events, as_array
from penstock.binlog.scratch import Scratch
from penstock.binlog.table_map import TableMap
from penstock.binlog.types import OP_DELETE, OP_INSERT, REFUSED_TYPES, ROWS_TYPES
from penstock.errors import NotSupported

BATCH_BYTES_MAX = 64 << 20  # of columns: so many that the cost of a batch is small beside that of its rows

_REFUSED = np.zeros(256, np.bool_)
_REFUSED[list(REFUSED_TYPES)] = True
_IS_ROWS = np.zeros(256, np.bool_)
_IS_ROWS[list(ROWS_TYPES)] = True


@dataclass(frozen=True, slots=True)
class RowGroups:
    """`layout[i]`: for a row event, the index of the event that holds its table map; `NO_ROWS` for all other events."""

    layout: npt.NDArray[np.int64]

    def groups(self) -> list[tuple[int, npt.NDArray[np.int64]]]:
        """(layout, ascending indexes of its row events), ordered by the first row event."""
        rows = np.flatnonzero(self.layout >= 0)
        if not len(rows):
            return []
        order = rows[np.argsort(self.layout[rows], kind="stable")]
        layouts = self.layout[order]
        edges = np.flatnonzero(np.diff(layouts)) + 1
        found = [(int(self.layout[part[0]]), part) for part in np.split(order, edges)]
        return sorted(found, key=lambda group: int(group[1][0]))


def group_rows(
    buffer: Buffer, events: Events, fde: FormatDescription, scope: npt.NDArray[np.int64] | None = None
) -> RowGroups:
    """Which row events share a layout. `scope`: a number per event; a table map holds only for events of its number.

    Raises `NotSupported` for events with changes that are not read yet, `BadEvent` for rows without a table map.
    """
    refused = np.flatnonzero(_REFUSED[events.type])
    if len(refused):
        refuse_unsupported(int(events.type[refused[0]]), int(events.offset[refused[0]]))
    array = as_array(buffer)
    layout = np.empty(len(events), np.int64)
    if scope is None:
        scope = np.zeros(len(events), np.int64)
    bad = int(
        k.map_tables(
            array, events.offset, events.size, events.type, scope, fde.table_id_bytes, fde.trailer_bytes, layout
        )
    )
    if bad >= 0:
        raise _bad("too short", events, bad)
    missing = np.flatnonzero(layout == k.NO_TABLE_MAP)
    if len(missing):
        raise _bad("rows without a table map before them", events, int(missing[0]))
    layout[~_IS_ROWS[events.type]] = k.NO_ROWS
    return RowGroups(layout)


@dataclass(frozen=True, slots=True)
class DecodedRows:
    """Rows in the order of their events. `event` is the index in `Events`, `row` counts within the event."""

    op: npt.NDArray[np.uint8]
    event: npt.NDArray[np.int64]
    row: npt.NDArray[np.uint32]
    before: list[pa.Array[Any]]
    after: list[pa.Array[Any]]

    def __len__(self) -> int:
        return len(self.op)

    def slice(self, start: int, stop: int) -> DecodedRows:
        """Rows `start` to `stop`, without copying."""
        which = slice(start, stop)
        images = [[column.slice(start, stop - start) for column in image] for image in (self.before, self.after)]
        return DecodedRows(self.op[which], self.event[which], self.row[which], *images)


def _plans(table: TableMap) -> list[ColumnPlan]:
    plans = []
    for i, column in enumerate(table.columns):
        try:
            plans.append(plan_column(column))
        except NotSupported as error:
            name = column.name or f"#{i + 1}"
            raise NotSupported(f"{table.name}, column {name}: {error.message}", hint=error.hint) from None
    return plans


def decode_rows(  # noqa: PLR0917
    buffer: Buffer,
    events: Events,
    chosen: npt.NDArray[np.int64],
    table: TableMap,
    fde: FormatDescription,
    bytes_max: int = BATCH_BYTES_MAX,
) -> Iterator[DecodedRows]:
    """All rows of the events with the ascending indexes `chosen`, which all have the layout `table`, in order.

    A row may take hundreds of times as many bytes in columns as in its event (a thousand NULLs are 128 bytes there), so
    rows are given out whenever their columns take `bytes_max`. Above that is at most what one walk of the scratch adds.
    `table` must be complete: schema/from_table_map.py adds the signedness and charsets that the server left out.
    """
    array = as_array(buffer)
    plans = _plans(table)
    start = np.empty(len(chosen), np.int64)
    end = np.empty(len(chosen), np.int64)
    op = np.empty(len(chosen), np.uint8)
    offset, size, kind = events.offset[chosen], events.size[chosen], events.type[chosen]
    status, bad = k.open_rows(
        array, offset, size, kind, fde.table_id_bytes, fde.trailer_bytes, len(plans), start, end, op
    )
    if status != k.ST_OK:
        raise _error(int(status), events, int(chosen[bad]), table, -1)
    rows_possible = int((end - start).sum()) // max(1, (len(plans) + 7) // 8) + 1
    has_image = (bool(np.any(op != OP_INSERT)), bool(np.any(op != OP_DELETE)))
    scratch = Scratch(plans, sum(has_image), rows_possible, bytes_max)
    state = np.array([0, -1, 0, -1], np.int64)  # indexed by k.Walk
    while state[k.Walk.EVENT] < len(chosen):
        parts = _Parts(plans, has_image)
        while state[k.Walk.EVENT] < len(chosen) and parts.bytes < bytes_max:
            n, status = scratch.walk(array, start, end, op, state, has_image)
            if status != k.ST_OK:
                column = int(state[k.Walk.FAILED_COLUMN])
                raise _error(int(status), events, int(chosen[int(state[k.Walk.EVENT])]), table, column)
            if n:
                try:
                    parts.take(scratch, array, chosen, n)
                except _BadValue as error:
                    name = table.columns[error.column].name or f"#{error.column + 1}"
                    where = int(chosen[scratch.row_event[0]])
                    raise _bad(f"{table.name}, column {name}: {error}", events, where) from None
        if parts.rows:
            yield parts.joined()


class _BadValue(ValueError):
    def __init__(self, message: str, column: int) -> None:
        super().__init__(message)
        self.column = column


class _Parts:
    """The rows of several walks, and the bytes that their columns take."""

    def __init__(self, plans: list[ColumnPlan], has_image: tuple[bool, bool]) -> None:
        self._plans = plans
        self._has_image = has_image
        self._ops: list[npt.NDArray[np.uint8]] = []
        self._events: list[npt.NDArray[np.int64]] = []
        self._numbers: list[npt.NDArray[np.uint32]] = []
        self._columns: list[list[list[pa.Array[Any]]]] = [[[] for _ in plans] for _ in range(2)]
        self.rows = 0
        self.bytes = 0

    def take(self, scratch: Scratch, array: npt.NDArray[np.uint8], chosen: npt.NDArray[np.int64], n: int) -> None:
        self.rows += n
        self._ops.append(scratch.row_op[:n].copy())
        self._events.append(chosen[scratch.row_event[:n]])
        self._numbers.append(scratch.row_number[:n].copy())
        for image in range(2):
            if not self._has_image[image]:
                continue
            for c, plan in enumerate(self._plans):
                try:
                    column = scratch.column(array, plan, image, c, n)
                except ValueError as error:
                    raise _BadValue(str(error), c) from None
                self._columns[image][c].append(column)
                self.bytes += column.nbytes

    def joined(self) -> DecodedRows:
        missing: dict[Any, pa.Array[Any]] = {}  # an image that no row has: one array for all columns of a type
        images = [
            [
                _joined(parts) if self._has_image[image] else _nulls(missing, self.rows, plan.arrow)
                for parts, plan in zip(self._columns[image], self._plans, strict=True)
            ]
            for image in range(2)
        ]
        joined = DecodedRows(
            _concatenated(self._ops), _concatenated(self._events), _concatenated(self._numbers), *images
        )
        self._columns = []
        return joined


def _concatenated(parts: list[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _joined(parts: list[pa.Array[Any]]) -> pa.Array[Any]:
    """The parts as one array. They are let go, so that only one column is twice in memory."""
    joined = parts[0] if len(parts) == 1 else pa.concat_arrays(parts)
    parts.clear()
    return joined


def _nulls(known: dict[Any, pa.Array[Any]], rows: int, arrow: Any) -> pa.Array[Any]:
    if arrow not in known:
        known[arrow] = pa.nulls(rows, arrow)
    return known[arrow]


def _bad(message: str, events: Events, i: int) -> BadEvent:
    return BadEvent(message, offset=int(events.offset[i]), event_type=int(events.type[i]))


def _error(status: int, events: Events, i: int, table: TableMap, column: int) -> Exception:
    if status == k.ST_PARTIAL:
        return not_supported(
            f"{table.name}: row images without all columns are not supported yet",
            offset=int(events.offset[i]),
            event_type=int(events.type[i]),
            hint="set binlog_row_image=FULL on the server",
        )
    if status == k.ST_COLUMNS:
        return _bad(f"{table.name}: not as many columns as its table map has", events, i)
    where = f", column {table.columns[column].name or f'#{column + 1}'}" if column >= 0 else ""
    if status == k.ST_SHORT:
        return _bad(f"{table.name}{where}: the event ends inside a row", events, i)
    return _bad(f"{table.name}{where}: bytes that no server writes", events, i)
