"""What the checkpoints of a state take on the disk: at most twice what is alive in it, parity and manifests included."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from penstock.log import Log
from penstock.state import BucketState, StateSettings
from tests.state.stores import KEEPING
from tests.support.waiting import LIMIT_SECONDS

_KEYS = 10_000
_VALUE_BYTES = 100


@pytest.mark.parametrize("changed", [0.03, 0.3, 1.0], ids=["little changes", "some of it", "everything"])
def test_the_disk_holds_at_most_twice_what_is_alive(tmp_path: Path, changed: float) -> None:
    """After each of many checkpoints, whatever share of the keys changes between them, and after a tenth is deleted."""
    chosen = random.Random(3)
    keys = [b"key %08d" % number for number in range(_KEYS)]
    with Log.open(tmp_path / "log", KEEPING) as log:
        state = BucketState.open(log, StateSettings(checkpoint_bytes=None, checkpoint_at_roll=False))
        store = state.raw_store("disk", "test")
        for turn in range(12):
            change = state.begin()
            for key in chosen.sample(keys, int(_KEYS * changed) if turn else _KEYS):
                store.put(change, key, chosen.randbytes(_VALUE_BYTES))
            state.commit(change).result(LIMIT_SECONDS)
            state.checkpoint()
            state.engine.flush()  # a merge that is due has ended
            _check(tmp_path, len(keys))
        gone, keys = keys[: _KEYS // 10], keys[_KEYS // 10 :]
        for turn in range(3):
            change = state.begin()
            for key in gone if turn == 0 else keys[turn : turn + 1]:
                store.delete(change, key) if turn == 0 else store.put(change, key, bytes(_VALUE_BYTES))
            state.commit(change).result(LIMIT_SECONDS)
            state.checkpoint()
            state.engine.flush()
            _check(tmp_path, len(keys))
        state.close()


def _check(directory: Path, keys: int) -> None:
    live = keys * (len(b"key 00000000") + _VALUE_BYTES)
    size = sum(path.stat().st_size for path in (directory / "log" / "state").iterdir())
    assert size <= 2 * live, f"{size / live:.2f} times what is alive"
