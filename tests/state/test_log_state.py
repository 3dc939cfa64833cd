"""The state of a managed log: healed when damage is met, truncated with its log, stopped by a failed commit."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import BadInput, Corruption, OutcomeUnknown, PenstockError, Unavailable
from penstock.log import Log, LogReader, Pending, Position
from penstock.state import (
    DELETE,
    BucketState,
    StateDescriptor,
    StateLost,
    StateReader,
    StateSettings,
)
from penstock.state.checkpoints.checkpointer import Moment
from penstock.state.engines.native.engine import NativeEngine
from penstock.state.log_state import LogState
from penstock.state.types import codecs
from tests.state.stores import KEEPING, ORDERS, SMALL, checkpointed, content, put, runs, spoil
from tests.support.waiting import LIMIT_SECONDS, wait_until


def test_damage_that_a_read_meets_is_healed_under_way(tmp_path: Path) -> None:
    with Log.open(tmp_path / "log", KEEPING) as log:
        state = BucketState.open(log)
        state.store(ORDERS).write({n: f"{n:03}" * 20_000 for n in range(30)}).result(LIMIT_SECONDS)
        state.checkpoint()
        expected = content(state)
    for path in runs(tmp_path):
        spoil(path, path.read_bytes().find(b"017017017"))  # in a page that the open does not need
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
        pending.result(LIMIT_SECONDS)
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
            spoil(path, 100)
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
        late.write({"a": "b"}).result(LIMIT_SECONDS)
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
        late.write({"a": "again"}).result(LIMIT_SECONDS)
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
        cursor.mark_delete(positions[22]).result(LIMIT_SECONDS)
        cursor.close()
        with pytest.raises(BadInput, match="cursor c"):
            state.truncate(positions[21])
        assert content(state) == {n: n for n in range(25)}
        state.truncate(positions[21], force=True)
        assert content(state) == {n: n for n in range(22)}
        put(state, 50, 50)
    with Log.open(tmp_path / "log", SMALL) as log:
        assert content(BucketState.open(log)) == {n: n for n in (*range(22), 50)}


def test_a_truncation_that_failed_says_what_the_log_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the state cannot be read again after it: "nothing was changed" would be a guess."""
    with Log.open(tmp_path / "log", KEEPING) as log:
        state = BucketState.open(log)
        first, _ = put(state, 1, "a"), put(state, 2, "b")

        def refuse(*_: Any, **__: Any) -> None:
            raise OutcomeUnknown("nobody knows whether the last appends are on the disk")

        def unreadable(*_: Any, **__: Any) -> None:
            raise Unavailable("ledger 1 cannot be read")

        with monkeypatch.context() as patched:
            patched.setattr(Log, "truncate", refuse)
            patched.setattr("penstock.state.log_state.replay", unreadable)
            with pytest.raises(OutcomeUnknown, match="nobody knows"):
                state.truncate(first)
        with pytest.raises(PenstockError, match="could not be read again"):
            put(state, 3, "c")
    with Log.open(tmp_path / "log", KEEPING) as log:
        assert content(BucketState.open(log)) == {1: "a", 2: "b"}


def test_the_log_is_not_truncated_without_its_state(tmp_path: Path) -> None:
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
        log.truncate(position, force=True)  # the next open of the state drops the checkpoint beyond it
        log.append(b"more").result(LIMIT_SECONDS)
        for n in range(10):
            log.append(b"%d" % n).result(LIMIT_SECONDS)
        assert content(BucketState.open(log)) == {1: 1}


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
                assert pending.exception() is not None
    with pytest.raises(PenstockError, match="ahead of its log"):
        put(state, 4, 4)
    with pytest.raises(PenstockError, match="ahead of its log"):
        state.checkpoint()
    log.append(b"the log itself goes on").result(LIMIT_SECONDS)
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
        state.store(ORDERS).write({3: DELETE}).result(LIMIT_SECONDS)
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


def test_a_truncation_waits_for_no_callback_that_wants_the_state(tmp_path: Path) -> None:
    """The callback runs on the log's thread, which truncates the log after it; other threads wait for the truncation."""
    entered, go = threading.Event(), threading.Event()
    told: list[BaseException] = []
    with Log.open(tmp_path / "log", KEEPING) as log, BucketState.open(log) as state:
        kept = put(state, 1, 1)
        put(state, 2, 2)

        def callback(_: Pending[Any]) -> None:
            entered.set()
            assert go.wait(LIMIT_SECONDS)
            for call in (lambda: state.store(ORDERS).write({3: 3}), state.snapshot):
                try:
                    call()
                except Unavailable as error:
                    told.append(error)

        log.append(b"x").add_done_callback(callback)
        assert entered.wait(LIMIT_SECONDS)
        with ThreadPoolExecutor(2) as pool:
            truncating = pool.submit(state.truncate, kept)
            wait_until(lambda: state._truncating, "truncation")  # type: ignore[attr-defined]
            committing = pool.submit(put, state, 4, 4)
            go.set()
            truncating.result(LIMIT_SECONDS)
            committing.result(LIMIT_SECONDS)
        assert len(told) == 2
        assert content(state) == {1: 1, 4: 4}


