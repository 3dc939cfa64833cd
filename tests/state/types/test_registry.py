"""The registry of stores: names and numbers, both ways, and records that cannot be read."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from penstock.errors import BadInput, Corruption
from penstock.log import Log
from penstock.state import BucketState, Namespace, StateDescriptor
from penstock.state.types import codecs
from penstock.state.types.registry import REGISTRY, Registry
from tests.support.waiting import LIMIT_SECONDS


def test_namespaces_are_hierarchical_and_go_both_ways(tmp_path: Path) -> None:
    with Log.open(tmp_path / "log") as log:
        state = BucketState.open(log)
        plain = StateDescriptor("s", "o", codecs.text, codecs.u64)
        placed = [dataclasses.replace(plain, table=table, bucket=bucket) for table in ("a", "b") for bucket in (0, 1)]
        for n, descriptor in enumerate([plain, *placed]):
            state.store(descriptor).write({"k": n}).result(LIMIT_SECONDS)
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


@pytest.mark.parametrize("missing", ["id", "operator", "key", "schemas"])
def test_a_registration_that_lacks_a_field_is_damage(missing: str) -> None:
    registry = Registry()
    record = registry.register(StateDescriptor("s", "o", codecs.text, codecs.u64)).document()
    del record[missing]
    with pytest.raises(Corruption, match="a record that cannot be read"):
        Registry([(b"", REGISTRY.encode_value(record))])
