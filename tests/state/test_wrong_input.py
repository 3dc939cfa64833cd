"""Every public call of a state with wrong types and values: `BadInput` on the caller's thread, and everything goes on."""

from __future__ import annotations

import dataclasses
import inspect
import threading
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.clock import ManualClock
from penstock.errors import BadInput, Closed, Corruption
from penstock.log import Log, LogReader, LogSettings, RecordLog
from penstock.state import (
    DELETE,
    BucketState,
    Change,
    Migration,
    RawStore,
    SnapshotStores,
    StateDescriptor,
    StateReader,
    StateSettings,
    TypedStore,
    codecs,
)
from tests.support.worlds import LogInMemory
from tests.support.wrong_input import (
    FLAG,
    HUGE,
    POSITION,
    Argument,
    Calls,
    cases,
    component,
    count,
    function,
    needed,
    optional,
    refuses,
    typed,
)

SOON = 30.0
SETTINGS = LogSettings(preallocate_bytes=4096, maintenance_interval_seconds=0)
NUMBERS = StateDescriptor("numbers", "test", codecs.u64, codecs.json)
PAIRS = StateDescriptor("pairs", "test", codecs.tuple_of(codecs.text, codecs.i64), codecs.text)

TEXT = typed("text", str, bad=("\ud800",))
NAME = typed("name", str, bad=("", "\ud800"))
DATA = Argument(
    lambda: b"x",
    lambda value: isinstance(value, (bytes, bytearray, memoryview)) or (isinstance(value, list) and not value),
    (["a"], [1], [b"x", None], memoryview(bytes(8))[::2]),
)
DESCRIPTOR = typed(NUMBERS, StateDescriptor)
CHANGE = Argument(Change, lambda value: isinstance(value, Change))
BYTES = Argument(lambda: b"key", lambda value: isinstance(value, bytes), (bytearray(b"k"), "key"))
NUMBER = Argument(
    lambda: 1, lambda value: isinstance(value, int) and 0 <= value < 1 << 64, (-1, HUGE, 1.0, float("nan"), "1", b"1")
)
PROGRESS = optional(function(lambda progress: None))


def is_numbers(value: Any) -> bool:
    return isinstance(value, Collection) and all(NUMBER.fits(one) for one in value)


def is_keys(value: Any) -> bool:
    return isinstance(value, Collection) and all(isinstance(one, bytes) for one in value)


EMPTY = lambda value: isinstance(value, Collection) and not len(value)  # noqa: E731
CLOCK = optional(component(ManualClock()))
STATE_SETTINGS = optional(typed(StateSettings(), StateSettings))
STORE = Argument(lambda: None, lambda value: isinstance(value, RawStore | TypedStore))
RAW_STORE = {
    "name": NAME,
    "operator": NAME,
    "table": TEXT,
    "bucket": Argument(lambda: 0, lambda v: type(v) is int, (-1, HUGE)),
}

