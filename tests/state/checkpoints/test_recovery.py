"""How a state comes back from checkpoints that are damaged or missing, and when it is said to be lost."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from penstock.errors import Corruption
from penstock.log import Log, Position
from penstock.state import (
    BucketState,
    StateLost,
    StateSettings,
)
from penstock.state.log_state import LogState
from tests.state.stores import KEEPING, SMALL, checkpointed, content, flip, put, runs, spoil
from tests.support.waiting import LIMIT_SECONDS


@pytest.mark.parametrize("damaged", ["newest", "all"])
def test_a_damaged_checkpoint_is_stepped_over_down_to_a_whole_replay(tmp_path: Path, damaged: str) -> None:
    expected = checkpointed(tmp_path)
    for path in runs(tmp_path) if damaged == "all" else runs(tmp_path)[-1:]:
        spoil(path, path.stat().st_size // 2)
    with Log.open(tmp_path / "log", KEEPING) as log:
        assert content(BucketState.open(log)) == expected


def test_where_nothing_holds_all_of_the_state_it_is_said_by_name(tmp_path: Path) -> None:
    checkpointed(tmp_path, SMALL)
    for path in runs(tmp_path):
        path.write_bytes(b"")
    with Log.open(tmp_path / "log", SMALL) as log, pytest.raises(StateLost, match=r"every checkpoint .* damaged.*run-"):
        BucketState.open(log)
    for path in (tmp_path / "log" / "state").iterdir():
        path.unlink()
    with Log.open(tmp_path / "log", SMALL) as log:
        with pytest.raises(StateLost, match="no checkpoint at or below"):
            BucketState.open(log)
        with pytest.raises(Corruption, match="namespace 1, which no earlier frame registered"):
            BucketState.open(log, StateSettings(start_empty=True))


def test_damage_of_the_log_is_never_healed_over(tmp_path: Path) -> None:
    checkpointed(tmp_path)
    ledger = sorted((tmp_path / "log").glob("ledger-*.log"))[-1]
    flip(ledger, 64 + 20)
    with Log.open(tmp_path / "log", KEEPING) as log, pytest.raises(Corruption):
        content(BucketState.open(log))


def test_a_log_that_had_to_be_replayed_whole_is_kept_whole(tmp_path: Path) -> None:
    """Every checkpoint was damaged: until there are new ones, no trim may remove what the next replay needs."""
    expected = checkpointed(tmp_path)
    for path in runs(tmp_path):
        path.write_bytes(b"")
    with Log.open(tmp_path / "log", SMALL) as log:
        state = BucketState.open(log)
        assert state.recovered_by == "replay"  # type: ignore[attr-defined]
        assert log.pins()["state.start"] == Position(1, 0)
        assert log.trim() == []
        assert content(state) == expected
        for n in range(2):
            put(state, n, "new")
            state.checkpoint()
        assert "state.start" not in log.pins()
        assert log.trim() != []
    with Log.open(tmp_path / "log", SMALL) as log:
        assert content(BucketState.open(log)) == expected | {0: "new", 1: "new"}


def test_a_drop_that_a_crash_interrupted_is_finished_over_a_damaged_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is left of the dropped store is read when the state is opened: then damage in it is met."""
    with Log.open(tmp_path / "log", KEEPING) as log:
        state = BucketState.open(log)
        raw, other = state.raw_store("bytes", "test"), state.raw_store("other", "test")
        dropped = raw.number
        assert dropped is not None
        other.write({b"key": b"value"}).result(LIMIT_SECONDS)
        raw.write({b"%06d" % n: bytes(50) for n in range(3000)}).result(LIMIT_SECONDS)
        state.checkpoint()
        with monkeypatch.context() as patch:
            patch.setattr(BucketState, "_empty", lambda *_: None)
            state.drop_store(raw).result(LIMIT_SECONDS)
    for path in runs(tmp_path):
        spoil(path, 80_000)
    with Log.open(tmp_path / "log", KEEPING) as log:
        with monkeypatch.context() as patch:
            patch.setattr(LogState, "heal", _raising)
            with pytest.raises(Corruption):
                BucketState.open(log)
        state = BucketState.open(log)  # is not open already
        assert state.raw_store("other", "test").get(b"key") == b"value"
        with state.engine.create_snapshot() as snapshot:
            assert not list(snapshot.iterate(dropped))


def _raising(_: BucketState, error: Corruption) -> None:
    raise error


@pytest.mark.parametrize("at_the_end", [False, True])
def test_a_checkpoint_put_back_from_a_copy_counts_only_if_no_frame_after_it_was_trimmed(
    tmp_path: Path, at_the_end: bool
) -> None:
    """Also where the frames that are gone stood in the checkpoint's own ledger, and the log goes on right after it."""
    state_directory, copied = tmp_path / "log" / "state", tmp_path / "copied"
    with Log.open(tmp_path / "log", SMALL) as log:
        state = BucketState.open(log, StateSettings(checkpoint_at_roll=False))
        for n in range(4):
            put(state, n, n)
            if n == (3 if at_the_end else 1):
                assert state.checkpoint() is not None
                # What the scrubber writes meanwhile comes and goes.
                shutil.copytree(state_directory, copied, ignore=shutil.ignore_patterns("*.tmp"))
        for n in range(4, 7):
            put(state, n, n)
            state.checkpoint()
        assert log.trim() == [1]
        expected = content(state)
    shutil.rmtree(state_directory)
    copied.rename(state_directory)
    with Log.open(tmp_path / "log", SMALL) as log:
        if at_the_end:
            assert content(BucketState.open(log)) == expected
        else:
            with pytest.raises(StateLost, match=r"newest good checkpoint .* is at 1:1"):
                BucketState.open(log)


def test_a_checkpoint_of_entries_that_a_truncation_removed_does_not_come_back_with_a_trim(tmp_path: Path) -> None:
    """The log was truncated by force, without its state; what is left of the checkpoint's ledger was trimmed then."""
    with Log.open(tmp_path / "log", SMALL) as log:
        with BucketState.open(log, StateSettings(checkpoint_at_roll=False)) as state:
            for n in range(3):
                put(state, n, n)
            state.checkpoint()
            put(state, 3, 3)
            state.checkpoint()
        log.truncate(Position(1, 0), force=True)
        log.append(b"another history").result(LIMIT_SECONDS)
        log.roll()
        assert log.trim() == [1]
        with pytest.raises(StateLost):
            BucketState.open(log)
