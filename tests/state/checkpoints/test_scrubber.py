"""Checkpoints that the disk damages while their state is open, over a trimmed log that could not replace them."""

from __future__ import annotations

import errno
import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.clock import ManualClock
from penstock.files import REAL_FILES
from penstock.log import Log, LogReader
from penstock.state import BucketState, StateLost, StateReader, StateSettings
from penstock.state.checkpoints.scrub_time import ScrubTime
from penstock.state.engines.native.engine import NativeEngine
from penstock.state.engines.native.format import PAGE_BYTES
from tests.state.stores import KEEPING, ORDERS, SMALL, checkpointed, content, flip, put, runs, spoil
from tests.support.waiting import LIMIT_SECONDS, wait_until

_BY_HAND = StateSettings(checkpoint_at_roll=False, scrub_interval_seconds=None, merge_ratio=100.0, merge_runs_max=8)


def test_a_flip_in_a_shared_run_of_a_trimmed_log_is_mended(tmp_path: Path) -> None:
    """Two checkpoints that share a run are two only because the run can mend itself."""
    expected = checkpointed(tmp_path, SMALL)
    for path in runs(tmp_path):
        flip(path, 200)
    with Log.open(tmp_path / "log", SMALL) as log:
        state = BucketState.open(log, _BY_HAND)
        assert content(state) == expected
        damaged = runs(tmp_path)
        assert {finding.file for finding in state.scrub()} == {str(path) for path in damaged}
        assert not set(damaged) & set(runs(tmp_path)), "written anew under other names"
        assert not list(state.engine.verify())
        assert state.scrub() == []
        assert len(state.checkpoints()) == 2
        assert content(state) == expected
    with Log.open(tmp_path / "log", SMALL) as log:
        assert content(BucketState.open(log)) == expected


def test_a_lost_file_is_written_again(tmp_path: Path) -> None:
    expected = checkpointed(tmp_path, SMALL)
    with Log.open(tmp_path / "log", SMALL) as log:
        state = BucketState.open(log, _BY_HAND)
        for path in (tmp_path / "log" / "state").iterdir():
            path.unlink()
        assert len(state.scrub()) == 4
        assert content(state) == expected
    with Log.open(tmp_path / "log", SMALL) as log:
        assert content(BucketState.open(log)) == expected


