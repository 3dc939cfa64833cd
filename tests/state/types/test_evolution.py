"""Codecs, and stores that one program wrote and another one reads: as they are, after migration, or refused by name."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
from pathlib import Path
from typing import Any

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import BadInput, Corruption, NotSupported
from penstock.log import Log
from penstock.state import BucketState, Compatibility, Migration, Namespace, StateDescriptor, model
from penstock.state.types import codecs
from penstock.state.types.descriptor import SCHEMA_MAX


@dataclasses.dataclass
class OrderV1:
    number: int
    item: str


@dataclasses.dataclass
class OrderV2:
    number: int
    items: list[str]


class OrderV3(pydantic.BaseModel):
    number: int
    items: list[str]
    when: datetime.datetime | None = None
    price: decimal.Decimal = decimal.Decimal("0")


V1: StateDescriptor[int, OrderV1] = StateDescriptor("orders", "shop", codecs.u64, model(OrderV1))
TO_2 = Migration(1, model(OrderV1), lambda old: OrderV2(old.number, [old.item]))
V2: StateDescriptor[int, OrderV2] = StateDescriptor(
    "orders", "shop", codecs.u64, model(OrderV2), schema_version=2, migrations=(TO_2,)
)
TO_3 = Migration(2, model(OrderV2), lambda old: OrderV3(number=old.number, items=old.items))
V3: StateDescriptor[int, OrderV3] = StateDescriptor(
    "orders", "shop", codecs.u64, model(OrderV3, codecs.msgpack), schema_version=3, migrations=(TO_2, TO_3)
)


def test_values_are_migrated_on_read_and_written_in_the_new_schema(tmp_path: Path) -> None:
    with Log.open(tmp_path / "log") as log:
        state = BucketState.open(log)
        assert state.verdict(V1) is None
        state.get_or_create_store(V1).write({1: OrderV1(1, "pipe"), 2: OrderV1(2, "valve")}).result(5)
    with Log.open(tmp_path / "log") as log:
        state = BucketState.open(log)
        assert state.verdict(V1) == (Compatibility.AS_IS, "", "")
        assert state.verdict(V2) == (Compatibility.AFTER_MIGRATION, "", "")
        store2 = state.get_or_create_store(V2)
        assert store2.get(1) == OrderV2(1, ["pipe"])
        assert state.verdict(V1) == (Compatibility.AS_IS, "", "")  # reading alone changes nothing
        store2.write({2: OrderV2(2, ["valve", "seal"])}).result(5)
        verdict = state.verdict(V1)
        assert verdict is not None
        assert verdict.compatibility is Compatibility.INCOMPATIBLE
        with pytest.raises(NotSupported, match="was written with schema 2; this program knows it up to 1"):
            state.get_or_create_store(V1)
        state.checkpoint()
    with Log.open(tmp_path / "log") as log:
        state = BucketState.open(log)
        store3 = state.get_or_create_store(V3)
        assert dict(store3.items()) == {
            1: OrderV3(number=1, items=["pipe"]),
            2: OrderV3(number=2, items=["valve", "seal"]),
        }
        when = datetime.datetime(2026, 11, 16, tzinfo=datetime.UTC)
        order = OrderV3(number=3, items=[], when=when, price=decimal.Decimal("1.10"))
        store3.write({3: order}).result(5)
        assert store3.get(3) == order
        (registration,) = state.stores()
        assert sorted(registration.schemas) == [1, 2, 3]
        assert registration.schemas[3].value == "model(msgpack)"
        assert registration.schemas[1].fields is not None  # the writer's schema is stored


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    with Log.open(tmp_path / "log") as log:
        state = BucketState.open(log)
        state.get_or_create_store(V1).write({1: OrderV1(1, "pipe")}).result(5)
        without = dataclasses.replace(V3, migrations=(TO_3,))
        with pytest.raises(NotSupported, match="holds schema 1, and there is no migration from schema 1 to 2"):
            state.get_or_create_store(without)
        gap = dataclasses.replace(V3, migrations=(TO_2,))
        with pytest.raises(NotSupported, match="no migration from schema 2 to 3"):
            state.get_or_create_store(gap)
        changed = StateDescriptor("orders", "shop", codecs.u64, model(OrderV2))
        with pytest.raises(NotSupported, match="fields item, items changed"):
            state.get_or_create_store(changed)
        other_old = dataclasses.replace(V2, migrations=(Migration(1, codecs.json, lambda old: old),))
        with pytest.raises(NotSupported, match=r"schema 1 was written as model\(json\), and its migration reads json"):
            state.get_or_create_store(other_old)
        with pytest.raises(NotSupported, match="keys must stay byte-stable"):
            state.get_or_create_store(dataclasses.replace(V1, key=codecs.i64))
        # A value of a schema that the registry does not know: damage, or a program that went past it.
        with pytest.raises(NotSupported, match="a value has schema 7; this program knows it up to 1"):
            V1.decode_value(dataclasses.replace(V1, schema_version=7).encode_value(OrderV1(1, "x")))
        with pytest.raises(NotSupported, match="register the migration of schema 0"):
            V1.decode_value(dataclasses.replace(V1, schema_version=0).encode_value(OrderV1(1, "x")))


def test_overflow_is_refused_before_the_append(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BadInput, match="schema_version"):
        StateDescriptor("s", "o", codecs.u64, codecs.raw, schema_version=SCHEMA_MAX + 1)
    with pytest.raises(BadInput, match="do not lead to schema 2"):
        dataclasses.replace(V2, migrations=(TO_3,))
    for module in ("penstock.state.types.descriptor", "penstock.state.changes"):
        monkeypatch.setattr(f"{module}.BODY_BYTES_MAX", 1000)
    with Log.open(tmp_path / "log") as log:
        state = BucketState.open(log)
        store = state.store(StateDescriptor("s", "o", codecs.u64, codecs.raw))
        raw = state.raw_store("r", "o")
        store.write({1: b"x"}).result(5)
        end = log.end()
        with pytest.raises(BadInput, match="too large"):
            store.write({1: bytes(1001)})
        with pytest.raises(BadInput, match="too large"):
            raw.write({b"k": bytes(1001)})
        with pytest.raises(BadInput, match="too large"):
            raw.write({b"%d" % n: bytes(90) for n in range(10)})
        with pytest.raises(BadInput, match="are bytes"):
            raw.write({b"k": "text", b"l": b"x"})  # type: ignore[dict-item]
        assert log.end() == end
        assert store.get(1) == b"x"
        assert raw.get(b"k") is None


def test_namespaces_are_hierarchical_and_go_both_ways(tmp_path: Path) -> None:
    with Log.open(tmp_path / "log") as log:
        state = BucketState.open(log)
        plain = StateDescriptor("s", "o", codecs.text, codecs.u64)
        placed = [dataclasses.replace(plain, table=table, bucket=bucket) for table in ("a", "b") for bucket in (0, 1)]
        for n, descriptor in enumerate([plain, *placed]):
            state.store(descriptor).write({"k": n}).result(5)
    with Log.open(tmp_path / "log") as log:
        state = BucketState.open(log)
        for n, descriptor in enumerate([plain, *placed]):
            assert state.store(descriptor).get("k") == n
            number = state.registry.number_of(descriptor.namespace)
            assert state.registry.namespace_of(number) == descriptor.namespace
        assert str(placed[3].namespace) == "b/1/o/s"
        assert str(plain.namespace) == "o/s"
        with pytest.raises(BadInput, match="there is no store o/t"):
            state.registry.number_of(Namespace("", 0, "o", "t"))
        with pytest.raises(Corruption, match="namespace 9"):
            state.registry.namespace_of(9)


def test_changes_carry_the_record_that_made_them(tmp_path: Path) -> None:
    with Log.open(tmp_path / "log") as log:
        state = BucketState.open(log)
        store = state.store(StateDescriptor("s", "o", codecs.text, codecs.u64))
        change = state.begin()
        store.put(change, "before", 1)
        store.put(change.at(3, 1_700_000_000_000), "third", 2)
        store.delete(change.at(4), "fourth")
        position = state.commit(change, b"entry").result(5)
        (entry,) = log.read(position, position)
        _, before, third, fourth = entry.changes
        assert (before.delta, third.delta, fourth.delta) == (0, 3, 4)
        assert third.timestamp == 1_700_000_000_000
        assert fourth.value is None
        assert abs((before.timestamp or entry.wall_ms) - entry.wall_ms) < 60_000
        with pytest.raises(BadInput):
            change.at(1 << 32)


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
