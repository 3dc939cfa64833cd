"""Kernels that find values in lines of JSON, and take them out as text.

They look for the names of a tree and pass over everything else. `tree` has a row for each node: its first child and its next
sibling (-1: none), where its name begins and ends in `names`, and the column of `spans` that its value belongs to (-1:
none), then 1 where an object must have no other names. An array stands for its elements: `"data":[{…}]` is read as
`"data":{…}`. Lines are as our encoders write them, without a space between tokens.
"""

# ruff: noqa: PLR0917 - compiled kernels take their arrays by place
from __future__ import annotations

from typing import Any

import numpy as np

from penstock.kernels.compile import kernel
from penstock.kernels.copy import copy_bytes

CHILD, SIBLING, NAME, NAME_END, COLUMN, CLOSED = range(6)
NODE_FIELDS = 6
DEPTH_MAX = 8  # of objects and arrays that have names of the tree in them
GOOD, BROKEN, OTHER_NAME = range(3)

_QUOTE, _BACKSLASH, _COMMA, _COLON = (ord(character) for character in '"\\,:')
_OBJECT, _OBJECT_END, _ARRAY, _ARRAY_END = (ord(character) for character in "{}[]")
_LETTER_N, _LETTER_U = ord("n"), ord("u")
_ZERO, _NINE = ord("0"), ord("9")
_REPLACEMENT = 0xFFFD
_NEWLINE = ord("\n")
_BLOCK_BYTES = 128


@kernel
def newlines(data: Any, at: int, out: Any, count: int) -> Any:
    """Appends where newlines are, from `at` on, to the `count` numbers in `out`. Returns how many there are now, and where it
    stopped: at the end, or where `out` is full. Bytes are looked at one by one only in blocks that have a newline."""
    size = len(data)
    while at < size:
        end = min(at + _BLOCK_BYTES, size)
        has = np.uint8(1)
        if end - at == _BLOCK_BYTES:
            block = data[at:end]
            has = np.uint8(0)
            for i in range(_BLOCK_BYTES):
                has |= np.uint8(block[i] == _NEWLINE)
        if has:
            for i in range(at, end):
                if data[i] == _NEWLINE:
                    if count == len(out):
                        return count, i
                    out[count] = i
                    count += 1
        at = end
    return count, size


@kernel
def _string_end(data: Any, at: int, end: int) -> int:
    """The place after the string that begins at `at`; -1 if it does not end."""
    at += 1
    while at < end:
        byte = data[at]
        if byte == _QUOTE:
            return at + 1
        at += 2 if byte == _BACKSLASH else 1
    return -1


@kernel
def _value_end(data: Any, at: int, end: int) -> int:
    """The place after the value that begins at `at`; -1 if there is none."""
    depth = 0
    start = at
    while at < end:
        byte = data[at]
        if byte == _QUOTE:
            at = _string_end(data, at, end)
            if at < 0:
                return -1
            if depth == 0:
                return at
        elif byte in (_OBJECT, _ARRAY):
            depth += 1
            at += 1
        elif byte in (_OBJECT_END, _ARRAY_END):
            if depth == 0:
                return at if at > start else -1
            depth -= 1
            at += 1
            if depth == 0:
                return at
        elif byte == _COMMA and depth == 0:
            return at if at > start else -1
        else:
            at += 1
    return -1


@kernel
def _find(data: Any, at: int, length: int, tree: Any, names: Any, first: int, likely: int) -> int:
    """The child with the name at `at`, looked for from `likely` on; -1 if there is none."""
    node = likely
    for turn in range(2):
        while node >= 0:
            name = tree[node, NAME]
            if tree[node, NAME_END] - name == length:
                k = 0
                while k < length and data[at + k] == names[name + k]:
                    k += 1
                if k == length:
                    return node
            node = tree[node, SIBLING]
        if turn == 0:
            node = first
    return -1


@kernel
def _line(data: Any, at: int, end: int, tree: Any, names: Any, spans: Any, line: int, parents: Any, likely: Any) -> int:
    depth = -1
    node = 0
    while True:
        byte = data[at] if at < end else 0
        enters = node >= 0 and tree[node, CHILD] >= 0 and (byte in (_OBJECT, _ARRAY))
        if enters:
            depth += 1
            if depth >= DEPTH_MAX:
                return BROKEN
            parents[depth, 0] = node
            parents[depth, 1] = byte
            likely[depth] = tree[node, CHILD]
            at += 1
            empty = at < end and data[at] == byte + 2
        else:
            stop = _value_end(data, at, end)
            if stop < 0:
                return BROKEN
            if node >= 0 and tree[node, COLUMN] >= 0:
                spans[tree[node, COLUMN], line, 0] = at
                spans[tree[node, COLUMN], line, 1] = stop
            at = stop
            empty = False
        opened = enters and not empty
        while not opened:  # after a value: the next one, or the end of what it is in
            if depth < 0:
                return GOOD if at == end else BROKEN
            if at >= end:
                return BROKEN
            if data[at] == _COMMA:
                at += 1
                break
            if data[at] != parents[depth, 1] + 2:
                return BROKEN
            at += 1
            depth -= 1
        node = parents[depth, 0]
        if parents[depth, 1] == _ARRAY:
            continue
        if at >= end or data[at] != _QUOTE:
            return BROKEN
        stop = _string_end(data, at, end)
        if stop < 0 or stop >= end or data[stop] != _COLON:
            return BROKEN
        found = _find(data, at + 1, stop - at - 2, tree, names, tree[node, CHILD], likely[depth])
        if found < 0 and tree[node, CLOSED] == 1:
            return OTHER_NAME
        if found >= 0:
            likely[depth] = tree[found, SIBLING]
        node = found
        at = stop + 1


