"""A test of the test: mistakes that others made with checkpoints, planted one at a time. The explorer of state must see each."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.files import Buffer, Files
from penstock.files.memory import MemoryFiles
from penstock.log import LogReader, Position
from penstock.state import changes
from penstock.state import state as bucket
from penstock.state.checkpoints import recovery
from penstock.state.checkpoints.checkpointer import Checkpointer
from penstock.state.checkpoints.recovery import PIN
from penstock.state.engines.engine import CheckpointInfo, StateEngine
from penstock.state.engines.native import manifest as manifests
from penstock.state.engines.native import writer
from penstock.state.engines.native.checkpoints import Checkpoint, Checkpoints
from penstock.state.engines.native.engine import NativeEngine
from penstock.state.log_state import LogState
from tests.crash.log.facts import Violation
from tests.crash.state.explorer import explore

SECONDS_MAX = 25.0  # of CPU; most are seen within one

Patch = Callable[[Any, str, Any], None]
Bug = Callable[[Patch], None]
BUGS: list[Bug] = []


def bug(function: Bug) -> Bug:
    BUGS.append(function)
    return function


@bug
def replay_is_skipped_without_a_checkpoint(patch: Patch) -> None:
    """All state before the first roll is lost."""
    replay = recovery.replay

    def skipping(reader: LogReader, engine: StateEngine, *arguments: Any) -> None:
        if engine.position is not None:
            replay(reader, engine, *arguments)

    patch(recovery, "replay", skipping)


@bug
def the_frame_at_the_checkpoint_bound_is_left_out(patch: Patch) -> None:
    """The replay begins one frame too late."""
    begin = recovery._replay_start

    def late(place: Any, engine: StateEngine, to: Position) -> Position:
        start = begin(place, engine, to)
        return start if engine.position is None else place.reader.next(start)

    patch(recovery, "_replay_start", late)


@bug
def the_bound_of_a_replay_is_exclusive(patch: Patch) -> None:
    replay = recovery.replay

    def short(reader: LogReader, engine: StateEngine, start: Position, to: Position, tell: Any) -> None:
        replay(reader, engine, start, Position(to.ledger_id, to.entry_id - 1), tell)

    patch(recovery, "replay", short)


@bug
def a_checkpoint_holds_what_is_not_durable(patch: Patch) -> None:
    """It is written at the log's end while commits are on their way, and a crash loses them."""
    freeze = LogState._freeze

    def hasty(self: LogState) -> Any:
        return freeze(self)._replace(last=None)

    patch(LogState, "_freeze", hasty)


@bug
def the_checkpoint_claims_a_frame_too_many(patch: Patch) -> None:
    write = NativeEngine.write

    def ahead(self: NativeEngine, frozen: Any, position: Position) -> CheckpointInfo:
        return write(self, frozen, Position(position.ledger_id, position.entry_id + 1))

    patch(NativeEngine, "write", ahead)


@bug
def old_checkpoints_are_pruned_before_the_manifest_is_durable(patch: Patch) -> None:
    write = Checkpoints.write

    def hasty(self: Checkpoints, manifest: manifests.Manifest) -> Checkpoint:
        for name in self._files.list(self.directory):
            if manifests.generation_of(name) is not None:
                self._files.remove(self.directory / name)
        self._files.sync_directory(self.directory)
        return write(self, manifest)

    patch(Checkpoints, "write", hasty)


@bug
def a_run_is_named_before_it_is_synced(patch: Patch) -> None:
    """A manifest is durable, the run that it names is not: an empty or torn file must not be read as valid."""

    class Unsynced:
        def __init__(self, file: Any) -> None:
            self._file = file

        def __getattr__(self, name: str) -> Any:
            return getattr(self._file, name)

        def datasync(self) -> None:
            pass

    create = MemoryFiles.create

    def unsynced(self: MemoryFiles, path: Path) -> Any:
        file = create(self, path)
        return Unsynced(file) if "run-" in path.name else file

    patch(MemoryFiles, "create", unsynced)
    trust_everything(patch)


def trust_everything(patch: Patch) -> None:
    """And nothing of a run is checked."""
    patch(Checkpoints, "_open_runs", _open_unchecked)


def _open_unchecked(self: Checkpoints, manifest: manifests.Manifest, *, verify: bool) -> Any:
    runs = []
    for name in manifest.runs:
        try:
            runs.append(self.run(name))
        except Exception:  # an empty file is an empty run
            continue
    return tuple(runs)


