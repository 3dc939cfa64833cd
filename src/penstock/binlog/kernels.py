# ruff: noqa: PLR0917, SIM110 - kernels take many arrays, and numba does not know all()
"""The inner loops of the row decoder: everything that is done once per row or once per value.

Contract of all kernels here: whatever the bytes say, they never read outside `[start, end)` of an event, and they
return a status (`ST_*`) and a place instead of raising. Arrays are C-contiguous; `buf` is read-only uint8.

`walk_rows` fills scratch arrays of a fixed capacity and returns when they are full, with its place in `state`: so the
scratch arrays stay in the processor's cache however many rows there are. Values of fixed width go to `values` as 64-bit
words; of values of variable length only start and length are noted, and `text_kernels.gather` copies them in a second
pass.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import numpy as np

from penstock.binlog.types import HEADER_BYTES, OP_DELETE, OP_INSERT, OP_UPDATE, EventType
from penstock.kernels.compile import kernel

# How the bytes of a column are read, together with a width and two arguments, a and b.
K_INT = 0  # little-endian signed
K_UINT = 1  # little-endian unsigned; also float bits, DATE, ENUM, SET
K_BE_UINT = 2  # big-endian: BIT
K_YEAR = 3
K_TIME_OLD = 4
K_DATETIME_OLD = 5
K_TIMESTAMP_OLD = 6
K_TIMESTAMP2 = 7  # this and the next two: a: bytes of the fraction, b: microseconds in a unit of it
K_DATETIME2 = 8
K_TIME2 = 9
K_DECIMAL = 10  # up to 18 digits; a: precision, b: scale
K_DECIMAL_WIDE = 11  # up to 38 digits, two words
K_RAW = 12  # noted as a slice of `width` bytes; this and all above have no words in `values`
K_VAR = 13  # noted as a slice; `width` bytes before it hold its length

ST_OK = 0
ST_SHORT = 1  # a value or bitmap reaches beyond the event
ST_VALUE = 2  # bytes that no server writes
ST_PARTIAL = 3  # an image without some of the columns
ST_COLUMNS = 4  # not as many columns as the table map has

# What `map_tables` writes for an event that has no layout.
NO_ROWS, NO_TABLE_MAP, TOO_SHORT = -1, -2, -3

_FLAGS_BYTES = 2  # between the table id and the rest of the body


class Walk(IntEnum):
    """The state of `walk_rows` between calls: where it stands."""

    EVENT = 0
    AT = 1  # offset in the buffer; -1: the start of the event's rows
    ROW = 2  # number of the row in its event
    FAILED_COLUMN = 3  # -1: none, or the row's null bitmap


@kernel
def is_rows(kind: Any) -> Any:
    """Whether the decoder reads events of this type as rows: the same set as `ROWS_TYPES`."""
    return (
        EventType.WRITE_ROWS_V1 <= kind <= EventType.DELETE_ROWS_V1
        or EventType.WRITE_ROWS_V2 <= kind <= EventType.DELETE_ROWS_V2
    )


@kernel
def _le(buf: Any, at: Any, width: Any) -> Any:
    value = np.uint64(0)
    for k in range(width):
        value |= np.uint64(buf[at + k]) << np.uint64(8 * k)
    return value


@kernel
def _be(buf: Any, at: Any, width: Any) -> Any:
    value = np.int64(0)
    for k in range(width):
        value = (value << 8) | np.int64(buf[at + k])
    return value


@kernel
def map_tables(
    buf: Any, offset: Any, size: Any, kind: Any, scope: Any, id_bytes: Any, trailer: Any, layout: Any
) -> Any:
    """Fills `layout`: for each row event the table map in force, as the index of the first one with the same bytes.

    Two table maps are the same layout if everything but table id and flags is equal. `scope` numbers the entries: a
    table id means nothing beyond its entry. Other events get NO_ROWS or NO_TABLE_MAP; at an event that is TOO_SHORT it
    stops and returns its index, else -1.
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
        table_id = _le(buf, offset[i] + HEADER_BYTES, id_bytes)
        key = (table_id ^ (np.uint64(scope[i]) << np.uint64(48))) * np.uint64(0x9E3779B97F4A7C15)
        at = np.int64(key >> np.uint64(40)) & mask
        while by_id[at] >= 0:
            other = by_id[at]
            if scope[other] == scope[i] and _le(buf, offset[other] + HEADER_BYTES, id_bytes) == table_id:
                break
            at = (at + 1) & mask
        if k != EventType.TABLE_MAP:
            layout[i] = layout[by_id[at]] if by_id[at] >= 0 else NO_TABLE_MAP
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
) -> Any:
    """Where the rows of each event start and end. Returns (status, event) of the first event without full images."""
    for i in range(len(offset)):
        at = offset[i] + HEADER_BYTES + id_bytes + _FLAGS_BYTES
        stop = offset[i] + np.int64(size[i]) - trailer
        k = kind[i]
        if k >= EventType.WRITE_ROWS_V2:  # as V1, after a block of extra data
            if stop - at < 2:
                return ST_SHORT, i
            extra = np.int64(_le(buf, at, 2))
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
            count = np.int64(_le(buf, at, 2))
            at += 2
        if count != columns:
            return ST_COLUMNS, i
        images = 2 if k == EventType.UPDATE_ROWS_V1 else 1
        width = (count + 7) // 8
        if stop - at < images * width:
            return ST_SHORT, i
        for _image in range(images):
            for c in range(count):
                if not (buf[at + (c >> 3)] >> np.uint8(c & 7)) & 1:
                    return ST_PARTIAL, i
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


