"""Kernels that write strings and bytes of one column as text: JSON strings, fields of CSV, base64 and hex.

They come in pairs: one finds where each row starts and ends (`offsets`, rows + 1 of them, from 0), so that the caller can
allocate, the other writes. Row r of the source is `source[bounds[r] : bounds[r + 1]]`; `valid` has no elements if nothing
is missing.
"""

# ruff: noqa: PLR0917 - compiled kernels take their arrays by place
from __future__ import annotations

from typing import Any

import numpy as np

from penstock.encode.kernels.text import ZERO, put_all
from penstock.kernels.compile import kernel
from penstock.kernels.copy import copy_bytes

QUOTE = np.uint8(ord('"'))
BACKSLASH, HEX_ESCAPE, LETTER_A, LETTER_N, LETTER_R = (ord(character) for character in "\\uanr")
LINE_FEED, CARRIAGE_RETURN = 10, 13
NULL = np.frombuffer(b"null", np.uint8)
BASE64 = np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", np.uint8)
PADDING = ord("=")
HEX = np.frombuffer(b"0123456789abcdef", np.uint8)

# What follows the backslash of a character with a short escape in JSON; 0: it has none.
SHORT_ESCAPES = np.zeros(256, np.uint8)
for _character, _escape in (("\b", "b"), ("\t", "t"), ("\n", "n"), ("\f", "f"), ("\r", "r"), ('"', '"'), ("\\", "\\")):
    SHORT_ESCAPES[ord(_character)] = ord(_escape)


def _widths(latin1: bool) -> Any:
    """How many bytes each byte takes inside a JSON string."""
    widths = np.ones(256, np.int64)
    widths[:32] = 6
    widths[SHORT_ESCAPES != 0] = 2
    if latin1:
        widths[128:] = 2
    return widths


UTF8_WIDTHS = _widths(latin1=False)
LATIN1_WIDTHS = _widths(latin1=True)


@kernel
def escaped_offsets(source: Any, bounds: Any, valid: Any, widths: Any, offsets: Any) -> None:
    """Where the JSON token of each string starts and ends, two quotes included; null takes four bytes."""
    at = 0
    offsets[0] = 0
    for row in range(len(bounds) - 1):
        if len(valid) != 0 and not valid[row]:
            at += 4
        else:
            at += 2
            for place in range(bounds[row], bounds[row + 1]):
                at += widths[source[place]]
        offsets[row + 1] = at


@kernel
def put_escaped(out: Any, at: int, byte: Any, latin1: bool) -> int:
    """One byte of a string; with `latin1`, a byte above 127 as the character of that number, in UTF-8."""
    if byte >= 0x80 and latin1:
        out[at] = 0xC0 | (byte >> 6)
        out[at + 1] = 0x80 | (byte & 0x3F)
        return at + 2
    short = SHORT_ESCAPES[byte]
    if byte >= 32 and short == 0:
        out[at] = byte
        return at + 1
    out[at] = BACKSLASH
    if short != 0:
        out[at + 1] = short
        return at + 2
    out[at + 1] = HEX_ESCAPE
    out[at + 2] = ZERO
    out[at + 3] = ZERO
    out[at + 4] = ZERO + (byte >> 4)
    low = byte & 15
    out[at + 5] = ZERO + low if low < 10 else LETTER_A + low - 10
    return at + 6


@kernel
def escape(source: Any, bounds: Any, valid: Any, latin1: bool, offsets: Any, out: Any) -> None:
    """Strings as JSON tokens, at the offsets that `escaped_offsets` found."""
    for row in range(len(bounds) - 1):
        at = offsets[row]
        if len(valid) != 0 and not valid[row]:
            put_all(out, at, NULL)
            continue
        out[at] = QUOTE
        at += 1
        first, last = bounds[row], bounds[row + 1]
        if offsets[row + 1] - offsets[row] == last - first + 2:
            copy_bytes(out, at, source, first, last - first)
            at += last - first
        else:
            for place in range(first, last):
                at = put_escaped(out, at, np.int64(source[place]), latin1)
        out[at] = QUOTE


@kernel
def doubled_offsets(source: Any, bounds: Any, valid: Any, quote: Any, null: Any, offsets: Any) -> None:
    """Where each string in quotes starts and ends; a quote inside takes two bytes."""
    at = 0
    offsets[0] = 0
    for row in range(len(bounds) - 1):
        if len(valid) != 0 and not valid[row]:
            at += len(null)
        else:
            at += 2 + bounds[row + 1] - bounds[row]
            for place in range(bounds[row], bounds[row + 1]):
                if source[place] == quote[0]:
                    at += 1
        offsets[row + 1] = at


