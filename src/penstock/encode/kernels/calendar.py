"""Kernels for dates and times of the calendar: as days and microseconds since 1970."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.kernels.compile import kernel

NO_DAY = -1 << 40


@kernel
def days_since_epoch(year: Any, month: Any, day: Any) -> Any:
    """Days from 1970-01-01 in the proleptic Gregorian calendar, or NO_DAY if the calendar has no such day."""
    if year < 1 or month < 1 or month > 12 or day < 1 or day > 31:
        return NO_DAY
    if day > 28:
        leap = (year % 4 == 0 and year % 100 != 0) or year % 400 == 0
        if month == 2 and day > (29 if leap else 28):
            return NO_DAY
        if day == 31 and (month in (4, 6, 9, 11)):
            return NO_DAY
    shifted_year = year - 1 if month <= 2 else year
    era = shifted_year // 400
    year_of_era = shifted_year - era * 400
    march_month = month - 3 if month > 2 else month + 9
    day_of_year = (153 * march_month + 2) // 5 + day - 1
    return era * 146_097 + year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year - 719_468


@kernel
def calendar_dates(values: Any, days: Any, exists: Any) -> None:
    """Packed dates → days since the epoch; `exists` is false for zero, partial and impossible dates."""
    for row in range(len(values)):
        packed = np.int64(values[row])
        number = days_since_epoch(packed >> 9, (packed >> 5) & 15, packed & 31)
        exists[row] = number != NO_DAY
        days[row] = number if exists[row] else 0


@kernel
def calendar_datetimes(values: Any, micros: Any, exists: Any) -> None:
    """Packed datetimes → microseconds since the epoch, read as if they were UTC."""
    for row in range(len(values)):
        packed = values[row]
        months = packed >> 46
        number = days_since_epoch(months // 13, months % 13, (packed >> 41) & 31)
        exists[row] = number != NO_DAY
        seconds = ((packed >> 36) & 31) * 3600 + ((packed >> 30) & 63) * 60 + ((packed >> 24) & 63)
        micros[row] = (number * 86_400 + seconds) * 1_000_000 + (packed & 0xFFFFFF) if exists[row] else 0