@kernel
def _decimal_group(buf: Any, at: Any, width: Any, flip: Any, first: Any) -> Any:
    value = np.int64(0)
    for k in range(width):
        byte = np.int64(buf[at + k])
        if at + k == first:
            byte ^= 0x80
        value = (value << 8) | (byte ^ flip)
    return value


@kernel
def _group_bytes(digits: Any) -> Any:
    """The same as `DECIMAL_GROUP_BYTES[digits]`."""
    return (digits + 1) // 2 if digits < 7 else 4


@kernel
def _decimal(buf: Any, at: Any, precision: Any, scale: Any) -> Any:
    """A packed decimal as a 128-bit integer, without its point: (low word, high word, whether it is possible)."""
    first = at
    negative = (buf[at] & np.uint8(0x80)) == 0
    flip = np.int64(0xFF) if negative else np.int64(0)
    low = np.uint64(0)
    high = np.uint64(0)
    whole = precision - scale
    for part in range(2):
        digits = whole if part == 0 else scale
        rest = digits % 9
        groups = digits // 9
        steps = groups + (1 if rest else 0)
        for g in range(steps):
            # Nine digits make a group. The group with the rest comes first before the point, and last after it.
            short = rest > 0 and (g == 0 if part == 0 else g == steps - 1)
            n = rest if short else 9
            width = _group_bytes(n)
            value = _decimal_group(buf, at, width, flip, first)
            factor = np.int64(1)
            for _k in range(n):
                factor *= 10
            if value >= factor:
                return np.int64(0), np.int64(0), False
            at += width
            # (high, low) * factor + value
            a = (low & np.uint64(0xFFFFFFFF)) * np.uint64(factor)
            b = (low >> np.uint64(32)) * np.uint64(factor) + (a >> np.uint64(32))
            high = high * np.uint64(factor) + (b >> np.uint64(32))
            low = (b << np.uint64(32)) | (a & np.uint64(0xFFFFFFFF))
            total = low + np.uint64(value)
            if total < low:
                high += np.uint64(1)
            low = total
    if negative:
        low = ~low + np.uint64(1)
        high = ~high + (np.uint64(1) if low == 0 else np.uint64(0))
    return np.int64(low), np.int64(high), True


