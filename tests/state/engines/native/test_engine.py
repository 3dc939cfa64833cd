"""The native engine beside its readers and over many cycles: files are pruned, and nothing grows."""

from __future__ import annotations

import gc
import os
import tempfile
from pathlib import Path

import pytest

from penstock.files import RealFiles
from penstock.log import StateChange
from penstock.state.engines.native.checkpoints import Checkpoint
from penstock.state.engines.native.engine import NativeEngine
from penstock.state.engines.native.manifest import CheckpointManifest
from penstock.state.engines.opening import open_engine
from penstock.state.engines.overlay import Layer
from penstock.state.settings import StateSettings
from tests.state.engines.native.memory import at, content
from tests.state.engines.opener import Opener


def test_a_state_that_is_restored_while_a_checkpoint_is_written(
    native: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = native()
    assert isinstance(engine, NativeEngine)
    engine.apply([StateChange(1, b"a", b"old")])
    other = open_engine("native", None)
    other.apply([StateChange(1, b"b", b"restored")])
    write = engine._checkpoints.write

    def restore(manifest: CheckpointManifest) -> Checkpoint:
        with other.create_snapshot() as snapshot:
            engine.restore_from_snapshot(snapshot)
        return write(manifest)

    monkeypatch.setattr(engine._checkpoints, "write", restore)
    engine.write(engine.freeze(), at(0))
    monkeypatch.undo()
    assert content(engine) == {(1, b"b"): b"restored"}
    assert native(read_only=True).get(1, b"a") == b"old", "the checkpoint is what it was frozen as"
    engine.write(engine.freeze(), at(1))
    assert content(native(read_only=True)) == {(1, b"b"): b"restored"}


def test_orphans_and_temporary_files_are_pruned(native: Opener) -> None:
    engine = native()
    engine.apply([StateChange(1, b"a", b"b")])
    engine.write(engine.freeze(), at(0))
    for name in ("run-00000000000000aa.run", ".run-00000000000000ab.run.tmp", ".checkpoint-00000000000000ac.json.tmp"):
        (native.directory / name).write_bytes(b"left by a crash")
    (native.directory / "notes.txt").write_text("not ours")
    engine.write(engine.freeze(), at(1))
    names = sorted(path.name for path in native.directory.iterdir())
    assert names == [
        "checkpoint-0000000000000001.json", "checkpoint-0000000000000002.json", "notes.txt", "run-0000000000000001.run",
    ]  # fmt: skip


def test_a_reader_that_opens_while_the_owner_prunes(native: Opener) -> None:
    """The owner removes every file that the reader saw when it first listed the directory."""
    engine = native()
    engine.apply([StateChange(1, b"a", b"0")])
    engine.write(engine.freeze(), at(0))

    class Late(RealFiles):
        looks = 0

        def list(self, directory: Path) -> list[str]:
            names = super().list(directory)
            if names and directory == native.directory:
                self.looks += 1
                if self.looks == 2:  # the first list is to see which engine wrote the files
                    for number in range(1, 4):
                        engine.apply([StateChange(1, b"a", b"%d" % number)])
                        engine.write(engine.freeze(), at(number))
                    engine.compact()
            return names

    late = Late()
    reader = native(read_only=True, files=late)
    assert late.looks > 3
    assert (reader.position, reader.get(1, b"a"), list(reader.damaged)) == (at(3), b"3", [])


def _held() -> tuple[int, int, int]:
    """Open handles, mappings, and layers alive in this process."""
    gc.collect()
    layers = sum(isinstance(thing, Layer) for thing in gc.get_objects())
    return len(os.listdir("/proc/self/fd")), len(Path("/proc/self/maps").read_text().splitlines()), layers


def _rss() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def test_nothing_grows_over_a_thousand_cycles() -> None:
    """Open, change, iterate, checkpoint, merge, drop an unfinished iterator, close. In /dev/shm, where syncs are
    free."""
    shm = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(dir=shm) as directory:
        path = Path(directory) / "state"
        settings = StateSettings(merge_runs_max=1, merge_ratio=0.1)
        begun: tuple[int, int, int] = (0, 0, 0)
        begun_rss = 0
        for number in range(1000):
            engine = open_engine("native", path, settings=settings)
            engine.apply([StateChange(1, b"%d" % (key % 50), b"%d" % number * 20) for key in range(number, number + 9)])
            forgotten = engine.create_snapshot().iterate(1)
            next(forgotten)
            engine.write(engine.freeze(), at(number))
            assert engine.get(1, b"%d" % (number % 50)) == b"%d" % number * 20
            if number % 3 == 0:
                engine.compact()
            engine.close()
            del forgotten
            if number == 200:
                begun, begun_rss = _held(), _rss()
        held = _held()
        assert held[0] <= begun[0]
        assert held[1] <= begun[1] + 10
        assert held[2] <= begun[2]
        assert _rss() < begun_rss + (16 << 20)
        assert len(list(path.iterdir())) < 8
