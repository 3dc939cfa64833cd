"""What every state engine promises (engines/engine.py) of snapshots, shown on both."""

from __future__ import annotations

import gc
import threading
from pathlib import Path

import pytest

from penstock.errors import BadInput, Closed
from penstock.log import Position, StateChange
from penstock.state.engines.engine import StateSnapshot
from penstock.state.engines.opening import open_engine
from penstock.state.settings import StateSettings
from tests.state.engines.opener import Opener, checkpoint, content, put


def test_a_snapshot_stays_while_writes_and_checkpoints_go_on(opened: Opener) -> None:
    engine = opened()
    put(engine, **{f"k{i:03}": "old" for i in range(100)})
    checkpoint(engine, 0)
    put(engine, k000=None, k001="overlay", z="overlay")
    want = {b"k%03d" % i: b"old" for i in range(100)} | {b"k001": b"overlay", b"z": b"overlay"}
    del want[b"k000"]
    with engine.create_snapshot() as snapshot:
        found = snapshot.iterate(1)
        taken = [next(found) for _ in range(10)]
        put(engine, **{f"k{i:03}": None for i in range(100)})
        checkpoint(engine, 1)
        put(engine, more="x", z="new")
        checkpoint(engine, 2)
        engine.compact()
        assert dict(taken + list(found)) == want
        assert dict(snapshot.iterate(1)) == want
        assert snapshot.get(1, b"z") == b"overlay"
        assert snapshot.get(1, b"k000") is None
        assert snapshot.get(1, b"more") is None
        assert snapshot.namespaces() == [1]
    assert content(engine) == {b"more": b"x", b"z": b"new"}


def test_iteration_is_in_byte_order_and_within_its_bounds(opened: Opener) -> None:
    engine = opened()
    keys = [b"", b"\x00", b"\x00\x00", b"a", b"a\x00", b"aa", b"b", b"b\xff", b"c", b"\xff", b"\xff\xff"]
    for number, key in enumerate(keys[::-1]):
        engine.apply([StateChange(5, key, b"%d" % number)])
        if number % 4 == 1:
            checkpoint(engine, number)
    with engine.create_snapshot() as snapshot:
        assert [key for key, _ in snapshot.iterate(5)] == keys
        for first in range(len(keys)):
            for last in range(first, len(keys)):
                found = [key for key, _ in snapshot.iterate(5, keys[first], keys[last])]
                assert found == keys[first:last]
        assert [key for key, _ in snapshot.iterate(5, b"b0")] == keys[7:]
        assert list(snapshot.iterate(4)) == list(snapshot.iterate(6)) == []


def test_a_closed_snapshot_says_so(opened: Opener) -> None:
    engine = opened()
    put(engine, a="1", b="2")
    snapshot = engine.create_snapshot()
    found = snapshot.iterate(1)
    next(found)
    snapshot.close()
    snapshot.close()
    with pytest.raises(Closed):
        snapshot.get(1, b"a")
    with pytest.raises(Closed):
        next(found)
    with pytest.raises(Closed):
        snapshot.iterate(1)


def test_a_forgotten_snapshot_lets_go(opened: Opener) -> None:
    engine = opened()
    for number in range(50):
        put(engine, k=str(number))
        engine.create_snapshot().iterate(1)
    gc.collect()
    engine.create_snapshot().close()
    layers = engine._stack.layers  # type: ignore[attr-defined]
    assert len(layers) < 10, "a layer for each snapshot that ever was"
    assert all(layer.pins == 0 for layer in layers)


def test_snapshots_that_are_kept_each_show_their_own_moment(opened: Opener) -> None:
    engine = opened()
    kept: list[tuple[StateSnapshot, int]] = []
    for number in range(30):
        put(engine, k=str(number), **{f"n{number}": "x"})
        if number % 3 == 0:
            kept.append((engine.create_snapshot(), number))
        else:
            engine.create_snapshot().close()
    for snapshot, number in kept:
        assert snapshot.get(1, b"k") == b"%d" % number
        assert len(list(snapshot.iterate(1))) == number + 2


@pytest.mark.parametrize("other", ["native", "rocksdb", "memory"])
def test_a_state_is_restored_from_a_snapshot(opened: Opener, other: str, tmp_path: Path) -> None:
    source = open_engine("native" if other == "memory" else other, None if other == "memory" else tmp_path / "other")
    source.apply([StateChange(1, b"a", b"restored"), StateChange(7, b"b", b"too"), StateChange(7, b"c", b"x")])
    if other != "memory":
        source.write(source.freeze(), Position(1, 1))
    source.apply([StateChange(7, b"c", None)])
    engine = opened()
    put(engine, a="old", z="old")
    checkpoint(engine, 1)
    put(engine, y="old")
    frozen = engine.freeze()
    with source.create_snapshot() as snapshot:
        engine.restore_from_snapshot(snapshot)
    source.close()
    for _ in range(2):
        assert content(engine) == {b"a": b"restored"}
        assert content(engine, 7) == {b"b": b"too"}
        assert engine.get(1, b"z") is None
        with pytest.raises(BadInput, match="freeze again"):
            engine.write(frozen, Position(1, 2))
        checkpoint(engine, 3)
    engine.close()
    again = opened()
    assert (again.position, content(again), content(again, 7)) == (
        Position(1, 3), {b"a": b"restored"}, {b"b": b"too"},
    )  # fmt: skip


def test_readers_see_whole_states_while_checkpoints_are_written(opened: Opener) -> None:
    """A writer adds the same number to many keys; every snapshot shows them equal, and no get goes back."""
    opened.settings = StateSettings(merge_in_background=True, merge_runs_max=1)
    engine = opened()
    keys = [b"k%02d" % number for number in range(40)]
    engine.apply([StateChange(1, key, b"0") for key in keys])
    wrong: list[str] = []
    stop = threading.Event()

    def read() -> None:
        last = 0
        while not stop.is_set():
            with engine.create_snapshot() as snapshot:
                seen = set(dict(snapshot.iterate(1)).values())
                if len(seen) != 1 or snapshot.get(1, keys[0]) not in seen:
                    wrong.append(f"a snapshot shows {seen}")
            now = int(engine.get(1, keys[7]) or -1)
            if now < last:
                wrong.append(f"{now} after {last}")
            last = now

    thread = threading.Thread(target=read)
    thread.start()
    for number in range(1, 25):
        engine.apply([StateChange(1, key, b"%d" % number) for key in keys])
        checkpoint(engine, number)
    stop.set()
    thread.join()
    engine.flush()
    assert not wrong