@kernel
def find_spans(data: Any, starts: Any, ends: Any, tree: Any, names: Any, spans: Any, first: int) -> tuple[int, int]:
    """Fills `spans[column, line]` with where each value begins and ends, from line `first` on; what is not there stays -1.

    Returns the first line that is not as it should be, and what it is: `BROKEN`, or one with an `OTHER_NAME`; the number of
    lines and `GOOD` if there is none.
    """
    parents = np.zeros((DEPTH_MAX, 2), np.int64)
    likely = np.zeros(DEPTH_MAX, np.int64)
    for line in range(first, len(starts)):
        state = _line(data, starts[line], ends[line], tree, names, spans, line, parents, likely)
        if state != GOOD:
            return line, state
    return len(starts), GOOD


@kernel
def different(data: Any, ones: Any, others: Any, out: Any) -> None:
    """Where both values are there and are not the same bytes: sets `out`, and leaves it as it is elsewhere."""
    for row in range(len(out)):
        at, other = ones[row, 0], others[row, 0]
        if at >= 0 and other >= 0:
            length = ones[row, 1] - at
            if length != others[row, 1] - other:
                out[row] = True
                continue
            for k in range(length):
                if data[at + k] != data[other + k]:
                    out[row] = True
                    break


@kernel
def _hexadecimal(data: Any, at: int) -> int:
    value = 0
    for k in range(4):
        byte = int(data[at + k])
        digit = byte - _ZERO
        if digit > 9:
            digit = (byte | 32) - ord("a") + 10
        value = value << 4 | (digit & 15)
    return value


@kernel
def _put_character(out: Any, at: int, code: int) -> int:
    """One character as UTF-8."""
    if code < 0x80:
        out[at] = code
        return at + 1
    if code < 0x800:
        out[at] = 0xC0 | code >> 6
        out[at + 1] = 0x80 | code & 63
        return at + 2
    if code < 0x10000:
        out[at] = 0xE0 | code >> 12
        out[at + 1] = 0x80 | code >> 6 & 63
        out[at + 2] = 0x80 | code & 63
        return at + 3
    out[at] = 0xF0 | code >> 18
    out[at + 1] = 0x80 | code >> 12 & 63
    out[at + 2] = 0x80 | code >> 6 & 63
    out[at + 3] = 0x80 | code & 63
    return at + 4


@kernel
def _put_unescaped(data: Any, at: int, end: int, out: Any, to: int, escapes: Any) -> int:
    """What a string means, from `at` to `end`. `escapes` has the character of each letter after a backslash."""
    while at < end:
        byte = data[at]
        if byte != _BACKSLASH or at + 1 >= end:
            out[to] = byte
            to += 1
            at += 1
        elif data[at + 1] != _LETTER_U or at + 6 > end:
            out[to] = escapes[data[at + 1]]
            to += 1
            at += 2
        else:
            code = _hexadecimal(data, at + 2)
            at += 6
            if 0xD800 <= code < 0xE000:  # half of a character
                low = 0
                if at + 6 <= end and data[at] == _BACKSLASH and data[at + 1] == _LETTER_U:
                    low = _hexadecimal(data, at + 2)
                if code < 0xDC00 and 0xDC00 <= low < 0xE000:
                    code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00)
                    at += 6
                else:
                    code = _REPLACEMENT
            to = _put_character(out, to, code)
    return to


@kernel
def texts(data: Any, spans: Any, escapes: Any, offsets: Any, valid: Any, out: Any) -> None:
    """The values of one column as text, back to back: strings as what they mean, others as they stand there. A null, and a
    value that is not there, are not `valid`. `out` has space for all spans."""
    to = 0
    offsets[0] = 0
    for row in range(len(spans)):
        at, end = spans[row, 0], spans[row, 1]
        valid[row] = at >= 0 and data[at] != _LETTER_N
        if valid[row]:
            if data[at] != _QUOTE:
                copy_bytes(out, to, data, at, end - at)
                to += end - at
            else:
                plain = True
                for k in range(at + 1, end - 1):
                    if data[k] == _BACKSLASH:
                        plain = False
                        break
                if plain:
                    copy_bytes(out, to, data, at + 1, end - at - 2)
                    to += end - at - 2
                else:
                    to = _put_unescaped(data, at + 1, end - 1, out, to, escapes)
        offsets[row + 1] = to


@kernel
def integers(data: Any, spans: Any, parts: int, out: Any) -> bool:
    """Numbers without a sign, `parts` of them with colons between, in quotes or not. False if one is something else."""
    for row in range(len(spans)):
        at, end = spans[row, 0], spans[row, 1]
        if at < 0:
            return False
        if data[at] == _QUOTE:
            at += 1
            end -= 1
        for part in range(parts):
            value = np.uint64(0)
            first = at
            while at < end and _ZERO <= data[at] <= _NINE:
                value = value * np.uint64(10) + np.uint64(data[at] - _ZERO)
                at += 1
            if at == first:
                return False
            if part < parts - 1:
                if at >= end or data[at] != _COLON:
                    return False
                at += 1
            out[row, part] = value
        if at != end:
            return False
    return True
