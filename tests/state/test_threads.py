"""A state under many threads, over many cycles, and over a record log that grows: nothing is lost, nothing piles up."""

from __future__ import annotations

import gc
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from penstock.log import Log, LogReader, LogSettings, RecordLog
from penstock.state import BucketState, StateDescriptor, StateReader, StateSettings
from penstock.state.types import codecs

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
            pending.result(30)

        def iterate() -> None:
            while not done.is_set():
                seen: dict[int, set[int]] = {}
                with store.items() as pairs:
                    for (writer, _), value in pairs:
                        seen.setdefault(writer, set()).add(value)
                assert all(len(values) == 1 for values in seen.values()), seen  # a batch is there as a whole
                store.items()  # forgotten

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
            thread.join(60)
        done.set()
        for thread in others:
            thread.join(60)
        assert not failures, failures
        expected = {(writer, key): batches for writer in range(writers) for key in range(keys)}
        assert dict(store.items()) == expected
        gc.collect()
        layers = state.engine._stack.layers  # type: ignore[attr-defined]
        assert len(layers) < 12  # abandoned iterations pin nothing
    with Log.open(tmp_path / "log", SMALL) as log:
        assert dict(BucketState.open(log).store(COUNTS).items()) == expected


def _held() -> tuple[int, int, int]:
    """Descriptors, maps of checkpoint files, threads."""
    maps = Path("/proc/self/maps").read_text().count("/state/run-")
    return len(os.listdir("/proc/self/fd")), maps, threading.active_count()


def test_nothing_piles_up_over_opens_checkpoints_and_closes(tmp_path: Path) -> None:
    settings = StateSettings(merge_runs_max=1)
    held = []
    for cycle in range(24):
        with Log.open(tmp_path / "log", SMALL) as log:
            state = BucketState.open(log, settings)
            raw = state.raw_store("r", "o")
            for step in range(5):
                raw.write({b"%d" % n: b"%d %d" % (cycle, step) for n in range(20)}).result(10)
                state.checkpoint()
            raw.iterate()  # forgotten
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


def test_a_record_log_is_not_snapshot_at_every_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Above the least size, but not much larger than what is alive: a commit costs what it changes, not what there is."""
    records = RecordLog.open(tmp_path, "progress")
    state = BucketState.open(records)
    raw = state.raw_store("r", "o")
    for n in range(0, 2000, 100):
        pending = raw.write({b"%d" % key: bytes(1000) for key in range(n, n + 100)})
    pending.result(10)
    assert records.bytes > 1 << 20
    snapshots = []
    create = type(state.engine).create_snapshot
    monkeypatch.setattr(type(state.engine), "create_snapshot", lambda self: (snapshots.append(1), create(self))[1])
    for n in range(300):
        pending = raw.write({b"%d" % n: bytes(900)})
    pending.result(10)
    assert not snapshots
    for _ in range(30):  # deletes count: what is alive shrinks, and the log is rewritten
        pending = raw.write({b"%d" % key: None for key in range(2000)})
        pending.result(10)
        raw.write({b"%d" % key: bytes(1000) for key in range(100)}).result(10)
    assert snapshots
    assert len(snapshots) < 10
    records.close()
    again = RecordLog.open(tmp_path, "progress")
    assert len(list(BucketState.open(again).raw_store("r", "o").iterate())) == 100
    again.close()