@kernel
def doubled(source: Any, bounds: Any, valid: Any, quote: Any, null: Any, offsets: Any, out: Any) -> None:
    """Strings in quotes, a quote inside doubled (RFC 4180), at the offsets that `doubled_offsets` found."""
    for row in range(len(bounds) - 1):
        at = offsets[row]
        if len(valid) != 0 and not valid[row]:
            put_all(out, at, null)
            continue
        out[at] = quote[0]
        at += 1
        first, last = bounds[row], bounds[row + 1]
        if offsets[row + 1] - offsets[row] == last - first + 2:
            copy_bytes(out, at, source, first, last - first)
            at += last - first
        else:
            for place in range(first, last):
                byte = source[place]
                if byte == quote[0]:
                    out[at] = byte
                    at += 1
                out[at] = byte
                at += 1
        out[at] = quote[0]


@kernel
def delimiter_at(source: Any, place: Any, last: Any, delimiter: Any) -> Any:
    """How many bytes from here on are the delimiter, or, at the end of a value, its beginning: with the delimiter that
    follows the value those could be taken for it."""
    count = min(len(delimiter), last - place)
    for k in range(count):
        if source[place + k] != delimiter[k]:
            return 0
    return count


@kernel
def backslashed_offsets(source: Any, bounds: Any, valid: Any, delimiter: Any, null: Any, offsets: Any) -> None:
    """Where each string without quotes starts and ends; a backslash, CR and LF, and each character of a delimiter take
    two bytes."""
    at = 0
    offsets[0] = 0
    for row in range(len(bounds) - 1):
        if len(valid) != 0 and not valid[row]:
            at += len(null)
        else:
            place, last = bounds[row], bounds[row + 1]
            while place < last:
                byte = source[place]
                count = delimiter_at(source, place, last, delimiter)
                if count > 0:
                    at += 2 * count
                    place += count
                elif byte in (BACKSLASH, LINE_FEED, CARRIAGE_RETURN):
                    at += 2
                    place += 1
                else:
                    at += 1
                    place += 1
        offsets[row + 1] = at


@kernel
def backslashed(source: Any, bounds: Any, valid: Any, delimiter: Any, null: Any, offsets: Any, out: Any) -> None:
    for row in range(len(bounds) - 1):
        at = offsets[row]
        if len(valid) != 0 and not valid[row]:
            put_all(out, at, null)
            continue
        place, last = bounds[row], bounds[row + 1]
        if offsets[row + 1] - offsets[row] == last - place:
            copy_bytes(out, at, source, place, last - place)
            continue
        while place < last:
            byte = source[place]
            count = delimiter_at(source, place, last, delimiter)
            if count > 0:
                for k in range(count):
                    out[at] = BACKSLASH
                    out[at + 1] = delimiter[k]
                    at += 2
                place += count
                continue
            if byte == BACKSLASH:
                out[at] = BACKSLASH
                at += 1
            elif byte == LINE_FEED:
                out[at] = BACKSLASH
                at += 1
                byte = LETTER_N
            elif byte == CARRIAGE_RETURN:
                out[at] = BACKSLASH
                at += 1
                byte = LETTER_R
            out[at] = byte
            at += 1
            place += 1


@kernel
def bytes_offsets(bounds: Any, valid: Any, is_hex: bool, quote: Any, null: Any, offsets: Any) -> None:
    """Where the base64 or hex of each value starts and ends, quotes included."""
    at = 0
    offsets[0] = 0
    for row in range(len(bounds) - 1):
        if len(valid) != 0 and not valid[row]:
            at += len(null)
        else:
            length = bounds[row + 1] - bounds[row]
            at += 2 * len(quote) + (2 * length if is_hex else (length + 2) // 3 * 4)
        offsets[row + 1] = at


@kernel
def put_base64(out: Any, at: int, source: Any, first: Any, last: Any) -> int:
    place = first
    while place + 3 <= last:
        word = np.int64(source[place]) << 16 | np.int64(source[place + 1]) << 8 | np.int64(source[place + 2])
        out[at] = BASE64[word >> 18]
        out[at + 1] = BASE64[word >> 12 & 63]
        out[at + 2] = BASE64[word >> 6 & 63]
        out[at + 3] = BASE64[word & 63]
        at += 4
        place += 3
    if place < last:
        word = np.int64(source[place]) << 16
        if place + 1 < last:
            word |= np.int64(source[place + 1]) << 8
        out[at] = BASE64[word >> 18]
        out[at + 1] = BASE64[word >> 12 & 63]
        out[at + 2] = BASE64[word >> 6 & 63] if place + 1 < last else PADDING
        out[at + 3] = PADDING
        at += 4
    return at


@kernel
def bytes_text(
    source: Any, bounds: Any, valid: Any, is_hex: bool, quote: Any, null: Any, offsets: Any, out: Any
) -> None:
    """Bytes as base64 or lower-case hex, at the offsets that `bytes_offsets` found."""
    for row in range(len(bounds) - 1):
        at = offsets[row]
        if len(valid) != 0 and not valid[row]:
            put_all(out, at, null)
            continue
        at = put_all(out, at, quote)
        if is_hex:
            for place in range(bounds[row], bounds[row + 1]):
                out[at] = HEX[source[place] >> 4]
                out[at + 1] = HEX[source[place] & 15]
                at += 2
        else:
            at = put_base64(out, at, source, bounds[row], bounds[row + 1])
        put_all(out, at, quote)
