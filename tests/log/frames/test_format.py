"""The frame's bytes are a promise to other versions: they are pinned here."""

from __future__ import annotations

import random

import pytest

from penstock.errors import NotSupported
from penstock.log import StateChange
from penstock.log.frames.format import BadFrame, crc32c, decode_changes, decode_header, encode_frame, verify_body

CHANGES = (StateChange(1, b"key", b"value"), StateChange(2, b"gone", None))
GOLDEN = bytes.fromhex(
    "50534631010000000700000000000000030000000000000005000000000000000068e5cf8b0100000010000000000000"
    "040000004c000000908f10ee6e16732c64617461010000000000000001000000000000000068e5cf8b01000003000000"
    "050000006b657976616c7565020000000000000002000000000000000068e5cf8b0100000400000000000000676f6e65"
    "93f59884"
)


def frame() -> bytes:
    buffers, size = encode_frame(7, 3, 5, 1_700_000_000_000, 4096, [b"da", b"ta"], CHANGES)
    raw = b"".join(buffers)
    assert len(raw) == size
    return raw


def test_the_bytes_are_those_of_the_format_page() -> None:
    assert frame() == GOLDEN
    assert crc32c(b"123456789") == 0xE3069283  # CRC32C, not the CRC-32 of zip


def test_a_frame_comes_back() -> None:
    header = decode_header(GOLDEN, 0, 7)
    assert (header.epoch, header.entry_id, header.wall_ms, header.synced_end) == (3, 5, 1_700_000_000_000, 4096)
    assert decode_changes(verify_body(GOLDEN, 0, header), header.wall_ms) == CHANGES


def test_every_flipped_bit_and_every_cut_is_seen() -> None:
    for bit in range(len(GOLDEN) * 8):
        raw = bytearray(GOLDEN)
        raw[bit // 8] ^= 1 << bit % 8
        with pytest.raises((BadFrame, NotSupported)):
            verify_body(bytes(raw), 0, decode_header(bytes(raw), 0, 7))
    for size in range(len(GOLDEN)):
        with pytest.raises(BadFrame):
            verify_body(GOLDEN[:size], 0, decode_header(GOLDEN[:size], 0, 7))
        zeroed = GOLDEN[:size] + bytes(len(GOLDEN) - size)
        if zeroed != GOLDEN:
            with pytest.raises(BadFrame):
                verify_body(zeroed, 0, decode_header(zeroed, 0, 7))


def test_zeros_and_a_frame_of_another_file_never_decode() -> None:
    with pytest.raises(BadFrame):
        decode_header(bytes(4096), 0, 0)
    with pytest.raises(BadFrame, match="belongs to file 7"):
        decode_header(GOLDEN, 0, 8)


def test_large_buffers_of_any_kind_have_the_same_checksum() -> None:
    data = random.Random(1).randbytes(100_000)
    assert crc32c(data) == crc32c(bytearray(data)) == crc32c(memoryview(bytearray(data)))
