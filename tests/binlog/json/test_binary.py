"""MySQL's binary JSON, byte by byte."""

from __future__ import annotations

import struct
import time

import pytest

from penstock.binlog.json.binary import jsonb_to_text


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
        # 35 digits before the point are logged as 36, four groups of nine.
        (
            b"\x0f\xf6\x20" + bytes.fromhex("421e85f5e0ff3b9ac9ff3b9ac9ff3b9ac9ff075bcd1500bc614e35b7bf87037a"),
            "99999999999999999999999999999999999.123456789012345678901234567890",
        ),
        (b"\x0c\x03\xed\xa0\xbd", '"\ufffd"'),  # half of a surrogate pair
        (b"\x0f\x0a\x08" + (((2024 * 13 + 2) << 22 | 29 << 17) << 24).to_bytes(8, "little"), '"2024-02-29"'),
        (b"\x0f\x0f\x01\xff", '"base64:type15:/w=="'),
    ],
)
def test_values(raw: bytes, text: str) -> None:
    assert jsonb_to_text(raw) == text


@pytest.mark.parametrize(
    "raw", [b"\x04\x02\x8c", b"\x04\x02\x8c\x22\0", b"\x04\x02\xff\xff", b"\2\3\x80", b"\x52\0\x80" + bytes(39)]
)
def test_impossible_decimals(raw: bytes) -> None:
    with pytest.raises(ValueError, match="impossible decimal"):
        jsonb_to_text(b"\x0f\xf6" + bytes([len(raw)]) + raw)


def test_damage_is_a_value_error() -> None:
    good = b"\x00\x01\x00\x0c\x00\x0b\x00\x01\x00\x05\x01\x00a"
    for end in range(1, len(good)):
        with pytest.raises(ValueError, match="JSON"):
            jsonb_to_text(good[:end])
    loop = b"\x02\x01\x00\x07\x00\x02\x00\x00"
    with pytest.raises(ValueError, match="JSON"):
        jsonb_to_text(loop)


def _array(kind: int, data: bytes, count: int) -> bytes:
    """A small array of `count` elements of one kind that all point to the same bytes."""
    head = 4 + 3 * count
    return struct.pack("<HH", count, head + len(data)) + struct.pack("<BH", kind, head) * count + data


@pytest.mark.parametrize("depth", [16, 90])
def test_elements_that_share_their_bytes_do_not_multiply(depth: int) -> None:
    data = b"\0\0\4\0"
    for _ in range(depth):
        data = _array(2, data, 2)
    began = time.process_time()
    with pytest.raises(ValueError, match="share"):
        jsonb_to_text(b"\2" + data)
    assert time.process_time() - began < 0.5


def test_one_string_for_many_elements_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match="share"):
        jsonb_to_text(b"\2" + _array(12, b"\x80\x20" + b"x" * 4096, 4000))


def test_the_largest_texts_that_a_server_stores_are_read() -> None:
    control = b"\1" * 120
    assert jsonb_to_text(b"\x0c\x78" + control) == '"' + "\\u0001" * 120 + '"'
    numbers = struct.pack("<HH", 5000, 4 + 3 * 5000) + struct.pack("<Bh", 5, -32768) * 5000
    assert jsonb_to_text(b"\2" + numbers) == f"[{', '.join(['-32768'] * 5000)}]"


def test_a_large_document_is_read_in_linear_time() -> None:
    def seconds(count: int) -> float:
        head = 8 + 5 * count
        entries = b"".join(struct.pack("<BI", 11, head + 8 * i) for i in range(count))
        raw = b"\3" + struct.pack("<II", count, head + 8 * count) + entries + struct.pack("<d", 1.5) * count
        began = time.process_time()
        assert jsonb_to_text(raw).count("1.5") == count
        return time.process_time() - began

    seconds(1000)
    assert seconds(160_000) < 40 * max(0.01, seconds(10_000))  # 16 times as large; it was 256 times as slow


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (1.5, "1.5"),
        (-3.0, "-3.0"),
        (1e14, "100000000000000.0"),
        (123456789012345.6, "123456789012345.6"),
        (1e15, "1e15"),
        (1e16, "1e16"),
        (-1.25e20, "-1.25e20"),
        (1234567890123456.0, "1.234567890123456e15"),
        (0.00001, "0.00001"),
        (1.5e-5, "0.000015"),
        (1e-15, "0.000000000000001"),
        (1e-16, "1e-16"),
        (-2.5e-300, "-2.5e-300"),
        (1.7976931348623157e308, "1.7976931348623157e308"),
    ],
)
def test_doubles_are_printed_as_the_server_prints_them(value: float, text: str) -> None:
    assert jsonb_to_text(b"\x0b" + struct.pack("<d", value)) == text
    assert float(text) == value