STATE: Calls = {
    "open": {"log": Argument(lambda: None, lambda v: isinstance(v, Log | RecordLog)), "settings": STATE_SETTINGS, "progress": PROGRESS, "clock": CLOCK},
    "get_or_create_store": {"descriptor": DESCRIPTOR},
    "store": {"descriptor": DESCRIPTOR},
    "raw_store": RAW_STORE,
    "drop_store": {"store": STORE},
    "commit": {"change": CHANGE, "data": DATA},
    "verdict": {"descriptor": DESCRIPTOR},
    "recover": {"to": POSITION, "progress": PROGRESS},
    "truncate": {"position": POSITION, "force": FLAG},
    "heal": {"error": FLAG},  # called by stores alone, with what a read raised
}  # fmt: skip
READER: Calls = {
    "open": {"reader": Argument(lambda: None, lambda v: isinstance(v, LogReader)), "on_frame": PROGRESS,
             "at": Argument(lambda: None, lambda v: v is None, ("latest", *POSITION.bad)), "settings": STATE_SETTINGS, "progress": PROGRESS},
    "advance": {"to": optional(POSITION)},
    "store": {"descriptor": DESCRIPTOR},
    "raw_store": RAW_STORE,
    "verdict": {"descriptor": DESCRIPTOR},
    "commit": {"change": CHANGE},
    "heal": {"error": FLAG},
}  # fmt: skip
SNAPSHOT: Calls = {name: READER[name] for name in ("store", "raw_store", "verdict", "commit", "heal")}
# Bytes that are put into a change are looked at when it is committed: `put` is called for each key.
AT_COMMIT = {("put", "value"), ("put", "key"), ("put_many", "items")}
RAW: Calls = {
    "bind": {"number": FLAG},  # called by the state alone
    "refuse": {"refuse": FLAG},  # the same
    "follows": {"found": FLAG},  # the same
    "get": {"key": Argument(BYTES.good, lambda v: isinstance(v, bytes | memoryview), BYTES.bad)},
    "contains": {"key": Argument(BYTES.good, lambda v: isinstance(v, bytes | memoryview), BYTES.bad)},
    "put": {"change": CHANGE, "key": BYTES, "value": BYTES},
    "put_many": {"change": CHANGE, "items": Argument(dict, is_keys, ({1: b"x"}, {b"x": None, b"y": 1}, {"x": b"y"}, [1], [b"abc"]))},
    "delete": {"change": CHANGE, "key": BYTES},
    "write": {"items": Argument(dict, EMPTY, ({1: b"x"}, {b"x": None}, {b"x": 1}, {"x": DELETE}, [(b"x", b"y")]))},
    "get_many": {"keys": Argument(list, is_keys, ([1], ["x"], b"ab", [b"x", None]))},
    "get_in": {"change": CHANGE, "key": BYTES},
    "contains_in": {"change": CHANGE, "key": BYTES},
    "iterate": {"prefix": BYTES, "start": optional(BYTES), "end": optional(BYTES), "reverse": FLAG},
}  # fmt: skip
TYPED: Calls = {
    "get": {"key": NUMBER},
    "get_many": {"keys": Argument(list, is_numbers, ([-1], ["x"], [1, None]))},
    "get_in": {"change": CHANGE, "key": NUMBER},
    "contains_in": {"change": CHANGE, "key": NUMBER},
    "contains": {"key": NUMBER},
    "items": {"reverse": FLAG},
    "prefix": {"prefix": optional(NUMBER), "reverse": FLAG},
    "range": {"start": optional(NUMBER), "end": optional(NUMBER), "reverse": FLAG},
    "iterate": {"prefix": optional(NUMBER), "start": optional(NUMBER), "end": optional(NUMBER), "reverse": FLAG},
    "put": {"change": CHANGE, "key": NUMBER, "value": Argument(lambda: 1, lambda v: v is None or isinstance(v, (bool, int, float, str, list, tuple, dict)), (b"x", {1, 2}, "\ud800", object()))},
    "put_many": {"change": CHANGE, "items": Argument(dict, is_numbers, ({-1: 1}, {1: b"x"}, [(1, 1)]))},
    "delete": {"change": CHANGE, "key": NUMBER},
    "write": {"items": Argument(dict, is_numbers, ({-1: 1}, {1: b"x"}, {"x": DELETE}, [(1, 1)]))},
}  # fmt: skip
CHANGES: Calls = {
    "at": {"delta": count(), "timestamp": optional(count())},
    "set": {"store": FLAG, "key": FLAG, "value": FLAG},  # called by stores, for each key; see AT_COMMIT
}


