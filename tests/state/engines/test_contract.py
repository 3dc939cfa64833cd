"""What every state engine promises (engines/engine.py) of changes and checkpoints, shown on both."""

from __future__ import annotations

import random

import pytest

from penstock.errors import BadInput, Closed, NotSupported
from penstock.log import Position, StateChange
from penstock.log.frames.format import encode_changes
from penstock.state.engines.opening import open_engine
from penstock.state.settings import StateSettings
from tests.state.engines.opener import Opener, checkpoint, content, put


def test_what_was_applied_is_read(opened: Opener) -> None:
    engine = opened()
    assert engine.position is None
    assert not engine.damaged
    put(engine, b="2", a="1")
    engine.apply([StateChange(2, b"a", b"other"), StateChange(1, b"c", b""), StateChange(1, b"b", None)])
    assert engine.get(1, b"a") == b"1"
    assert engine.get(1, b"b") is None
    assert engine.get(1, b"c") == b"", "an empty value is a value"
    assert engine.get(2, b"a") == b"other"
    assert engine.get(3, b"a") is None
    assert content(engine) == {b"a": b"1", b"c": b""}


def test_the_three_ways_to_apply_are_one(opened: Opener) -> None:
    changes = [StateChange(1, b"k%d" % (i % 7), b"v%d" % i if i % 3 else None) for i in range(50)]
    changes += [StateChange(9, b"x", b"y")]
    one = opened()
    one.apply(changes)
    engines = [open_engine(opened.name, None) for _ in range(2)]
    assert engines[0].apply_encoded(encode_changes(changes, 5)) == len(changes)
    edits: dict[int, dict[bytes, bytes | None]] = {}
    for change in changes:
        edits.setdefault(change.namespace, {})[change.key] = change.value
    engines[1].apply_edits(edits)
    for other in engines:
        assert content(other) == content(one)
        assert content(other, 9) == {b"x": b"y"}


def test_a_checkpoint_is_there_after_a_reopen(opened: Opener) -> None:
    engine = opened()
    put(engine, a="1", b="2", c="3")
    checkpoint(engine, 4)
    put(engine, b=None, d="4")
    checkpoint(engine, 9)
    put(engine, lost="with the process")
    assert engine.changed_bytes > 0
    engine.close()

    again = opened()
    assert again.position == Position(1, 9)
    assert again.changed_bytes == 0
    assert content(again) == {b"a": b"1", b"c": b"3", b"d": b"4"}
    assert [again.get(1, key) for key in (b"a", b"b", b"c", b"d", b"lost")] == [b"1", None, b"3", b"4", None]
    assert [info.position.entry_id for info in again.checkpoints()] == [9, 4]
    assert again.checkpoints()[0].bytes_written > 0
    assert list(again.verify()) == []


def test_a_frozen_state_knows_nothing_of_later_changes(opened: Opener) -> None:
    engine = opened()
    put(engine, a="1")
    frozen = engine.freeze()
    put(engine, a="2", b="x")
    engine.write(frozen, Position(1, 0))
    assert content(engine) == {b"a": b"2", b"b": b"x"}
    engine.close()
    assert content(opened()) == {b"a": b"1"}


def test_a_frozen_state_that_was_not_written_is_part_of_the_next(opened: Opener) -> None:
    engine = opened()
    put(engine, a="1", gone="x")
    engine.freeze()
    put(engine, b="2", gone=None)
    engine.write(engine.freeze(), Position(1, 1))
    engine.close()
    assert content(opened()) == {b"a": b"1", b"b": b"2"}


def test_frozen_states_are_written_in_their_order(opened: Opener) -> None:
    engine = opened()
    put(engine, a="1")
    first = engine.freeze()
    put(engine, a="2")
    second = engine.freeze()
    put(engine, a="3")
    engine.write(first, Position(1, 0))
    engine.write(second, Position(1, 1))
    engine.close()
    for entry, value in ((0, b"1"), (1, b"2")):
        assert opened(read_only=True, at=Position(1, entry)).get(1, b"a") == value


