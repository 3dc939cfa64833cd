"""Every public call of the log with wrong types and values: `BadInput` on the caller's thread, and everything goes on."""

from __future__ import annotations

import asyncio
import functools
import inspect
import threading
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyroaring import BitMap

from penstock.clock import ManualClock
from penstock.errors import BadInput, Closed
from penstock.files.memory import MemoryFiles
from penstock.log import (
    Cursor,
    CursorTable,
    Log,
    LogReader,
    LogSettings,
    Pending,
    Position,
    RecordLog,
    StateChange,
    configure_cache,
)
from penstock.log import aio as aio_module
from penstock.log.cursors.reading import Batch
from penstock.log.read.positions import LedgerView
from penstock.log.read.tail import Tail
from penstock.metadata import MemoryMetadata
from tests.support.worlds import DIRECTORY, LogInMemory
from tests.support.wrong_input import (
    FLAG,
    HUGE,
    NAME,
    POSITION,
    TEXTS,
    Argument,
    Calls,
    cases,
    component,
    count,
    function,
    needed,
    optional,
    refuses,
    seconds,
    typed,
)

SETTINGS = LogSettings(preallocate_bytes=4096, maintenance_interval_seconds=0)
SOON = 30.0
BUFFERS = (bytes, bytearray, memoryview)
ANY_POSITION: Any = Position  # with whatever in it
ANY_CHANGE: Any = StateChange
BAD_VIEW = memoryview(bytes(8))[::2]

PATH = Argument(lambda: DIRECTORY, lambda value: isinstance(value, str), ("", "/", "a\0b", "\ud800/x", "..", b"/s/log"))
CLOCK, FILES, METADATA = component(ManualClock()), component(MemoryFiles()), component(MemoryMetadata())
DATA = Argument(
    lambda: b"x",
    lambda value: isinstance(value, BUFFERS) or (isinstance(value, list) and not value),
    (["a"], [1], [b"x", None], BAD_VIEW),
)
CHANGES = Argument(
    lambda: (),
    lambda value: isinstance(value, (list, tuple, bytes)) and not value,
    (
        [1],
        "x",
        b"no changes",
        [StateChange(-1, b"k", b"v")],
        [ANY_CHANGE(1, "k", b"v")],
        [StateChange(HUGE, b"k", b"v")],
    ),
)
START = Argument(lambda: "earliest", lambda value: isinstance(value, Position), ("x", "", "EARLIEST", *POSITION.bad))
PLACE = Argument(POSITION.good, POSITION.fits, START.bad)
OWN = Argument(
    lambda: (),
    lambda value: isinstance(value, Collection) and all(isinstance(one, str) for one in value),
    ("x", "", b"", [1], {1}, {"a": 1}, ["\ud800"]),
)
POSITIONS = Argument(
    lambda: [Position(1, 0)],
    lambda value: isinstance(value, Collection) and not len(value),
    ([1], ["ab"], [None], 5, [ANY_POSITION(1, 0.5)], [ANY_POSITION("1", 0)]),
)
URL = Argument(lambda: "file:///s/objects", lambda value: value is None, ("x", "", "ftp://x", "file://host/x", 5))
RECORDS = Argument(
    lambda: [],
    lambda value: isinstance(value, Collection) and not len(value),
    ([1], ["ab"], [(1, 2, 3)], [("x", ())], "ab"),
)
TIMEOUT = Argument(lambda: 0, lambda value: value is None or type(value) in (int, float), (float("nan"),))
MILLISECONDS = count(good=5)
MESSAGES = Argument(lambda: 1, lambda value: type(value) is int, (0, -1, 65_537, HUGE))
LEDGER = Argument(lambda: 1, lambda value: type(value) is int, (-1, 77, HUGE))
SKIP = optional(function(lambda position: False))

