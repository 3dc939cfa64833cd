"""Kernels for the temporal types of MySQL 5.5 and of MariaDB with `mysql56_temporal_format=OFF`.

Without digits of a second they are decimal digits (TIME, DATETIME) or seconds (TIMESTAMP). MariaDB's forms with digits
of a second are one big-endian count of the smallest unit. The rules of `values.py` hold here too.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.binlog.rows.values import MICROSECONDS, be, le
from penstock.kernels.compile import kernel

# Bytes of MariaDB's forms, by the digits of a second.
TIME_BYTES = (3, 4, 4, 5, 5, 5, 6)
DATETIME_BYTES = (8, 6, 6, 7, 7, 7, 8)
TIMESTAMP_FRACTION_BYTES = (0, 1, 1, 2, 2, 3, 3)

_TIME_ZERO_SECONDS = 838 * 3600 + 59 * 60 + 59 + 1  # what is added to a time, so that none is negative
_DATETIME_DIGITS_MAX = 99991231235959


@kernel
def old_timestamps(buf: Any, places: Any, out: Any) -> Any:
    """Little-endian seconds."""
    for i in range(len(places)):
        out[i] = np.int64(le(buf, places[i], 4)) * MICROSECONDS if places[i] >= 0 else 0
    return -1


@kernel
def old_times(buf: Any, places: Any, out: Any) -> Any:
    """Decimal digits hhhmmss in three bytes, signed."""
    for i in range(len(places)):
        if places[i] < 0:
            out[i] = 0
            continue
        packed = (np.int64(le(buf, places[i], 3)) << 40) >> 40
        size = abs(packed)
        if size // 100 % 100 > 59 or size % 100 > 59:
            return i
        value = (size // 10000 * 3600 + size // 100 % 100 * 60 + size % 100) * MICROSECONDS
        out[i] = -value if packed < 0 else value
    return -1


@kernel
def old_datetimes(buf: Any, places: Any, out: Any) -> Any:
    """Decimal digits yyyymmddhhmmss in eight bytes."""
    for i in range(len(places)):
        if places[i] < 0:
            out[i] = 0
            continue
        packed = np.int64(le(buf, places[i], 8))
        if packed < 0 or packed > _DATETIME_DIGITS_MAX:
            return i
        day = packed // 1000000
        clock = packed % 1000000
        month, hour, minute, second = day // 100 % 100, clock // 10000, clock // 100 % 100, clock % 100
        if month > 12 or day % 100 > 31 or hour > 23 or minute > 59 or second > 59:
            return i
        whole = (day // 10000 * 13 + month) << 22 | (day % 100) << 17 | hour << 12 | minute << 6 | second
        out[i] = whole << 24
    return -1


@kernel
def counted_times(buf: Any, places: Any, width: Any, unit: Any, out: Any) -> Any:
    """MariaDB's TIME with digits of a second: a count of units of `unit` microseconds since the least time."""
    for i in range(len(places)):
        if places[i] < 0:
            out[i] = 0
            continue
        value = be(buf, places[i], width) * unit - _TIME_ZERO_SECONDS * MICROSECONDS
        if abs(value) >= _TIME_ZERO_SECONDS * MICROSECONDS:
            return i
        out[i] = value
    return -1


@kernel
def counted_datetimes(buf: Any, places: Any, width: Any, unit: Any, out: Any) -> Any:
    """MariaDB's DATETIME with digits of a second: a count in mixed radix, ((((y*13+m)*32+d)*24+h)*60+m)*60+s."""
    for i in range(len(places)):
        if places[i] < 0:
            out[i] = 0
            continue
        count = be(buf, places[i], width)
        if count < 0 or count // (MICROSECONDS // unit) >= np.int64(10000) * 13 * 32 * 86400:
            return i
        rest = count * unit
        fraction = rest % MICROSECONDS
        rest //= MICROSECONDS
        second, minute, hour = rest % 60, rest // 60 % 60, rest // 3600 % 24
        days = rest // 86400
        whole = (days // 32) << 22 | (days % 32) << 17 | hour << 12 | minute << 6 | second
        out[i] = whole << 24 | fraction
    return -1
