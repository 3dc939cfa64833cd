# ruff: noqa: PLR0917 - kernels take many arrays
"""Kernels that read all values of a column of fixed width, into the physical form of schema/changes.py.

`places` is what `walk_rows` filled: the offset of each value in `buf`, negative where there is none (then the result is
0). The bytes are known to be there. Each kernel returns the first row with bytes that no server writes, or -1.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.kernels.compile import kernel

MICROSECONDS = 1_000_000


@kernel
def le(buf: Any, at: Any, width: Any) -> Any:
    """A little-endian number. Its widths are written out, because then each is one load of the processor."""
    if width == 1:
        return np.uint64(buf[at])
    if width == 2:
        return _le2(buf, at)
    if width == 4:
        return _le2(buf, at) | _le2(buf, at + 2) << np.uint64(16)
    if width == 8:
        low = _le2(buf, at) | _le2(buf, at + 2) << np.uint64(16)
        return low | _le2(buf, at + 4) << np.uint64(32) | _le2(buf, at + 6) << np.uint64(48)
    value = np.uint64(0)
    for k in range(width):
        value |= np.uint64(buf[at + k]) << np.uint64(8 * k)
    return value


@kernel
def _le2(buf: Any, at: Any) -> Any:
    return np.uint64(buf[at]) | np.uint64(buf[at + 1]) << np.uint64(8)


@kernel
def be(buf: Any, at: Any, width: Any) -> Any:
    """A big-endian number."""
    value = np.int64(0)
    for k in range(width):
        value = (value << 8) | np.int64(buf[at + k])
    return value


@kernel
def integers(buf: Any, places: Any, width: Any, signed: Any, out: Any) -> Any:
    """Little-endian numbers; also the bits of floats, DATE, ENUM, SET. `out` has any signed type that is wide enough."""
    shift = 64 - 8 * width if signed else 0
    for i in range(len(places)):
        at = places[i]
        out[i] = (np.int64(le(buf, at, width)) << shift) >> shift if at >= 0 else 0
    return -1


@kernel
def bits(buf: Any, places: Any, width: Any, count: Any, out: Any) -> Any:
    """BIT(count), big-endian."""
    for i in range(len(places)):
        at = places[i]
        value = be(buf, at, width) if at >= 0 else 0
        if count < 64 and (value < 0 or value >> count):
            return i
        out[i] = value
    return -1


@kernel
def years(buf: Any, places: Any, out: Any) -> Any:
    """One byte: years since 1900; 0 is the zero year."""
    for i in range(len(places)):
        value = np.int64(buf[places[i]]) if places[i] >= 0 else 0
        out[i] = value + 1900 if value else 0
    return -1


@kernel
def datetimes(buf: Any, places: Any, fraction_bytes: Any, unit: Any, out: Any) -> Any:
    """DATETIME of MySQL 5.6 and later. `unit`: microseconds in one of the stored fraction."""
    for i in range(len(places)):
        at = places[i]
        if at < 0:
            out[i] = 0
            continue
        whole = be(buf, at, 5) - np.int64(0x8000000000)
        fraction = be(buf, at + 5, fraction_bytes) * unit
        if whole < 0 or fraction >= MICROSECONDS:
            return i
        out[i] = (whole << 24) | fraction
    return -1


@kernel
def timestamps(buf: Any, places: Any, fraction_bytes: Any, unit: Any, out: Any) -> Any:
    """TIMESTAMP of MySQL 5.6 and later, and of MariaDB 5.3 with digits of a second."""
    for i in range(len(places)):
        at = places[i]
        if at < 0:
            out[i] = 0
            continue
        fraction = be(buf, at + 4, fraction_bytes) * unit
        if fraction >= MICROSECONDS:
            return i
        out[i] = be(buf, at, 4) * MICROSECONDS + fraction
    return -1


@kernel
def times(buf: Any, places: Any, fraction_bytes: Any, unit: Any, out: Any) -> Any:
    """TIME of MySQL 5.6 and later: an offset number, so that the fraction of a negative time borrows."""
    fraction_bits = 8 * fraction_bytes
    for i in range(len(places)):
        at = places[i]
        if at < 0:
            out[i] = 0
            continue
        packed = be(buf, at, 3 + fraction_bytes) - (np.int64(0x800000) << fraction_bits)
        size = abs(packed)
        fraction = (size & ((np.int64(1) << fraction_bits) - 1)) * unit
        if fraction >= MICROSECONDS:
            return i
        whole = size >> fraction_bits
        value = ((whole >> 12) * 3600 + ((whole >> 6) & 63) * 60 + (whole & 63)) * MICROSECONDS + fraction
        out[i] = -value if packed < 0 else value
    return -1


@kernel
def decimals(buf: Any, places: Any, precision: Any, scale: Any, out: Any) -> Any:
    """Packed decimals of up to 38 digits as 128-bit integers without their point: `out[i]` is (low, high)."""
    factors = np.empty(10, np.int64)
    factors[0] = 1
    for k in range(1, 10):
        factors[k] = factors[k - 1] * 10
    narrow = precision <= 18
    for i in range(len(places)):
        at = np.int64(places[i])
        if at < 0:
            out[i, 0] = out[i, 1] = 0
            continue
        first = at
        negative = (buf[at] & np.uint8(0x80)) == 0
        flip = np.int64(0xFF) if negative else np.int64(0)
        low = np.uint64(0)
        high = np.uint64(0)
        for part in range(2):
            left = precision - scale if part == 0 else scale
            while left > 0:
                # Nine digits make a group. The short group comes first before the point, and last after it.
                n = min(left, 9) if part == 1 or left % 9 == 0 else left % 9
                width = group_bytes(n)
                value = decimal_group(buf, at, width, flip, first)
                if value >= factors[n]:
                    return i
                at += width
                left -= n
                if narrow:
                    low = low * np.uint64(factors[n]) + np.uint64(value)
                else:
                    low, high = _times_plus(low, high, np.uint64(factors[n]), np.uint64(value))
        if negative:
            low = ~low + np.uint64(1)
            high = ~high + (np.uint64(1) if low == 0 else np.uint64(0))
        out[i, 0] = np.int64(low)
        out[i, 1] = np.int64(high)
    return -1


@kernel
def _times_plus(low: Any, high: Any, factor: Any, value: Any) -> Any:
    """(high, low) * factor + value, in 128 bits."""
    a = (low & np.uint64(0xFFFFFFFF)) * factor
    b = (low >> np.uint64(32)) * factor + (a >> np.uint64(32))
    high = high * factor + (b >> np.uint64(32))
    low = (b << np.uint64(32)) | (a & np.uint64(0xFFFFFFFF))
    total = low + value
    return total, high + (np.uint64(1) if total < low else np.uint64(0))


@kernel
def decimal_group(buf: Any, at: Any, width: Any, flip: Any, first: Any) -> Any:
    """The digits of one group. The top bit of the decimal's first byte is its sign, inverted."""
    value = np.int64(0)
    for k in range(width):
        byte = np.int64(buf[at + k])
        if at + k == first:
            byte ^= 0x80
        value = (value << 8) | (byte ^ flip)
    return value


@kernel
def group_bytes(digits: Any) -> Any:
    """The same as `DECIMAL_GROUP_BYTES[digits]`."""
    return (digits + 1) // 2 if digits < 7 else 4


@kernel
def decimal_texts(buf: Any, places: Any, precision: Any, scale: Any, offsets: Any, out: Any) -> Any:
    """Packed decimals of above 38 digits as text with all `scale` digits. `out` has precision + 3 bytes for each row."""
    total = np.int64(0)
    digits = np.empty(precision, np.uint8)
    for i in range(len(places)):
        offsets[i] = total
        at = np.int64(places[i])
        if at < 0:
            continue
        first = at
        negative = (buf[at] & np.uint8(0x80)) == 0
        flip = np.int64(0xFF) if negative else np.int64(0)
        filled = 0
        for part in range(2):
            left = precision - scale if part == 0 else scale
            while left > 0:
                n = min(left, 9) if part == 1 or left % 9 == 0 else left % 9
                width = group_bytes(n)
                value = decimal_group(buf, at, width, flip, first)
                at += width
                left -= n
                for k in range(filled + n - 1, filled - 1, -1):
                    digits[k] = value % 10
                    value //= 10
                if value:
                    return i
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
    offsets[len(places)] = total
    return -1