LOG: Calls = {
    "open": {"directory": PATH, "settings": optional(typed(SETTINGS, LogSettings)), "files": FILES, "clock": CLOCK, "metadata": optional(METADATA)},
    "append": {"data": DATA, "changes": CHANGES, "wait": FLAG, "after": optional(typed(None, Pending)), "encoded": FLAG, "messages": MESSAGES},
    "append_many": {"entries": Argument(lambda: [b"x"], lambda value: False, ([], ["a"], b"ab", [b"a", None], [BAD_VIEW])), "wait": FLAG},
    "read": {"start": POSITION, "end": POSITION},
    "open_cursor": {"name": NAME, "start": START, "durable": FLAG},
    "delete_cursor": {"name": NAME},
    "expire_cursors": {"inactive_seconds": seconds()},
    "offload": {"url": URL, "keep_bytes": count(), "progress": optional(function(print))},
    "check_truncate": {"position": POSITION, "own": OWN, "force": FLAG},
    "truncate": {"position": POSITION, "own": OWN, "force": FLAG},
    "skip": {"ledger_id": LEDGER, "dry_run": FLAG},
    "pin": {"name": NAME, "position": POSITION},
    "unpin": {"name": NAME},
    "set_properties": {"properties": TEXTS},
    "delete": {"directory": PATH, "files": FILES, "clock": CLOCK, "metadata": optional(METADATA)},
}  # fmt: skip
READER: Calls = {
    "open": {"directory": PATH, "files": FILES, "metadata": optional(METADATA), "read_attempts_max": count(least=1)},
    "read": {"start": POSITION, "end": POSITION, "max_bytes": optional(count())},
    "entries": {"start": POSITION, "end": POSITION},
    "runs": {"start": POSITION, "end": POSITION, "consumer": FLAG},
    "scan": {"start": POSITION, "end": POSITION},
    "scan_encoded": {"start": POSITION, "end": POSITION},
    "skipped": {"start": POSITION, "end": POSITION},
    "footer": {"view": typed(None, LedgerView)},
    "next": {"position": POSITION},
    "previous": {"position": POSITION},
    "advance": {"position": POSITION, "entries": count()},
    "nth": {"number": count()},
    "count": {"after": POSITION, "to": POSITION},
    "find_newest": {"matches": function(lambda entry: True), "after": optional(POSITION)},
    "find_by_time": {"wall_ms": MILLISECONDS},
}
CURSOR: Calls = {
    "open": {"reader": typed(None, LogReader), "directory": PATH, "name": NAME, "start": START, "files": FILES, "clock": CLOCK, "tail": optional(typed(None, Tail)), "on_moved": function(print)},
    "in_memory": {"reader": typed(None, LogReader), "name": typed("", str), "start": START, "clock": CLOCK, "tail": optional(typed(None, Tail))},
    "is_acked": {"position": POSITION},
    "ack": {"first": POSITION, "last": optional(POSITION)},
    "ack_each": {"positions": POSITIONS},
    "mark_delete": {"position": POSITION, "properties": optional(TEXTS)},
    "skip": {"entries": count()},
    "reset": {"position": PLACE},
    "set_properties": {"properties": TEXTS},
    "read": {"max_entries": count(least=1), "max_bytes": optional(count(least=1)), "end": optional(POSITION), "skip": SKIP},
    "read_or_wait": {"max_entries": count(least=1), "max_bytes": optional(count(least=1)), "timeout": TIMEOUT, "skip": SKIP},
    "replay": {"positions": POSITIONS},
    "nth": {"number": count(least=1)},
    "nth_position": {"number": count(least=1)},
    "seek": {"position": PLACE},
    "find_newest": {"matches": function(lambda entry: True), "everywhere": FLAG},
    "find_newest_by_time": {"wall_ms": MILLISECONDS, "everywhere": FLAG},
    "give_back": {"batch": typed(Batch(), Batch), "given": count()},
    "unacked": {"ledger_id": count(), "last": count()},
    "call_at_close": {"callback": function(print)},
}  # fmt: skip
TABLE: Calls = {
    "open": {"name": NAME, "start": START, "durable": FLAG},
    "delete": {"name": NAME},
    "expire": {"inactive_seconds": seconds()},
    "reset": {"names": OWN, "position": POSITION, "check_owner": function(print)},
    "lacking": {"ledger_id": count(), "entries": typed(BitMap([0]), BitMap)},
}
RECORD: Calls = {
    "open": {"directory": PATH, "name": NAME, "files": FILES, "clock": CLOCK},
    "append": {"data": DATA, "changes": CHANGES, "wait": FLAG, "encoded": FLAG},
    "append_built": {"build": function(lambda: b"x")},
    "rewrite": {"records": RECORDS},
    "rewrite_later": {"records": RECORDS},
    "compact": {"build": function(lambda: b"x")},
}


