# ruff: noqa: PLR0917 - kernels take many arrays
"""Binary JSON → text, many documents at once: what `binary.py` does, without Python for each value.

It prints objects, arrays, strings, integers, literals, and doubles of up to fifteen digits. At anything else (a long
double, a value of an SQL type, bytes that are no JSON) it leaves the document to `binary.py`, which prints or refuses it.
Whatever the bytes say, it reads nothing outside a document.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.kernels.compile import kernel

TEXT_RATIO_MAX = 8  # bytes of text for a byte, as in binary.py
TEXT_MIN = 64

_DEPTH_MAX = 64  # deeper documents are left to binary.py
_BASE, _SIZE, _COUNT, _NEXT, _WIDE, _OBJECT = range(6)  # what is known of a container that is being printed
_LITERAL, _INT16, _UINT16, _INT32, _UINT32, _INT64, _UINT64, _DOUBLE, _STRING = range(4, 13)
_DIGITS_MAX = 1e15  # numbers below it have at most fifteen digits, and of these each has a double of its own

_QUOTE, _BACKSLASH, _COMMA, _COLON, _SPACE, _ZERO, _MINUS, _POINT = (ord(character) for character in '"\\,: 0-.')
_OPEN_ARRAY, _CLOSE_ARRAY, _OPEN_OBJECT, _CLOSE_OBJECT = (ord(character) for character in "[]{}")
_TEXTS = np.frombuffer(b"nulltruefalse", np.uint8)  # of the literals
_TEXT_STARTS = np.array([0, 4, 8, 13])
_HEX = np.frombuffer(b"0123456789abcdef", np.uint8)
_SHORT = np.zeros(32, np.uint8)  # the letter of a control character, as in \n
_SHORT[[8, 9, 10, 12, 13]] = np.frombuffer(b"btnfr", np.uint8)


@kernel
def print_documents(data: Any, starts: Any, out: Any, offsets: Any, left: Any) -> Any:
    """Document i is `data[starts[i]:starts[i + 1]]`. Fills `out` and Arrow's `offsets`, and `left`: 1 where a document
    is left to `binary.py`, whose text is empty here. Returns the bytes of all texts.

    `out` has `TEXT_MIN + TEXT_RATIO_MAX * length` bytes for each document.
    """
    stack = np.empty((_DEPTH_MAX, 6), np.int64)
    to = np.int64(0)
    for i in range(len(left)):
        offsets[i] = to
        first, stop = np.int64(starts[i]), np.int64(starts[i + 1])
        after = _document(data, first, stop, out, to, to + TEXT_MIN + TEXT_RATIO_MAX * (stop - first), stack)
        left[i] = after < 0
        if after >= 0:
            to = after
    offsets[len(left)] = to
    return to


@kernel
def _document(data: Any, first: Any, stop: Any, out: Any, to: Any, limit: Any, stack: Any) -> Any:
    """Where the text ends; -1 if it is left to `binary.py`."""
    if stop == first:
        return _put_literal(out, to, limit, 0)
    kind, at, end = np.int64(data[first]), first + 1, stop
    depth = -1
    while True:
        if kind < _LITERAL:
            wide = np.int64(4) if kind & 1 else np.int64(2)
            if depth + 1 == _DEPTH_MAX or end - at < 2 * wide:
                return -1
            count, size = np.int64(_number(data, at, wide)), np.int64(_number(data, at + wide, wide))
            is_object = np.int64(kind < 2)
            if size > end - at or 2 * wide + count * (is_object * (wide + 2) + 1 + wide) > size or to == limit:
                return -1
            depth += 1
            stack[depth, _BASE], stack[depth, _SIZE], stack[depth, _COUNT] = at, size, count
            stack[depth, _NEXT], stack[depth, _WIDE], stack[depth, _OBJECT] = 0, wide, is_object
            out[to] = _OPEN_OBJECT if is_object else _OPEN_ARRAY
            to += 1
        else:
            to = _put_scalar(data, kind, at, end, out, to, limit)
        # What follows a value: the ends of containers, or the next element of one.
        while depth >= 0 and to >= 0 and stack[depth, _NEXT] == stack[depth, _COUNT]:
            if to == limit:
                return -1
            out[to] = _CLOSE_OBJECT if stack[depth, _OBJECT] else _CLOSE_ARRAY
            to += 1
            depth -= 1
        if depth < 0 or to < 0:
            return to
        base, size, wide = stack[depth, _BASE], stack[depth, _SIZE], stack[depth, _WIDE]
        number = stack[depth, _NEXT]
        stack[depth, _NEXT] = number + 1
        if limit - to < 4:
            return -1
        if number:
            out[to], out[to + 1] = _COMMA, _SPACE
            to += 2
        entry = base + 2 * wide
        if stack[depth, _OBJECT]:
            key = entry + number * (wide + 2)
            place, length = np.int64(_number(data, key, wide)), np.int64(_number(data, key + wide, 2))
            if place + length > size:
                return -1
            to = _put_string(data, base + place, length, out, to, limit - 2)
            if to < 0:
                return -1
            out[to], out[to + 1] = _COLON, _SPACE
            to += 2
            entry += stack[depth, _COUNT] * (wide + 2)
        entry += number * (1 + wide)
        kind = np.int64(data[entry])
        at = entry + 1
        if not (_LITERAL <= kind <= _UINT16 or (wide == 4 and _INT32 <= kind <= _UINT32)):
            place = np.int64(_number(data, entry + 1, wide))
            if place <= 0 or place >= size:
                return -1
            at = base + place
        end = base + size


@kernel
def _put_scalar(data: Any, kind: Any, at: Any, end: Any, out: Any, to: Any, limit: Any) -> Any:
    left = end - at
    if kind == _LITERAL:
        return _put_literal(out, to, limit, np.int64(data[at])) if left >= 1 and data[at] <= 2 else -1
    if kind <= _UINT64:
        width = np.int64(2) if kind <= _UINT16 else np.int64(4) if kind <= _UINT32 else np.int64(8)
        if left < width:
            return -1
        value = _number(data, at, width)
        sign = np.uint64(1) << np.uint64(8 * width - 1)
        if kind & 1 and value & sign:  # the signed ones have odd numbers
            return _put_number(out, to, limit, (sign - (value ^ sign)), True)
        return _put_number(out, to, limit, value, False)
    if kind == _DOUBLE and left >= 8:
        return _put_double(out, to, limit, np.uint64(_number(data, at, 8)))
    if kind == _STRING:
        length, shift = np.int64(0), 0
        for k in range(min(left, 5)):
            length |= np.int64(data[at + k] & 0x7F) << shift
            shift += 7
            if data[at + k] < 0x80:
                at += k + 1
                return _put_string(data, at, length, out, to, limit) if length <= end - at else -1
    return -1


@kernel
def _put_literal(out: Any, to: Any, limit: Any, which: Any) -> Any:
    first, stop = _TEXT_STARTS[which], _TEXT_STARTS[which + 1]
    if limit - to < stop - first:
        return np.int64(-1)
    for k in range(first, stop):
        out[to] = _TEXTS[k]
        to += 1
    return to


@kernel
def _put_number(out: Any, to: Any, limit: Any, value: Any, negative: Any) -> Any:
    if limit - to < 21:
        return np.int64(-1)
    if negative:
        out[to] = _MINUS
        to += 1
    digits = 1
    rest = value // np.uint64(10)
    while rest:
        digits += 1
        rest //= np.uint64(10)
    for k in range(to + digits - 1, to - 1, -1):
        out[k] = _ZERO + np.int64(value % np.uint64(10))
        value //= np.uint64(10)
    return to + digits


@kernel
def _put_double(out: Any, to: Any, limit: Any, bits: Any) -> Any:
    """A double that is a decimal number of up to fifteen digits, and not tiny. Of such numbers no two are the same double,
    so the one with the fewest digits behind the point is the shortest text."""
    negative = bits >> np.uint64(63) != 0
    value = np.uint64(bits & np.uint64(0x7FFFFFFFFFFFFFFF)).view(np.float64)
    if not 1e-4 <= value < _DIGITS_MAX:
        return np.int64(-1)
    power, places = 1.0, 0
    whole = np.floor(value + 0.5)
    while whole / power != value:
        power *= 10.0
        places += 1
        whole = np.floor(value * power + 0.5)
        if whole >= _DIGITS_MAX:
            return np.int64(-1)
    if limit - to < 24:
        return np.int64(-1)
    scale = np.uint64(power)
    to = _put_number(out, to, limit, np.uint64(whole) // scale, negative)
    if to < 0:
        return to
    fraction = np.uint64(whole) % scale
    if limit - to < places + 2:
        return np.int64(-1)
    out[to] = _POINT
    places = max(places, 1)
    for k in range(to + places, to, -1):
        out[k] = _ZERO + np.int64(fraction % np.uint64(10))
        fraction //= np.uint64(10)
    return to + places + 1


@kernel
def _put_string(data: Any, at: Any, length: Any, out: Any, to: Any, limit: Any) -> Any:
    if limit - to < length + 2:
        return np.int64(-1)
    out[to] = _QUOTE
    to += 1
    for k in range(at, at + length):
        if limit - to < 7:  # one that is escaped, and the quote
            return np.int64(-1)
        byte = data[k]
        if byte >= 0x20:
            if byte in (_QUOTE, _BACKSLASH):
                out[to] = _BACKSLASH
                to += 1
            out[to] = byte
            to += 1
            continue
        out[to] = _BACKSLASH
        if _SHORT[byte]:
            out[to + 1] = _SHORT[byte]
            to += 2
            continue
        out[to + 1], out[to + 2], out[to + 3] = ord("u"), _ZERO, _ZERO
        out[to + 4], out[to + 5] = _HEX[byte >> 4], _HEX[byte & 15]
        to += 6
    out[to] = _QUOTE
    return to + 1


@kernel
def _number(data: Any, at: Any, width: Any) -> Any:
    """Little-endian."""
    value = np.uint64(0)
    for k in range(width):
        value |= np.uint64(data[at + k]) << np.uint64(8 * k)
    return value
