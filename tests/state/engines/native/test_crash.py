"""The power is cut at every operation of checkpoints, merges, prunes and truncations: what was acknowledged is there.

At each operation the file system in memory gives states that the disk may be in; each is opened and must hold exactly
the state of one checkpoint, none older than the last one whose `write` returned, and no checkpoint may be damaged.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from penstock.errors import StorageFailed
from penstock.files import Files
from penstock.files.memory import DiskFault, MemoryFile, MemoryFiles
from penstock.log import Position
from penstock.state.engines.native import merging
from penstock.state.engines.native.checkpoints import Checkpoint, Checkpoints
from penstock.state.settings import StateSettings
from tests.state.engines.native.memory import Content, after, at, batch, content, opened

_SETTINGS = StateSettings(merge_in_background=False, merge_runs_max=1, merge_ratio=0.6)


class Broken(AssertionError):
    """A crash lost something."""


class CheckpointProgram:
    """Writes, merges, truncates and reopens checkpoints, and examines crash states at each of its file operations."""

    def __init__(self, seed: int, states_each: int) -> None:
        self._rng = random.Random(seed)
        self._states_each = states_each
        self.files = MemoryFiles()
        self.examined = 0
        self.states: dict[Position | None, Content] = {None: {}}
        self.least: Position | None = None  # the last position whose checkpoint was acknowledged
        self.most: Position | None = None  # no checkpoint above this position may be there
        self.files.on_operation = self._on_operation

    def run(self, steps: int) -> None:
        engine = opened(self.files, settings=_SETTINGS)
        model: Content = {}
        number = 0
        for _ in range(steps):
            number += 1
            changes = batch(self._rng.randrange(50))
            engine.apply(changes)
            model = after(model, changes)
            choice = self._rng.random()
            if choice < 0.75:
                self.states[at(number)] = dict(model)
                self.most = at(number)
                engine.write(engine.freeze(), at(number))
                self.least = at(number)
            elif choice < 0.85:
                engine.compact()
            elif choice < 0.95 and number > 2:
                kept = [info.position for info in engine.checkpoints()]
                back = at(number - self._rng.randrange(3))
                self.least = max((p for p in kept if p <= back), default=None)
                reached = engine.drop_after(back)
                self.most = reached
                assert reached == self.least
                model = dict(self.states[reached])
                for position in [p for p in self.states if p is not None and p > back]:
                    self.states[position] = {(0, b"another history"): b""}
                number = back.entry_id
            else:
                engine.close()
                engine = opened(self.files, settings=_SETTINGS)
                assert content(engine) == self.states[engine.position]
                assert engine.position == self.least
                model = dict(self.states[engine.position])
        engine.close()

    def _on_operation(self, number: int, name: str, path: Path) -> None:
        for _ in range(self._states_each):
            self.examine(self.files.crash(self._rng))

    def examine(self, crashed: MemoryFiles) -> None:
        self.examined += 1
        engine = opened(crashed, settings=_SETTINGS)
        try:
            if engine.damaged:
                raise Broken(f"damaged by a crash: {engine.damaged[0]}")
            position = engine.position
            if self.least is not None and (position is None or position < self.least):
                raise Broken(f"{position} is older than the acknowledged {self.least}")
            if position is not None and (self.most is None or position > max(self.most, self.least or self.most)):
                raise Broken(f"{position} is above {self.most}")
            if content(engine) != self.states[position]:
                raise Broken(f"the state at {position} is not what it was")
            if any(True for _ in engine.verify()):
                raise Broken("an older checkpoint is damaged")
            if self._rng.random() < 0.05:  # the engine still writes checkpoints after the crash
                engine.apply(batch(7))
                engine.write(engine.freeze(), Position(2, 0))
                if content(opened(crashed)) != after(self.states[position], batch(7)):
                    raise Broken("a checkpoint after the crash")
        finally:
            engine.close()


@pytest.mark.parametrize("seed", range(4))
def test_every_crash_leaves_a_whole_checkpoint(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    if seed % 2:  # disk space is short, so `NativeEngine._collapse_to_newest` drops older checkpoints
        monkeypatch.setattr(merging, "_SPARE_BYTES_MIN", 0)
    program = CheckpointProgram(seed, states_each=3)
    program.run(20)
    assert program.examined > 400, f"seed {seed}"


@contextmanager
def replaced(owner: object, name: str, value: object) -> Iterator[None]:
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


def _no_datasync(self: MemoryFile) -> None:
    if self.path.name.endswith(".run.tmp"):
        return
    _DATASYNC(self)


_DATASYNC = MemoryFile.datasync
_WRITE = Checkpoints.write
_SYNC_DIRECTORY = MemoryFiles.sync_directory


def _prune_first(self: Checkpoints, manifest: object) -> Checkpoint:
    for name in self._files.list(self.directory):
        if name.endswith(".json"):
            self._files.remove(self.directory / name)
    return _WRITE(self, manifest)  # type: ignore[arg-type]


def _not_back(self: Checkpoints, position: Position) -> None:
    self.kept = [checkpoint for checkpoint in self.kept if checkpoint.position <= position]


@pytest.mark.parametrize(
    ("owner", "name", "value"),
    [
        (MemoryFile, "datasync", _no_datasync),
        (MemoryFiles, "sync_directory", lambda self, path: None),
        (Checkpoints, "write", _prune_first),
        (Checkpoints, "drop_after", _not_back),
    ],
    ids=["run not synced", "directory not synced", "prune before the manifest", "truncation keeps checkpoints"],
)
def test_planted_bugs_are_caught(owner: type, name: str, value: Callable[..., object]) -> None:
    with replaced(owner, name, value), pytest.raises(AssertionError):
        for seed in range(20):
            CheckpointProgram(seed, states_each=2).run(25)


def test_runs_that_go_before_their_manifest_is_gone_for_good_are_caught() -> None:
    """Step (3) of native/checkpoints.py without its sync: a manifest may come back after its runs are gone."""
    inside = False
    keep = Checkpoints.keep

    def kept(self: Checkpoints, checkpoints: list[Checkpoint]) -> None:
        nonlocal inside
        inside = True
        try:
            keep(self, checkpoints)
        finally:
            inside = False

    def sync(self: Files, path: Path) -> None:
        if not inside:
            _SYNC_DIRECTORY(self, path)  # type: ignore[arg-type]

    with replaced(Checkpoints, "keep", kept), replaced(MemoryFiles, "sync_directory", sync), pytest.raises(Broken):
        for seed in range(20):
            CheckpointProgram(seed, states_each=2).run(25)


@pytest.mark.parametrize("fault", list(DiskFault))
def test_every_failing_operation_leaves_the_state_and_earlier_checkpoints(fault: DiskFault) -> None:
    """The n-th operation fails, for every n: reads go on, and the next checkpoint holds everything."""
    failed = 0
    operation = 0
    while True:
        operation += 1
        files = MemoryFiles()
        engine = opened(files, settings=_SETTINGS)
        model: Content = {}
        acknowledged: Position | None = None
        files.fail_at(operation, fault)
        before = failed
        for number in range(1, 6):
            engine.apply(batch(number))
            model = after(model, batch(number))
            try:
                engine.write(engine.freeze(), at(number))
                acknowledged = at(number)
            except (StorageFailed, OSError):
                failed += 1
            assert content(engine) == model
        assert acknowledged == at(5) or failed > before
        if files.operations < operation:
            break  # the program has fewer operations: all of them have failed once
        engine.apply(batch(9))
        model = after(model, batch(9))
        engine.write(engine.freeze(), at(9))
        engine.close()
        again = opened(files.crash(random.Random(operation)))
        assert (again.position, list(again.damaged)) == (at(9), [])
        assert content(again) == model
    assert failed > 30