class World:
    """A log, a cursor of it and a record log, all open; and what was written so far."""

    def __init__(self) -> None:
        self.memory = LogInMemory(SETTINGS, 3)
        self.log = self.memory.log
        self.cursor = self.log.open_cursor("c")
        self.reader = self.log.reader()
        self.table = CursorTable(self.reader, None, self.memory.files, self.memory.clock)
        self.records = RecordLog.open(Path("/s/records"), "r", self.memory.files, self.memory.clock)
        self.records.append(b"first").result(SOON)

    def of(self, kind: type) -> Any:
        return {
            Log: self.log,
            LogReader: self.reader,
            Cursor: self.cursor,
            CursorTable: self.table,
            RecordLog: self.records,
        }[kind]

    def written(self) -> object:
        """Everything that a call could have changed durably."""
        return (
            self.log.end(),
            self.log.cursors(),
            self.log.pins(),
            self.log.properties(),
            self.cursor.mark_delete_position,
            self.cursor.properties(),
            list(self.cursor.holes()),
            list(self.records.records()),
            self.memory.metadata.entries(""),
        )

    def check_that_it_works(self) -> None:
        position = self.log.append(b"innocent").result(SOON)
        assert [bytes(entry.data) for entry in self.log.read(position, position)] == [b"innocent"]
        assert position in [entry.position for entry in self.cursor.read()]
        self.cursor.ack(position).result(SOON)
        assert self.cursor.is_acked(position)
        self.records.append(b"innocent").result(SOON)

    def close(self) -> None:
        self.table.close()
        self.records.close()
        self.log.close()


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


def call_of(world: World, kind: type, name: str) -> Callable[..., Any]:
    return getattr(world.of(kind), name)  # type: ignore[no-any-return]


@pytest.mark.parametrize(("name", "wrong"), cases(Log, LOG))
def test_log(world: World, name: str, wrong: str) -> None:
    refuses(call_of(world, Log, name), LOG[name], wrong)


@pytest.mark.parametrize(("name", "wrong"), cases(LogReader, READER))
def test_log_reader(world: World, name: str, wrong: str) -> None:
    refuses(call_of(world, LogReader, name), READER[name], wrong)


@pytest.mark.parametrize(("name", "wrong"), cases(Cursor, CURSOR))
def test_cursor(world: World, name: str, wrong: str) -> None:
    arguments = dict(CURSOR[name])
    if "reader" in arguments:
        arguments["reader"] = typed(world.reader, LogReader)
    refuses(call_of(world, Cursor, name), arguments, wrong)


@pytest.mark.parametrize(("name", "wrong"), cases(CursorTable, TABLE))
def test_cursor_table(world: World, name: str, wrong: str) -> None:
    refuses(call_of(world, CursorTable, name), TABLE[name], wrong)


@pytest.mark.parametrize(("name", "wrong"), cases(RecordLog, RECORD))
def test_record_log(world: World, name: str, wrong: str) -> None:
    refuses(call_of(world, RecordLog, name), RECORD[name], wrong)


@pytest.mark.parametrize("wrong", ["bytes_max", "in_flight_bytes_max"])
def test_the_cache(wrong: str) -> None:
    arguments = {"bytes_max": count(), "in_flight_bytes_max": count(least=1)}
    assert set(inspect.signature(configure_cache).parameters) == set(arguments)
    refuses(configure_cache, arguments, wrong)


