"""Row events of one layout → columns, many events at once.

`group_rows` finds the table map of every row event in a buffer. `decode_rows` reads all rows of the events of one
layout, in order, inserts, updates and deletes together, into before and after images in the forms of schema/changes.py.
No Python runs per event or per row. Events that this version does not read are refused by name.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.binlog.bodies import FormatDescription, refuse_unsupported
from penstock.binlog.errors import BadEvent
from penstock.binlog.events import Buffer, Events, as_array
from penstock.binlog.rows import layouts
from penstock.binlog.rows.arrays import BadValue
from penstock.binlog.rows.plan import ColumnPlan, plan_column
from penstock.binlog.rows.presence import Presence, joined_presence
from penstock.binlog.rows.row_events import RowEvents, bad_event, open_row_events, row_error
from penstock.binlog.rows.scratch import Scratch
from penstock.binlog.rows.texts import read_partial_json
from penstock.binlog.rows.walk import PARTIAL
from penstock.binlog.table_map import TableMap
from penstock.binlog.types import COMPRESSED_TYPES, REFUSED_TYPES, ROWS_TYPES
from penstock.errors import NotSupported

BATCH_BYTES_MAX = 64 << 20  # of columns: so many that the cost of a batch is small beside that of its rows

_REFUSED = np.zeros(256, np.bool_)
_REFUSED[[*REFUSED_TYPES, *COMPRESSED_TYPES]] = True
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
        raise bad_event("compressed: it must be expanded first (expand.py)", events, int(refused[0]))
    array = as_array(buffer)
    layout = np.empty(len(events), np.int64)
    if scope is None:
        scope = np.zeros(len(events), np.int64)
    bad = int(
        layouts.map_tables(
            array, events.offset, events.size, events.type, scope, fde.table_id_bytes, fde.trailer_bytes, layout
        )
    )
    if bad >= 0:
        raise bad_event("too short", events, bad)
    missing = np.flatnonzero(layout == layouts.NO_TABLE_MAP)
    if len(missing):
        raise bad_event("rows without a table map before them", events, int(missing[0]))
    layout[~_IS_ROWS[events.type]] = layouts.NO_ROWS
    return RowGroups(layout)


@dataclass(frozen=True, slots=True)
class DecodedRows:
    """Rows in the order of their events. `event` is the index in `Events`, `row` counts within the event.

    A value that is missing in an image is NULL, or absent: `present_before` and `present_after` say which. They are
    None where every row that has the image has all columns.
    """

    op: npt.NDArray[np.uint8]
    event: npt.NDArray[np.int64]
    row: npt.NDArray[np.uint32]
    before: list[pa.Array[Any]]
    after: list[pa.Array[Any]]
    present_before: Presence | None = None
    present_after: Presence | None = None

    def __len__(self) -> int:
        return len(self.op)

    def slice(self, start: int, stop: int) -> DecodedRows:
        """Rows `start` to `stop`, without copying."""
        which = slice(start, stop)
        return DecodedRows(
            self.op[which],
            self.event[which],
            self.row[which],
            [column.slice(start, stop - start) for column in self.before],
            [column.slice(start, stop - start) for column in self.after],
            self.present_before and self.present_before.slice(start, stop),
            self.present_after and self.present_after.slice(start, stop),
        )


def _plans(table: TableMap, events: Events, first: int) -> list[ColumnPlan]:
    """How the columns are read. What a table map says of them that is impossible, is an error of the `first` event."""
    plans = []
    for i, column in enumerate(table.columns):
        where = f"{table.name}, column {column.name or f'#{i + 1}'}"
        try:
            plans.append(plan_column(column))
        except NotSupported as error:
            raise NotSupported(f"{where}: {error.message}", hint=error.hint) from None
        except BadEvent as error:
            raise bad_event(f"{where}: {error.problem}", events, first) from None
    return plans


def decode_rows(  # noqa: PLR0917
    buffer: Buffer,
    events: Events,
    chosen: npt.NDArray[np.int64],
    table: TableMap,
    fde: FormatDescription,
    bytes_max: int = BATCH_BYTES_MAX,
    *,
    describe_partial_json: bool = False,
) -> Iterator[DecodedRows]:
    """All rows of the events with the ascending indexes `chosen`, which all have the layout `table`, in order.

    A row may take hundreds of times as many bytes in columns as in its event (a thousand NULLs are 128 bytes there), so
    rows are given out whenever their columns take `bytes_max`. Above that is at most what one walk of the scratch adds.
    `table` must be complete: schema/from_table_map.py adds the signedness and charsets that the server left out.

    JSON that was logged only as its difference to a document that was not (PARTIAL_JSON with MINIMAL images) raises
    `NotSupported`: left out, it would look as if it had not changed. With `describe_partial_json`, for people, the
    difference stands in its place.
    """
    array = as_array(buffer)
    plans = _plans(table, events, int(chosen[0]))
    opened = open_row_events(array, events, chosen, table, fde)
    scratch = Scratch(plans, opened, bytes_max)
    while not scratch.at_end:
        batch = _Batch(plans, opened, describe_partial_json)
        while not scratch.at_end and batch.bytes < bytes_max:
            count, status = scratch.walk(array)
            if status != layouts.ST_OK:
                event, column = scratch.failed
                raise row_error(status, events, int(chosen[event]), table, column)
            try:
                batch.add(scratch, array, count)
            except _BadColumn as error:
                name = table.columns[error.column].name or f"#{error.column + 1}"
                where = int(chosen[scratch.row_event[error.row]])
                found = bad_event(f"{table.name}, column {name}: {error}", events, where)
                raise found if not error.hint else NotSupported(found.message, hint=error.hint) from None
        if batch.rows:
            yield batch.joined(array, chosen)


def count_rows(
    buffer: Buffer, events: Events, chosen: npt.NDArray[np.int64], table: TableMap, fde: FormatDescription
) -> npt.NDArray[np.int64]:
    """How many rows each of the events has, which all have the layout `table`. Values are passed over."""
    array = as_array(buffer)
    scratch = Scratch(
        _plans(table, events, int(chosen[0])), open_row_events(array, events, chosen, table, fde), BATCH_BYTES_MAX
    )
    counts = np.zeros(len(chosen), np.int64)
    while not scratch.at_end:
        rows, status = scratch.walk(array)
        if status != layouts.ST_OK:
            event, column = scratch.failed
            raise row_error(status, events, int(chosen[event]), table, column)
        counts += np.bincount(scratch.row_event[:rows], minlength=len(chosen))
    return counts


class _BadColumn(BadValue):
    def __init__(self, error: BadValue, column: int) -> None:
        super().__init__(str(error), error.row, hint=error.hint)
        self.column = column


class _Batch:
    """The rows of several walks, and the bytes that their columns take."""

    def __init__(self, plans: list[ColumnPlan], events: RowEvents, describe: bool) -> None:
        self._plans = plans
        self._describe = describe
        self._row_events = events
        self._ops: list[npt.NDArray[np.uint8]] = []
        self._events: list[npt.NDArray[np.int64]] = []
        self._numbers: list[npt.NDArray[np.uint32]] = []
        self._columns: list[list[list[pa.Array[Any]]]] = [[[] for _ in plans] for _ in range(2)]
        self.rows = 0
        self.bytes = 0

    def add(self, scratch: Scratch, array: npt.NDArray[np.uint8], count: int) -> None:
        """The `count` rows of the last walk."""
        if not count:
            return
        self.rows += count
        self._ops.append(scratch.row_op[:count].copy())
        self._events.append(scratch.row_event[:count].copy())
        self._numbers.append(scratch.row_number[:count].copy())
        buf = array[scratch.base :]
        for image in range(2):
            if not self._row_events.has_image[image]:
                continue
            for c, plan in enumerate(self._plans):
                places = scratch.places[image, c, :count]
                try:
                    if image == 1 and plan.is_json and np.any(places >= PARTIAL):
                        column = read_partial_json(
                            buf, places, self._columns[0][c][-1], width=plan.width, describe=self._describe
                        )
                    else:
                        column = plan.read(buf, places)
                except BadValue as error:
                    raise _BadColumn(error, c) from None
                self._columns[image][c].append(column)
                self.bytes += column.nbytes

    def joined(self, array: npt.NDArray[np.uint8], chosen: npt.NDArray[np.int64]) -> DecodedRows:
        missing: dict[Any, pa.Array[Any]] = {}  # an image that no row has: one array for all columns of a type
        before, after = (
            [
                _joined(parts) if self._row_events.has_image[image] else _nulls(missing, self.rows, plan.arrow)
                for parts, plan in zip(self._columns[image], self._plans, strict=True)
            ]
            for image in range(2)
        )
        self._columns = []
        events = _concatenated(self._events)
        return DecodedRows(
            _concatenated(self._ops),
            chosen[events],
            _concatenated(self._numbers),
            before,
            after,
            self._row_events.presence(array, 0, events),
            self._row_events.presence(array, 1, events),
        )


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


def joined_rows(parts: list[DecodedRows]) -> DecodedRows:
    """Rows of several layouts of one table, in the order of their events."""
    if len(parts) == 1:
        return parts[0]
    event = np.concatenate([part.event for part in parts])
    row = np.concatenate([part.row for part in parts])
    order = np.lexsort((row, event))
    indexes = pa.array(order)

    def image(columns: list[list[pa.Array[Any]]]) -> list[pa.Array[Any]]:
        return [pa.concat_arrays(list(pieces)).take(indexes) for pieces in zip(*columns, strict=True)]

    def presence(each: list[Presence | None]) -> Presence | None:
        joined = joined_presence(each, [len(part) for part in parts], len(parts[0].after))
        return joined and joined.take(order)

    return DecodedRows(
        np.concatenate([part.op for part in parts])[order],
        event[order],
        row[order],
        image([part.before for part in parts]),
        image([part.after for part in parts]),
        presence([part.present_before for part in parts]),
        presence([part.present_after for part in parts]),
    )
