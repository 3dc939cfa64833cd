"""Handles: each opener closes its own, what is closed says so by name, and a forked child is told at once."""

from __future__ import annotations

import os
import threading
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from penstock.clock import ManualClock
from penstock.errors import BadInput, Closed
from penstock.log import Cursor, CursorTable, Log, LogReader, LogSettings, Position, RecordLog
from penstock.metadata import MemoryMetadata, SqliteMetadata
from penstock.state import BucketState, StateDescriptor, StateReader, codecs

SETTINGS = LogSettings(preallocate_bytes=4096, maintenance_interval_seconds=0)
POSITION = Position(1, 0)
DESCRIPTOR = StateDescriptor("position", "capture", codecs.text, codecs.json)


def test_an_opener_closes_its_own_handle_however_often(tmp_path: Path) -> None:
    one, other = Log.open(tmp_path / "log", SETTINGS), Log.open(tmp_path / "log", SETTINGS)
    with one:
        one.close()
    one.close()
    with pytest.raises(Closed):
        one.append(b"x")
    assert other.append(b"x").result(5).entry_id == 0
    state = BucketState.open(other)
    third = Log.open(tmp_path / "log")
    other.close()
    state.store(DESCRIPTOR).write({"k": 1}).result(5)  # the log is still open, and its state with it
    third.close()
    with pytest.raises(Closed):
        third.append(b"x")
    with Log.open(tmp_path / "log", LogSettings()) as again:
        assert again.statistics().entries == 2


