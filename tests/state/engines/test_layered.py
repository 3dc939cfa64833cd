"""Layers in memory: encoded changes, and large layers in order."""

from __future__ import annotations

import random

import pytest

from penstock.errors import Corruption, NotSupported
from penstock.log import StateChange
from penstock.log.frames.format import encode_changes
from penstock.state.engines.opening import open_engine
from tests.state.engines.native.memory import content


def test_many_encoded_changes_are_applied_as_few_are() -> None:
    chosen = random.Random(1)
    changes = [
        StateChange(
            chosen.choice((1, 1, 1, 2, 1 << 40)), b"%d" % chosen.randrange(500), chosen.choice((None, b"", chosen.randbytes(90)))
        )
        for _ in range(4000)
    ]  # fmt: skip
    one, other = open_engine("native", None), open_engine("native", None)
    one.apply(changes)
    raw = encode_changes(changes, 7)
    assert len(raw) > 64 << 10
    assert other.apply_encoded(raw) == len(changes)
    assert content(one) == content(other)
    assert one.changed_bytes == other.changed_bytes
    for wrong, error in ((raw[:-1], Corruption), (raw + raw[:8] + b"\x07" + raw[9:], NotSupported)):
        with pytest.raises(error):
            other.apply_encoded(wrong)
    assert content(one) == content(other), "all of them or none"


def test_a_large_layer_is_iterated_in_order() -> None:
    engine = open_engine("native", None)
    keys = [random.Random(3).randbytes(9) + b"%d" % number for number in range(30_000)]
    engine.apply_edits({1: dict.fromkeys(keys, b"v")})
    with engine.create_snapshot() as snapshot:
        assert [key for key, _ in snapshot.iterate(1)] == sorted(keys)
