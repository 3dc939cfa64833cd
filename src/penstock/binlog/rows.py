"""Row events of one layout → columns, many events at once.

`group_rows` finds the table map of every row event in a buffer. `decode_rows` reads all rows of the events of one
layout, in order, inserts, updates and deletes together, into before and after images in the forms of schema/changes.py.
No Python runs per event or per row. Images without all columns, and events that this version does not read, are refused
by name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.binlog import kernels as k
from penstock.binlog.bodies import FormatDescription, refuse_unsupported
from penstock.binlog.columns import ColumnPlan, fixed_array, plan_column, sliced_array
from penstock.binlog.errors import BadEvent, not_supported
from penstock.binlog.events import Buffer, Events, as_array
from penstock.binlog.table_map import TableMap
from penstock.binlog.types import OP_DELETE, OP_INSERT, REFUSED_TYPES, ROWS_TYPES
from penstock.errors import NotSupported

_SCRATCH_ROWS = 16_384

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


def _plans(table: TableMap) -> list[ColumnPlan]:
    plans = []
    for i, column in enumerate(table.columns):
        try:
            plans.append(plan_column(column))
        except NotSupported as error:
            name = column.name or f"#{i + 1}"
            raise NotSupported(f"{table.name}, column {name}: {error.message}", hint=error.hint) from None
    return plans


def decode_rows(
    buffer: Buffer, events: Events, chosen: npt.NDArray[np.int64], table: TableMap, fde: FormatDescription
) -> DecodedRows:
    """All rows of the events with the ascending indexes `chosen`, which all have the layout `table`.

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
    capacity = int((end - start).sum()) // max(1, (len(plans) + 7) // 8) + 1
    scratch = _Scratch(plans, min(_SCRATCH_ROWS, capacity))
    state = np.array([0, -1, 0, -1], np.int64)  # indexed by k.Walk
    ops, numbers, rows = [], [], []
    columns: list[list[list[pa.Array[Any]]]] = [[[] for _ in plans] for _ in range(2)]
    has_image = (bool(np.any(op != OP_INSERT)), bool(np.any(op != OP_DELETE)))
    total = 0
    while True:
        n, status = scratch.walk(array, start, end, op, state, has_image)
        if status != k.ST_OK:
            raise _error(
                int(status), events, int(chosen[int(state[k.Walk.EVENT])]), table, int(state[k.Walk.FAILED_COLUMN])
            )
        if n == 0:
            break
        total += n
        ops.append(scratch.row_op[:n].copy())
        numbers.append(chosen[scratch.row_event[:n]])
        rows.append(scratch.row_number[:n].copy())
        for image in range(2):
            if has_image[image]:
                for c, plan in enumerate(plans):
                    try:
                        columns[image][c].append(scratch.column(array, plan, image, c, n))
                    except ValueError as error:
                        name = table.columns[c].name or f"#{c + 1}"
                        where = int(chosen[scratch.row_event[0]])
                        raise _bad(f"{table.name}, column {name}: {error}", events, where) from None
        if state[k.Walk.EVENT] >= len(chosen):
            break
    images = [
        [
            _joined(parts, plan.arrow) if has_image[image] else _nulls(total, plan.arrow)
            for parts, plan in zip(columns[image], plans, strict=True)
        ]
        for image in range(2)
    ]
    return DecodedRows(
        np.concatenate(ops) if ops else np.empty(0, np.uint8),
        np.concatenate(numbers) if numbers else np.empty(0, np.int64),
        np.concatenate(rows) if rows else np.empty(0, np.uint32),
        images[0],
        images[1],
    )


def _joined(parts: list[pa.Array[Any]], arrow: Any) -> pa.Array[Any]:
    if len(parts) == 1:
        return parts[0]
    return pa.concat_arrays(parts) if parts else _nulls(0, arrow)


def _nulls(rows: int, arrow: Any) -> pa.Array[Any]:
    nulls: pa.Array[Any] = pa.nulls(rows, arrow)
    return nulls


class _Scratch:
    """The arrays that `walk_rows` fills, used again for every `_SCRATCH_ROWS` rows."""

    def __init__(self, plans: list[ColumnPlan], rows: int) -> None:
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
        )
        return int(rows), int(status)

    def column(self, array: npt.NDArray[np.uint8], plan: ColumnPlan, image: int, c: int, n: int) -> pa.Array[Any]:
        """The first `n` values of a column, copied, because the next walk overwrites the scratch."""
        slot = int(self._slots[c])
        valid = self._valid[image, c, :n]
        if plan.words:
            return fixed_array(plan, self._values[image, slot : slot + plan.words, :n], valid)
        return sliced_array(plan, array, self._start[image, slot, :n], self._length[image, slot, :n], valid)


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
