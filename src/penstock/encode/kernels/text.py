"""Kernels that write the numbers and times of one column as text, back to back.

Every kernel fills `offsets` (rows + 1 of them, from 0) and `out`, and returns nothing. `quote` is one byte that stands
before and after a value, or empty; `null` is what stands for a missing value. `valid` has no elements if nothing is
missing. The caller sizes `out` by the widths named here, or by the length of `null` where that is more.
"""

# ruff: noqa: PLR0917 - compiled kernels take their arrays by place
from __future__ import annotations

from typing import Any

import numpy as np

from penstock.kernels.compile import kernel
from penstock.kernels.copy import copy_bytes

INTEGER_WIDTH = 22  # 20 digits or a sign and 19, two quotes
DECIMAL_WIDTH = 48  # 38 digits and the leading zero, sign, point, two quotes, rounded up
DATE_WIDTH = 12
TIME_WIDTH = 22  # -838:59:59.999999 and quotes; wider hours of a broken source still fit
DATETIME_WIDTH = 30  # with the letters of ISO 8601

ZERO = np.uint8(ord("0"))
SPACE, COMMA, MINUS, POINT, COLON = (ord(character) for character in " ,-.:")
LETTER_T, LETTER_Z = ord("T"), ord("Z")


@kernel
def put_all(out: Any, at: int, source: Any) -> int:
    copy_bytes(out, at, source, 0, len(source))
    return at + len(source)


@kernel
def put_unsigned(out: Any, at: int, value: Any) -> int:
    value = np.uint64(value)
    ten = np.uint64(10)
    digits = 1
    rest = value // ten
    while rest != 0:
        digits += 1
        rest = rest // ten
    end = at + digits
    place = end - 1
    while place >= at:
        rest = value // ten
        out[place] = ZERO + np.uint8(value - rest * ten)
        value = rest
        place -= 1
    return end


@kernel
def put_padded(out: Any, at: int, value: Any, width: int) -> Any:
    place = at + width - 1
    while place >= at:
        rest = value // 10
        out[place] = ZERO + np.uint8(value - rest * 10)
        value = rest
        place -= 1
    return at + width


@kernel
def put_fraction(out: Any, at: int, microseconds: int, fsp: int) -> Any:
    if fsp == 0:
        return at
    out[at] = POINT
    for _ in range(6 - fsp):
        microseconds //= 10
    return put_padded(out, at + 1, microseconds, fsp)


@kernel
def put_date(out: Any, at: int, year: Any, month: Any, day: Any) -> Any:
    at = put_padded(out, at, year, 4)
    out[at] = MINUS
    at = put_padded(out, at + 1, month, 2)
    out[at] = MINUS
    return put_padded(out, at + 1, day, 2)


@kernel
def put_clock(out: Any, at: int, hour: int, minute: int, second: int) -> Any:
    at = put_padded(out, at, hour, 2)
    out[at] = COLON
    at = put_padded(out, at + 1, minute, 2)
    out[at] = COLON
    return put_padded(out, at + 1, second, 2)


@kernel
def integers(values: Any, valid: Any, quote: Any, null: Any, pad: int, offsets: Any, out: Any) -> None:
    """Any integer type. With a `pad`, numbers below 1000 get so many digits: 4 for years, so the zero year is 0000."""
    at = 0
    offsets[0] = 0
    for row in range(len(values)):
        if len(valid) != 0 and not valid[row]:
            at = put_all(out, at, null)
        else:
            if len(quote) != 0:
                out[at] = quote[0]
                at += 1
            value = values[row]
            if value < 0:
                out[at] = MINUS
                # In uint64, because the least int64 has no negation in int64.
                at = put_unsigned(out, at + 1, np.uint64(0) - np.uint64(np.int64(value)))
            elif pad > 0 and value < 1000:
                at = put_padded(out, at, np.int64(value), pad)
            else:
                at = put_unsigned(out, at, np.uint64(value))
            if len(quote) != 0:
                out[at] = quote[0]
                at += 1
        offsets[row + 1] = at


@kernel
def decimals(words: Any, scale: int, valid: Any, quote: Any, null: Any, offsets: Any, out: Any) -> None:
    """decimal128, as pairs of uint64 (low, high), in plain notation with exactly `scale` digits after the point."""
    digits = np.empty(48, np.uint8)
    limbs = np.empty(4, np.uint64)
    billion = np.uint64(1_000_000_000)
    low32 = np.uint64(0xFFFFFFFF)
    half = np.uint64(32)
    at = 0
    offsets[0] = 0
    for row in range(len(words)):
        if len(valid) != 0 and not valid[row]:
            at = put_all(out, at, null)
            offsets[row + 1] = at
            continue
        if len(quote) != 0:
            out[at] = quote[0]
            at += 1
        low, high = words[row, 0], words[row, 1]
        if np.int64(high) < 0:
            out[at] = MINUS
            at += 1
            low = ~low + np.uint64(1)
            high = ~high
            if low == 0:
                high += np.uint64(1)
        count = 0  # digits from the lowest
        if high == 0:
            while low != 0:
                rest = low // np.uint64(10)
                digits[count] = np.uint8(low - rest * np.uint64(10))
                low = rest
                count += 1
        else:
            limbs[0], limbs[1] = high >> half, high & low32
            limbs[2], limbs[3] = low >> half, low & low32
            while limbs[0] | limbs[1] | limbs[2] | limbs[3] != 0:
                remainder = np.uint64(0)
                for limb in range(4):
                    part = (remainder << half) | limbs[limb]
                    limbs[limb] = part // billion
                    remainder = part - limbs[limb] * billion
                for _ in range(9):
                    rest = remainder // np.uint64(10)
                    digits[count] = np.uint8(remainder - rest * np.uint64(10))
                    remainder = rest
                    count += 1
            while count > 0 and digits[count - 1] == 0:
                count -= 1
        while count <= scale:
            digits[count] = 0
            count += 1
        for place in range(count - 1, -1, -1):
            out[at] = ZERO + digits[place]
            at += 1
            if place == scale and scale > 0:
                out[at] = POINT
                at += 1
        if len(quote) != 0:
            out[at] = quote[0]
            at += 1
        offsets[row + 1] = at


