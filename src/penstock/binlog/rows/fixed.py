"""Columns of fixed width as Arrow arrays: each function reads the values that a walk noted, with a kernel."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from penstock.binlog.rows import old_temporal, values
from penstock.binlog.rows.arrays import Bytes, Places, check_row, fixed_array

# A kernel is compiled once for each of these, whatever the signedness of the column.
_STORED: dict[int, Any] = {1: np.int8, 2: np.int16, 4: np.int32, 8: np.int64}

_TEMPORAL: dict[str, Any] = {
    "timestamps": values.timestamps,
    "datetimes": values.datetimes,
    "times": values.times,
    "old_timestamps": old_temporal.old_timestamps,
    "old_datetimes": old_temporal.old_datetimes,
    "old_times": old_temporal.old_times,
    "counted_datetimes": old_temporal.counted_datetimes,
    "counted_times": old_temporal.counted_times,
}


def read_integers(buf: Bytes, places: Places, *, arrow: Any, width: int, signed: bool) -> pa.Array[Any]:
    """Little-endian numbers of `width` bytes, as any Arrow type of at least as many: integers, and the bits of floats."""
    out = np.empty(len(places), _STORED[arrow.bit_width // 8])
    values.integers(buf, places, width, signed, out)
    return fixed_array(arrow, places, out)


def read_bits(buf: Bytes, places: Places, *, width: int, count: int) -> pa.Array[Any]:
    out = np.empty(len(places), np.int64)
    check_row(values.bits(buf, places, width, count, out))
    return fixed_array(pa.uint64(), places, out)


def read_years(buf: Bytes, places: Places) -> pa.Array[Any]:
    out = np.empty(len(places), np.int16)
    values.years(buf, places, out)
    return fixed_array(pa.int16(), places, out)


def read_temporal(buf: Bytes, places: Places, *, kernel: str, arguments: tuple[int, ...]) -> pa.Array[Any]:
    out = np.empty(len(places), np.int64)
    check_row(_TEMPORAL[kernel](buf, places, *arguments, out))
    return fixed_array(pa.int64(), places, out)


def read_decimals(buf: Bytes, places: Places, *, arrow: Any, precision: int, scale: int) -> pa.Array[Any]:
    out = np.empty((len(places), 2), np.int64)
    check_row(values.decimals(buf, places, precision, scale, out))
    return fixed_array(arrow, places, out)