class World:
    """A state over a log, with a typed store, a raw one, a snapshot and a reader; or the same over a record log."""

    def __init__(self) -> None:
        self.memory = LogInMemory(SETTINGS, 2)
        self.state = BucketState.open(self.memory.log)
        self.typed = self.state.store(NUMBERS)
        self.raw = self.state.raw_store("raw", "test")
        self.typed.write({1: "one"}).result(SOON)
        self.raw.write({b"key": b"value"}).result(SOON)
        self.snapshot = self.state.snapshot()
        self.reader = StateReader.open(self.memory.log.reader())

    def of(self, kind: type) -> Any:
        return {
            BucketState: self.state,
            StateReader: self.reader,
            SnapshotStores: self.snapshot,
            RawStore: self.raw,
            TypedStore: self.typed,
        }[kind]

    def written(self) -> object:
        stores = [(one.number, one.namespace) for one in self.state.stores()]
        return stores, list(self.typed.items()), list(self.raw.iterate()), self.memory.log.end()

    def check_that_it_works(self) -> None:
        self.typed.write({2: None}).result(SOON)
        self.raw.write({b"new": b"value"}).result(SOON)
        assert (self.typed.contains(2), self.raw.get(b"new")) == (True, b"value")
        self.reader.advance()
        assert self.reader.raw_store("raw", "test").get(b"new") == b"value"
        self.state.checkpoint()

    def close(self) -> None:
        self.snapshot.close()
        self.reader.close()
        self.state.close()
        self.memory.log.close()


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    died: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", died.append)
    world = World()
    before = world.written()
    yield world
    assert world.written() == before, "a call that was refused changed something"
    world.check_that_it_works()
    world.close()
    assert not died, "a thread ended"


@pytest.mark.parametrize(("name", "wrong"), cases(BucketState, STATE))
def test_state(world: World, name: str, wrong: str) -> None:
    arguments = dict(STATE[name])
    if name == "open":
        arguments["log"] = typed(world.memory.log, Log, RecordLog)
    refuses(getattr(world.state, name), arguments, wrong)


@pytest.mark.parametrize(("name", "wrong"), cases(StateReader, READER))
def test_state_reader(world: World, name: str, wrong: str) -> None:
    arguments = dict(READER[name])
    if name == "open":
        arguments["reader"] = typed(world.memory.log.reader(), LogReader)
    refuses(getattr(world.reader, name), arguments, wrong)


@pytest.mark.parametrize(("name", "wrong"), cases(SnapshotStores, SNAPSHOT))
def test_snapshot(world: World, name: str, wrong: str) -> None:
    refuses(getattr(world.snapshot, name), SNAPSHOT[name], wrong)


def committed(state: BucketState, call: Callable[..., Any]) -> Callable[..., Any]:
    """The call and the commit of its change as one."""

    def put(change: Any, **arguments: Any) -> None:
        call(change, **arguments)
        state.commit(change)

    put.__signature__ = inspect.signature(call)  # type: ignore[attr-defined]
    return put


@pytest.mark.parametrize(("name", "wrong"), cases(RawStore, RAW))
def test_raw_store(world: World, name: str, wrong: str) -> None:
    call = getattr(world.raw, name)
    refuses(committed(world.state, call) if (name, wrong) in AT_COMMIT else call, RAW[name], wrong)


@pytest.mark.parametrize(("name", "wrong"), cases(TypedStore, TYPED))
def test_typed_store(world: World, name: str, wrong: str) -> None:
    refuses(getattr(world.typed, name), TYPED[name], wrong)


@pytest.mark.parametrize(("name", "wrong"), cases(Change, CHANGES))
def test_change(name: str, wrong: str) -> None:
    refuses(getattr(Change(), name), CHANGES[name], wrong)


@pytest.mark.parametrize(
    "key", ["ab", b"x", 5, None, ("a",), ("a", 1, 2), (1, "a"), ("\ud800", 1), ("a", HUGE)], ids=ascii
)
def test_keys_of_several_parts(key: Any) -> None:
    world = World()
    store = world.state.store(PAIRS)
    for call in (store.get, store.contains, lambda key: store.get_many([key]), lambda key: store.write({key: "x"})):
        with pytest.raises(BadInput):
            call(key)
    assert not list(store.items())
    world.close()