@kernel
def walk_rows(
    buf: Any,
    start: Any,
    end: Any,
    op: Any,
    state: Any,  # indexed by Walk
    kinds: Any,
    widths: Any,
    arg_a: Any,
    arg_b: Any,
    slots: Any,  # of each column: its first word in `values`, or its index in `v_start` and `v_length`
    values: Any,
    v_start: Any,
    v_length: Any,
    valid: Any,
    row_op: Any,
    row_event: Any,
    row_number: Any,
    first_image: Any,  # 1 where no event has a before image: nothing is written for it
    last_image: Any,  # 0 where no event has an after image
    bytes_max: Any,
) -> Any:
    """Rows from `state` on, until events, scratch arrays or `bytes_max` bytes of rows end. Returns (rows, status)."""
    columns = len(kinds)
    null_bytes = (columns + 7) // 8
    capacity = len(row_op)
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
        while at < stop:
            if rows == capacity or taken >= bytes_max:
                state[Walk.EVENT], state[Walk.AT], state[Walk.ROW] = event, at, number
                return rows, ST_OK
            what = op[event]
            taken -= at
            for image in range(first_image, last_image + 1):
                present = (image == 0 and what != OP_INSERT) or (image == 1 and what != OP_DELETE)
                if not present:
                    for c in range(columns):
                        valid[image, c, rows] = 0
                        kind = kinds[c]
                        if kind >= K_RAW:
                            v_start[image, slots[c], rows] = 0
                            v_length[image, slots[c], rows] = 0
                        else:
                            values[image, slots[c], rows] = 0
                            if kind == K_DECIMAL_WIDE:
                                values[image, slots[c] + 1, rows] = 0
                    continue
                if stop - at < null_bytes or columns == 0:
                    state[Walk.EVENT], state[Walk.AT], state[Walk.FAILED_COLUMN] = event, at, -1
                    return rows, ST_SHORT
                nulls = at
                at += null_bytes
                for c in range(columns):
                    kind = kinds[c]
                    slot = slots[c]
                    if (buf[nulls + (c >> 3)] >> np.uint8(c & 7)) & 1:
                        valid[image, c, rows] = 0
                        if kind >= K_RAW:
                            v_start[image, slot, rows] = 0
                            v_length[image, slot, rows] = 0
                        else:
                            values[image, slot, rows] = 0
                            if kind == K_DECIMAL_WIDE:
                                values[image, slot + 1, rows] = 0
                        continue
                    valid[image, c, rows] = 1
                    width = widths[c]
                    if stop - at < width:
                        state[Walk.EVENT], state[Walk.AT], state[Walk.FAILED_COLUMN] = event, at, c
                        return rows, ST_SHORT
                    if kind == K_VAR:
                        length = np.int64(_le(buf, at, width))
                        at += width
                        if length < 0 or length > stop - at:
                            state[Walk.EVENT], state[Walk.AT], state[Walk.FAILED_COLUMN] = event, at, c
                            return rows, ST_SHORT
                        v_start[image, slot, rows] = at
                        v_length[image, slot, rows] = length
                        at += length
                        continue
                    ok = True
                    value = np.int64(0)
                    if kind == K_UINT:
                        value = np.int64(_le(buf, at, width))
                    elif kind == K_INT:
                        value = np.int64(_le(buf, at, width))
                        shift = 64 - 8 * width
                        value = (value << shift) >> shift
                    elif kind == K_RAW:
                        v_start[image, slot, rows] = at
                        v_length[image, slot, rows] = width
                        at += width
                        continue
                    elif kind == K_BE_UINT:
                        value = _be(buf, at, width)
                        if arg_a[c] < 64 and (value < 0 or value >> arg_a[c]):
                            ok = False
                    elif kind == K_YEAR:
                        value = np.int64(buf[at])
                        if value:
                            value += 1900
                    elif kind == K_DATETIME2:
                        whole = _be(buf, at, 5) - np.int64(0x8000000000)
                        fraction = _be(buf, at + 5, arg_a[c]) * arg_b[c]
                        if whole < 0 or fraction > 999999:
                            ok = False
                        value = (whole << 24) | fraction
                    elif kind == K_TIMESTAMP2:
                        fraction = _be(buf, at + 4, arg_a[c]) * arg_b[c]
                        if fraction > 999999:
                            ok = False
                        value = _be(buf, at, 4) * 1000000 + fraction
                    elif kind == K_TIME2:
                        bits = 8 * arg_a[c]
                        packed = _be(buf, at, width) - (np.int64(0x800000) << bits)
                        negative = packed < 0
                        if negative:
                            packed = -packed
                        fraction = (packed & ((np.int64(1) << bits) - 1)) * arg_b[c]
                        whole = packed >> bits
                        if fraction > 999999:
                            ok = False
                        seconds = (whole >> 12) * 3600 + ((whole >> 6) & 63) * 60 + (whole & 63)
                        value = seconds * 1000000 + fraction
                        if negative:
                            value = -value
                    elif kind == K_DECIMAL:
                        low, _high, ok = _decimal(buf, at, arg_a[c], arg_b[c])
                        value = low
                    elif kind == K_DECIMAL_WIDE:
                        low, high, ok = _decimal(buf, at, arg_a[c], arg_b[c])
                        value = low
                        values[image, slot + 1, rows] = high
                    elif kind == K_TIMESTAMP_OLD:
                        value = np.int64(_le(buf, at, 4)) * 1000000
                    elif kind == K_TIME_OLD:
                        packed = np.int64(_le(buf, at, 3))
                        packed = (packed << 40) >> 40
                        negative = packed < 0
                        if negative:
                            packed = -packed
                        value = (packed // 10000 * 3600 + packed // 100 % 100 * 60 + packed % 100) * 1000000
                        if negative:
                            value = -value
                    else:  # K_DATETIME_OLD
                        packed = np.int64(_le(buf, at, 8))
                        if packed < 0 or packed > 99991231235959:
                            ok = False
                        day = packed // 1000000
                        clock = packed % 1000000
                        whole = (day // 10000 * 13 + day // 100 % 100) << 22 | (day % 100) << 17
                        whole |= (clock // 10000) << 12 | (clock // 100 % 100) << 6 | clock % 100
                        value = whole << 24
                    if not ok:
                        state[Walk.EVENT], state[Walk.AT], state[Walk.FAILED_COLUMN] = event, at, c
                        return rows, ST_VALUE
                    values[image, slot, rows] = value
                    at += width
            row_op[rows] = what
            row_event[rows] = event
            row_number[rows] = number
            number += 1
            rows += 1
            taken += at
        event += 1
        at = np.int64(-1)
    state[Walk.EVENT], state[Walk.AT], state[Walk.ROW] = event, at, number
    return rows, ST_OK


@kernel
def decimal_text(buf: Any, start: Any, valid: Any, precision: Any, scale: Any, offsets: Any, out: Any) -> Any:
    """Packed decimals of above 38 digits as text with all `scale` digits. Returns (bytes, bad row or -1).
    `out` needs at least precision + 3 bytes for each row."""
    total = np.int64(0)
    digits = np.empty(precision, np.uint8)
    for i in range(len(start)):
        offsets[i] = total
        if not valid[i]:
            continue
        at = start[i]
        first = at
        negative = (buf[at] & np.uint8(0x80)) == 0
        flip = np.int64(0xFF) if negative else np.int64(0)
        filled = 0
        for part in range(2):
            count = precision - scale if part == 0 else scale
            rest = count % 9
            steps = count // 9 + (1 if rest else 0)
            for g in range(steps):
                short = rest > 0 and (g == 0 if part == 0 else g == steps - 1)
                n = rest if short else 9
                width = _group_bytes(n)
                value = _decimal_group(buf, at, width, flip, first)
                at += width
                for k in range(filled + n - 1, filled - 1, -1):
                    digits[k] = value % 10
                    value //= 10
                if value:
                    return total, i
                filled += n
        if negative:
            out[total] = 45
            total += 1
        k = 0
        while k < precision - scale - 1 and digits[k] == 0:
            k += 1
        if precision == scale:
            out[total] = 48
            total += 1
        while k < precision:
            if k == precision - scale:
                out[total] = 46
                total += 1
            out[total] = 48 + digits[k]
            total += 1
            k += 1
    offsets[len(start)] = total
    return total, -1
