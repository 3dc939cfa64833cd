"""Checkpoints of a bucket state on its log: at rolls and by hand, pins, trims, falling back, truncation, followers."""

from __future__ import annotations

import contextlib
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import BadInput, Corruption, PenstockError, Unavailable
from penstock.log import Log, LogReader, LogSettings, Position
from penstock.state import (
    BucketState,
    RecoveryProgress,
    StateDescriptor,
    StateLost,
    StateReader,
    StateSettings,
    TypedStore,
)
from penstock.state.checkpoints import checkpointer
from penstock.state.engines.native.engine import NativeEngine
from penstock.state.types import codecs

ORDERS: StateDescriptor[int, Any] = StateDescriptor("orders", "test", codecs.u64, codecs.json)
SMALL = LogSettings(ledger_entries_max=4, preallocate_bytes=4096, retention_seconds=0.0, maintenance_interval_seconds=0)
KEEPING = LogSettings(ledger_entries_max=4, preallocate_bytes=4096, maintenance_interval_seconds=0)


def put(state: BucketState, key: int, value: Any) -> Position:
    change = state.begin()
    state.store(ORDERS).put(change, key, value)
    return state.commit(change, b"entry %d" % key).result(10)


def content(view: BucketState | StateReader) -> dict[int, Any]:
    return dict(view.store(ORDERS).items())


def settled(state: BucketState, count: int = 1) -> None:
    """Waits for the checkpoint of the last roll."""
    deadline = time.monotonic() + 20
    while len(state.checkpoints()) < count:
        assert time.monotonic() < deadline, state._checkpointer.error  # type: ignore[attr-defined]
        time.sleep(0.005)


def test_a_roll_makes_a_checkpoint_and_the_next_open_replays_what_follows(tmp_path: Path) -> None:
    with Log.open(tmp_path / "log", KEEPING) as log:
        state = BucketState.open(log)
        for n in range(7):
            put(state, n, n)
        settled(state)
        assert state.checkpoints()[0].position >= Position(1, 3)
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
            log.append(b"%d" % n).result(5)
        state.commit(state.begin(), b"data alone").result(5)
        assert state.checkpoint() is None
        assert log.pins() == {}
        assert not (tmp_path / "log" / "state").exists()
        assert not [thread.name for thread in threading.enumerate() if "state" in thread.name]


def test_the_log_is_pinned_from_the_first_change_on_and_trimmed_below_the_oldest_checkpoint(tmp_path: Path) -> None:
    with Log.open(tmp_path / "log", SMALL) as log:
        log.append(b"before").result(5)
        state = BucketState.open(log)
        put(state, 0, 0)
        assert log.pins() == {"state.start": Position(1, 0)}
        log.roll()
        log.trim()
        assert log.reader().first == Position(1, 0)  # no checkpoint, or one alone: a whole replay must stay possible
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


def runs(directory: Path) -> list[Path]:
    found = sorted(path for path in (directory / "log" / "state").iterdir() if path.name.startswith("run-"))
    assert found
    return found


def flip(path: Path, at: int) -> None:
    raw = bytearray(path.read_bytes())
    raw[at] ^= 0x10
    path.write_bytes(raw)


def checkpointed(directory: Path, settings: LogSettings = KEEPING) -> dict[int, Any]:
    """Two checkpoints with runs of their own, and a tail."""
    with Log.open(directory / "log", settings) as log:
        state = BucketState.open(log, StateSettings(checkpoint_at_roll=False, merge_runs_max=8, merge_ratio=100.0))
        for n in range(30):
            put(state, n, "x" * 50)
            if n in (10, 20):
                state.checkpoint()
        assert len(state.checkpoints()) == 2
        if settings.retention_seconds is not None:
            log.trim()
            assert log.reader().trimmed_below > 0
        return content(state)


