"""MySQL's binary JSON, byte by byte."""

from __future__ import annotations

import struct

import pytest

from penstock.binlog.json_binary import jsonb_to_text


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"", "null"),
        (b"\x04\x01", "true"),
        (b"\x05\xff\xff", "-1"),
        (b"\x06\xff\xff", "65535"),
        (b"\x0a" + b"\xff" * 8, "18446744073709551615"),
        (b"\x0b" + struct.pack("<d", 1.5), "1.5"),
        (b'\x0c\x05a"b\xc3\xa9', '"a\\"bé"'),
        (b"\x00\x01\x00\x0c\x00\x0b\x00\x01\x00\x05\x01\x00a", '{"a": 1}'),
        (b"\x02\x03\x00\x0f\x00\x04\x00\x00\x05\x02\x00\x0c\x0d\x00\x01x", '[null, 2, "x"]'),
        (b"\x02\x00\x00\x04\x00", "[]"),
        (b"\x0f\xf6\x04\x04\x02\x8c\x22", "12.34"),
        (b"\x0f\x0a\x08" + (((2024 * 13 + 2) << 22 | 29 << 17) << 24).to_bytes(8, "little"), '"2024-02-29"'),
        (b"\x0f\x0f\x01\xff", '"base64:type15:/w=="'),
    ],
)
def test_values(raw: bytes, text: str) -> None:
    assert jsonb_to_text(raw) == text


def test_damage_is_a_value_error() -> None:
    good = b"\x00\x01\x00\x0c\x00\x0b\x00\x01\x00\x05\x01\x00a"
    for end in range(1, len(good)):
        with pytest.raises(ValueError, match="JSON"):
            jsonb_to_text(good[:end])
    loop = b"\x02\x01\x00\x07\x00\x02\x00\x00"
    with pytest.raises(ValueError, match="JSON"):
        jsonb_to_text(loop)