@pytest.mark.parametrize("call", [lambda state: state.checkpoint(), lambda state: state.truncate(Position(1, 0))])
def test_what_waits_for_commits_is_refused_in_their_callbacks(
    tmp_path: Path, call: Callable[[BucketState], Any]
) -> None:
    told: Pending[Any] = Pending()
    with Log.open(tmp_path / "log", KEEPING) as log, BucketState.open(log) as state:
        store = state.store(ORDERS)
        put(state, 1, 1)

        def callback(_: Pending[Any]) -> None:
            store.write({2: 2})  # on its way while the callback goes on
            try:
                told.complete(call(state))
            except BadInput as error:
                told.fail(error)

        log.append(b"x").add_done_callback(callback)
        with pytest.raises(BadInput, match="callback of a commit"):
            told.result(LIMIT_SECONDS)
        put(state, 3, 3)
        assert content(state) == {1: 1, 2: 2, 3: 3}


def test_a_state_that_is_closed_in_a_callback_of_a_commit_closes_behind_it(tmp_path: Path) -> None:
    """A checkpoint waits for a commit, which waits for the callback: a close that waited for both would wait for itself."""
    freezing, returned = threading.Event(), threading.Event()
    with Log.open(tmp_path / "log", KEEPING) as log:
        state = BucketState.open(log)
        assert isinstance(state, LogState)
        put(state, 1, 1)
        freeze = state._checkpointer._freeze

        def frozen() -> Moment:
            moment = freeze()
            freezing.set()
            return moment

        state._checkpointer._freeze = frozen

        def callback(_: Pending[Any]) -> None:
            state.store(ORDERS).write({2: 2})
            state._checkpointer.wake()
            assert freezing.wait(LIMIT_SECONDS)
            state.close()
            returned.set()

        log.append(b"x").add_done_callback(callback)
        assert returned.wait(5)  # a close that gives up waiting takes 30 seconds
        wait_until(lambda: log.attached.other_than(()) is None, "the state is closed")
        with BucketState.open(log) as again:
            assert content(again) == {1: 1, 2: 2}


def test_nobody_opens_a_state_while_it_is_being_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its last checkpoint is being written, into the directory that the next one would take for its own."""
    with Log.open(tmp_path / "log", KEEPING) as log:
        state = BucketState.open(log)
        state.store(ORDERS).write(dict.fromkeys(range(50), "x" * 10_000)).result(LIMIT_SECONDS)
        write, refused = NativeEngine.write, []

        def meanwhile(engine: NativeEngine, *arguments: Any) -> Any:
            with pytest.raises(BadInput, match="open already") as error:
                BucketState.open(log)
            refused.append(error)
            return write(engine, *arguments)

        monkeypatch.setattr(NativeEngine, "write", meanwhile)
        state.close()
        assert len(refused) == 1


def test_a_state_that_another_thread_closes_does_not_stop_a_roll(tmp_path: Path) -> None:
    class ClosesTheState:
        def rolled(self) -> None:
            with ThreadPoolExecutor(1) as other:
                other.submit(state.close).result(LIMIT_SECONDS)

        def close(self) -> None: ...

    with Log.open(tmp_path / "log", KEEPING) as log:
        log.attached.add("told first", ClosesTheState())
        state = BucketState.open(log)
        put(state, 1, 1)
        assert log.roll()
        log.append(b"goes on").result(LIMIT_SECONDS)


def test_a_store_that_is_made_while_a_commit_waits_for_room_is_kept_from_trim(tmp_path: Path) -> None:
    """The frame of that commit has the registration: without it no later change can be read."""
    with Log.open(tmp_path / "log", SMALL) as log:
        state = BucketState.open(log, StateSettings(checkpoint_at_roll=False))
        assert isinstance(state, LogState)
        wait_for_room = state._log.wait_for_room
        stores: list[Any] = []

        def meanwhile() -> None:
            wait_for_room()
            stores.append(state.store(ORDERS))

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(state._log, "wait_for_room", meanwhile)
            state.commit(state.begin(), b"data alone").result(LIMIT_SECONDS)
        log.roll()
        log.trim()
        stores[0].write({1: 1}).result(LIMIT_SECONDS)
    with Log.open(tmp_path / "log", SMALL) as log, BucketState.open(log) as state:
        assert content(state) == {1: 1}


def test_a_log_is_not_closed_before_its_state_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who opens both again would have the directory of the checkpoints together with the engine that still closes."""
    close, closing, go = NativeEngine.close, threading.Event(), threading.Event()

    def slow(engine: NativeEngine) -> None:
        closing.set()
        assert go.wait(LIMIT_SECONDS)
        close(engine)

    monkeypatch.setattr(NativeEngine, "close", slow)
    log = Log.open(tmp_path / "log", KEEPING)
    state = BucketState.open(log)
    with ThreadPoolExecutor(2) as others:
        first = others.submit(state.close)
        assert closing.wait(LIMIT_SECONDS)
        second = others.submit(log.close)
        done = wait([first, second], timeout=0.3).done
        go.set()
        assert not done
        assert not wait([first, second], timeout=LIMIT_SECONDS).not_done
    state.close()