@pytest.mark.parametrize("damaged", ["newest", "all"])
def test_a_damaged_checkpoint_is_stepped_over_down_to_a_whole_replay(tmp_path: Path, damaged: str) -> None:
    expected = checkpointed(tmp_path)
    for path in runs(tmp_path) if damaged == "all" else runs(tmp_path)[-1:]:
        flip(path, path.stat().st_size // 2)
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


def test_damage_that_a_read_meets_is_healed_under_way(tmp_path: Path) -> None:
    with Log.open(tmp_path / "log", KEEPING) as log:
        state = BucketState.open(log)
        state.store(ORDERS).write({n: f"{n:03}" * 20_000 for n in range(30)}).result(10)
        state.checkpoint()
        expected = content(state)
    for path in runs(tmp_path):
        flip(path, path.read_bytes().find(b"017017017"))  # in a block that the open does not need
    with Log.open(tmp_path / "log", KEEPING) as log:
        state = BucketState.open(log)
        assert state.recovered_by == "checkpoint"  # type: ignore[attr-defined]
        change = state.begin()
        state.store(ORDERS).put(change, 77, "on its way")
        pending = state.commit(change)
        store = state.store(ORDERS)
        assert {n: store.get(n) for n in range(30)} == expected
        assert store.get(77) == "on its way"
        assert content(state) == expected | {77: "on its way"}
        assert state.engine.position is None  # the whole log was replayed
        pending.result(5)
        put(state, 78, "after")
        assert state.checkpoint() is not None
    with Log.open(tmp_path / "log", KEEPING) as log:
        assert content(BucketState.open(log)) == expected | {77: "on its way", 78: "after"}


@pytest.mark.parametrize("background", [False, True])
def test_damage_that_a_merge_meets_is_healed_by_the_next_checkpoint(tmp_path: Path, background: bool) -> None:
    expected = checkpointed(tmp_path)
    with Log.open(tmp_path / "log", KEEPING) as log:
        state = BucketState.open(log, StateSettings(merge_ratio=0.01, merge_in_background=background))
        for path in runs(tmp_path)[:1]:
            flip(path, 100)
        for n in range(100, 104):
            put(state, n, "after")
            assert state.checkpoint() is not None
            with contextlib.suppress(Corruption):
                state.engine.flush()
        expected |= dict.fromkeys(range(100, 104), "after")
        assert content(state) == expected
        assert list(state.engine.verify()) == []
    with Log.open(tmp_path / "log", KEEPING) as log:
        assert content(BucketState.open(log)) == expected


def test_a_checkpoint_never_holds_what_is_not_durable(tmp_path: Path) -> None:
    with Log.open(tmp_path / "log", KEEPING) as log:
        state = BucketState.open(log)
        positions = [put(state, n, n) for n in range(3)]
        info = state.checkpoint()
        assert info is not None
        assert info.position == positions[-1]
        log.append(b"data alone").result(5)
        info = state.checkpoint()
        assert info is not None
        assert info.position == log.end()  # frames without state count too: the log may be trimmed behind them


@pytest.mark.parametrize("kept", [3, 10, 11, 20, 24])
def test_truncation_takes_log_and_state_back(tmp_path: Path, kept: int) -> None:
    with Log.open(tmp_path / "log", KEEPING) as log:
        state = BucketState.open(log, StateSettings(checkpoint_bytes=None))
        positions = []
        for n in range(25):
            positions.append(put(state, n % 5, n))
            if n in (10, 20):
                state.checkpoint()
        late = state.store(StateDescriptor("late", "test", codecs.text, codecs.text))
        late.write({"a": "b"}).result(5)
        follower = StateReader.open(LogReader.open(tmp_path / "log"))
        state.truncate(positions[kept])
        expected = {n % 5: n for n in range(kept + 1)}
        assert content(state) == expected
        assert log.end() == positions[kept]
        assert all(info.position <= positions[kept] for info in state.checkpoints())
        assert late.get("a") is None
        follower.advance()
        assert content(follower) == expected
        assert follower.store(late.descriptor).get("a") is None
        late.write({"a": "again"}).result(5)
        put(state, 99, "after")
        assert follower.advance() == log.end()
        assert content(follower) == expected | {99: "after"}
        assert follower.store(late.descriptor).get("a") == "again"
    with Log.open(tmp_path / "log", KEEPING) as log:
        state = BucketState.open(log)
        assert content(state) == expected | {99: "after"}
        assert state.store(late.descriptor).get("a") == "again"


def test_truncation_is_refused_where_the_state_there_is_gone_or_a_cursor_stands_beyond(tmp_path: Path) -> None:
    with Log.open(tmp_path / "log", SMALL) as log:
        state = BucketState.open(log)
        positions = []
        for n in range(25):
            positions.append(put(state, n, n))
            if n in (10, 20):
                state.checkpoint()
        log.trim()
        with pytest.raises(StateLost, match="the oldest checkpoint is newer"):
            state.truncate(positions[9])
        assert content(state) == {n: n for n in range(25)}
        cursor = log.open_cursor("c")
        cursor.mark_delete(positions[22]).result(5)
        cursor.close()
        with pytest.raises(BadInput, match="cursor c"):
            state.truncate(positions[21])
        assert content(state) == {n: n for n in range(25)}
        state.truncate(positions[21], force=True)
        assert content(state) == {n: n for n in range(22)}
        put(state, 50, 50)
    with Log.open(tmp_path / "log", SMALL) as log:
        assert content(BucketState.open(log)) == {n: n for n in (*range(22), 50)}


def test_the_state_at_a_position_includes_the_entry_there(tmp_path: Path) -> None:
    with Log.open(tmp_path / "log", KEEPING) as log:
        state = BucketState.open(log)
        positions = []
        for n in range(12):
            positions.append(put(state, n, n))
            if n in (4, 8):
                state.checkpoint()
        for n, position in enumerate(positions):
            past = state.recover(position)
            assert content(past) == {k: k for k in range(n + 1)}, position
            past.close()
            outside = StateReader.open(LogReader.open(tmp_path / "log"), at=position)
            assert content(outside) == {k: k for k in range(n + 1)}
            assert outside.advance(positions[-1]) == positions[-1]
            assert content(outside) == content(state)
        with pytest.raises(BadInput, match="beyond"):
            state.recover(Position(99, 0))


def test_a_follower_opens_on_a_trimmed_log(tmp_path: Path) -> None:
    expected = checkpointed(tmp_path, SMALL)
    reader = LogReader.open(tmp_path / "log")
    follower = StateReader.open(reader)
    assert content(follower) == expected
    earliest = StateReader.open(reader, at="earliest")
    assert earliest.position < follower.position
    earliest.advance()
    assert content(earliest) == expected
    with pytest.raises(StateLost):
        StateReader.open(reader, at=Position(1, 0))


def test_iteration_is_stable_while_writes_and_checkpoints_go_on(tmp_path: Path) -> None:
    with Log.open(tmp_path / "log", KEEPING) as log:
        state = BucketState.open(log)
        store = state.store(ORDERS)
        store.write({n: n for n in range(100)}).result(5)
        state.checkpoint()
        with store.items() as pairs:
            first = [next(pairs) for _ in range(10)]
            store.write({n: None if n % 2 else -n for n in range(100)}).result(5)
            state.checkpoint()
            state.engine.compact()
            store.write({200: 200}).result(5)
            assert [*first, *pairs] == [(n, n) for n in range(100)]
        assert content(state) == {n: -n for n in range(0, 100, 2)} | {200: 200}
        assert [key for key, _ in store.range(10, 20)] == [10, 12, 14, 16, 18]
        assert [key for key, _ in store.range(start=95)] == [96, 98, 200]
        assert [key for key, _ in store.range(end=4)] == [0, 2]
        with pytest.raises(StopIteration):
            closed = store.items()
            closed.close()
            next(closed)


def test_a_failed_commit_stops_the_state_and_what_stood_on_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log.open(tmp_path / "log", KEEPING)
    state = BucketState.open(log)
    put(state, 0, 0)

    class Failing(Unavailable):
        pass

    from penstock.log.ledgers.local import LocalLedger

    def fail(self: LocalLedger, *_: Any, **__: Any) -> Any:
        raise Failing("no disk")

    with monkeypatch.context() as patched:
        patched.setattr(LocalLedger, "add", fail)
        pendings = []
        store = state.store(ORDERS)
        for n in (1, 2, 3):
            change = state.begin()
            store.put(change, n, n)
            pendings.append(state.commit(change))
        for pending in pendings:
            with contextlib.suppress(TimeoutError):
                assert pending.exception(20) is not None
    with pytest.raises(PenstockError, match="ahead of its log"):
        put(state, 4, 4)
    with pytest.raises(PenstockError, match="ahead of its log"):
        state.checkpoint()
    log.append(b"the log itself goes on").result(20)
    log.close()
    with Log.open(tmp_path / "log", KEEPING) as log:
        assert content(BucketState.open(log)) == {0: 0}


def test_one_state_a_log_in_a_process(tmp_path: Path) -> None:
    with Log.open(tmp_path / "log", KEEPING) as log:
        state = BucketState.open(log)
        with pytest.raises(BadInput, match="open already"):
            BucketState.open(log)
        put(state, 1, 1)
        state.close()
        with pytest.raises(PenstockError, match="closed"):
            put(state, 2, 2)
        again = BucketState.open(log)
        assert content(again) == {1: 1}


def test_a_store_of_another_state_is_refused(tmp_path: Path) -> None:
    with Log.open(tmp_path / "a", KEEPING) as one, Log.open(tmp_path / "b", KEEPING) as other:
        theirs: TypedStore[int, Any] = BucketState.open(other).store(ORDERS)
        state = BucketState.open(one)
        change = state.begin()
        theirs.put(change, 1, 1)
        with pytest.raises(BadInput, match="another state"):
            state.commit(change)


def test_damage_of_the_log_is_never_healed_over(tmp_path: Path) -> None:
    checkpointed(tmp_path)
    ledger = sorted((tmp_path / "log").glob("ledger-*.log"))[-1]
    flip(ledger, 64 + 20)
    with Log.open(tmp_path / "log", KEEPING) as log, pytest.raises(Corruption):
        content(BucketState.open(log))


def test_a_new_log_in_the_place_of_a_deleted_one_has_no_state(tmp_path: Path) -> None:
    checkpointed(tmp_path)
    kept = {path.name: path.read_bytes() for path in (tmp_path / "log" / "state").iterdir()}
    Log.delete(tmp_path / "log")
    with Log.open(tmp_path / "log", KEEPING) as log:
        state = BucketState.open(log)
        assert content(state) == {}
        for n in range(40):
            put(state, n, "new")
    for name, raw in kept.items():  # the checkpoints of the old one come back, and their positions fit
        (tmp_path / "log" / "state" / name).write_bytes(raw)
    with Log.open(tmp_path / "log", KEEPING) as log, pytest.raises(Corruption, match="belong to log"):
        BucketState.open(log)
    expected = checkpointed(tmp_path / "other")
    name = tmp_path / "other" / "log" / "state" / "log"
    name.write_bytes(b"damaged")  # says nothing
    with Log.open(tmp_path / "other" / "log", KEEPING) as log:
        state = BucketState.open(log)
        assert content(state) == expected
        state.checkpoint()
    assert str(log.uuid).encode() in name.read_bytes()


def test_the_log_is_not_cut_behind_the_back_of_its_state(tmp_path: Path) -> None:
    with Log.open(tmp_path / "log", KEEPING) as log:
        state = BucketState.open(log)
        position = put(state, 1, 1)
        put(state, 2, 2)
        with pytest.raises(BadInput, match="truncate the state"):
            log.truncate(position)
        state.checkpoint()
        state.close()
        with pytest.raises(BadInput, match="pin state"):
            log.truncate(position)
        log.truncate(position, force=True)  # its checkpoint beyond the cut is dropped at the next open
        log.append(b"more").result(5)
        for n in range(10):
            log.append(b"%d" % n).result(5)
        assert content(BucketState.open(log)) == {1: 1}


def test_the_life_of_a_state_on_rocksdb(tmp_path: Path) -> None:
    pytest.importorskip("rocksdict")
    settings = StateSettings(engine="rocksdb")
    with Log.open(tmp_path / "log", SMALL) as log:
        state = BucketState.open(log, settings)
        positions = []
        for n in range(25):
            positions.append(put(state, n, n))
            if n in (10, 20):
                state.checkpoint()
        state.store(ORDERS).write({3: None}).result(5)
        log.trim()
    with Log.open(tmp_path / "log", SMALL) as log:
        state = BucketState.open(log, settings)
        assert state.recovered_by == "checkpoint"  # type: ignore[attr-defined]
        assert content(state) == {n: n for n in range(25) if n != 3}
        outside = StateReader.open(LogReader.open(tmp_path / "log"), at=positions[22], settings=settings)
        assert content(outside) == {n: n for n in range(23)}
        outside.close()
        state.truncate(positions[23])
        assert content(state) == {n: n for n in range(24)}
    with Log.open(tmp_path / "log", SMALL) as log, pytest.raises(BadInput, match="written by the engine 'rocksdb'"):
        BucketState.open(log)


def test_a_log_that_had_to_be_replayed_whole_is_kept_whole(tmp_path: Path) -> None:
    """Every checkpoint was damaged: until there are new ones, no trim may take away what the next replay needs."""
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


def test_a_close_does_not_wait_for_ever_for_a_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stuck, free = threading.Event(), threading.Event()
    write = NativeEngine.write

    def late(self: NativeEngine, *arguments: Any) -> Any:
        stuck.set()
        assert free.wait(30)
        return write(self, *arguments)

    monkeypatch.setattr(NativeEngine, "write", late)
    monkeypatch.setattr(checkpointer, "CLOSE_SECONDS_MAX", 0.1)
    with Log.open(tmp_path / "log", KEEPING) as log:
        state = BucketState.open(log)
        put(state, 1, 1)
        log.roll()
        assert stuck.wait(10)
    free.set()
    with Log.open(tmp_path / "log", KEEPING) as log:
        assert content(BucketState.open(log)) == {1: 1}
