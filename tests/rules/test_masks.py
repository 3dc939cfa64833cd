"""Masks: every value as Python's own hashes have it, for columns of every kind that the encoders know."""

from __future__ import annotations

import hashlib
import hmac
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.rules.masks import masked, masked_column
from penstock.rules.sha256_kernels import hmac_sha256_hex, sha256_hex
from penstock.schema.model import Column
from tests.support.budget import scaled

KEY = b"a key of some length"


def hashed(values: list[bytes], key: bytes | None) -> list[str]:
    source = np.frombuffer(b"".join(values), np.uint8)
    bounds = np.zeros(len(values) + 1, np.int64)
    np.cumsum([len(value) for value in values], out=bounds[1:])
    out = np.empty(64 * len(values), np.uint8)
    if key is None:
        sha256_hex(source, bounds, np.empty(0, np.bool_), out)
    else:
        hmac_sha256_hex(key, source, bounds, np.empty(0, np.bool_), out)
    return [out[64 * at : 64 * at + 64].tobytes().decode() for at in range(len(values))]


def test_every_length_around_a_block() -> None:
    values = [bytes(range(256))[:size] * 2 for size in range(70)]
    assert hashed(values, None) == [hashlib.sha256(value).hexdigest() for value in values]


@pytest.mark.parametrize("size", [1, 16, 63, 64, 65, 200])
def test_keys_of_every_length(size: int) -> None:
    key = bytes(range(1, size + 1))
    values = [b"", b"anna@example.org", b"x" * 500]
    assert hashed(values, key) == [hmac.new(key, value, "sha256").hexdigest() for value in values]


@settings(max_examples=scaled(60))
@given(st.lists(st.binary(max_size=200), min_size=1, max_size=5), st.binary(min_size=1, max_size=100))
def test_any_bytes_and_keys(values: list[bytes], key: bytes) -> None:
    assert hashed(values, key) == [hmac.new(key, value, "sha256").hexdigest() for value in values]


@pytest.mark.parametrize(
    ("column", "kind", "value", "text"),
    [
        (Column("c", "int"), pa.int32(), -12, b"-12"),
        (Column("c", "bigint unsigned"), pa.uint64(), (1 << 64) - 1, b"18446744073709551615"),
        (Column("c", "double"), pa.float64(), 0.5, b"0.5"),
        (Column("c", "varchar(9)"), pa.string(), "ä", "ä".encode()),
        (Column("c", "blob"), pa.binary(), b"\x00\xff", b"\x00\xff"),
        (Column("c", "enum('a','b')", elements=("a", "b")), pa.uint16(), 2, b"b"),
        (Column("c", "set('a','b')", elements=("a", "b")), pa.uint64(), 3, b"a,b"),
        (Column("c", "date"), pa.int32(), 2026 << 9 | 11 << 5 | 17, b"2026-11-17"),
        (Column("c", "time"), pa.int64(), -3_000_000, b"-00:00:03"),
        (Column("c", "year"), pa.int16(), 2026, b"2026"),
        (Column("c", "decimal(65,0)"), pa.string(), "9" * 65, b"9" * 65),
        (Column("c", "json"), pa.string(), '{"a": 1}', b'{"a": 1}'),
    ],
)  # fmt: skip
def test_the_text_of_a_value(column: Column, kind: pa.DataType, value: Any, text: bytes) -> None:
    made = masked(column, "hmac-sha256", pa.array([None, value, value], kind).slice(0, 2), KEY)
    assert made.to_pylist() == [None, hmac.new(KEY, text, "sha256").hexdigest()]
    assert masked(column, "sha256", pa.array([value], kind), KEY).to_pylist() == [hashlib.sha256(text).hexdigest()]


def test_a_slice_of_a_column() -> None:
    values = pa.array(["a", None, "bb", "ccc"]).slice(1, 2)
    made = masked(Column("c", "text"), "sha256", values, b"")
    assert made.to_pylist() == [None, hashlib.sha256(b"bb").hexdigest()]


def test_what_the_column_becomes() -> None:
    column = Column("c", "varchar(9)", False, True, "latin1", default="x")
    assert masked_column(column, "sha256") == Column("c", "char(64)", False, True, "ascii")
    assert masked_column(column, "redact") == Column("c", "char(3)", False, True, "ascii")
    assert masked_column(column, "null") == Column("c", "varchar(9)", True, True, "latin1")
    assert masked(column, "redact", pa.array(["x", None]), b"").to_pylist() == ["***", None]
    assert masked(column, "null", pa.array(["x", None]), b"").to_pylist() == [None, None]