def test_a_checkpoint_without_changes_moves_the_position(opened: Opener) -> None:
    engine = opened()
    put(engine, a="1")
    checkpoint(engine, 1)
    checkpoint(engine, 7)
    checkpoint(engine, 7)
    assert [info.position.entry_id for info in engine.checkpoints()] == [7, 1]
    engine.close()
    again = opened()
    assert (again.position, content(again)) == (Position(1, 7), {b"a": b"1"})
    with pytest.raises(BadInput, match="below the one at 1:7"):
        checkpoint(again, 6)


def test_as_many_are_kept_as_was_asked_for(opened: Opener) -> None:
    opened.settings = StateSettings(checkpoints_kept=3, merge_in_background=False)
    engine = opened()
    for entry in range(6):
        put(engine, last=str(entry), **{f"k{entry}": "v"})
        checkpoint(engine, entry)
    assert [info.position.entry_id for info in engine.checkpoints()] == [5, 4, 3]
    engine.close()
    for entry in range(6):
        at = opened(read_only=True, at=Position(1, entry))
        if entry < 3:
            assert at.position is None
        else:
            assert (at.position, at.get(1, b"last")) == (Position(1, entry), b"%d" % entry)
            assert len(content(at)) == entry + 2


def test_a_truncation_takes_the_state_back(opened: Opener) -> None:
    engine = opened()
    for entry in range(3):
        put(engine, **{f"k{entry}": "v"})
        checkpoint(engine, entry * 10)
    put(engine, tail="v")
    frozen = engine.freeze()
    assert engine.drop_after(Position(1, 15)) == Position(1, 10)
    assert engine.position == Position(1, 10)
    assert set(content(engine)) == {b"k0", b"k1"}
    with pytest.raises(BadInput, match="freeze again"):
        engine.write(frozen, Position(1, 30))
    put(engine, other="history")
    checkpoint(engine, 12)
    engine.close()
    again = opened()
    assert (again.position, set(content(again))) == (Position(1, 12), {b"k0", b"k1", b"other"})
    assert again.drop_after(Position(0, 0)) is None
    assert content(again) == {}
    again.close()
    assert opened().position is None


def test_an_owner_that_opens_below_drops_what_is_above(opened: Opener) -> None:
    engine = opened()
    for entry in (1, 2):
        put(engine, last=str(entry))
        checkpoint(engine, entry)
    engine.close()
    again = opened(at=Position(1, 1))
    assert (again.position, again.get(1, b"last")) == (Position(1, 1), b"1")
    again.close()
    assert opened().position == Position(1, 1)


def test_a_reader_beside_the_owner(opened: Opener) -> None:
    engine = opened()
    put(engine, a="1")
    checkpoint(engine, 0)
    reader = opened(read_only=True)
    for entry in range(1, 6):
        put(engine, a=str(entry + 1), **{f"k{entry}": "v"})
        checkpoint(engine, entry)
    assert (reader.position, content(reader)) == (Position(1, 0), {b"a": b"1"}), "pruned files stay under a reader"
    put(reader, a="follows")
    assert reader.get(1, b"a") == b"follows"
    for refused in (lambda: checkpoint(reader, 9), lambda: reader.drop_after(Position(0, 0)), reader.compact):
        with pytest.raises(NotSupported):
            refused()
    assert opened(read_only=True).position == Position(1, 5)
    assert engine.get(1, b"a") == b"6"


