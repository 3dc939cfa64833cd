"""Stores of a state: iterations as of their call, and stores of another state."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import BadInput, Closed, Corruption, NotSupported
from penstock.log import Log
from penstock.state import (
    DELETE,
    BucketState,
    StateDescriptor,
    StateReader,
    StateSettings,
    TypedStore,
)
from penstock.state.types import codecs
from tests.state.stores import KEEPING, ORDERS, content, put
from tests.support.waiting import LIMIT_SECONDS


def test_iteration_is_stable_while_writes_and_checkpoints_go_on(tmp_path: Path) -> None:
    with Log.open(tmp_path / "log", KEEPING) as log:
        state = BucketState.open(log)
        store = state.store(ORDERS)
        store.write({n: n for n in range(100)}).result(LIMIT_SECONDS)
        state.checkpoint()
        with store.items() as pairs:
            first = [next(pairs) for _ in range(10)]
            store.write({n: DELETE if n % 2 else -n for n in range(100)}).result(LIMIT_SECONDS)
            state.checkpoint()
            state.engine.compact()
            store.write({200: 200}).result(LIMIT_SECONDS)
            assert [*first, *pairs] == [(n, n) for n in range(100)]
        assert content(state) == {n: -n for n in range(0, 100, 2)} | {200: 200}
        assert [key for key, _ in store.range(10, 20)] == [10, 12, 14, 16, 18]
        assert [key for key, _ in store.range(start=95)] == [96, 98, 200]
        assert [key for key, _ in store.range(end=4)] == [0, 2]
        with pytest.raises(StopIteration):
            closed = store.items()
            closed.close()
            next(closed)


def test_a_store_of_another_state_is_refused(tmp_path: Path) -> None:
    with Log.open(tmp_path / "a", KEEPING) as one, Log.open(tmp_path / "b", KEEPING) as other:
        theirs: TypedStore[int, Any] = BucketState.open(other).store(ORDERS)
        state = BucketState.open(one)
        change = state.begin()
        theirs.put(change, 1, 1)
        with pytest.raises(BadInput, match="another state"):
            state.commit(change)


@pytest.fixture(params=["native", "rocksdb"])
def settings(request: pytest.FixtureRequest) -> StateSettings:
    return StateSettings(engine=request.param, checkpoint_at_roll=False, scrub_interval_seconds=None)


def test_a_stored_null_is_not_a_deleted_key(tmp_path: Path, settings: StateSettings) -> None:
    with Log.open(tmp_path / "log", KEEPING) as log:
        state = BucketState.open(log, settings)
        store, raw = state.store(ORDERS), state.raw_store("r", "o")
        store.write({1: None, 2: 2, 3: 3}).result(LIMIT_SECONDS)
        store.write({3: DELETE}).result(LIMIT_SECONDS)
        with pytest.raises(BadInput, match="DELETE deletes"):
            raw.write({b"k": None})  # type: ignore[dict-item]
    with Log.open(tmp_path / "log", KEEPING) as log:
        store = BucketState.open(log, settings).store(ORDERS)
        assert content(store.raw.holder) == {1: None, 2: 2}  # type: ignore[arg-type]
        assert (store.get(1), store.contains(1), store.contains(3)) == (None, True, False)
        assert store.get_many([1, 2, 3]) == {1: None, 2: 2}


def test_reads_of_a_change_that_is_not_committed(tmp_path: Path) -> None:
    with Log.open(tmp_path / "log", KEEPING) as log:
        state = BucketState.open(log)
        store = state.store(ORDERS)
        store.write({1: "one", 2: "two"}).result(LIMIT_SECONDS)
        change = state.begin()
        store.put(change, 1, "new")
        store.delete(change, 2)
        assert [store.get_in(change, key) for key in (1, 2, 3)] == ["new", None, None]
        assert [store.get(key) for key in (1, 2)] == ["one", "two"]
        store.put(change, 3, None)
        assert [store.get_in(change, key) for key in (2, 3, 4)] == [None, None, None]
        assert [store.contains_in(change, key) for key in (1, 2, 3, 4)] == [True, False, True, False]
        raw = state.raw_store("r", "o")
        raw.put(change, b"1", b"")
        raw.delete(change, b"2")
        assert [raw.contains_in(change, key) for key in (b"1", b"2", b"3")] == [True, False, False]


def test_a_snapshot_is_of_one_moment_in_all_stores(tmp_path: Path, settings: StateSettings) -> None:
    with Log.open(tmp_path / "log", KEEPING) as log:
        state = BucketState.open(log, settings)
        store, raw = state.store(ORDERS), state.raw_store("r", "o")
        for number in range(3):
            change = state.begin()
            store.put(change, 1, number)
            raw.put(change, b"k", b"%d" % number)
            state.commit(change).result(LIMIT_SECONDS)
            state.checkpoint()
            if number == 1:
                then = state.snapshot()
        state.drop_store(raw).result(LIMIT_SECONDS)
        with then:
            assert then.store(ORDERS).get(1) == 1
            assert then.raw_store("r", "o").get_many([b"k", b"l"]) == {b"k": b"1"}
            assert list(then.store(ORDERS).items()) == list(then.store(ORDERS).items(reverse=True)) == [(1, 1)]
            with pytest.raises(NotSupported, match="read-only"):
                then.store(ORDERS).write({1: 2})
        with pytest.raises(Closed):
            then.store(ORDERS).get(1)
        assert store.get(1) == 2


def test_iteration_in_reverse(tmp_path: Path, settings: StateSettings) -> None:
    with Log.open(tmp_path / "log", KEEPING) as log:
        state = BucketState.open(log, settings)
        store, other = state.store(ORDERS), state.raw_store("r", "o")
        other.write({b"a": b"1", b"b": b"2"}).result(LIMIT_SECONDS)
        for step in range(4):
            store.write({n: n * 10 + step for n in range(step, 300, step + 1)}).result(LIMIT_SECONDS)
            store.write(dict.fromkeys(range(step, 300, 17), DELETE)).result(LIMIT_SECONDS)
            if step < 3:
                state.checkpoint()
        forwards = list(store.items())
        assert list(store.items(reverse=True)) == forwards[::-1]
        for start, end in ((None, 120), (64, None), (31, 97), (96, 96), (5, 6)):
            assert list(store.range(start, end, reverse=True)) == list(store.range(start, end))[::-1]
        assert [key for key, _ in other.iterate(reverse=True)] == [b"b", b"a"]


@pytest.mark.parametrize("crashes", [False, True])
def test_a_dropped_store_is_gone_for_good(
    tmp_path: Path, settings: StateSettings, crashes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Log.open(tmp_path / "log", KEEPING) as log:
        state = BucketState.open(log, settings)
        store = state.store(ORDERS)
        store.write({n: n for n in range(100)}).result(LIMIT_SECONDS)
        state.checkpoint()
        with monkeypatch.context() as patch:
            if crashes:  # after the frame that drops it, before its keys are deleted
                patch.setattr(BucketState, "_empty", lambda *_: None)
            number = store.raw.number
            state.drop_store(store).result(LIMIT_SECONDS)
        assert store.get(1) is None
        assert state.stores() == []
        with pytest.raises(BadInput, match="is not there"):
            state.drop_store(store)
        again = state.store(ORDERS)
        assert again.raw.number != number
        again.write({7: "new"}).result(LIMIT_SECONDS)
        state.checkpoint()
    for _ in range(2):
        with Log.open(tmp_path / "log", KEEPING) as log:
            state = BucketState.open(log, settings)
            assert content(state) == {7: "new"}
            with state.engine.create_snapshot() as snapshot:
                assert number is not None
                assert list(snapshot.iterate(number)) == []
            state.checkpoint()
            state.engine.compact()


@pytest.mark.parametrize("used", [False, True], ids=["a new handle", "one that wrote before"])
def test_a_handle_of_a_dropped_store_never_brings_it_back(tmp_path: Path, settings: StateSettings, used: bool) -> None:
    """A handle stands for the store that it was opened on, and not for a later one of its name."""
    with Log.open(tmp_path / "log", KEEPING) as log:
        state = BucketState.open(log, settings)
        store, raw = state.store(ORDERS), state.raw_store("r", "o")
        if used:
            store.write({1: 1}).result(LIMIT_SECONDS)
            raw.write({b"1": b"1"}).result(LIMIT_SECONDS)
        begun = state.begin()
        store.put(begun, 2, 2)
        state.drop_store(store).result(LIMIT_SECONDS)
        state.drop_store(raw).result(LIMIT_SECONDS)
        for attempt in range(2):
            for write in (
                partial(state.commit, begun),
                partial(store.write, {3: 3}),
                partial(store.write, {1: DELETE}),
                partial(raw.write, {b"3": b"3"}),
            ):
                with pytest.raises(BadInput, match=r"was dropped.*open it again"):
                    write()
            assert (store.get(3), list(store.items()), raw.get(b"3"), raw.get_many([b"3"])) == (None, [], None, {})
            assert len(state.stores()) == 2 * attempt
            state.store(ORDERS).write({3: "new"}).result(LIMIT_SECONDS)
            state.raw_store("r", "o").write({b"3": b"new"}).result(LIMIT_SECONDS)
        with pytest.raises(BadInput, match="is not there"):
            state.drop_store(store)
        assert content(state) == {3: "new"}


def test_a_drop_that_a_truncation_takes_back_did_not_happen(tmp_path: Path, settings: StateSettings) -> None:
    with Log.open(tmp_path / "log", KEEPING) as log:
        state = BucketState.open(log, settings)
        store = state.store(ORDERS)
        before = store.write({n: n for n in range(10)}).result(LIMIT_SECONDS)
        state.drop_store(store).result(LIMIT_SECONDS)
        state.store(ORDERS).write({1: "new"}).result(LIMIT_SECONDS)
        state.truncate(before)
        assert content(state) == {n: n for n in range(10)}
        put(state, 10, 10)
    with Log.open(tmp_path / "log", KEEPING) as log:
        assert content(BucketState.open(log, settings)) == {n: n for n in range(11)}


@pytest.mark.parametrize("wrong", [5, "text", None, 1.5, [1]])
def test_a_store_of_bytes_refuses_what_is_none(tmp_path: Path, settings: StateSettings, wrong: Any) -> None:
    """`bytes(5)` is five zeros, which nobody meant."""
    descriptor: StateDescriptor[Any, Any] = StateDescriptor("raw", "test", codecs.raw, codecs.raw)
    with Log.open(tmp_path / "log", KEEPING) as log:
        store = BucketState.open(log, settings).store(descriptor)
        for pair in ({b"k": wrong}, {wrong: b"v"}) if wrong != [1] else ({b"k": wrong},):
            with pytest.raises(BadInput, match="cannot hold"):
                store.write(pair)
        assert list(store.items()) == []


def test_no_put_deletes_a_key(tmp_path: Path, settings: StateSettings) -> None:
    with Log.open(tmp_path / "log", KEEPING) as log:
        state = BucketState.open(log, settings)
        raw = state.raw_store("bytes", "test")
        raw.write({b"key": b"value"}).result(LIMIT_SECONDS)
        none: Any = None
        for change in (state.begin(), state.begin().at(1)):
            for write in (partial(raw.put_many, change, {b"key": none}), partial(raw.put, change, b"key", none)):
                with pytest.raises(BadInput, match="None"):
                    write()
            assert not change
        assert raw.get(b"key") == b"value"


_NAMESAKES: tuple[StateDescriptor[int, int], ...] = (
    StateDescriptor("namesake", "test", codecs.u64, codecs.u64),
    StateDescriptor("namesake", "test", codecs.u64, codecs.i64),
)


def test_no_handle_reads_a_namesake_with_other_codecs(tmp_path: Path, settings: StateSettings) -> None:
    """After a drop and a store of the same name; and after the truncation that takes both back."""
    first, second = _NAMESAKES
    with Log.open(tmp_path / "log", KEEPING) as log:
        state = BucketState.open(log, settings)
        old = state.store(first)
        before = old.write({1: 7}).result(LIMIT_SECONDS)
        with StateReader.open(log.reader(), settings=settings) as reader:
            followed = reader.store(first)
            assert followed.get(1) == 7
            state.drop_store(old).result(LIMIT_SECONDS)
            new = state.store(second)
            new.write({1: -7}).result(LIMIT_SECONDS)
            reader.advance()
            with pytest.raises(NotSupported, match="is gone"):
                followed.get(1)
            assert reader.store(second).get(1) == -7
        state.truncate(before)
        assert new.get(1) is None
        with pytest.raises(BadInput, match="dropped"):
            new.write({1: -7})
        assert dict(state.store(first).items()) == {1: 7}


def test_no_handle_writes_into_a_namesake_with_other_codecs(tmp_path: Path, settings: StateSettings) -> None:
    """After a truncation that took the registration of the handle's store back."""
    first, second = _NAMESAKES
    with Log.open(tmp_path / "log", KEEPING) as log:
        state = BucketState.open(log, settings)
        before = log.append(b"entry").result(LIMIT_SECONDS)
        old = state.store(first)
        old.write({1: 7}).result(LIMIT_SECONDS)
        state.truncate(before)
        new = state.store(second)
        new.write({1: -7}).result(LIMIT_SECONDS)
        with pytest.raises(BadInput, match="open it again"):
            old.write({2: 7})
        assert (old.get(1), old.get_many([1]), list(old.items())) == (None, {}, [])
        assert dict(new.items()) == {1: -7}
        state.truncate(before)
        with pytest.raises(BadInput, match="open it again"):
            old.write({2: 7})
        again = state.store(first)
        again.write({3: 9}).result(LIMIT_SECONDS)
        assert (dict(again.items()), list(new.items()), list(old.items())) == ({3: 9}, [], [])


