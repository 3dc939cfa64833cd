# ruff: noqa: PLR0917 - kernels take many arrays
"""MariaDB's INET4, INET6 and UUID as the text that the server prints. The binlog logs them as BINARY(4) and BINARY(16)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from penstock.binlog.rows.arrays import Bytes, Places, check_row, variable_array
from penstock.binlog.rows.values import le
from penstock.kernels.compile import kernel

ADDRESS_BYTES = {"inet4": 4, "inet6": 16, "uuid": 16}
_TEXT_BYTES_MAX = {"inet4": 15, "inet6": 45, "uuid": 36}
_FORMS = {"inet4": 0, "inet6": 1, "uuid": 2}

_DOT, _COLON, _MINUS, _ZERO, _LETTER_A = (ord(character) for character in ".:-0a")
# Where the bytes of a stored UUID are in its text: the server stores the slowest part first, so that an index has it so.
_UUID_ORDER = np.array([12, 13, 14, 15, 10, 11, 8, 9, 6, 7, 0, 1, 2, 3, 4, 5])


def read_addresses(buf: Bytes, places: Places, *, form: str) -> pa.Array[Any]:
    """Values of one byte of length and at most `ADDRESS_BYTES[form]` bytes; zero bytes at the end were left out."""
    offsets = np.empty(len(places) + 1, np.int32)
    out = np.empty(max(1, len(places) * _TEXT_BYTES_MAX[form]), np.uint8)
    check_row(_address_texts(buf, places, ADDRESS_BYTES[form], _FORMS[form], _UUID_ORDER, offsets, out))
    return variable_array(pa.string(), places, offsets, out[: offsets[-1]].copy())


@kernel
def _address_texts(buf: Any, places: Any, size: Any, form: Any, uuid_order: Any, offsets: Any, out: Any) -> Any:
    value = np.empty(16, np.int64)
    at = 0
    for i in range(len(places)):
        offsets[i] = at
        if places[i] < 0:
            continue
        length = np.int64(le(buf, places[i], 1))
        if length > size:
            return i
        for k in range(16):
            value[k] = np.int64(buf[places[i] + 1 + k]) if k < length else 0
        if form == 0:
            at = _put_dotted(out, at, value, 0)
        elif form == 1:
            at = _put_inet6(out, at, value)
        else:
            at = _put_uuid(out, at, value, uuid_order)
    offsets[len(places)] = at
    return -1


@kernel
def _put_hex_digit(out: Any, at: Any, digit: Any) -> Any:
    out[at] = _ZERO + digit if digit < 10 else _LETTER_A + digit - 10
    return at + 1


@kernel
def _put_dotted(out: Any, at: Any, value: Any, first: Any) -> Any:
    for k in range(first, first + 4):
        if k > first:
            out[at] = _DOT
            at += 1
        if value[k] >= 100:
            out[at] = _ZERO + value[k] // 100
            at += 1
        if value[k] >= 10:
            out[at] = _ZERO + value[k] // 10 % 10
            at += 1
        out[at] = _ZERO + value[k] % 10
        at += 1
    return at


@kernel
def _put_inet6(out: Any, at: Any, value: Any) -> Any:
    """Groups of four hexadecimal digits without leading zeros; the first longest run of zero groups, one too, is `::`.
    An address that only differs from zero in its last four bytes, or is mapped (::ffff:), ends in dotted form."""
    zeros, length = -1, 0  # the run
    k = 0
    while k < 8:
        n = 0
        while k + n < 8 and value[2 * (k + n)] == 0 and value[2 * (k + n) + 1] == 0:
            n += 1
        if n > length:
            zeros, length = k, n
        k += n + 1
    dotted = zeros == 0 and (length == 6 or (length == 5 and value[10] == 0xFF and value[11] == 0xFF))
    k = 0
    while k < 8:
        if k == zeros:
            out[at] = _COLON
            at += 1
            if k == 0:
                out[at] = _COLON
                at += 1
            k += length
            continue
        if dotted and k == 6:
            return _put_dotted(out, at, value, 12)
        group = value[2 * k] << 8 | value[2 * k + 1]
        started = False
        for shift in range(12, -1, -4):
            digit = (group >> shift) & 15
            if digit or started or shift == 0:
                started = True
                at = _put_hex_digit(out, at, digit)
        if k < 7:
            out[at] = _COLON
            at += 1
        k += 1
    return at


@kernel
def _put_uuid(out: Any, at: Any, value: Any, order: Any) -> Any:
    """UUIDs of versions 1 to 5 are stored with their parts in another order, all others as they are."""
    swapped = 0 < value[8] < 0x60 and value[6] & 0x80
    for k in range(16):
        if k in (4, 6, 8, 10):
            out[at] = _MINUS
            at += 1
        byte = value[order[k]] if swapped else value[k]
        at = _put_hex_digit(out, at, byte >> 4)
        at = _put_hex_digit(out, at, byte & 15)
    return at
