"""Stores that one program wrote and another one reads: as they are, after migration, or refused by name."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
from pathlib import Path

import pytest

from penstock.errors import NotSupported
from penstock.log import Log
from penstock.state import BucketState, Compatibility, Migration, StateDescriptor, model
from penstock.state.types import codecs
from tests.state.types.models import TO_2, TO_3, V1, V2, V3, OrderV1, OrderV2, OrderV3
from tests.support.waiting import LIMIT_SECONDS


def test_values_are_migrated_on_read_and_written_in_the_new_schema(tmp_path: Path) -> None:
    with Log.open(tmp_path / "log") as log:
        state = BucketState.open(log)
        assert state.verdict(V1) is None
        state.get_or_create_store(V1).write({1: OrderV1(1, "pipe"), 2: OrderV1(2, "valve")}).result(LIMIT_SECONDS)
    with Log.open(tmp_path / "log") as log:
        state = BucketState.open(log)
        assert state.verdict(V1) == (Compatibility.AS_IS, "", "")
        assert state.verdict(V2) == (Compatibility.AFTER_MIGRATION, "", "")
        store2 = state.get_or_create_store(V2)
        assert store2.get(1) == OrderV2(1, ["pipe"])
        assert state.verdict(V1) == (Compatibility.AS_IS, "", "")  # reading alone changes nothing
        store2.write({2: OrderV2(2, ["valve", "seal"])}).result(LIMIT_SECONDS)
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
        store3.write({3: order}).result(LIMIT_SECONDS)
        assert store3.get(3) == order
        (registration,) = state.stores()
        assert sorted(registration.schemas) == [1, 2, 3]
        assert registration.schemas[3].value == "model(msgpack)"
        assert registration.schemas[1].fields is not None  # the writer's schema is stored


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    with Log.open(tmp_path / "log") as log:
        state = BucketState.open(log)
        state.get_or_create_store(V1).write({1: OrderV1(1, "pipe")}).result(LIMIT_SECONDS)
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
        # A value with a schema that the registry does not have: damage, or a program that wrote without registering it.
        with pytest.raises(NotSupported, match="a value has schema 7; this program knows it up to 1"):
            V1.decode_value(dataclasses.replace(V1, schema_version=7).encode_value(OrderV1(1, "x")))
        with pytest.raises(NotSupported, match="register the migration of schema 0"):
            V1.decode_value(dataclasses.replace(V1, schema_version=0).encode_value(OrderV1(1, "x")))
