"""Merges: what a checkpoint writes, what the disk holds, and which tombstones stay."""

from __future__ import annotations

import random

from penstock.log import StateChange
from penstock.state.engines.native.format import PAGE_BYTES
from penstock.state.settings import StateSettings
from tests.state.engines.native.memory import at, content
from tests.state.engines.opener import Opener


def test_a_checkpoint_writes_only_what_changed_and_merges_bound_the_disk(native: Opener) -> None:
    engine = native()
    chosen = random.Random(4)
    keys = [b"key %06d" % number for number in range(20_000)]
    engine.apply([StateChange(1, key, bytes(100)) for key in keys])
    first = engine.write(engine.freeze(), at(0))
    live = sum(len(key) + 100 for key in keys)
    manifests = 4 * PAGE_BYTES  # of two checkpoints, two copies each
    for number in range(1, 60):
        engine.apply([StateChange(1, key, chosen.randbytes(100)) for key in chosen.sample(keys, 1000)])
        info = engine.write(engine.freeze(), at(number))
        assert info.bytes_written < first.bytes_written / 10
        assert len(list(native.directory.glob("*.run"))) <= native.settings.merge_runs_max + 4
        assert sum(path.stat().st_size for path in native.directory.iterdir()) < 1.6 * live + manifests
    engine.compact()
    assert sum(path.stat().st_size for path in native.directory.iterdir()) < 1.4 * live + manifests
    assert engine.checkpoints()[0].keys <= len(keys) + 1000


def test_the_disk_is_bounded_though_everything_changes_between_checkpoints(native: Opener) -> None:
    engine = native()
    chosen = random.Random(4)
    keys = [b"key %06d" % number for number in range(20_000)]
    for number in range(5):
        values = {key: chosen.randbytes(100) for key in keys}
        engine.apply_edits({1: values})
        engine.write(engine.freeze(), at(number))
        assert [info.position for info in engine.checkpoints()] == [at(number)] * (2 if number else 1)
        assert sum(path.stat().st_size for path in native.directory.iterdir()) < 1.5 * 110 * len(keys)
        engine.close()
        engine = native()
        assert (engine.position, len(engine.checkpoints())) == (at(number), 2 if number else 1)
        assert [engine.get(1, key) for key in keys[::100]] == [values[key] for key in keys[::100]]
    newest = max(native.directory.glob("*.json"))
    newest.write_bytes(newest.read_bytes()[:100])
    engine.close()
    engine = native()
    assert (engine.position, len(engine.damaged)) == (at(4), 1)


def test_a_merge_that_leaves_the_oldest_run_out_keeps_tombstones(native: Opener) -> None:
    native.settings = StateSettings(merge_in_background=False, merge_ratio=1e9, spare_ratio_max=1e9, merge_runs_max=2)
    engine = native()
    engine.apply([StateChange(1, b"%d" % number, bytes(1000)) for number in range(10)])
    engine.write(engine.freeze(), at(0))
    for number in range(1, 9):
        engine.apply([StateChange(1, b"%d" % number, None), StateChange(1, b"new %d" % number, b"x")])
        engine.write(engine.freeze(), at(number))
    runs = engine._stack.base.runs  # type: ignore[attr-defined]
    assert runs[0].header.oldest_id == runs[0].name.id, "the oldest one was never merged"
    assert any(run.footer.tombstones > 1 for run in runs), "others were"
    assert set(content(engine)) == {(1, b"0"), (1, b"9"), *((1, b"new %d" % number) for number in range(1, 9))}


def test_deleted_keys_leave_the_disk(native: Opener) -> None:
    engine = native()
    engine.apply([StateChange(1, b"%d" % number, bytes(100)) for number in range(1000)])
    engine.write(engine.freeze(), at(0))
    engine.apply([StateChange(1, b"%d" % number, None) for number in range(1000)])
    for number in (1, 2, 3):
        engine.write(engine.freeze(), at(number))
    engine.compact()
    assert list(native.directory.glob("*.run")) == []
    engine.close()
    again = native()
    assert (again.position, content(again)) == (at(3), {})
