"""Mistakes that other projects made with checkpoints, planted one at a time: the explorer of state must catch each of them."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import Corruption
from penstock.files import Files, read_file
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
from penstock.state.engines.native.format import PAGE_BYTES
from penstock.state.engines.native.pages import Pages
from penstock.state.log_state import LogState
from penstock.state.reader import StateReader
from penstock.state.types.registry import Registration
from tests.crash.framework.planted import Bug, Patch, PlantedBugs, must_be_caught, replace_without_sync
from tests.crash.state.explorer import EXPLORER

BUGS = PlantedBugs()


@BUGS
def replay_is_skipped_without_a_checkpoint(patch: Patch) -> None:
    """All state before the first roll is lost."""
    replay = recovery.replay

    def skipping(reader: LogReader, engine: StateEngine, *arguments: Any) -> None:
        if engine.position is not None:
            replay(reader, engine, *arguments)

    patch(recovery, "replay", skipping)


@BUGS
def the_frame_at_the_checkpoint_bound_is_left_out(patch: Patch) -> None:
    """The replay begins one frame too late."""
    begin = recovery._replay_start

    def late(location: Any, engine: StateEngine, to: Position) -> Position:
        start = begin(location, engine, to)
        return start if engine.position is None else location.reader.next(start)

    patch(recovery, "_replay_start", late)


@BUGS
def the_bound_of_a_replay_is_exclusive(patch: Patch) -> None:
    replay = recovery.replay

    def short(reader: LogReader, engine: StateEngine, start: Position, to: Position, reporter: Any) -> None:
        replay(reader, engine, start, Position(to.ledger_id, to.entry_id - 1), reporter)

    patch(recovery, "replay", short)


@BUGS
def a_checkpoint_holds_what_is_not_durable(patch: Patch) -> None:
    """It is written at the log's end while commits are on their way, and a crash loses them."""
    freeze = LogState._freeze

    def hasty(self: LogState) -> Any:
        return freeze(self)._replace(last=None)

    patch(LogState, "_freeze", hasty)


@BUGS
def the_checkpoint_claims_a_frame_too_many(patch: Patch) -> None:
    write = NativeEngine.write

    def ahead(self: NativeEngine, frozen: Any, position: Position) -> CheckpointInfo:
        return write(self, frozen, Position(position.ledger_id, position.entry_id + 1))

    patch(NativeEngine, "write", ahead)


@BUGS
def old_checkpoints_are_pruned_before_the_manifest_is_durable(patch: Patch) -> None:
    write = Checkpoints.write

    def hasty(self: Checkpoints, manifest: manifests.CheckpointManifest) -> Checkpoint:
        for name in self._files.list(self.directory):
            if manifests.generation_of(name) is not None:
                self._files.remove(self.directory / name)
        self._files.sync_directory(self.directory)
        return write(self, manifest)

    patch(Checkpoints, "write", hasty)


@BUGS
def a_run_is_named_before_it_is_synced(patch: Patch) -> None:
    """The manifest is durable before the run that it names: an empty or torn run must not be read as valid."""

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
    """Runs are opened without checking them; an empty file counts as an empty run."""
    patch(Checkpoints, "_open_runs", _open_unchecked)


def _open_unchecked(self: Checkpoints, manifest: manifests.CheckpointManifest, *, verify: bool) -> Any:
    runs = []
    for name in manifest.runs:
        try:
            runs.append(self.run(name))
        except Exception:
            continue
    return tuple(runs)


@BUGS
def truncation_does_not_touch_the_state(patch: Patch) -> None:
    def cut_alone(self: LogState, position: Position, *, force: bool = False) -> None:
        self._log.truncate(position, own=(PIN, recovery.START_PIN), force=force)

    patch(LogState, "truncate", cut_alone)
    patch(recovery, "_drop_unknown_checkpoints", lambda _reader, _engine: None)


@BUGS
def checkpoints_above_a_truncation_come_back(patch: Patch) -> None:
    """They are dropped in memory only; they count again once the log has grown beyond their positions."""
    drop_after = Checkpoints.drop_after

    def forgetful(self: Checkpoints, position: Position) -> None:
        files, self._files = self._files, _ReadsOnly(self._files)  # type: ignore[assignment]
        try:
            drop_after(self, position)
        finally:
            self._files = files

    patch(Checkpoints, "drop_after", forgetful)
    patch(recovery, "_drop_unknown_checkpoints", lambda _reader, _engine: None)


class _ReadsOnly:
    def __init__(self, files: Files) -> None:
        self._files = files

    def __getattr__(self, name: str) -> Any:
        return getattr(self._files, name)

    def remove(self, path: Path) -> None:
        pass


@BUGS
def the_log_is_not_pinned_before_its_first_checkpoint(patch: Patch) -> None:
    def unpinned(self: LogState, _first: Position | None = None) -> None:
        self._pinned = True

    patch(LogState, "_pin_start", unpinned)


