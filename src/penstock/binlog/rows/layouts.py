# ruff: noqa: PLR0917, SIM110 - kernels take many arrays, and numba does not know all()
"""Kernels that find the table map of every row event, where its rows are, and which columns they have."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.binlog.events import is_rows
from penstock.binlog.rows.values import le
from penstock.binlog.types import HEADER_BYTES, OP_DELETE, OP_INSERT, OP_UPDATE, EventType
from penstock.kernels.compile import kernel

ST_OK = 0
ST_SHORT = 1  # a value or bitmap reaches beyond the event
ST_VALUE = 2  # bytes that no server writes
ST_COLUMNS = 3  # not as many columns as the table map has

# What `map_tables` writes for an event that has no layout.
NO_ROWS, NO_TABLE_MAP, TOO_SHORT = -1, -2, -3

_FLAGS_BYTES = 2  # between the table id and the rest of the body
# Table ids of row events that have no table and no row: they only end a statement.
_DUMMY_IDS = (0xFFFFFF, 0xFFFFFFFF, 0xFFFFFFFFFFFF)


@kernel
def map_tables(
    buf: Any, offset: Any, size: Any, kind: Any, scope: Any, id_bytes: Any, trailer: Any, layout: Any
) -> Any:
    """Fills `layout`: for each row event the table map in force, as the index of the first one with the same bytes.

    Two table maps are the same layout if everything but table id and flags is equal. `scope` numbers the entries: a
    table id means nothing beyond its entry. Other events, and those that only end a statement, get NO_ROWS; rows without
    a table map NO_TABLE_MAP. At an event that is TOO_SHORT it stops and returns its index, else -1.
    """
    slots = 1024
    while slots < 4 * len(offset):
        slots *= 2
    by_id = np.full(slots, -1, np.int64)  # table id and scope → event
    by_bytes = np.full(slots, -1, np.int64)  # bytes → event that represents them
    mask = slots - 1
    head = HEADER_BYTES + id_bytes + _FLAGS_BYTES
    for i in range(len(offset)):
        k = kind[i]
        layout[i] = NO_ROWS
        if k != EventType.TABLE_MAP and not is_rows(k):
            continue
        if np.int64(size[i]) - trailer < head:
            layout[i] = TOO_SHORT
            return i
        table_id = le(buf, offset[i] + HEADER_BYTES, id_bytes)
        key = (table_id ^ (np.uint64(scope[i]) << np.uint64(48))) * np.uint64(0x9E3779B97F4A7C15)
        at = np.int64(key >> np.uint64(40)) & mask
        while by_id[at] >= 0:
            other = by_id[at]
            if scope[other] == scope[i] and le(buf, offset[other] + HEADER_BYTES, id_bytes) == table_id:
                break
            at = (at + 1) & mask
        if k != EventType.TABLE_MAP:
            if by_id[at] >= 0:
                layout[i] = layout[by_id[at]]
            elif table_id not in _DUMMY_IDS:
                layout[i] = NO_TABLE_MAP
            continue
        length = np.int64(size[i]) - trailer - head
        if by_id[at] >= 0:
            first = layout[by_id[at]]
            if _same(buf, offset[i] + head, offset[first] + head, length, np.int64(size[first]) - trailer - head):
                layout[i] = first
                by_id[at] = i
                continue
        by_id[at] = i
        hashed = np.uint64(1469598103934665603)
        for p in range(offset[i] + head, offset[i] + head + length):
            hashed = (hashed ^ np.uint64(buf[p])) * np.uint64(1099511628211)
        at = np.int64(hashed >> np.uint64(20)) & mask
        while by_bytes[at] >= 0:
            first = by_bytes[at]
            if _same(buf, offset[i] + head, offset[first] + head, length, np.int64(size[first]) - trailer - head):
                break
            at = (at + 1) & mask
        if by_bytes[at] < 0:
            by_bytes[at] = i
        layout[i] = by_bytes[at]
    return -1


@kernel
def _same(buf: Any, a: Any, b: Any, length: Any, other_length: Any) -> Any:
    if length != other_length:
        return False
    for k in range(length):
        if buf[a + k] != buf[b + k]:
            return False
    return True


@kernel
def open_rows(
    buf: Any,
    offset: Any,
    size: Any,
    kind: Any,
    id_bytes: Any,
    trailer: Any,
    columns: Any,
    start: Any,
    end: Any,
    op: Any,
    bitmaps: Any,
    counts: Any,
    options: Any,
) -> Any:
    """Where the rows of each event start and end, and which columns its images have; `walk_rows` says what the arrays
    are. Returns (status, event) of the first event that is wrong."""
    for i in range(len(offset)):
        at = offset[i] + HEADER_BYTES + id_bytes + _FLAGS_BYTES
        stop = offset[i] + np.int64(size[i]) - trailer
        k = np.int64(kind[i])
        options[i] = k == EventType.PARTIAL_UPDATE_ROWS
        if k == EventType.PARTIAL_UPDATE_ROWS:
            k = np.int64(EventType.UPDATE_ROWS_V2)
        if k >= EventType.WRITE_ROWS_V2:  # as V1, after a block of extra data
            if stop - at < 2:
                return ST_SHORT, i
            extra = np.int64(le(buf, at, 2))
            if extra < 2:
                return ST_VALUE, i
            at += extra
            k -= EventType.WRITE_ROWS_V2 - EventType.WRITE_ROWS_V1
        if stop - at < 1:
            return ST_SHORT, i
        count = np.int64(buf[at])
        at += 1
        if count >= 251:
            if count != 252:
                return ST_VALUE, i
            if stop - at < 2:
                return ST_SHORT, i
            count = np.int64(le(buf, at, 2))
            at += 2
        if count != columns:
            return ST_COLUMNS, i
        width = (count + 7) // 8
        for image in range(2):
            counts[image, i] = 0
            bitmaps[image, i] = at
            if (image == 0 and k == EventType.WRITE_ROWS_V1) or (image == 1 and k == EventType.DELETE_ROWS_V1):
                continue
            if stop - at < width:
                return ST_SHORT, i
            for c in range(count):
                counts[image, i] += (buf[at + (c >> 3)] >> np.uint8(c & 7)) & 1
            at += width
        start[i] = at
        end[i] = stop
        if k == EventType.WRITE_ROWS_V1:
            op[i] = OP_INSERT
        elif k == EventType.UPDATE_ROWS_V1:
            op[i] = OP_UPDATE
        else:
            op[i] = OP_DELETE
    return ST_OK, -1
