"""Codecs: order of keys, values that come back as they were, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import BadInput, Corruption
from penstock.state import model
from penstock.state.types import codecs
from tests.state.types.models import OrderV1, OrderV2

KEYS = st.tuples(st.text(), st.binary(), st.integers(-(1 << 63), (1 << 63) - 1), st.integers(0, (1 << 64) - 1))


CODEC = codecs.tuple_of(codecs.text, codecs.raw, codecs.i64, codecs.u64)


@given(a=KEYS, b=KEYS)
def test_encoded_keys_keep_their_order(a: tuple[Any, ...], b: tuple[Any, ...]) -> None:
    assert CODEC.decode(CODEC.encode(a)) == a
    plain_a, plain_b = (a[0].encode(), *a[1:]), (b[0].encode(), *b[1:])
    assert (CODEC.encode(a) < CODEC.encode(b)) == (plain_a < plain_b)
    assert CODEC.encode(a).startswith(CODEC.prefix(a[:2]))
    assert a[:2] == b[:2] or not CODEC.encode(b).startswith(CODEC.prefix(a[:2]))


def test_codecs_refuse_what_does_not_fit() -> None:
    with pytest.raises(BadInput):
        codecs.u64.encode(-1)
    with pytest.raises(BadInput):
        codecs.i64.encode(1 << 63)
    with pytest.raises(Corruption):
        codecs.u64.decode(b"short")
    with pytest.raises(BadInput):
        CODEC.encode(("a", b"b"))


SIMPLE = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 63) - 1) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)


@given(value=SIMPLE)
def test_json_and_msgpack_give_back_what_they_got(value: Any) -> None:
    assert codecs.json.decode(codecs.json.encode(value)) == value
    assert codecs.msgpack.decode(codecs.msgpack.encode(value)) == value


@given(value=st.binary() | st.dictionaries(st.integers(0, 1000) | st.binary(max_size=4), st.binary(), max_size=4))
def test_msgpack_has_bytes(value: Any) -> None:
    assert codecs.msgpack.decode(codecs.msgpack.encode(value)) == value


def test_codecs_refuse_what_they_cannot_hold_and_what_is_damaged() -> None:
    for codec in (codecs.json, codecs.msgpack):
        with pytest.raises(BadInput):
            codec.encode(object())
        with pytest.raises(Corruption):
            codec.decode(b"\xc1{")
        with pytest.raises(BadInput, match="no prefix order"):
            codec.prefix({})
    with pytest.raises(BadInput):
        codecs.msgpack.encode(OrderV1(1, "no models without a model codec"))
    with pytest.raises(BadInput):
        codecs.msgpack.encode(1 << 80)
    with pytest.raises(Corruption):
        codecs.text.decode(b"\xff")
    with pytest.raises(BadInput, match="is a OrderV2, not a OrderV1"):
        model(OrderV1).encode(OrderV2(1, []))  # type: ignore[arg-type]
    with pytest.raises(Corruption, match="does not fit its type: item"):
        model(OrderV1).decode(b'{"number": 1}')
    with pytest.raises(BadInput, match="cannot be written as u64"):
        model(OrderV1, codecs.u64)
    with pytest.raises(BadInput, match="cannot be stored"):
        model(type("Odd", (), {"__annotations__": {"x": object}}))


def test_codecs_are_found_by_their_names() -> None:
    nested = codecs.tuple_of(codecs.text, codecs.tuple_of(codecs.u64, codecs.i64), codecs.raw)
    found = codecs.by_name(nested.name)
    assert found is not None
    assert found.decode(nested.encode(("a", (1, -1), b"x"))) == ("a", (1, -1), b"x")
    assert codecs.by_name("table-schema") is None
    assert codecs.by_name("tuple(text,table-schema)") is None