def test_entries_that_are_not_there_are_refused(world: World) -> None:
    """Positions of another log, or beyond the end, are positions all the same: what cannot be done with them is `BadInput`."""
    far = Position(77, 3)
    with pytest.raises(BadInput):
        world.cursor.ack(far)
    with pytest.raises(BadInput):
        world.cursor.ack(Position(1, 0), far)
    with pytest.raises(BadInput):
        world.cursor.ack_each([Position(1, 0), far])
    with pytest.raises(BadInput):
        world.cursor.mark_delete(far)
    with pytest.raises(BadInput):
        world.log.open_cursor("new", far)
    with pytest.raises(BadInput):
        list(world.log.read(Position(1, 0), far))
    with pytest.raises(BadInput):
        world.log.truncate(Position(0, 0))


def test_the_table_notices_a_call_that_it_does_not_have() -> None:
    class Grown(Cursor):
        def jump(self, where: int) -> None: ...

    with pytest.raises(AssertionError, match="jump"):
        cases(Grown, CURSOR)


@pytest.mark.parametrize("kind", [Log, LogReader, Cursor, CursorTable, RecordLog])
def test_whatever_is_called_on_something_closed(kind: type) -> None:
    """`Closed` by name, from every call; those that do nothing to a closed thing, and facts that it still knows, may answer."""
    world = World()
    one = world.of(kind)
    world.close()
    world.reader.close()
    tables: dict[type, Calls] = {Log: LOG, LogReader: READER, Cursor: CURSOR, CursorTable: TABLE, RecordLog: RECORD}
    for name, arguments in tables[kind].items():
        if name in ("open", "in_memory", "delete", "call_at_close") and kind is not CursorTable:
            continue
        with pytest.raises(Closed):
            answer = getattr(one, name)(**needed(getattr(one, name), arguments))
            if isinstance(answer, Iterator):
                next(answer)


AIO_LOG: Calls = {
    **{name: LOG[name] for name in ("delete_cursor", "expire_cursors", "open_cursor", "pin", "read", "set_properties")},
    **{name: LOG[name] for name in ("skip", "truncate", "unpin")},
    **{name: READER[name] for name in ("find_newest", "find_by_time")},
    "append": {"data": DATA, "changes": CHANGES, "messages": MESSAGES},
    "append_many": {"entries": LOG["append_many"]["entries"]},
    "offload": {"url": URL, "keep_bytes": count()},
}
AIO_CURSOR: Calls = {
    **{name: CURSOR[name] for name in ("ack", "ack_each", "find_newest", "find_newest_by_time", "mark_delete", "nth")},
    **{name: CURSOR[name] for name in ("replay", "reset", "seek", "set_properties", "skip")},
    "read": {"max_entries": count(least=1), "max_bytes": optional(count(least=1))},
    "read_or_wait": {"max_entries": count(least=1), "max_bytes": optional(count(least=1)), "timeout": TIMEOUT},
}
AIO_MODULE: Calls = {name: LOG[name] for name in ("open", "delete")}


def awaited(call: Callable[..., Any]) -> Callable[..., Any]:
    """The asynchronous call as one that the harness can make: awaited to its end, in a loop of its own."""

    @functools.wraps(call)
    def wait(*arguments: Any, **named: Any) -> Any:
        async def run() -> Any:
            answer = call(*arguments, **named)
            return await anext(answer) if inspect.isasyncgen(answer) else await answer

        return asyncio.run(run())

    return wait


@pytest.mark.parametrize(("name", "wrong"), cases(aio_module.AsyncLog, AIO_LOG))
def test_asynchronous_log(world: World, name: str, wrong: str) -> None:
    refuses(awaited(getattr(aio_module.AsyncLog(world.log), name)), AIO_LOG[name], wrong)


@pytest.mark.parametrize(("name", "wrong"), cases(aio_module.AsyncCursor, AIO_CURSOR))
def test_asynchronous_cursor(world: World, name: str, wrong: str) -> None:
    refuses(awaited(getattr(aio_module.AsyncCursor(world.cursor), name)), AIO_CURSOR[name], wrong)


@pytest.mark.parametrize(("name", "wrong"), cases(aio_module, AIO_MODULE))
def test_asynchronous_module(world: World, name: str, wrong: str) -> None:
    refuses(awaited(getattr(aio_module, name)), AIO_MODULE[name], wrong)
