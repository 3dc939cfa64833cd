"""DATE and DATETIME as numbers of the calendar; dates that it does not have (zero, partial, impossible) are missing."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.encode.kernels import calendar as kernels
from penstock.encode.text import numbers, valid_rows


def date_days(values: pa.Array[Any]) -> pa.Array[Any]:
    """Days since 1970-01-01, int32."""
    days, exists = np.empty(len(values), np.int32), np.empty(len(values), np.bool_)
    kernels.calendar_dates(numbers(values), days, exists)
    return existing(days, exists, values)


def datetime_micros(values: pa.Array[Any]) -> pa.Array[Any]:
    """Microseconds since 1970-01-01, int64, as if the time were UTC."""
    micros, exists = np.empty(len(values), np.int64), np.empty(len(values), np.bool_)
    kernels.calendar_datetimes(numbers(values), micros, exists)
    return existing(micros, exists, values)


def timestamp_micros(values: pa.Array[Any]) -> pa.Array[Any]:
    """Microseconds since 1970-01-01, int64; the zero timestamp is missing."""
    micros = numbers(values).astype(np.int64, copy=False)
    return existing(micros, micros != 0, values)


def existing(data: npt.NDArray[Any], exists: npt.NDArray[np.bool_], values: pa.Array[Any]) -> pa.Array[Any]:
    """The numbers where they exist and `values` are not missing."""
    if values.null_count:
        exists = exists & valid_rows(values)
    made: pa.Array[Any] = pa.array(data, mask=~exists)
    return made
