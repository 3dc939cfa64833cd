"""The registry of stores: names and numbers, both ways, and records that cannot be read."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from penstock.errors import BadInput, Corruption
from penstock.log import Log
from penstock.state import BucketState, Namespace, StateDescriptor, StateSettings
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


@pytest.mark.parametrize("engine", ["native", "rocksdb"])
def test_the_number_of_a_dropped_store_is_never_given_again(tmp_path: Path, engine: str) -> None:
    """Whoever was about to write to the dropped store would write into the new one. A truncation takes back only the
    drops after its position."""
    settings = StateSettings(engine=engine, checkpoint_at_roll=False, scrub_interval_seconds=None)
    descriptor = StateDescriptor("s", "o", codecs.text, codecs.u64)
    dropped: set[int] = set()

    def number_of_new(state: BucketState) -> int:
        store = state.store(descriptor)
        store.write({"k": 1}).result(LIMIT_SECONDS)
        assert store.raw.number is not None
        return store.raw.number

    def drop(state: BucketState) -> None:
        number = number_of_new(state)
        assert number not in dropped
        state.drop_store(state.store(descriptor)).result(LIMIT_SECONDS)
        dropped.add(number)
        assert state.registry.registration_of(number) is not None

    for step in ("nothing", "checkpoint", "compact", "truncate", "truncate to the checkpoint", "nothing"):
        with Log.open(tmp_path / "log") as log:
            state = BucketState.open(log, settings)
            assert {one.number for one in state.registry.dropped()} == dropped
            for _ in range(2):
                drop(state)  # the newest number of all is that of a dropped store
            if step in ("checkpoint", "compact"):
                state.checkpoint()
            if step == "compact":
                state.engine.compact()
            if step.startswith("truncate"):
                if step.endswith("checkpoint"):
                    state.checkpoint()
                end = log.append(b"entry").result(LIMIT_SECONDS)
                number = number_of_new(state)
                state.drop_store(state.store(descriptor)).result(LIMIT_SECONDS)
                state.truncate(end)
                assert state.registry.registration_of(number) is None
            assert {one.number for one in state.registry.dropped()} == dropped
            assert state.stores() == []
            drop(state)
    assert len(dropped) == 18
