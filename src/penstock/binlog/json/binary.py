"""MySQL's binary JSON → JSON text, as the server's own `CAST(json AS CHAR)` prints it.

A value is a type byte and its payload. An object or array holds a count, its size, and a table with an offset for each
element; small scalars stand in that table themselves. Offsets count from the start of the object or array. Depth and
every offset are checked.

Nothing in the format keeps two elements from sharing an offset, and so a few hundred bytes could stand for a text
without end. A server stores each value once: its text is never longer than `_TEXT_RATIO_MAX` times the bytes. Time and
memory are linear in the bytes, because work stops where the text would become longer.
"""

from __future__ import annotations

import base64
import decimal
import json
import math
import struct

from penstock.binlog.charset import decode_unicode
from penstock.binlog.types import DECIMAL_GROUP_BYTES, ColumnType

_DEPTH_MAX = 100  # the server's own limit
_TEXT_RATIO_MAX = 8  # characters for a byte; the worst that a server stores is a control character, with six
_TEXT_MIN = 64  # characters that any value may have
# Nine groups of nine: a server counts the digits of a whole group before the point, and so up to more than 65.
_DECIMAL_DIGITS_MAX = 81

# A server prints a double without an exponent while its point is this near to its first digit.
_PLAIN_POINT_MIN, _PLAIN_POINT_MAX = -14, 15

_SMALL_OBJECT, _LARGE_OBJECT, _SMALL_ARRAY, _LARGE_ARRAY, _LITERAL = range(5)
_INT16, _UINT16, _INT32, _UINT32, _INT64, _UINT64, _DOUBLE, _STRING = range(5, 13)
_OPAQUE = 15
_INTEGERS = {
    _INT16: (2, True),
    _UINT16: (2, False),
    _INT32: (4, True),
    _UINT32: (4, False),
    _INT64: (8, True),
    _UINT64: (8, False),
}


def jsonb_to_text(raw: bytes) -> str:
    """The text of one binary JSON value. Raises `ValueError` for other bytes. An empty value is JSON null."""
    if not raw:
        return "null"
    text = _Text(_TEXT_MIN + _TEXT_RATIO_MAX * len(raw))
    try:
        _value(raw[0], memoryview(raw)[1:], text, 0)
    except (IndexError, struct.error, UnicodeDecodeError):
        raise ValueError("bytes that are not binary JSON") from None
    return "".join(text.parts)


class _Text:
    """The text so far, and how many characters more it may have."""

    __slots__ = ("left", "parts")

    def __init__(self, characters_max: int) -> None:
        self.parts: list[str] = []
        self.left = characters_max

    def add(self, part: str) -> None:
        self.left -= len(part)
        if self.left < 0:
            raise ValueError("binary JSON whose elements share their bytes: its text has no bound")
        self.parts.append(part)


def _slice(data: memoryview, start: int, length: int) -> memoryview:
    if start < 0 or length < 0 or start + length > len(data):
        raise ValueError("binary JSON that points outside itself")
    return data[start : start + length]


def _value(kind: int, data: memoryview, text: _Text, depth: int) -> None:
    if depth > _DEPTH_MAX:
        raise ValueError("binary JSON that is nested too deeply")
    if kind <= _LARGE_ARRAY:
        _container(kind, data, text, depth)
    elif kind == _LITERAL:
        text.add(_literal(data[0]))
    elif kind in _INTEGERS:
        width, signed = _INTEGERS[kind]
        text.add(str(int.from_bytes(_slice(data, 0, width), "little", signed=signed)))
    elif kind == _DOUBLE:
        text.add(_double(struct.unpack("<d", _slice(data, 0, 8))[0]))
    elif kind == _STRING:
        length, at = _length(data, 0)
        text.add(_string(_slice(data, at, length)))
    elif kind == _OPAQUE:
        length, at = _length(data, 1)
        text.add(_opaque(data[0], _slice(data, at, length)))
    else:
        raise ValueError(f"unknown binary JSON type {kind}")


def _length(data: memoryview, at: int) -> tuple[int, int]:
    """A length, stored with 7 bits in each byte, the lowest first; and the offset after it."""
    value = 0
    for i in range(5):
        byte = data[at + i]
        value |= (byte & 0x7F) << (7 * i)
        if byte < 0x80:
            return value, at + i + 1
    raise ValueError("binary JSON with an endless length")


def _string(raw: memoryview) -> str:
    return json.dumps(decode_unicode(bytes(raw), "utf-8"), ensure_ascii=False)


def _literal(byte: int) -> str:
    if byte > 2:
        raise ValueError(f"unknown JSON literal {byte}")
    return ("null", "true", "false")[byte]