def test_flush_and_compact_change_nothing_that_is_read(opened: Opener) -> None:
    engine = opened()
    model: dict[bytes, bytes] = {}
    for entry in range(8):
        for number in range(entry, 40, 3):
            model[b"k%d" % number] = b"%d" % entry
        engine.apply([StateChange(1, key, value) for key, value in model.items()])
        engine.apply([StateChange(1, b"k%d" % entry, None)])
        model.pop(b"k%d" % entry, None)
        checkpoint(engine, entry)
        engine.flush()
        assert content(engine) == model
    engine.compact()
    assert content(engine) == model
    assert engine.estimate_size() > 0
    assert [info.position.entry_id for info in engine.checkpoints()] == [7, 6]
    engine.close()
    assert content(opened()) == model


def test_the_estimate_grows_and_shrinks_with_the_state(opened: Opener) -> None:
    engine = opened()
    assert engine.estimate_size() < 100
    engine.apply([StateChange(1, b"k%04d" % number, bytes(1000)) for number in range(500)])
    assert 400_000 < engine.estimate_size() < 800_000
    checkpoint(engine, 0)
    if opened.name == "native":  # RocksDB compresses the zeros
        assert 400_000 < engine.estimate_size() < 800_000
    engine.apply([StateChange(1, b"k%04d" % number, None) for number in range(500)])
    for entry in (1, 2, 3):
        checkpoint(engine, entry)
    engine.compact()
    assert engine.estimate_size() < 100_000
    assert content(engine) == {}


def test_reads_after_close_say_so(opened: Opener) -> None:
    engine = opened()
    put(engine, a="1")
    checkpoint(engine, 0)
    snapshot = engine.create_snapshot()
    engine.close()
    engine.close()
    with pytest.raises(Closed):
        engine.get(1, b"a")
    with pytest.raises(Closed):
        put(engine, a="2")
    assert snapshot.get(1, b"a") == b"1", "snapshots outlive the engine"
    snapshot.close()


@pytest.mark.parametrize("seed", range(6))
def test_random_steps_against_a_dict(opened: Opener, seed: int) -> None:
    chosen = random.Random(seed)
    engine = opened()
    model: dict[tuple[int, bytes], bytes] = {}
    at_checkpoint: dict[int, dict[tuple[int, bytes], bytes]] = {}
    entry = 0
    for _ in range(120):
        step = chosen.random()
        if step < 0.7:
            changes = []
            for _ in range(chosen.choice((1, 3, 40))):
                key = (
                    chosen.choice((1, 2, 300)),
                    chosen.choice((b"a", b"bb", b"ccccccccc")) + bytes([chosen.randrange(30)]),
                )
                if chosen.random() < 0.3:
                    changes.append(StateChange(*key, None))
                    model.pop(key, None)
                else:
                    value = chosen.randbytes(chosen.choice((0, 5, 5000)))
                    changes.append(StateChange(*key, value))
                    model[key] = value
            engine.apply(changes)
        elif step < 0.85:
            entry += 1
            checkpoint(engine, entry)
            at_checkpoint[entry] = dict(model)
        elif step < 0.92:
            engine.close()
            engine = opened(verify=chosen.random() < 0.5)
            model = dict(at_checkpoint.get(entry, {}))
            assert (engine.position.entry_id if engine.position else 0) == entry
        elif step < 0.95:
            engine.compact()
        elif at_checkpoint:
            back = chosen.randrange(max(entry - 1, 0), entry + 1)
            kept = [info.position.entry_id for info in engine.checkpoints() if info.position.entry_id <= back]
            reached = engine.drop_after(Position(1, back))
            assert (reached.entry_id if reached else 0) == (kept[0] if kept else 0)
            entry = kept[0] if kept else 0
            model = dict(at_checkpoint[entry]) if kept else {}
        with engine.create_snapshot() as snapshot:
            for namespace in (1, 2, 300):
                want = sorted((key, value) for (number, key), value in model.items() if number == namespace)
                assert list(snapshot.iterate(namespace)) == want
            for key in chosen.sample(sorted(model), min(5, len(model))):
                assert engine.get(*key) == snapshot.get(*key) == model[key]
    assert list(engine.verify()) == []
