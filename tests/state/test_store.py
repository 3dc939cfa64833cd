"""Stores of a state: iterations as of their call, and stores of another state."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.errors import BadInput
from penstock.log import Log
from penstock.state import (
    BucketState,
    TypedStore,
)
from tests.state.stores import KEEPING, ORDERS, content
from tests.support.waiting import LIMIT_SECONDS


def test_iteration_is_stable_while_writes_and_checkpoints_go_on(tmp_path: Path) -> None:
    with Log.open(tmp_path / "log", KEEPING) as log:
        state = BucketState.open(log)
        store = state.store(ORDERS)
        store.write({n: n for n in range(100)}).result(LIMIT_SECONDS)
        state.checkpoint()
        with store.items() as pairs:
            first = [next(pairs) for _ in range(10)]
            store.write({n: None if n % 2 else -n for n in range(100)}).result(LIMIT_SECONDS)
            state.checkpoint()
            state.engine.compact()
            store.write({200: 200}).result(LIMIT_SECONDS)
            assert [*first, *pairs] == [(n, n) for n in range(100)]
        assert content(state) == {n: -n for n in range(0, 100, 2)} | {200: 200}
        assert [key for key, _ in store.range(10, 20)] == [10, 12, 14, 16, 18]
        assert [key for key, _ in store.range(start=95)] == [96, 98, 200]
        assert [key for key, _ in store.range(end=4)] == [0, 2]
        with pytest.raises(StopIteration):
            closed = store.items()
            closed.close()
            next(closed)


def test_a_store_of_another_state_is_refused(tmp_path: Path) -> None:
    with Log.open(tmp_path / "a", KEEPING) as one, Log.open(tmp_path / "b", KEEPING) as other:
        theirs: TypedStore[int, Any] = BucketState.open(other).store(ORDERS)
        state = BucketState.open(one)
        change = state.begin()
        theirs.put(change, 1, 1)
        with pytest.raises(BadInput, match="another state"):
            state.commit(change)