def test_a_checkpoint_whose_removal_failed_is_removed_by_a_scrub(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody mends it: left alone, its damage would be reported until the next checkpoint."""
    checkpointed(tmp_path, SMALL)
    with Log.open(tmp_path / "log", SMALL) as log:
        state = BucketState.open(log, _BY_HAND)
        put(state, 1, "new")
        with monkeypatch.context() as broken:
            broken.setattr(type(REAL_FILES), "remove", _no_space)
            with pytest.raises(OSError, match="No space"):
                state.checkpoint()
        kept = {str(info.position) for info in state.checkpoints()}
        manifests = sorted((tmp_path / "log" / "state").glob("checkpoint-*"))
        assert len(manifests) > len(kept)
        flip(manifests[0], 100)
        assert list(state.engine.verify())
        assert state.scrub()
        assert not list(state.engine.verify())
        assert state.scrub() == []
        assert {str(info.position) for info in state.checkpoints()} == kept


def _no_space(_files: object, path: Path) -> None:
    if path.name.startswith("checkpoint-"):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_what_a_scrub_cannot_mend_is_named(tmp_path: Path) -> None:
    checkpointed(tmp_path, SMALL)
    with Log.open(tmp_path / "log", SMALL) as log:
        state = BucketState.open(log, _BY_HAND)
        for path in runs(tmp_path):
            spoil(path, 200)
        with pytest.raises(StateLost, match="run-"):
            state.scrub()


def test_the_thread_scrubs_and_ends(tmp_path: Path) -> None:
    expected = checkpointed(tmp_path, SMALL)
    with Log.open(tmp_path / "log", SMALL) as log:
        state = BucketState.open(log, StateSettings(scrub_interval_seconds=0.01, scrub_bytes_per_second=1 << 30))
        flip(runs(tmp_path)[0], 200)
        wait_until(lambda: not list(state.engine.verify()), "a sound checkpoint", lambda: None)
        assert content(state) == expected
        thread = state._scrubber._thread  # type: ignore[attr-defined]
        assert thread.is_alive()
    assert not thread.is_alive()


def test_an_error_that_nobody_expected_costs_one_scrub_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpointed(tmp_path, SMALL)
    scrub, scrubs = NativeEngine.scrub, []

    def fails_once(*arguments: Any) -> Any:
        scrubs.append(len(scrubs))
        if len(scrubs) == 1:
            raise MemoryError("just now")
        return scrub(*arguments)

    monkeypatch.setattr(NativeEngine, "scrub", fails_once)
    with Log.open(tmp_path / "log", SMALL) as log:
        BucketState.open(log, StateSettings(scrub_interval_seconds=0.01, scrub_bytes_per_second=1 << 30))
        wait_until(lambda: len(scrubs) > 1, "the next scrub", lambda: None)


@pytest.mark.parametrize("keys", [1, 30, 400, 1200])
def test_no_bad_page_of_the_disk_costs_a_trimmed_log_its_state(tmp_path: Path, keys: int) -> None:
    """Also where a run is small: a page of the disk then holds more than a page of the run."""
    with Log.open(tmp_path / "log", SMALL) as log:
        state = BucketState.open(log, _BY_HAND)
        state.store(ORDERS).write(dict.fromkeys(range(keys), "x" * 20)).result(LIMIT_SECONDS)
        for more in range(8):
            put(state, more, "x" * 20)
        state.checkpoint()
        put(state, 0, "x" * 20)
        state.checkpoint()
        log.trim()
        assert log.reader().trimmed_below > 0
        expected = content(state)
    for path in runs(tmp_path):
        sound = path.read_bytes()
        for start in range(0, len(sound), PAGE_BYTES):
            damaged = bytearray(sound)
            damaged[start : start + PAGE_BYTES] = bytes(len(sound[start : start + PAGE_BYTES]))
            path.write_bytes(damaged)
            with closing(StateReader.open(LogReader.open(tmp_path / "log"))) as reader:
                assert content(reader) == expected, f"{path.name} without the page at {start}"
        path.write_bytes(sound)


def test_a_checkpoint_waits_for_no_scrub(tmp_path: Path) -> None:
    """A scrub leaves the disk to others, so it may take hours."""
    checkpointed(tmp_path)
    slow = StateSettings(scrub_interval_seconds=0.01, scrub_bytes_per_second=1)
    with Log.open(tmp_path / "log", KEEPING) as log:
        state = BucketState.open(log, slow)
        wait_until(state._scrubber._turn.locked, "scrub")  # type: ignore[attr-defined]
        put(state, 99, 1)
        with ThreadPoolExecutor(1) as pool:
            try:
                assert pool.submit(state.checkpoint).result(LIMIT_SECONDS) is not None
            finally:
                state.close()


def test_the_first_checkpoint_of_a_roll_starts_the_scrubs(tmp_path: Path) -> None:
    """Nobody calls `checkpoint` in a process that runs for months."""
    with Log.open(tmp_path / "log", KEEPING) as log:
        state = BucketState.open(log, StateSettings(scrub_interval_seconds=60.0))
        assert state._scrubber._thread is None  # type: ignore[attr-defined]
        for n in range(9):
            put(state, n, 1)
        wait_until(lambda: state._scrubber._thread, "thread")  # type: ignore[attr-defined]


@pytest.mark.parametrize("engine", ["native", "rocksdb"])
def test_a_process_that_is_started_again_every_hour_scrubs_once_a_day(tmp_path: Path, engine: str) -> None:
    hour, scrubs = 3600.0, 0
    clock = ManualClock()
    settings = StateSettings(engine=engine, checkpoint_at_roll=False, scrub_bytes_per_second=1 << 30)
    time = ScrubTime(REAL_FILES, tmp_path / "log" / "state", clock)

    def seconds_left() -> float:
        return time.seconds_left(24 * hour)

    with Log.open(tmp_path / "log", KEEPING) as log:
        state = BucketState.open(log, settings, clock=clock)
        put(state, 1, 1)
        state.checkpoint()
        wait_until((tmp_path / "log" / "state" / "scrubbed").exists, "time of the last scrub")
        state.close()
        for now in range(1, 60):
            clock.advance(hour)
            assert seconds_left() == (24 - now % 24) % 24 * hour
            with BucketState.open(log, settings, clock=clock) as state:
                if now % 24 == 0:
                    wait_until(seconds_left, "scrub")
                    scrubs += 1
    assert scrubs == 2


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{}",
        b"5",
        b'{"wall_ms": "x"}',
        b'{"wall_ms": 9999999999999999}',
        b'{"wall_ms": Infinity}',
        b'{"wall_ms": -1' + b"0" * 400 + b"}",
    ],
)
def test_a_time_of_the_last_scrub_that_makes_no_sense_counts_as_now(tmp_path: Path, content: bytes) -> None:
    clock = ManualClock()
    (tmp_path / "scrubbed").write_bytes(content)
    time = ScrubTime(REAL_FILES, tmp_path, clock)
    assert time.seconds_left(100.0) == 100.0
    clock.advance(40.0)
    assert time.seconds_left(100.0) == 60.0
    clock.advance(400.0)
    assert time.seconds_left(100.0) == 0.0


@pytest.mark.parametrize("pattern", ["CURRENT", "MANIFEST-*", "*.sst"])
@pytest.mark.parametrize("which", [0, -1])
def test_a_scrub_of_rocksdb_finds_a_lost_file(tmp_path: Path, pattern: str, which: int) -> None:
    """RocksDB says so by a plain exception: it is damage like others, from which the state heals."""
    with Log.open(tmp_path / "log", KEEPING) as log:
        state = BucketState.open(log, replace(_BY_HAND, engine="rocksdb"))
        for n in range(3):
            put(state, n, 1)
            state.checkpoint()
        expected = content(state)
        checkpoints = sorted((tmp_path / "log" / "state" / "rocksdb").glob("checkpoint-*"))
        for path in checkpoints[which].glob(pattern):
            path.unlink()
        assert state.scrub()
        assert content(state) == expected
        put(state, 9, 1)
        state.checkpoint()
        assert state.scrub() == []
        assert content(state) == expected | {9: 1}