@bug
def truncation_does_not_touch_the_state(patch: Patch) -> None:
    def cut_alone(self: LogState, position: Position, *, force: bool = False) -> None:
        self._log.truncate(position, own=(PIN, recovery.START_PIN), force=force)

    patch(LogState, "truncate", cut_alone)
    patch(recovery, "_drop_strange", lambda _reader, _engine: None)


@bug
def checkpoints_above_a_truncation_come_back(patch: Patch) -> None:
    """They are dropped in memory alone, and the log has grown beyond their positions since."""
    drop_after = Checkpoints.drop_after

    def forgetful(self: Checkpoints, position: Position) -> None:
        files, self._files = self._files, _ReadsOnly(self._files)  # type: ignore[assignment]
        try:
            drop_after(self, position)
        finally:
            self._files = files

    patch(Checkpoints, "drop_after", forgetful)
    patch(recovery, "_drop_strange", lambda _reader, _engine: None)


class _ReadsOnly:
    def __init__(self, files: Files) -> None:
        self._files = files

    def __getattr__(self, name: str) -> Any:
        return getattr(self._files, name)

    def remove(self, path: Path) -> None:
        pass


@bug
def the_log_is_not_pinned_before_its_first_checkpoint(patch: Patch) -> None:
    def unpinned(self: LogState, _first: Position | None = None) -> None:
        self._pinned = True

    patch(LogState, "_pin_start", unpinned)


@bug
def the_pin_runs_ahead_of_the_oldest_checkpoint(patch: Patch) -> None:
    """Pruned by one position, pinned by another; and nobody misses the frames between them."""

    def ahead(self: Checkpointer, engine: StateEngine) -> None:
        self._log.pin(PIN, self._log.end())
        self._log.unpin(recovery.START_PIN)

    patch(Checkpointer, "move_pins", ahead)
    begin = recovery._replay_start

    def trusting(place: Any, engine: StateEngine, to: Position) -> Position:
        base = engine.position
        return place.reader.first if base is None else begin(place, engine, to)  # type: ignore[no-any-return]

    patch(recovery, "_replay_start", trusting)
    patch(Checkpoints, "_open_runs", _open_newest_badly)


def _open_newest_badly(self: Checkpoints, manifest: manifests.Manifest, *, verify: bool) -> Any:
    """The newest checkpoint is always found damaged: the one before it must do."""
    if manifest.generation == self._generation:
        return None
    return tuple(self.run(name) for name in manifest.runs)


@bug
def a_store_is_used_before_its_registration_is_logged(patch: Patch) -> None:
    encode = changes.encode

    def late(change: Any, registered: Any, wall_ms: int) -> bytes:
        return encode(change, (), wall_ms)

    patch(bucket, "encode", late)


@bug
def deletes_are_not_in_the_checkpoint(patch: Patch) -> None:
    """A tombstone is left out of a delta: the key comes back from the run below."""
    write_layers = writer.write_layers

    def without(*arguments: Any, bottom: bool) -> Any:
        return write_layers(*arguments, bottom=True)

    patch(writer, "write_layers", without)


@bug
def the_manifest_is_not_synced(patch: Patch) -> None:
    def replace_file(files: Files, path: Path, buffers: Any) -> None:
        temporary = path.with_name(f".{path.name}.tmp")
        files.remove(temporary)
        file = files.create(temporary)
        file.append(list[Buffer](buffers))
        file.close()
        files.rename(temporary, path)

    patch(manifests, "replace_file", replace_file)


@bug
def the_directory_of_checkpoints_is_not_synced(patch: Patch) -> None:
    sync = MemoryFiles.sync_directory

    def sync_directory(self: MemoryFiles, path: Path) -> None:
        if path.name != recovery.DIRECTORY:
            sync(self, path)

    patch(MemoryFiles, "sync_directory", sync_directory)


@pytest.mark.parametrize("planted", BUGS, ids=lambda planted: planted.__name__)
def test_a_planted_bug_is_seen(planted: Bug, monkeypatch: pytest.MonkeyPatch) -> None:
    planted(monkeypatch.setattr)
    with pytest.raises(Violation) as seen:
        explore(1, seconds=SECONDS_MAX)
    print(f"{planted.__name__}: {seen.value}")


def test_there_are_ten_of_them() -> None:
    assert len(BUGS) >= 10
