"""Checkpoints of another log are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.errors import Corruption
from penstock.log import Log
from penstock.state import (
    BucketState,
)
from tests.state.stores import KEEPING, checkpointed, content, put


def test_a_new_log_in_the_place_of_a_deleted_one_has_no_state(tmp_path: Path) -> None:
    checkpointed(tmp_path)
    kept = {path.name: path.read_bytes() for path in (tmp_path / "log" / "state").iterdir()}
    Log.delete(tmp_path / "log")
    with Log.open(tmp_path / "log", KEEPING) as log:
        state = BucketState.open(log)
        assert content(state) == {}
        for n in range(40):
            put(state, n, "new")
    for name, raw in kept.items():  # the old log's checkpoints come back, at positions that the new log has too
        (tmp_path / "log" / "state" / name).write_bytes(raw)
    with Log.open(tmp_path / "log", KEEPING) as log, pytest.raises(Corruption, match="belong to log"):
        BucketState.open(log)
    expected = checkpointed(tmp_path / "other")
    name = tmp_path / "other" / "log" / "state" / "log"
    name.write_bytes(b"damaged")  # counts as absent
    with Log.open(tmp_path / "other" / "log", KEEPING) as log:
        state = BucketState.open(log)
        assert content(state) == expected
        state.checkpoint()
    assert str(log.uuid).encode() in name.read_bytes()
