"""What must not grow with a transaction, with the number of tables or with the life of a stream."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest

from penstock.binlog.types import EventType
from penstock.capture.loop import Capture
from penstock.capture.transactions import machine, statements
from penstock.capture.transactions.buffers import KEPT_MAX, Buffers
from penstock.entries.stores import SOURCE_VOID
from penstock.log import LogReader
from penstock.operations.verify.log_replay import read_history
from penstock.sources.demo import shop
from penstock.state import StateReader
from tests.capture.fake_log import FakeLog
from tests.capture.streams import Stream, StreamSource
from tests.capture.test_kills import DIRECTORY
from tests.capture.test_machine import SMALL, check
from tests.capture.test_refusals import World


def many_rollbacks(stream: Stream, count: int, size: int = 400) -> None:
    for number in range(count):
        stream.statement(size)
        stream.savepoint(f"s{number % 3}")
        stream.statement(size)
        if number % 4 == 3:
            stream.savepoint("inner")
            stream.statement(size)
            stream.rollback_to("inner")
        stream.statement(size)
        stream.rollback_to(f"s{number % 3}")
    stream.statement(size)


@pytest.mark.parametrize("size", [90, 400])
@pytest.mark.parametrize("end", ["commit", "rollback", "prepare", "one phase"])
def test_a_transaction_is_read_again_once_however_often_it_goes_back(end: str, size: int) -> None:
    stream = Stream()
    stream.transaction([10])
    stream.xa_begin("g") if end in ("prepare", "one phase") else stream.begin()
    many_rollbacks(stream, 14, size)
    if end in ("prepare", "one phase"):
        stream.xa_prepare("g", one_phase=end == "one phase")
    else:
        stream.rollback() if end == "rollback" else stream.commit()
    stream.transaction([20])
    log = FakeLog()
    log.run(stream, bytes_max=SMALL)
    check(log, stream)
    assert log.read_again == (0 if end == "rollback" else 1)


@pytest.mark.parametrize("one_phase", [False, True])
def test_a_group_without_gtids_is_read_again_once(one_phase: bool) -> None:
    """Servers without GTIDs begin a group with XA START: it was read again for ever, and filled the log."""
    stream = Stream(mysql=True)
    stream.announce = lambda flags2, tail=b"": None  # type: ignore[method-assign]
    stream._rows = []
    stream.xa_begin("g")
    for _ in range(4):
        stream.statement(300)
    stream.xa_prepare("g", one_phase=one_phase)
    for stop in (None, *range(len(stream.events))):
        log = FakeLog()
        if stop is not None:
            log.run(stream, stop_after=stop, per_chunk=1, bytes_max=SMALL)
        log.run(stream, bytes_max=SMALL)
        check(log, stream)
        assert log.read_again == (1 if one_phase else 0)


def test_the_ids_of_tables_that_are_remembered_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "KNOWN_TABLES_MAX", 5)
    stream = Stream()
    for number in range(40):
        table_id = (1000 + number * 7 % 23).to_bytes(6, "little")
        stream.begin()
        stream.add(EventType.TABLE_MAP, table_id + shop.PRODUCTS.table_map)
        stream.add(EventType.WRITE_ROWS_V1, table_id + b"\1\0" + bytes([number]) * 10)
        stream._rows.append(stream.events[-1])
        stream.commit()
    log = FakeLog()
    log.run(stream, per_chunk=20)
    check(log, stream)


def test_savepoints_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statements, "SAVEPOINTS_MAX", 4)
    stream = Stream()
    stream.begin()
    for number in range(20):
        stream.savepoint(f"s{number}")
        stream.statement(10)
    stream.rollback_to("s17")
    stream.commit()
    log = FakeLog()
    log.run(stream)
    check(log, stream)


def test_the_store_of_void_transactions_keeps_the_last_one() -> None:
    stream = Stream()
    for _ in range(3):
        stream.begin()
        for _ in range(4):
            stream.statement(300)
        stream.rollback()
    stream.transaction([10])
    world = World()
    log = world.open_log()
    Capture(log, StreamSource(stream, 2), clock=world.clock, entry_bytes=1, events_bytes_max=SMALL).run()
    log.close()
    reader = LogReader.open(DIRECTORY, world.files, world.metadata)
    state = StateReader.open(reader)
    state.advance()
    assert len(dict(state.store(SOURCE_VOID).items())) == 1
    state.close()
    assert len(read_history(reader).void) == 3
    assert world.committed() == stream.committed


HOLDERS: dict[str, Callable[[npt.NDArray[np.uint8]], object]] = {
    "array": lambda buffer: buffer,
    "slice": lambda buffer: buffer[5:9],
    "memoryview": lambda buffer: buffer.data,
    "memoryview of a slice": lambda buffer: buffer[:100].data[3:],
    "frombuffer": lambda buffer: np.frombuffer(buffer[:100].data, np.uint8),
}


@pytest.mark.parametrize("held_as", HOLDERS)
def test_a_buffer_that_a_frame_has_is_not_given_again(held_as: str) -> None:
    buffers = Buffers(4096)
    taken = buffers.take()
    address = taken.ctypes.data
    held = HOLDERS[held_as](taken)
    del taken
    assert buffers.take().ctypes.data != address
    del held
    assert buffers.take().ctypes.data == address


def test_so_many_buffers_are_kept_and_no_large_one() -> None:
    buffers = Buffers(4096)
    assert len(buffers.take(5000)) == 5000
    taken = [buffers.take() for _ in range(KEPT_MAX + 3)]
    assert len({one.ctypes.data for one in taken}) == KEPT_MAX + 3
    assert [len(one) for one in buffers._kept] == [4096] * KEPT_MAX
