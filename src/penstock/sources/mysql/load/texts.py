"""Kernels that read the texts of a column's values (`locate_values`) into the forms of schema/changes.py.

Each returns the first row whose text is none of its kind, or -1. Where a value is NULL the result is 0.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.kernels.compile import kernel
from penstock.kernels.copy import copy_bytes

_MICROSECONDS = 1_000_000
_DIGITS_MAX = 20  # of a number of 64 bits


@kernel
def prefixed(rows: Any, starts: Any, lengths: Any, out: Any, places: Any) -> None:
    """Each value after its length in four bytes, as the readers of a binlog's texts take it. `places`: where; -1 for NULL."""
    at = np.int64(0)
    for i in range(len(starts)):
        length = np.int64(lengths[i])
        if length < 0:
            places[i] = -1
            continue
        places[i] = at
        for k in range(4):
            out[at + k] = (length >> (8 * k)) & 0xFF
        copy_bytes(out, at + 4, rows, starts[i], length)
        at += 4 + length


@kernel
def integers(rows: Any, starts: Any, lengths: Any, out: Any) -> Any:
    """Decimal digits, perhaps after a minus, as 64 bits; of a negative number, its two's complement."""
    for i in range(len(starts)):
        length = lengths[i]
        if length < 0:
            out[i] = 0
            continue
        at = starts[i]
        end = at + length
        negative = length > 0 and rows[at] == 45
        if negative:
            at += 1
        while at + 1 < end and rows[at] == 48:  # ZEROFILL pads to the column's width, which may be 255
            at += 1
        if at == end or end - at > _DIGITS_MAX:
            return i
        value = np.uint64(0)
        while at < end:
            digit = np.uint64(rows[at]) - np.uint64(48)
            if digit > np.uint64(9):
                return i
            value = value * np.uint64(10) + digit
            at += 1
        out[i] = np.uint64(0) - value if negative else value
    return -1


@kernel
def decimals(rows: Any, starts: Any, lengths: Any, scale: Any, out: Any) -> Any:
    """Digits, perhaps after a minus, with `scale` of them after a point: two words each, the lower one first, of the number
    without its point. For numbers of up to 18 digits."""
    for i in range(len(starts)):
        out[i, 0] = 0
        out[i, 1] = 0
        if lengths[i] < 0:
            continue
        at = starts[i]
        end = at + lengths[i]
        negative = lengths[i] > 0 and rows[at] == 45
        if negative:
            at += 1
        value, after = _number(rows, at, end)
        digits = after - at
        if scale:
            if after >= end or rows[after] != 46:
                return i
            while after + 1 < end and rows[after + 1] >= 48 and rows[after + 1] <= 57:
                value = value * 10 + (np.int64(rows[after + 1]) - 48)
                after += 1
            after += 1
            if after - at - 1 - digits != scale:
                return i
            digits += scale
        if after != end or digits < 1 or digits > 19:  # a zero before the point counts too
            return i
        out[i, 0] = -value if negative else value
        out[i, 1] = -1 if negative and value else 0
    return -1


@kernel
def _number(rows: Any, at: Any, end: Any) -> Any:
    """The number of the digits from `at` on, and where they end."""
    value = np.int64(0)
    while at < end and rows[at] >= 48 and rows[at] <= 57:
        value = value * 10 + (np.int64(rows[at]) - 48)
        at += 1
    return value, at


@kernel
def _fraction(rows: Any, at: Any, end: Any) -> Any:
    """The microseconds of what follows a point; -1 where it is no fraction."""
    if at == end:
        return np.int64(0)
    if rows[at] != 46 or end - at > 7 or end - at < 2:
        return np.int64(-1)
    value, after = _number(rows, at + 1, end)
    if after != end:
        return np.int64(-1)
    for _ in range(7 - (end - at)):
        value *= 10
    return value


@kernel
def _date(rows: Any, at: Any, end: Any) -> Any:
    """(year, month, day, where it ends); a negative end where it is no date."""
    year, at = _number(rows, at, end)
    if at >= end or rows[at] != 45:
        return year, np.int64(0), np.int64(0), np.int64(-1)
    month, at = _number(rows, at + 1, end)
    if at >= end or rows[at] != 45:
        return year, month, np.int64(0), np.int64(-1)
    day, at = _number(rows, at + 1, end)
    return year, month, day, np.int64(at)


@kernel
def _clock(rows: Any, at: Any, end: Any) -> Any:
    """(hours, minutes, seconds, microseconds); negative microseconds where it is no time."""
    hours, at = _number(rows, at, end)
    if at >= end or rows[at] != 58:
        return hours, np.int64(0), np.int64(0), np.int64(-1)
    minutes, at = _number(rows, at + 1, end)
    if at >= end or rows[at] != 58:
        return hours, minutes, np.int64(0), np.int64(-1)
    seconds, at = _number(rows, at + 1, end)
    return hours, minutes, seconds, _fraction(rows, at, end)


@kernel
def dates(rows: Any, starts: Any, lengths: Any, out: Any) -> Any:
    for i in range(len(starts)):
        out[i] = 0
        if lengths[i] < 0:
            continue
        end = starts[i] + lengths[i]
        year, month, day, at = _date(rows, starts[i], end)
        if at != end:
            return i
        out[i] = year << 9 | month << 5 | day
    return -1


@kernel
def datetimes(rows: Any, starts: Any, lengths: Any, out: Any) -> Any:
    for i in range(len(starts)):
        out[i] = 0
        if lengths[i] < 0:
            continue
        end = starts[i] + lengths[i]
        year, month, day, at = _date(rows, starts[i], end)
        if at < 0 or at >= end or rows[at] != 32:
            return i
        hours, minutes, seconds, micro = _clock(rows, at + 1, end)
        if micro < 0:
            return i
        out[i] = ((year * 13 + month) << 22 | day << 17 | hours << 12 | minutes << 6 | seconds) << 24 | micro
    return -1


@kernel
def timestamps(rows: Any, starts: Any, lengths: Any, out: Any) -> Any:
    """Of a session whose time zone is UTC: microseconds since the epoch; the zero timestamp is 0."""
    for i in range(len(starts)):
        out[i] = 0
        if lengths[i] < 0:
            continue
        end = starts[i] + lengths[i]
        year, month, day, at = _date(rows, starts[i], end)
        if at < 0 or at >= end or rows[at] != 32:
            return i
        hours, minutes, seconds, micro = _clock(rows, at + 1, end)
        if micro < 0:
            return i
        if year == 0:
            continue
        shifted = year - (1 if month <= 2 else 0)
        era = shifted // 400
        of_era = shifted - era * 400
        of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
        days = era * 146097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719468
        out[i] = (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * _MICROSECONDS + micro
    return -1


@kernel
def times(rows: Any, starts: Any, lengths: Any, out: Any) -> Any:
    for i in range(len(starts)):
        out[i] = 0
        if lengths[i] < 0:
            continue
        at = starts[i]
        end = at + lengths[i]
        negative = lengths[i] > 0 and rows[at] == 45
        hours, minutes, seconds, micro = _clock(rows, at + 1 if negative else at, end)
        if micro < 0:
            return i
        value = ((hours * 60 + minutes) * 60 + seconds) * _MICROSECONDS + micro
        out[i] = -value if negative else value
    return -1
