"""A state under many threads and over many cycles: nothing is lost, nothing piles up."""

from __future__ import annotations

import contextlib
import gc
import threading
from pathlib import Path
from typing import Any

import pytest

from penstock.log import Log, LogReader, LogSettings
from penstock.state import BucketState, StateDescriptor, StateReader, StateSettings
from penstock.state.changes import Change
from penstock.state.types import codecs
from penstock.state.view import SnapshotStores
from tests.support.waiting import LIMIT_SECONDS

COUNTS: StateDescriptor[tuple[Any, ...], int] = StateDescriptor(
    "counts", "test", codecs.tuple_of(codecs.u64, codecs.u64), codecs.u64
)


SMALL = LogSettings(ledger_entries_max=50, maintenance_interval_seconds=0)


def test_writers_readers_iterations_and_checkpoints_at_once(tmp_path: Path) -> None:
    writers, batches, keys = 4, 40, 10
    failures: list[BaseException] = []
    done = threading.Event()
    with Log.open(tmp_path / "log", SMALL) as log:
        state = BucketState.open(log, StateSettings(merge_runs_max=1))
        store = state.store(COUNTS)

        def guarded(work: Any, *arguments: Any) -> threading.Thread:
            def run() -> None:
                try:
                    work(*arguments)
                except BaseException as error:
                    failures.append(error)

            thread = threading.Thread(target=run)
            thread.start()
            return thread

        def write(writer: int) -> None:
            for batch in range(1, batches + 1):
                change = state.begin()
                store.put_many(change, {(writer, key): batch for key in range(keys)})
                pending = state.commit(change, b"%d" % batch)
                assert store.get((writer, batch % keys)) == batch  # its own writes are seen at once
            pending.result(LIMIT_SECONDS)

        def iterate() -> None:
            while not done.is_set():
                seen: dict[int, set[int]] = {}
                with store.items() as pairs:
                    for (writer, _), value in pairs:
                        seen.setdefault(writer, set()).add(value)
                assert all(len(values) == 1 for values in seen.values()), seen  # each batch is seen as a whole
                store.items()  # never closed

        def checkpoint() -> None:
            while not done.is_set():
                state.checkpoint()
                state.engine.compact()

        def follow() -> None:
            reader = LogReader.open(tmp_path / "log")
            while not done.is_set():
                follower = StateReader.open(reader)
                follower.advance()
                values = {(w, v) for (w, _), v in follower.store(COUNTS).items()}
                assert len(values) == len({w for w, _ in values})
                follower.close()
            reader.close()

        threads = [guarded(write, writer) for writer in range(writers)]
        others = [guarded(work) for work in (iterate, iterate, checkpoint, follow)]
        for thread in threads:
            thread.join(LIMIT_SECONDS)
        done.set()
        for thread in others:
            thread.join(LIMIT_SECONDS)
        assert not failures, failures
        expected = {(writer, key): batches for writer in range(writers) for key in range(keys)}
        assert dict(store.items()) == expected
        gc.collect()
        layers = state.engine._stack.layers  # type: ignore[attr-defined]
        assert len(layers) < 12  # abandoned iterations pin nothing
    with Log.open(tmp_path / "log", SMALL) as log:
        assert dict(BucketState.open(log).store(COUNTS).items()) == expected


def _held() -> tuple[int, int, int]:
    """How many descriptors, open checkpoint files and threads this process has."""
    names = []
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # the one that lists the directory is closed again
            names.append(str(link.readlink()))
    return len(names), sum("/state/run-" in name for name in names), threading.active_count()


def test_nothing_piles_up_over_opens_checkpoints_and_closes(tmp_path: Path) -> None:
    settings = StateSettings(merge_runs_max=1)
    held = []
    for cycle in range(24):
        with Log.open(tmp_path / "log", SMALL) as log:
            state = BucketState.open(log, settings)
            raw = state.raw_store("r", "o")
            for step in range(5):
                raw.write({b"%d" % n: b"%d %d" % (cycle, step) for n in range(20)}).result(LIMIT_SECONDS)
                state.checkpoint()
            raw.iterate()  # never closed
            if cycle % 4 == 3:
                state.truncate(log.end())
            follower = StateReader.open(log.reader())
            assert follower.raw_store("r", "o").get(b"7") == b"%d 4" % cycle
            follower.close()
        if cycle % 8 == 7:
            del log, state, raw, follower
            gc.collect()
            held.append(_held())
    assert held[-1] == held[0], held
    assert held[-1][1] == 0
    assert len(list((tmp_path / "log" / "state").iterdir())) < 12


def test_a_snapshot_beside_advance_has_a_frame_whole_or_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its registration of a store, and what it put into that store."""
    snapshots: list[SnapshotStores] = []
    with Log.open(tmp_path / "log") as log:
        state = BucketState.open(log)
        with StateReader.open(log.reader()) as reader:
            state.store(COUNTS).write({(1, 1): 1}).result(LIMIT_SECONDS)
            thread = threading.Thread(target=lambda: snapshots.append(reader.snapshot()))
            apply = reader.engine.apply_encoded

            def apply_slowly(raw: bytes) -> int:
                thread.start()
                thread.join(0.2)  # it ends in this time, unless it waits for the frame
                return apply(raw)

            monkeypatch.setattr(reader.engine, "apply_encoded", apply_slowly)
            reader.advance()
            thread.join(LIMIT_SECONDS)
            with snapshots[0] as snapshot:
                assert len(snapshot.stores()) == len(snapshot.store(COUNTS).get_many([(1, 1)]))


def test_a_truncation_beside_a_drop_keeps_what_it_brings_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The drop goes on deleting in portions when the truncation has taken it back: the keys are the store's again."""
    monkeypatch.setattr("penstock.state.state._DROPPED_AT_ONCE", 10)
    with Log.open(tmp_path / "log") as log:
        state = BucketState.open(log)
        raw = state.raw_store("bytes", "test")
        kept = {b"%d" % n: b"value" for n in range(100)}
        before = raw.write(kept).result(LIMIT_SECONDS)
        commit, commits = state.commit, iter(range(100))

        def commit_late(change: Change) -> Any:
            if next(commits) == 3:  # the drop, two portions, and now
                state.truncate(before)
            return commit(change)

        monkeypatch.setattr(state, "commit", commit_late)
        state.drop_store(raw).result(LIMIT_SECONDS)
        monkeypatch.undo()
        assert dict(state.raw_store("bytes", "test").iterate()) == kept
    with Log.open(tmp_path / "log") as log:
        assert dict(BucketState.open(log).raw_store("bytes", "test").iterate()) == kept