def test_a_log_that_is_closed_in_a_callback_finishes_what_waits(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The callback runs on the writer thread: lock and files are given up once that thread is done, not before."""
    log = Log.open(tmp_path / "log", SETTINGS)
    holding, released = threading.Event(), threading.Event()

    def close(_: object) -> None:
        holding.set()
        released.wait(5)
        log.close()

    first = log.append(b"0")
    first.add_done_callback(close)
    holding.wait(1)
    others = [log.append(b"%d" % number) for number in range(1, 20)]
    released.set()
    assert [one.result(5).entry_id for one in others] == list(range(1, 20))
    with pytest.raises(Closed):
        log.append(b"x")
    for thread in threading.enumerate():
        if thread.name.startswith("close of log"):
            thread.join(10)
    with Log.open(tmp_path / "log", SETTINGS) as again:
        assert again.statistics().entries == 20
        assert [view.info.footer for view in again.reader().ledgers()][:1] == [True], "it was sealed by its owner"
    assert not caplog.records


def test_other_settings_are_told(tmp_path: Path) -> None:
    with Log.open(tmp_path / "log", SETTINGS) as log:
        with pytest.raises(BadInput, match="ledger_switches_max is 3, not 7"):
            Log.open(tmp_path / "log", LogSettings(4096, ledger_switches_max=7))
        with pytest.raises(BadInput, match="preallocate_bytes"):
            Log.open(tmp_path / "log", LogSettings())
        Log.open(tmp_path / "log").close()
        Log.open(tmp_path / "log", SETTINGS).close()
        log.append(b"x").result(5)


def test_another_clock_or_metadata_store_is_told(tmp_path: Path) -> None:
    clock = ManualClock()
    with Log.open(tmp_path / "log", clock=clock) as one:
        for other in ({"clock": ManualClock()}, {"metadata": MemoryMetadata()}):
            with pytest.raises(BadInput, match=f"with another {next(iter(other))}"):
                Log.open(tmp_path / "log", **other)  # type: ignore[arg-type]
        elsewhere = SqliteMetadata(tmp_path / "other.sqlite")
        with pytest.raises(BadInput, match="another metadata store"):
            Log.open(tmp_path / "log", metadata=elsewhere)
        elsewhere.close()
        same = SqliteMetadata(tmp_path / "metadata.sqlite")
        for given in (None, same, one.metadata):
            Log.open(tmp_path / "log", clock=clock, metadata=given).close()
        Log.open(tmp_path / "log").close()
        same.close()


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with Log.open(tmp_path / "log", SETTINGS) as log:
        log.append(b"x").result(5)
        yield log


def refused(calls: dict[str, Callable[[], object]]) -> None:
    answers: dict[str, object] = {}
    for name, call in calls.items():
        try:
            answers[name] = call()
        except Closed:
            continue
        except Exception as error:
            answers[name] = error
    assert answers == {}


def test_every_call_on_a_closed_log_says_so(log: Log) -> None:
    log.close()
    refused(
        {
            "append": lambda: log.append(b"x"),
            "append_many": lambda: log.append_many([b"x"]),
            "has_room": log.has_room,
            "wait_for_room": log.wait_for_room,
            "end": log.end,
            "read": lambda: log.read(POSITION, POSITION),
            "reader": log.reader,
            "check_owner": log.check_owner,
            "statistics": log.statistics,
            "open_cursor": lambda: log.open_cursor("c"),
            "cursors": log.cursors,
            "opened_cursors": log.opened_cursors,
            "delete_cursor": lambda: log.delete_cursor("c"),
            "expire_cursors": lambda: log.expire_cursors(1),
            "roll": log.roll,
            "trim": log.trim,
            "trim_soon": log.trim_soon,
            "maintain": log.maintain,
            "offload": lambda: log.offload("file:///tmp/x"),
            "clear": log.clear,
            "check_truncate": lambda: log.check_truncate(POSITION),
            "truncate": lambda: log.truncate(POSITION),
            "pin": lambda: log.pin("p", POSITION),
            "unpin": lambda: log.unpin("p"),
            "pins": log.pins,
            "properties": log.properties,
            "set_properties": lambda: log.set_properties({"a": "b"}),
            "terminate": log.terminate,
            "terminated": log.terminated,
            "for_attached": log.for_attached,
            "enter": log.__enter__,
            "state": lambda: BucketState.open(log),
        }
    )
    log.close()


def test_every_call_on_a_closed_reader_says_so(log: Log) -> None:
    with LogReader.open(log.directory) as reader:
        state = StateReader.open(reader)
        store = state.store(DESCRIPTOR)
        with state:
            pass
        refused({"advance": state.advance, "get": lambda: store.get("k"), "stores": state.stores})
        state.close()
        table = CursorTable(reader)
        cursor = Cursor.in_memory(reader)
    reader.close()
    refused(
        {
            "first": lambda: reader.first,
            "end": reader.end,
            "ledgers": reader.ledgers,
            "refresh": reader.refresh,
            "terminated": reader.terminated,
            "properties": reader.properties,
            "read": lambda: reader.read(POSITION, POSITION),
            "runs": lambda: list(reader.runs(POSITION, POSITION)),
            "scan": lambda: list(reader.scan(POSITION, POSITION)),
            "next": lambda: reader.next(POSITION),
            "previous": lambda: reader.previous(POSITION),
            "advance": lambda: reader.advance(POSITION, 1),
            "nth": lambda: reader.nth(0),
            "count": lambda: reader.count(POSITION, POSITION),
            "find_newest": lambda: reader.find_newest(lambda _: True),
            "find_by_time": lambda: reader.find_by_time(0),
            "table": table.infos,
            "cursor": cursor.read,
            "enter": reader.__enter__,
        }
    )


@pytest.mark.parametrize("durable", [True, False])
def test_every_call_on_a_closed_cursor_says_so(log: Log, durable: bool) -> None:
    with log.open_cursor("c", "earliest", durable=durable) as cursor:
        assert [bytes(entry.data) for entry in cursor] == [b"x"]
    cursor.close()
    refused(
        {
            "ack": lambda: cursor.ack(POSITION),
            "ack_range": lambda: cursor.ack(POSITION, POSITION),
            "ack_each": lambda: cursor.ack_each([POSITION]),
            "mark_delete": lambda: cursor.mark_delete(POSITION),
            "skip": lambda: cursor.skip(1),
            "clear_backlog": cursor.clear_backlog,
            "reset": lambda: cursor.reset("earliest"),
            "properties": cursor.properties,
            "mark_delete_properties": cursor.mark_delete_properties,
            "set_properties": lambda: cursor.set_properties({}),
            "read": cursor.read,
            "read_or_wait": cursor.read_or_wait,
            "iterate": lambda: list(cursor),
            "replay": lambda: cursor.replay([POSITION]),
            "nth": lambda: cursor.nth(1),
            "seek": lambda: cursor.seek("latest"),
            "rewind": cursor.rewind,
            "find_newest": lambda: cursor.find_newest(lambda _: True),
            "find_newest_by_time": lambda: cursor.find_newest_by_time(0),
            "is_acked": lambda: cursor.is_acked(POSITION),
            "has_more": cursor.has_more,
            "backlog": cursor.backlog,
            "backlog_bytes": cursor.backlog_bytes,
            "earliest_ms": cursor.earliest_ms,
            "backlog_about": cursor.backlog_about,
            "holes": cursor.holes,
            "hole_count": cursor.hole_count,
            "cancel_reads": cursor.cancel_reads,
            "stats": cursor.stats,
        }
    )


def test_an_iteration_ends_with_its_reader(tmp_path: Path) -> None:
    """What was read already is given; the next run is not read, be it in the cache or not."""
    settings = LogSettings(preallocate_bytes=4096, maintenance_interval_seconds=0, ledger_entries_max=3)
    with Log.open(tmp_path / "several", settings) as log:
        for _ in range(3):
            last = log.append_many([b"x"] * 3).result(5).last
        reader = LogReader.open(log.directory)
        first = reader.first
        iterations = [log.read(first, last), reader.read(first, last), reader.scan(first, last)]
        for iteration in iterations:
            next(iteration)
        reader.close()
    for iteration in iterations:
        with pytest.raises(Closed):
            list(iteration)


def test_an_iteration_ends_with_its_cursor(log: Log) -> None:
    log.append_many([b"x"] * 5).result(5)
    cursor = log.open_cursor("c")
    entries = iter(cursor)
    next(entries)
    cursor.close()
    with pytest.raises(Closed, match="cursor c"):
        next(entries)


def test_a_cursor_that_is_moved_in_an_iteration_stays_there(log: Log) -> None:
    last = log.append_many([b"x"] * 5).result(5).last
    cursor = log.open_cursor("c")
    for _ in cursor:
        cursor.seek("latest")
        break
    assert cursor.read() == []
    cursor.rewind()
    given = []
    for entry in cursor:
        given.append(entry.position)
        cursor.seek(last)
        if len(given) == 2:
            break
    assert given == [POSITION, last]
    assert [entry.position for entry in cursor.read()] == [last]


def test_an_iteration_that_is_left_early_loses_nothing(log: Log) -> None:
    for number in range(5):
        log.append(b"%d" % number).result(5)
    cursor = log.open_cursor("c")
    for entry in cursor:
        if bytes(entry.data) == b"1":
            break
    del entry
    assert [bytes(entry.data) for entry in cursor] == [b"2", b"3", b"4"]


def test_every_call_on_a_closed_table_says_so(log: Log) -> None:
    table = CursorTable(log.reader())
    table.close()
    table.close()
    refused(
        {
            "open": lambda: table.open("c"),
            "in memory": lambda: table.open("c", durable=False),
            "infos": table.infos,
            "opened": table.opened,
            "delete": lambda: table.delete("c"),
            "expire": lambda: table.expire(1),
        }
    )


def test_every_call_on_a_closed_record_log_and_state_says_so(tmp_path: Path, log: Log) -> None:
    with RecordLog.open(tmp_path, "r") as records, BucketState.open(records) as of_records:
        stores = [of_records.store(DESCRIPTOR)]
    with BucketState.open(log) as of_log:
        stores.append(of_log.store(DESCRIPTOR))
        stores[1].write({"k": 1}).result(5)
        change = of_log.begin()
    for store in stores:
        refused(
            {
                "get": partial(store.get, "k"),  # type: ignore[misc]
                "contains": lambda store=store: "k" in store,  # type: ignore[misc]
                "items": lambda store=store: list(store.items()),  # type: ignore[misc]
                "write": lambda store=store: store.write({"k": 1}),  # type: ignore[misc]
            }
        )
    refused(
        {
            "append": lambda: records.append(b"x"),
            "records": records.records,
            "rewrite": lambda: records.rewrite([]),
            "compact": lambda: records.compact(lambda: b""),
            "commit": lambda: of_log.commit(change),
            "store": lambda: of_log.store(DESCRIPTOR),
            "raw_store": lambda: of_log.raw_store("a", "b"),
            "checkpoint": of_log.checkpoint,
            "checkpoints": of_log.checkpoints,
            "recover": lambda: of_log.recover(POSITION),
            "truncate": lambda: of_log.truncate(POSITION),
            "verdict": lambda: of_log.verdict(DESCRIPTOR),
            "stores": of_log.stores,
        }
    )
    for closed in (records, of_records, of_log):
        closed.close()


def in_child(check: Callable[[], None]) -> None:
    """Runs the check in a forked child. It must end by itself."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            check()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    for _ in range(1000):
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            assert os.waitstatus_to_exitcode(status) == 0
            return
        import time

        time.sleep(0.02)
    os.kill(child, 9)
    os.waitpid(child, 0)
    pytest.fail("the child waits for ever")


def test_a_forked_child_is_told_at_once_and_harms_nothing(log: Log, tmp_path: Path) -> None:
    cursor = log.open_cursor("c")
    records = RecordLog.open(tmp_path, "r")
    state = BucketState.open(log)
    store = state.store(DESCRIPTOR)

    def check() -> None:
        refused(
            {
                "append": lambda: log.append(b"child"),
                "roll": log.roll,
                "statistics": log.statistics,
                "ack": lambda: cursor.ack(POSITION),
                "read": cursor.read,
                "backlog": cursor.backlog,
                "records": lambda: records.append(b"child"),
                "write": lambda: store.write({"k": 1}),
            }
        )
        log.close()
        cursor.close()
        records.close()

    with cursor._read_lock:  # as if another thread read at this moment
        in_child(check)
    assert log.append(b"parent").result(5).entry_id == 1
    cursor.ack(POSITION).result(5)
    assert records.append(b"parent").result(5) == 0
    store.write({"k": 1}).result(5)
    records.close()


def test_a_state_is_its_parents_in_a_forked_child(log: Log, tmp_path: Path) -> None:
    records = RecordLog.open(tmp_path, "r")
    states = [BucketState.open(log), BucketState.open(records)]
    stores = [state.store(DESCRIPTOR) for state in states]
    for store in stores:
        store.write({"k": 1}).result(5)

    def check() -> None:
        for state, store in zip(states, stores, strict=True):
            refused(
                {
                    "store": partial(state.store, DESCRIPTOR),
                    "get": partial(store.get, "k"),
                    "write": partial(store.write, {"k": 2}),
                    "stores": state.stores,
                    "snapshot": state.snapshot,
                }
            )
            state.close()
            with pytest.raises(Closed, match="belongs to the process that opened it"):
                state.store(DESCRIPTOR)

    with states[0]._lock, states[1]._lock:  # as if another thread committed at this moment
        in_child(check)
    for state, store in zip(states, stores, strict=True):
        store.write({"k": 3}).result(5)
        assert store.get("k") == 3
        state.close()
    records.close()


def test_what_waits_fails_in_a_forked_child(log: Log) -> None:
    import threading

    go = threading.Event()
    log._parts.appender.on_writer_thread(lambda: go.wait(30))
    waiting = log.append(b"waits")

    def check() -> None:
        assert isinstance(waiting.exception(5), Closed)

    in_child(check)
    go.set()
    assert waiting.result(5).entry_id == 1
