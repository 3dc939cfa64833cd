"""A state under many threads and over many cycles: nothing is lost, nothing piles up."""

from __future__ import annotations

import contextlib
import gc
import threading
from pathlib import Path
from typing import Any

from penstock.log import Log, LogReader, LogSettings
from penstock.state import BucketState, StateDescriptor, StateReader, StateSettings
from penstock.state.types import codecs
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
