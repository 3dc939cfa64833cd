"""Row events read the plain way, one value after the other: what the vectorised decoder must agree with.

Written from the format's description, without the decoder's code; slow, and simple enough to be looked through.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from penstock.binlog.json.binary import jsonb_to_text
from penstock.binlog.table_map import MapColumn, TableMap
from penstock.binlog.types import ColumnType as C

ABSENT = "absent"
DECIMAL_BYTES = [0, 1, 1, 2, 2, 3, 3, 4, 4, 4]
INTEGER_BYTES = {C.TINY: 1, C.SHORT: 2, C.INT24: 3, C.LONG: 4, C.LONGLONG: 8}
BLOB_LENGTH = {C.TINY_BLOB: 1, C.MEDIUM_BLOB: 3, C.LONG_BLOB: 4}
CODECS = {
    "ascii": "ascii",
    "cp1251": "cp1251",
    "gbk": "gbk",
    "latin1": "cp1252",
    "sjis": "shift_jis",
    "ucs2": "utf-16-be",
    "utf16": "utf-16-be",
    "utf8mb3": "utf-8",
    "utf8mb4": "utf-8",
}

Row = tuple[str, list[Any] | None, list[Any] | None]


@dataclass
class Bytes:
    data: bytes
    at: int = 0

    def take(self, count: int) -> bytes:
        value = self.data[self.at : self.at + count]
        assert len(value) == count, "the event is cut"
        self.at += count
        return value

    def little(self, count: int, *, signed: bool = False) -> int:
        return int.from_bytes(self.take(count), "little", signed=signed)

    def big(self, count: int) -> int:
        return int.from_bytes(self.take(count), "big")


def read_rows(event: bytes, table: TableMap, *, crc: bool) -> list[Row]:
    """The rows of a row event, V1 or V2: (operation, before, after)."""
    kind = event[4]
    body = Bytes(event[19 : len(event) - (4 if crc else 0)])
    body.take(8)
    if kind >= 30:
        body.take(body.little(2) - 2)
        kind -= 7
    count = body.little(1)
    if count == 252:
        count = body.little(2)
    assert count == len(table.columns)
    bitmaps = [_bits(body.take((count + 7) // 8), count) for _ in range(2 if kind == 24 else 1)]
    found: list[Row] = []
    while body.at < len(body.data):
        images = [_image(body, table, bitmap) for bitmap in bitmaps]
        if kind == 23:
            found.append(("I", None, images[0]))
        elif kind == 24:
            found.append(("U", images[0], images[1]))
        else:
            found.append(("D", images[0], None))
    return found


def _bits(raw: bytes, count: int) -> list[bool]:
    return [bool(raw[i // 8] >> (i % 8) & 1) for i in range(count)]


def _image(body: Bytes, table: TableMap, present: list[bool]) -> list[Any]:
    nulls = iter(_bits(body.take((sum(present) + 7) // 8), sum(present)))
    values: list[Any] = []
    for column, there in zip(table.columns, present, strict=True):
        values.append(ABSENT if not there else None if next(nulls) else _value(body, column))
    return values


def _value(body: Bytes, column: MapColumn) -> Any:
    kind, length = column.type, column.length
    if kind in INTEGER_BYTES:
        return body.little(INTEGER_BYTES[C(kind)], signed=not column.unsigned)
    if kind == C.FLOAT:
        return struct.unpack("<f", body.take(4))[0]
    if kind == C.DOUBLE:
        return struct.unpack("<d", body.take(8))[0]
    if kind == C.YEAR:
        year = body.little(1)
        return year + 1900 if year else 0
    if kind in (C.ENUM, C.SET):
        return body.little(length)
    if kind == C.BIT:
        return body.big((length + 7) // 8)
    if kind in (C.DATE, C.NEWDATE):
        return body.little(3)
    if kind == C.NEWDECIMAL:
        return _decimal(body, length, column.scale)
    if kind in (C.TIME, C.TIME2, C.DATETIME, C.DATETIME2, C.TIMESTAMP, C.TIMESTAMP2):
        return _temporal(body, kind, length)
    width = BLOB_LENGTH.get(C(kind), length)
    if kind in (C.STRING, C.VARCHAR, C.VAR_STRING):
        width = 2 if length > 255 else 1
    raw = body.take(body.little(width))
    if kind == C.JSON:
        return jsonb_to_text(raw)
    if kind in (C.GEOMETRY, C.VECTOR) or column.charset is None:
        return raw
    if column.charset == "binary":
        return raw.ljust(length, b"\0") if kind == C.STRING else raw
    return raw.decode(CODECS[column.charset])


def _decimal(body: Bytes, precision: int, scale: int) -> Any:
    whole = precision - scale
    groups = ([whole % 9] if whole % 9 else []) + [9] * (whole // 9) + [9] * (scale // 9)
    groups += [scale % 9] if scale % 9 else []
    raw = bytearray(body.take(sum(DECIMAL_BYTES[n] for n in groups)))
    negative = raw[0] < 0x80
    raw[0] ^= 0x80
    part = Bytes(bytes(byte ^ 0xFF for byte in raw) if negative else bytes(raw))
    digits = "".join(str(part.big(DECIMAL_BYTES[n])).zfill(n) for n in groups)
    text = ("-" if negative else "") + (digits[:whole].lstrip("0") or "0") + (f".{digits[whole:]}" if scale else "")
    return Decimal(text) if precision <= 38 else text


def _temporal(body: Bytes, kind: int, fsp: int) -> int:
    fraction_bytes = (fsp + 1) // 2
    scale = 10 ** (6 - 2 * fraction_bytes)
    if kind == C.TIMESTAMP:
        return body.little(4) * 1_000_000
    if kind == C.TIMESTAMP2:
        return body.big(4) * 1_000_000 + body.big(fraction_bytes) * scale
    if kind == C.DATETIME2:
        whole = body.big(5) - 0x8000000000
        return whole << 24 | body.big(fraction_bytes) * scale
    if kind == C.TIME2:
        packed = body.big(3 + fraction_bytes) - (0x800000 << (8 * fraction_bytes))
        whole, fraction = divmod(abs(packed), 1 << (8 * fraction_bytes))
        micros = ((whole >> 12) * 3600 + (whole >> 6 & 63) * 60 + (whole & 63)) * 1_000_000 + fraction * scale
        return -micros if packed < 0 else micros
    if kind == C.TIME:
        packed = body.little(3, signed=True)
        hours, rest = divmod(abs(packed), 10_000)
        micros = (hours * 3600 + rest // 100 * 60 + rest % 100) * 1_000_000
        return -micros if packed < 0 else micros
    text = f"{body.little(8):014}"
    year, month, day, hour, minute, second = (
        int(text[a:b]) for a, b in ((0, 4), (4, 6), (6, 8), (8, 10), (10, 12), (12, 14))
    )
    return ((year * 13 + month) << 22 | day << 17 | hour << 12 | minute << 6 | second) << 24