@kernel
def dates(values: Any, valid: Any, quote: Any, null: Any, offsets: Any, out: Any) -> None:
    """Packed dates (schema/changes.py); zero and partial dates as they are."""
    at = 0
    offsets[0] = 0
    for row in range(len(values)):
        if len(valid) != 0 and not valid[row]:
            at = put_all(out, at, null)
        else:
            if len(quote) != 0:
                out[at] = quote[0]
                at += 1
            packed = np.int64(values[row])
            at = put_date(out, at, packed >> 9, (packed >> 5) & 15, packed & 31)
            if len(quote) != 0:
                out[at] = quote[0]
                at += 1
        offsets[row + 1] = at


@kernel
def datetimes(values: Any, fsp: int, valid: Any, quote: Any, null: Any, offsets: Any, out: Any) -> None:
    at = 0
    offsets[0] = 0
    for row in range(len(values)):
        if len(valid) != 0 and not valid[row]:
            at = put_all(out, at, null)
        else:
            if len(quote) != 0:
                out[at] = quote[0]
                at += 1
            packed = values[row]
            months = packed >> 46
            at = put_date(out, at, months // 13, months % 13, (packed >> 41) & 31)
            out[at] = SPACE
            at = put_clock(out, at + 1, (packed >> 36) & 31, (packed >> 30) & 63, (packed >> 24) & 63)
            at = put_fraction(out, at, packed & 0xFFFFFF, fsp)
            if len(quote) != 0:
                out[at] = quote[0]
                at += 1
        offsets[row + 1] = at


@kernel
def timestamps(values: Any, fsp: int, iso: bool, valid: Any, quote: Any, null: Any, offsets: Any, out: Any) -> None:
    """Microseconds since the epoch, in UTC. 0 is MySQL's zero timestamp, not 1970, unless `iso`: ISO 8601 has no such
    moment, and a `T` before the time and a `Z` after it."""
    at = 0
    offsets[0] = 0
    for row in range(len(values)):
        if len(valid) != 0 and not valid[row]:
            at = put_all(out, at, null)
        else:
            if len(quote) != 0:
                out[at] = quote[0]
                at += 1
            value = values[row]
            if value == 0 and not iso:
                at = put_date(out, at, 0, 0, 0)
            else:
                # Days since the epoch → date, in eras of 400 years that start on 1 March.
                shifted = value // 86_400_000_000 + 719_468
                era = shifted // 146_097
                day_of_era = shifted - era * 146_097
                year_of_era = (day_of_era - day_of_era // 1460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
                day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
                march_month = (5 * day_of_year + 2) // 153
                month = march_month + 3 if march_month < 10 else march_month - 9
                year = year_of_era + era * 400 + (1 if month <= 2 else 0)
                at = put_date(out, at, year, month, day_of_year - (153 * march_month + 2) // 5 + 1)
            out[at] = LETTER_T if iso else SPACE
            of_day = value % 86_400_000_000
            seconds = of_day // 1_000_000
            at = put_clock(out, at + 1, seconds // 3600, seconds // 60 % 60, seconds % 60)
            at = put_fraction(out, at, of_day % 1_000_000, fsp)
            if iso:
                out[at] = LETTER_Z
                at += 1
            if len(quote) != 0:
                out[at] = quote[0]
                at += 1
        offsets[row + 1] = at


@kernel
def times(values: Any, fsp: int, valid: Any, quote: Any, null: Any, offsets: Any, out: Any) -> None:
    """Signed microseconds; hours take as many digits as they need, two at least."""
    at = 0
    offsets[0] = 0
    for row in range(len(values)):
        if len(valid) != 0 and not valid[row]:
            at = put_all(out, at, null)
        else:
            if len(quote) != 0:
                out[at] = quote[0]
                at += 1
            value = values[row]
            if value < 0:
                out[at] = MINUS
                at += 1
                value = -value
            seconds = value // 1_000_000
            hours = seconds // 3600
            if hours >= 100:
                at = put_unsigned(out, at, np.uint64(hours // 100))
            at = put_clock(out, at, hours % 100, seconds // 60 % 60, seconds % 60)
            at = put_fraction(out, at, value % 1_000_000, fsp)
            if len(quote) != 0:
                out[at] = quote[0]
                at += 1
        offsets[row + 1] = at