@pytest.mark.parametrize("mark", [None, 3])
def test_a_change_with_anything_but_bytes_is_refused_as_a_whole(world: World, mark: int | None) -> None:
    """A buffer that its owner changes later must not become part of the state: memory would part from the log."""
    for key, value in [
        (b"k", bytearray(b"v")),
        (b"k", memoryview(b"v")),
        (memoryview(b"k"), b"v"),
        ("k", b"v"),
        (b"k", 1),
    ]:
        change = world.state.begin()
        if mark is not None:
            change.at(mark)
        world.raw.put(change, b"innocent", b"x")
        world.raw.put(change, key, value)  # type: ignore[arg-type]
        with pytest.raises(BadInput):
            world.state.commit(change)


def test_a_store_of_another_state_is_refused(world: World) -> None:
    other = World()
    change = world.state.begin()
    other.raw.put(change, b"k", b"v")
    with pytest.raises(BadInput, match="another state"):
        world.state.commit(change)
    with pytest.raises(BadInput):
        world.state.drop_store(other.raw)
    other.close()


@pytest.mark.parametrize("over_records", [False, True])
def test_data_that_cannot_be_appended_leaves_the_change_undone(over_records: bool, tmp_path: Path) -> None:
    log: Any = RecordLog.open(tmp_path, "r") if over_records else Log.open(tmp_path / "log")
    with log, BucketState.open(log) as state:
        raw = state.raw_store("raw", "test")
        for data in ("text", 5, [1], None):
            change = state.begin()
            raw.put(change, b"k", b"v")
            with pytest.raises(BadInput):
                state.commit(change, data)  # type: ignore[arg-type]
            assert raw.get(b"k") is None
        raw.write({b"k": b"v"}).result(SOON)


@pytest.mark.parametrize("kind", [BucketState, StateReader, SnapshotStores, RawStore, TypedStore])
def test_whatever_is_called_on_something_closed(kind: type) -> None:
    world = World()
    one = world.of(kind)
    world.close()
    tables: dict[type, Calls] = {
        BucketState: STATE,
        StateReader: READER,
        SnapshotStores: SNAPSHOT,
        RawStore: RAW,
        TypedStore: TYPED,
    }
    for name, arguments in tables[kind].items():
        if name in ("open", "heal", "bind", "refuse", "follows", "put", "put_many", "delete") or (
            kind is not BucketState and name == "commit"
        ):
            continue  # they make something new, or only add to a change, which the commit refuses
        given = needed(getattr(one, name), arguments)
        if "store" in given:
            given["store"] = world.raw
        with pytest.raises(Closed):
            getattr(one, name)(**given)


WRONG_FIELDS: dict[str, tuple[Any, ...]] = {
    "name": ("", 5, None, b"x", "\ud800"),
    "operator": ("", 5, None, "\ud800"),
    "key": (5, "u64", None, object()),
    "value": (5, None, int),
    "schema_version": (-1, 1 << 16, "1", 1.0, None),
    "migrations": (5, [1], (1,), (Migration(5, codecs.json, lambda old: old),)),
    "table": (5, None, "\ud800"),
    "bucket": (-1, HUGE, "0", 1.5, None),
}


def test_descriptors() -> None:
    assert set(WRONG_FIELDS) == {field.name for field in dataclasses.fields(StateDescriptor)}
    good = {"name": "n", "operator": "o", "key": codecs.u64, "value": codecs.json}
    for field, values in WRONG_FIELDS.items():
        for value in values:
            with pytest.raises(BadInput):
                StateDescriptor(**{**good, field: value})


def test_damage_is_raised_by_what_cannot_mend_it(world: World) -> None:
    with pytest.raises(Corruption):
        world.snapshot.heal(Corruption("damage"))