def _double(value: float) -> str:
    if not math.isfinite(value):
        raise ValueError("binary JSON with a number that is not finite")
    text = repr(value)
    mantissa, _, exponent = text.partition("e")
    whole, _, fraction = mantissa.lstrip("-").partition(".")
    # The place of the point, counted from the first digit that is not zero.
    point = int(exponent or 0) + (len(whole) if whole != "0" else len(fraction.lstrip("0")) - len(fraction))
    if value == 0 or _PLAIN_POINT_MIN <= point <= _PLAIN_POINT_MAX:
        return text if not exponent else _without_exponent(value)
    digits = (whole + fraction).strip("0")
    sign = "-" if value < 0 else ""
    return f"{sign}{digits[0]}{'.' if digits[1:] else ''}{digits[1:]}e{point - 1}"


def _without_exponent(value: float) -> str:
    text = f"{decimal.Decimal(repr(value)):f}"
    return text if "." in text else text + ".0"


def _container(kind: int, data: memoryview, text: _Text, depth: int) -> None:
    wide = 4 if kind in (_LARGE_OBJECT, _LARGE_ARRAY) else 2
    is_object = kind in (_SMALL_OBJECT, _LARGE_OBJECT)

    def number(at: int) -> int:
        return int.from_bytes(_slice(data, at, wide), "little")

    count, size = number(0), number(wide)
    data = _slice(data, 0, size)
    key_entries = 2 * wide
    value_entries = key_entries + (count * (wide + 2) if is_object else 0)
    if value_entries + count * (1 + wide) > size:
        raise ValueError("binary JSON that points outside itself")
    inlined = {_LITERAL, _INT16, _UINT16} | ({_INT32, _UINT32} if wide == 4 else set())
    text.add("{" if is_object else "[")
    for i in range(count):
        if i:
            text.add(", ")
        if is_object:
            at = key_entries + i * (wide + 2)
            length = int.from_bytes(_slice(data, at + wide, 2), "little")
            text.add(_string(_slice(data, number(at), length)))
            text.add(": ")
        at = value_entries + i * (1 + wide)
        inner = data[at]
        start = at + 1 if inner in inlined else number(at + 1)
        if start <= 0 or start >= size:
            raise ValueError("binary JSON that points outside itself")
        _value(inner, data[start:], text, depth + 1)
    text.add("}" if is_object else "]")


def _opaque(kind: int, raw: memoryview) -> str:
    """A value of an SQL type inside JSON, as the server prints it: a decimal as a number, a temporal value as text,
    others as base64.
    """
    if kind == ColumnType.NEWDECIMAL:
        return _decimal(raw)
    if kind in (ColumnType.DATE, ColumnType.DATETIME, ColumnType.TIMESTAMP, ColumnType.TIME):
        return f'"{_temporal(kind, int.from_bytes(_slice(raw, 0, 8), "little", signed=True))}"'
    return json.dumps(f"base64:type{kind}:{base64.b64encode(raw).decode()}")


def _temporal(kind: int, packed: int) -> str:
    sign = "-" if packed < 0 else ""
    packed = abs(packed)
    micros, whole = packed & 0xFFFFFF, packed >> 24
    minute, second = whole >> 6 & 63, whole & 63
    if kind == ColumnType.TIME:
        return f"{sign}{whole >> 12 & 0x3FF:02}:{minute:02}:{second:02}.{micros:06}"
    year, month = divmod(whole >> 22, 13)
    day = f"{year:04}-{month:02}-{whole >> 17 & 31:02}"
    if kind == ColumnType.DATE:
        return day
    return f"{day} {whole >> 12 & 31:02}:{minute:02}:{second:02}.{micros:06}"


def _decimal(raw: memoryview) -> str:
    precision, scale = raw[0], raw[1]
    whole = precision - scale
    groups = [whole % 9] * (whole % 9 > 0) + [9] * (whole // 9) + [9] * (scale // 9) + [scale % 9] * (scale % 9 > 0)
    data = bytearray(raw[2:])
    if not scale <= precision <= _DECIMAL_DIGITS_MAX or len(data) != sum(DECIMAL_GROUP_BYTES[n] for n in groups):
        raise ValueError("binary JSON with an impossible decimal")
    negative = data[0] < 0x80
    data[0] ^= 0x80
    digits, at = "", 0
    for count in groups:
        width = DECIMAL_GROUP_BYTES[count]
        chunk = bytes(byte ^ 0xFF for byte in data[at : at + width]) if negative else bytes(data[at : at + width])
        group = str(int.from_bytes(chunk, "big")).zfill(count)
        if len(group) > count:
            raise ValueError("binary JSON with an impossible decimal")
        digits += group
        at += width
    text = digits[:whole].lstrip("0") or "0"
    return ("-" if negative else "") + text + (f".{digits[whole:]}" if scale else "")
