"""Binlog events made by hand: the packing side of what the decoder reads, written independently of it."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from decimal import Decimal

from penstock.binlog.bodies import FormatDescription
from penstock.binlog.types import Flavour

POST_HEADER = bytes([56, 13, 0, 8, 0, 18, 0, 4, 4, 4, 4, 18, 0, 0, 95, 0, 4, 26, 8])
FDE = FormatDescription("10.11.6-MariaDB", Flavour.MARIADB, 0, POST_HEADER)
GROUP_BYTES = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)


def event(kind: int, body: bytes, *, flags: int = 0, crc: bool = False) -> bytes:
    size = 19 + len(body) + (4 if crc else 0)
    raw = struct.pack("<IBIIIH", 1_700_000_000, kind, 1, size, 0, flags) + body
    return raw + struct.pack("<I", zlib.crc32(raw)) if crc else raw


def packed(value: int) -> bytes:
    if value < 251:
        return bytes([value])
    return b"\xfc" + struct.pack("<H", value)


def tlv(kind: int, value: bytes) -> bytes:
    return bytes([kind]) + packed(len(value)) + value


def msb_bits(bits: Sequence[bool]) -> bytes:
    out = bytearray((len(bits) + 7) // 8)
    for i, bit in enumerate(bits):
        if bit:
            out[i >> 3] |= 0x80 >> (i & 7)
    return bytes(out)


def table_map(
    columns: Sequence[tuple[int, bytes]],
    *,
    table_id: int = 7,
    schema: str = "s",
    table: str = "t",
    metadata: bytes = b"",
) -> bytes:
    """`columns`: (type, meta bytes) of each."""
    metas = b"".join(meta for _, meta in columns)
    body = table_id.to_bytes(6, "little") + b"\1\0"
    for name in (schema.encode(), table.encode()):
        body += bytes([len(name)]) + name + b"\0"
    body += packed(len(columns)) + bytes(kind for kind, _ in columns) + packed(len(metas)) + metas
    body += b"\xff" * ((len(columns) + 7) // 8) + metadata
    return event(19, body)


def image(values: Sequence[bytes | None]) -> bytes:
    """A row image: null bitmap, then the values that are not null."""
    nulls = bytearray((len(values) + 7) // 8)
    for i, value in enumerate(values):
        if value is None:
            nulls[i >> 3] |= 1 << (i & 7)
    return bytes(nulls) + b"".join(value for value in values if value is not None)


def rows(
    kind: int,
    columns: int,
    images: Sequence[bytes],
    *,
    table_id: int = 7,
    present: bytes | tuple[bytes, bytes] | None = None,
) -> bytes:
    """A row event: V1 (23 to 25), V2 (30 to 32) or partial (39). `present`: one bitmap for all images, or two."""
    body = table_id.to_bytes(6, "little") + b"\1\0" + (b"\2\0" if kind >= 30 else b"") + packed(columns)
    bitmap = present if present is not None else b"\xff" * ((columns + 7) // 8)
    both = bitmap if isinstance(bitmap, tuple) else (bitmap, bitmap)
    body += b"".join(both) if kind in (24, 31, 39) else both[0]
    return event(kind, body + b"".join(images))


def decimal(value: Decimal, precision: int, scale: int) -> bytes:
    digits = f"{abs(value):f}"
    whole, _, fraction = digits.partition(".")
    whole = whole.rjust(precision - scale, "0")[-(precision - scale) :] if precision > scale else ""
    fraction = fraction.ljust(scale, "0")
    head = len(whole) % 9
    groups = ([whole[:head]] if head else []) + [whole[i : i + 9] for i in range(head, len(whole), 9)]
    groups += [fraction[i : i + 9] for i in range(0, len(fraction), 9)]
    raw = bytearray(b"".join(int(group).to_bytes(GROUP_BYTES[len(group)], "big") for group in groups))
    if value < 0:
        raw = bytearray(byte ^ 0xFF for byte in raw)
    raw[0] ^= 0x80
    return bytes(raw)


def fraction_of(micros: int, fsp: int) -> tuple[int, int]:
    """(bytes, value) of a fraction of a second as servers store it."""
    width = (fsp + 1) // 2
    return width, micros // (1, 10_000, 100, 1)[width]


def time2(micros: int, fsp: int) -> bytes:
    seconds, part = divmod(abs(micros), 1_000_000)
    width, fraction = fraction_of(part, fsp)
    whole = (seconds // 3600) << 12 | (seconds // 60 % 60) << 6 | seconds % 60
    value = whole << (8 * width) | fraction
    return ((0x800000 << (8 * width)) + (-value if micros < 0 else value)).to_bytes(3 + width, "big")