@BUGS
def the_pin_runs_ahead_of_the_oldest_checkpoint(patch: Patch) -> None:
    """Checkpoints are pruned by one position and the log is pinned by a later one; a gap between them goes unnoticed."""

    def ahead(self: Checkpointer, engine: StateEngine) -> None:
        self._log.pin(PIN, self._log.end())
        self._log.unpin(recovery.START_PIN)

    patch(Checkpointer, "move_pins", ahead)
    begin = recovery._replay_start

    def trusting(location: Any, engine: StateEngine, to: Position) -> Position:
        base = engine.position
        return location.reader.first if base is None else begin(location, engine, to)  # type: ignore[no-any-return]

    patch(recovery, "_replay_start", trusting)
    patch(Checkpoints, "_open_runs", _open_newest_badly)


def _open_newest_badly(self: Checkpoints, manifest: manifests.CheckpointManifest, *, verify: bool) -> Any:
    """The newest checkpoint is always found damaged, so that recovery takes the one before it."""
    if manifest.generation == self._generation:
        return None
    return tuple(self.run(name) for name in manifest.runs)


@BUGS
def a_store_is_used_before_its_registration_is_logged(patch: Patch) -> None:
    encode = changes.encode

    def late(change: Any, registered: Any, wall_ms: int) -> bytes:
        return encode(change, (), wall_ms)

    patch(bucket, "encode", late)


@BUGS
def deletes_are_not_in_the_checkpoint(patch: Patch) -> None:
    """A tombstone is left out of a delta: the key comes back from the run below."""
    write_layers = writer.write_layers

    def without(*arguments: Any, bottom: bool) -> Any:
        return write_layers(*arguments, bottom=True)

    patch(writer, "write_layers", without)


@BUGS
def the_manifest_is_not_synced(patch: Patch) -> None:
    patch(manifests, "replace_file", partial(replace_without_sync, sync_directory=False))


@BUGS
def the_directory_of_checkpoints_is_not_synced(patch: Patch) -> None:
    sync = MemoryFiles.sync_directory

    def sync_directory(self: MemoryFiles, path: Path) -> None:
        if path.name != recovery.DIRECTORY:
            sync(self, path)

    patch(MemoryFiles, "sync_directory", sync_directory)


@BUGS
def a_scrub_does_not_compare(patch: Patch) -> None:
    """It reads, and reports that all is well."""
    patch(NativeEngine, "scrub", lambda _self, _pause: [])


@BUGS
def what_a_scrub_found_is_not_written_anew(patch: Patch) -> None:
    patch(NativeEngine, "mend", lambda _self: None)


@BUGS
def a_page_is_used_unchecked(patch: Patch) -> None:
    """What the disk has changed is served, and becomes part of merged runs with a checksum of its own."""

    def trusting(self: Pages, first: int, count: int) -> bytes:
        start = first * PAGE_BYTES
        return self._file.read_at(start, min(count * PAGE_BYTES, self._size - start))

    patch(Pages, "read", trusting)
    patch(NativeEngine, "scrub", lambda _self, _pause: [])
    patch(NativeEngine, "verify", lambda _self: iter(()))


@BUGS
def parity_is_ignored(patch: Patch) -> None:
    """A damaged page costs the checkpoint, and on a trimmed log the state."""

    def helpless(self: Pages, page: int) -> bytes:
        raise Corruption(f"page {page} is damaged")

    patch(Pages, "_rebuild", helpless)


@BUGS
def the_second_copy_of_a_manifest_is_not_looked_at(patch: Patch) -> None:
    def first_alone(files: Files, path: Path) -> manifests.CheckpointManifest:
        return manifests.decode(read_file(files, path))

    patch(manifests, "read", first_alone)


@BUGS
def a_drop_is_not_replayed(patch: Patch) -> None:
    """The store is there again after a crash, with the keys that were not deleted yet."""
    from_document = Registration.from_document
    patch(Registration, "from_document", lambda record: replace(from_document(record), dropped=False))


@BUGS
def the_keys_of_a_dropped_store_stay_after_a_crash(patch: Patch) -> None:
    patch(bucket.BucketState, "_finish_drops", lambda _self: None)


@BUGS
def the_keys_of_a_store_are_deleted_and_its_drop_is_not_logged(patch: Patch) -> None:
    """After a crash between the frames the store is half empty."""
    patch(Registration, "dropping", lambda _self: [])


@BUGS
def a_reader_keeps_a_dropped_store(patch: Patch) -> None:
    """It goes on with the old number, and does not find what is in the new store of that name."""
    patch(StateReader, "_unbind_dropped", lambda _self: None)


@pytest.mark.parametrize("planted", BUGS, ids=lambda planted: planted.__name__)
def test_a_planted_bug_is_caught(planted: Bug, monkeypatch: pytest.MonkeyPatch) -> None:
    must_be_caught(EXPLORER, planted, monkeypatch)


def test_no_planted_bug_was_lost() -> None:
    assert len(BUGS) == 24