def test_a_handle_follows_its_store_when_a_truncation_took_it_back(tmp_path: Path, settings: StateSettings) -> None:
    """Where it is registered again with the same codecs: by the handle itself, or by another one."""
    first, _ = _NAMESAKES
    with Log.open(tmp_path / "log", KEEPING) as log:
        state = BucketState.open(log, settings)
        before = log.append(b"entry").result(LIMIT_SECONDS)
        old = state.store(first)
        for write in (old.write, lambda items: state.store(first).write(items)):
            old.write({1: 7}).result(LIMIT_SECONDS)
            state.truncate(before)
            assert old.get(1) is None
            write({2: 8}).result(LIMIT_SECONDS)
            assert dict(old.items()) == {2: 8}


def test_no_reader_reads_a_namesake_that_came_with_a_truncation(tmp_path: Path, settings: StateSettings) -> None:
    """The namesake has even the number of the store that is gone."""
    first, second = _NAMESAKES
    with Log.open(tmp_path / "log", KEEPING) as log:
        state = BucketState.open(log, settings)
        before = log.append(b"entry").result(LIMIT_SECONDS)
        state.store(first).write({1: 7}).result(LIMIT_SECONDS)
        with (
            StateReader.open(log.reader(), settings=settings) as at_once,
            StateReader.open(log.reader(), settings=settings) as between,
        ):
            handles = [reader.store(first) for reader in (at_once, between)]
            assert [handle.get(1) for handle in handles] == [7, 7]
            state.truncate(before)
            between.advance()
            assert handles[1].get(1) is None
            state.store(second).write({1: -7}).result(LIMIT_SECONDS)
            for reader, handle in zip((at_once, between), handles, strict=True):
                reader.advance()
                try:
                    assert handle.get(1) is None
                except NotSupported as error:
                    assert "open it again" in str(error)
                assert reader.store(second).get(1) == -7


@pytest.mark.timeout(60)  # it went on for ever
@pytest.mark.parametrize("opened", [BucketState.open, lambda log: StateReader.open(log.reader())])
def test_a_value_that_cannot_be_decoded_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, opened: Callable[[Log], Any]
) -> None:
    packed: StateDescriptor[int, Any] = StateDescriptor("packed", "test", codecs.u64, codecs.msgpack)
    with Log.open(tmp_path / "log", KEEPING) as log:
        state = BucketState.open(log)
        state.store(packed).write({1: "of a later version"}).result(LIMIT_SECONDS)
        state.checkpoint()

    def refuse(*_: object) -> None:
        raise Corruption("a value of a later version")

    monkeypatch.setattr(type(codecs.msgpack), "decode", refuse)
    with (
        Log.open(tmp_path / "log", KEEPING) as log,
        opened(log) as state,
        pytest.raises(Corruption, match="a later version"),
    ):
        list(state.store(packed).items())
