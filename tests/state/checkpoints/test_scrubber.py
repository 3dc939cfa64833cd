"""Checkpoints that the disk damages while their state is open, over a trimmed log that could not replace them."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.log import Log
from penstock.state import BucketState, StateLost, StateSettings
from tests.state.stores import SMALL, checkpointed, content, flip, runs, spoil
from tests.support.waiting import wait_until

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
