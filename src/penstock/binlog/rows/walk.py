# ruff: noqa: PLR0917 - kernels take many arrays
"""The inner loop of the row decoder: finds every value of every row, without reading it.

Whatever the bytes say, `walk_rows` never reads outside `[start, end)` of an event, and returns a status and a place
instead of raising. It fills scratch arrays of a fixed capacity and returns when they are full, with its place in
`state`: so the scratch stays in the processor's cache however many rows there are. The kernels of `values.py` and
`text_kernels.py` then read one column at a time, of bytes that are known to be there.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import numpy as np

from penstock.binlog.rows.layouts import ST_OK, ST_SHORT, ST_VALUE
from penstock.binlog.rows.values import le
from penstock.binlog.types import OP_DELETE, OP_INSERT
from penstock.kernels.compile import kernel

# What stands in `places` of a value that is not there; otherwise its offset from the walk's base.
NULL, ABSENT = -1, -2
PARTIAL = 1 << 30  # added to the place of a JSON value that is only the difference to the one before it

SPAN_MAX = 1 << 30  # bytes of the buffer that one walk may reach over: so that a place is a positive int32
_PARTIAL_JSON = 1  # of the value options before an after image


class Walk(IntEnum):
    """The state of `walk_rows` between calls: where it stands."""

    EVENT = 0
    AT = 1  # offset in the buffer; -1: the start of the event's rows
    ROW = 2  # number of the row in its event
    FAILED_COLUMN = 3  # -1: none, or what stands before the first column


@kernel
def walk_rows(
    buf: Any,
    start: Any,
    end: Any,
    op: Any,
    bitmaps: Any,  # [image, event]: where the bitmap of the present columns is
    counts: Any,  # [image, event]: how many are present
    options: Any,  # of each event: whether value options stand before its after images
    state: Any,  # indexed by Walk
    widths: Any,
    variable: Any,  # of each column: whether its width is that of a length before the value
    is_json: Any,
    places: Any,  # [image, column, row]: filled
    row_op: Any,
    row_event: Any,
    row_number: Any,
    first_image: Any,  # 1 where no event has a before image: nothing is written for it
    last_image: Any,  # 0 where no event has an after image
    base: Any,
    bytes_max: Any,
) -> Any:
    """Rows from `state` on, until events, scratch arrays or `bytes_max` bytes of rows end. Returns (rows, status)."""
    columns = len(widths)
    rows = 0
    event = state[Walk.EVENT]
    at = state[Walk.AT]
    number = state[Walk.ROW]
    taken = 0
    while event < len(start):
        if at < 0:
            at = start[event]
            number = 0
        stop = end[event]
        what = op[event]
        # An INSERT of defaults alone is logged as a row of no bytes where images are minimal.
        while at < stop or (number == 0 and stop == start[event] and what == OP_INSERT and counts[1, event] == 0):
            if rows == len(row_op) or taken >= bytes_max or at - base > SPAN_MAX // 2:
                state[Walk.EVENT], state[Walk.AT], state[Walk.ROW] = event, at, number
                return rows, ST_OK
            began = at
            for image in range(first_image, last_image + 1):
                if (image == 0 and what == OP_INSERT) or (image == 1 and what == OP_DELETE):
                    places[image, :, rows] = NULL
                    continue
                partial_bits = np.int64(-1)
                if image == 1 and options[event]:
                    at, partial_bits = _value_options(buf, at, stop, is_json)
                null_bits = 8 * at
                count = counts[image, event]
                at += (count + 7) // 8
                status = ST_OK if began <= at <= stop else ST_SHORT
                failed = -1
                if status == ST_OK:
                    for c in range(columns):
                        is_partial = False
                        if partial_bits >= 0 and is_json[c]:
                            is_partial = _bit(buf, partial_bits)
                            partial_bits += 1
                        if count != columns and not _bit(buf, 8 * bitmaps[image, event] + c):
                            places[image, c, rows] = ABSENT
                            continue
                        null_bits += 1
                        if _bit(buf, null_bits - 1):
                            places[image, c, rows] = NULL
                            continue
                        places[image, c, rows] = at - base + (PARTIAL if is_partial else 0)
                        width = widths[c]
                        if stop - at < width:
                            status, failed = ST_SHORT, c
                            break
                        if variable[c]:
                            width += np.int64(le(buf, at, width))
                            if stop - at < width:
                                status, failed = ST_SHORT, c
                                break
                        at += width
                if status != ST_OK:
                    state[Walk.EVENT], state[Walk.AT], state[Walk.FAILED_COLUMN] = event, at, failed
                    return rows, status
            if at - base > SPAN_MAX and rows:  # it is the first of the next walk, whose base is its own
                state[Walk.EVENT], state[Walk.AT], state[Walk.ROW] = event, began, number
                return rows, ST_OK
            # Rows of no bytes would never end, and no server writes a row that is larger than an event may be.
            if (at == began and stop != start[event]) or at - base > SPAN_MAX:
                state[Walk.EVENT], state[Walk.AT], state[Walk.FAILED_COLUMN] = event, at, -1
                return rows, ST_VALUE
            row_op[rows] = what
            row_event[rows] = event
            row_number[rows] = number
            number += 1
            rows += 1
            taken += at - began
        event += 1
        at = np.int64(-1)
    state[Walk.EVENT], state[Walk.AT], state[Walk.ROW] = event, at, number
    return rows, ST_OK


@kernel
def _bit(buf: Any, at: Any) -> Any:
    """The bit of this number, the lowest of each byte first."""
    return (buf[at >> 3] >> np.uint8(at & 7)) & 1


@kernel
def _value_options(buf: Any, at: Any, stop: Any, is_json: Any) -> Any:
    """Before an after image with partial JSON: (where the null bitmap is, the first of the bits that say which of the
    table's JSON columns are partial, or -1). An offset behind `stop` if the event is cut here."""
    if at >= stop or buf[at] > _PARTIAL_JSON:
        return stop + 1, np.int64(-1)
    if buf[at] == 0:
        return at + 1, np.int64(-1)
    bits = 0
    for c in range(len(is_json)):
        bits += is_json[c]
    after = at + 1 + (bits + 7) // 8
    return after, np.int64(8 * (at + 1)) if after <= stop else np.int64(-1)
