"""Changes in a frame: which record made them, and how large they may be."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from penstock.errors import BadInput
from penstock.log import Log
from penstock.state import BucketState, StateDescriptor
from penstock.state.types import codecs
from penstock.state.types.descriptor import SCHEMA_MAX
from tests.state.types.models import TO_3, V2
from tests.support.waiting import LIMIT_SECONDS


def test_changes_carry_the_record_that_made_them(tmp_path: Path) -> None:
    with Log.open(tmp_path / "log") as log:
        state = BucketState.open(log)
        store = state.store(StateDescriptor("s", "o", codecs.text, codecs.u64))
        change = state.begin()
        store.put(change, "before", 1)
        store.put(change.at(3, 1_700_000_000_000), "third", 2)
        store.delete(change.at(4), "fourth")
        position = state.commit(change, b"entry").result(LIMIT_SECONDS)
        (entry,) = log.read(position, position)
        _, before, third, fourth = entry.changes
        assert (before.delta, third.delta, fourth.delta) == (0, 3, 4)
        assert third.timestamp == 1_700_000_000_000
        assert fourth.value is None
        assert abs((before.timestamp or entry.wall_ms) - entry.wall_ms) < 60_000
        with pytest.raises(BadInput):
            change.at(1 << 32)


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
        store.write({1: b"x"}).result(LIMIT_SECONDS)
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
