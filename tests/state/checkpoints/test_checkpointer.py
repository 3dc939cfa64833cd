"""When a checkpoint is written and what it holds; the pins of the log; closing beside a checkpoint."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.log import Log, Position
from penstock.state import (
    BucketState,
    RecoveryProgress,
    StateSettings,
)
from penstock.state.checkpoints import checkpointer
from penstock.state.engines.native.engine import NativeEngine
from tests.state.stores import KEEPING, SMALL, content, put, wait_for_checkpoint
from tests.support.waiting import LIMIT_SECONDS


def test_a_roll_makes_a_checkpoint_and_the_next_open_replays_what_follows(tmp_path: Path) -> None:
    with Log.open(tmp_path / "log", KEEPING) as log:
        state = BucketState.open(log)
        for n in range(5):
            put(state, n, n)
        wait_for_checkpoint(state)
        assert state.checkpoints()[0].position >= Position(1, 3)
        for n in (5, 6):
            put(state, n, n)
    said: list[RecoveryProgress] = []
    with Log.open(tmp_path / "log", KEEPING) as log:
        state = BucketState.open(log, progress=said.append)
        assert content(state) == {n: n for n in range(7)}
        assert state.recovered_by == "checkpoint"  # type: ignore[attr-defined]
    assert said[0].phase == "checkpoint"
    assert said[-1].phase == "done"
    assert 0 < said[-1].records_done < 7
    assert said[-1].bytes_done == said[-1].bytes_total > 0


def test_a_log_without_stores_has_no_files_threads_or_pins(tmp_path: Path) -> None:
    with Log.open(tmp_path / "log", KEEPING) as log:
        state = BucketState.open(log)
        for n in range(20):
            log.append(b"%d" % n).result(LIMIT_SECONDS)
        state.commit(state.begin(), b"data alone").result(LIMIT_SECONDS)
        assert state.checkpoint() is None
        assert log.pins() == {}
        assert not (tmp_path / "log" / "state").exists()
        assert not [thread.name for thread in threading.enumerate() if "state" in thread.name]


def test_the_log_is_pinned_from_the_first_change_on_and_trimmed_below_the_oldest_checkpoint(tmp_path: Path) -> None:
    with Log.open(tmp_path / "log", SMALL) as log:
        log.append(b"before").result(LIMIT_SECONDS)
        state = BucketState.open(log, StateSettings(checkpoint_at_roll=False))  # only those that are asked for below
        put(state, 0, 0)
        assert log.pins() == {"state.start": Position(1, 0)}
        log.roll()
        log.trim()
        assert log.reader().first == Position(1, 0)  # without two checkpoints a whole replay must stay possible
        for n in range(1, 20):
            put(state, n, n)
            if n % 4 == 0:
                assert state.checkpoint() is not None
        oldest = min(info.position for info in state.checkpoints())
        assert log.pins() == {"state": Position(oldest.ledger_id, oldest.entry_id + 1)}
        log.trim()
        assert Position(1, 0) < log.reader().first <= log.reader().next(oldest)
    with Log.open(tmp_path / "log", SMALL) as log:
        assert content(BucketState.open(log)) == {n: n for n in range(20)}


def test_a_checkpoint_never_holds_what_is_not_durable(tmp_path: Path) -> None:
    with Log.open(tmp_path / "log", KEEPING) as log:
        state = BucketState.open(log)
        positions = [put(state, n, n) for n in range(3)]
        info = state.checkpoint()
        assert info is not None
        assert info.position == positions[-1]
        log.append(b"data alone").result(LIMIT_SECONDS)
        info = state.checkpoint()
        assert info is not None
        assert info.position == log.end()  # frames without state count too: the log may be trimmed behind them


def test_a_close_does_not_wait_for_ever_for_a_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stuck, free = threading.Event(), threading.Event()
    write = NativeEngine.write

    def late(self: NativeEngine, *arguments: Any) -> Any:
        stuck.set()
        assert free.wait(LIMIT_SECONDS)
        return write(self, *arguments)

    monkeypatch.setattr(NativeEngine, "write", late)
    monkeypatch.setattr(checkpointer, "CLOSE_SECONDS_MAX", 0.1)
    with Log.open(tmp_path / "log", KEEPING) as log:
        state = BucketState.open(log)
        put(state, 1, 1)
        log.roll()
        assert stuck.wait(LIMIT_SECONDS)
    free.set()
    with Log.open(tmp_path / "log", KEEPING) as log:
        assert content(BucketState.open(log)) == {1: 1}


def test_a_checkpoint_that_outlives_its_close_touches_nothing_of_the_next_owner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would have removed the checkpoints on which the log was trimmed since."""
    stuck, free = threading.Event(), threading.Event()
    write_layers = NativeEngine._write_layers

    def late(self: NativeEngine, *arguments: Any, **named: Any) -> Any:
        monkeypatch.setattr(NativeEngine, "_write_layers", write_layers)
        stuck.set()
        assert free.wait(LIMIT_SECONDS)
        return write_layers(self, *arguments, **named)

    monkeypatch.setattr(NativeEngine, "_write_layers", late)
    monkeypatch.setattr(checkpointer, "CLOSE_SECONDS_MAX", 0.1)
    settings = replace(KEEPING, retention_seconds=0.0)
    with Log.open(tmp_path / "log", settings) as log:
        state = BucketState.open(log)
        put(state, 1, 1)
        thread = state._checkpointer  # type: ignore[attr-defined]
        log.roll()
        assert stuck.wait(LIMIT_SECONDS)
    with Log.open(tmp_path / "log", settings) as log:
        state = BucketState.open(log)
        for n in (2, 3):
            put(state, n, n)
            state.checkpoint()
            log.roll()
        log.trim()
        files = sorted(path.name for path in (tmp_path / "log" / "state").iterdir())
        free.set()
        thread._thread.join(LIMIT_SECONDS)
        assert sorted(path.name for path in (tmp_path / "log" / "state").iterdir()) == files
    with Log.open(tmp_path / "log", settings) as log:
        assert content(BucketState.open(log)) == {1: 1, 2: 2, 3: 3}


def test_an_error_that_nobody_expected_costs_one_checkpoint_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Not all later ones: without a checkpoint the log is never trimmed again."""
    write, failed = NativeEngine.write, threading.Event()

    def fails_once(*arguments: Any) -> Any:
        if not failed.is_set():
            failed.set()
            raise MemoryError("just now")
        return write(*arguments)

    monkeypatch.setattr(NativeEngine, "write", fails_once)
    with Log.open(tmp_path / "log", KEEPING) as log, BucketState.open(log) as state:
        put(state, 1, 1)
        log.roll()
        assert failed.wait(LIMIT_SECONDS)
        put(state, 2, 2)
        log.roll()
        wait_for_checkpoint(state)
    assert "MemoryError('just now')" in caplog.text
