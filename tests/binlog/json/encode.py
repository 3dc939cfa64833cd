"""Values as binary JSON: the packing side of what `json/` reads, written independently of it."""

from __future__ import annotations

import struct
from typing import Any

_INTEGERS = (
    (5, "<h", -(2**15), 2**15 - 1),
    (6, "<H", 0, 2**16 - 1),
    (7, "<i", -(2**31), 2**31 - 1),
    (8, "<I", 0, 2**32 - 1),
    (9, "<q", -(2**63), 2**63 - 1),
    (10, "<Q", 0, 2**64 - 1),
)


def binary_json(value: Any) -> bytes:
    kind, data = _packed(value)
    return bytes([kind]) + data


def _packed(value: Any) -> tuple[int, bytes]:
    if value is None or isinstance(value, bool):
        return 4, bytes([0 if value is None else 1 if value else 2])
    if isinstance(value, int):
        return next((k, struct.pack(form, value)) for k, form, low, high in _INTEGERS if low <= value <= high)
    if isinstance(value, float):
        return 11, struct.pack("<d", value)
    if isinstance(value, str):
        raw = value.encode()
        length, left = b"", len(raw)
        while left >= 0x80:
            length += bytes([left & 0x7F | 0x80])
            left >>= 7
        return 12, length + bytes([left]) + raw
    small = _container(value, 2)
    return small if small is not None else _container(value, 4) or (0, b"")


def _container(value: Any, wide: int) -> tuple[int, bytes] | None:
    """None if it does not fit into a small one."""
    is_object = isinstance(value, dict)
    items = sorted(value.items(), key=lambda one: (len(one[0].encode()), one[0].encode())) if is_object else []
    values = [one for _, one in items] if is_object else list(value)
    names = [name.encode() for name, _ in items]
    body = 2 * wide + (wide + 2) * len(names) + (1 + wide) * len(values)
    keys, entries, tail = b"", b"", b"".join(names)
    try:
        at = body
        for name in names:
            keys += at.to_bytes(wide, "little") + len(name).to_bytes(2, "little")
            at += len(name)
        for one in values:
            kind, data = _packed(one)
            inlined = kind in (4, 5, 6) or (wide == 4 and kind in (7, 8))
            entries += bytes([kind]) + (
                data.ljust(wide, b"\0") if inlined else (body + len(tail)).to_bytes(wide, "little")
            )
            tail += b"" if inlined else data
        size = (body + len(tail)).to_bytes(wide, "little")
    except OverflowError:
        return None
    return (0 if is_object else 2) + (wide == 4), len(values).to_bytes(wide, "little") + size + keys + entries + tail
