"""Cutting: every row event is in the log once, whatever the sizes, wherever capture is killed."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.binlog.bodies import parse_format_description
from penstock.binlog.errors import BadChecksum, BadEvent
from penstock.binlog.events import split_events
from penstock.binlog.types import EventType
from penstock.capture.position import PositionTracker
from penstock.capture.schemas import SchemaTracker
from penstock.capture.transactions.cutter import TransactionCutter
from penstock.capture.transactions.frame_content import FrameContent
from penstock.clock import ManualClock
from penstock.commit_ts import CommitClock
from penstock.entries.format import Kind, Part
from penstock.sources.demo import shop
from penstock.sources.position import SourcePosition
from penstock.sources.source import Chunk, SourceError
from tests.capture.fake_log import START, FakeLog, NoGroups
from tests.capture.streams import FDE, FILE, Stream, StreamSource, event
from tests.support.budget import scaled


def check(log: FakeLog, stream: Stream) -> None:
    assert log.source_events() == stream.kept()
    assert log.frames[-1].open is None
    assert log.frames[-1].position.pos == stream.at
    stamps = [
        int(t["commit_ts"]) for e in log.entries() for t in e.transactions if t["part"] in (Part.WHOLE, Part.FIRST)
    ]
    assert all(a < b for a, b in itertools.pairwise(stamps))
    assert all(a.position.order <= b.position.order for a, b in itertools.pairwise(log.frames))


sizes = st.lists(st.lists(st.integers(2, 900), min_size=1, max_size=6), min_size=1, max_size=12)


@settings(max_examples=scaled(60))
@given(sizes, st.integers(1, 7), st.sampled_from([1000, 2500, 1 << 20]), st.booleans())
def test_each_event_once_in_order(shape: list[list[int]], per_chunk: int, bytes_max: int, annotate: bool) -> None:
    stream = Stream()
    for transaction in shape:
        stream.transaction(transaction, annotate=annotate)
    log = FakeLog()
    log.run(stream, per_chunk=per_chunk, bytes_max=bytes_max)
    check(log, stream)
    table_map = 23 + 6 + len(shop.PRODUCTS.table_map)  # comes on top where a single event fills an entry
    assert all(len(entry.events) <= bytes_max + table_map for entry in log.entries())


@pytest.mark.parametrize("bytes_max", [700, 1500, 1 << 20])
def test_killed_after_every_event(bytes_max: int) -> None:
    stream = Stream()
    stream.transaction([30, 400, 20, 300, 200])
    stream.ddl("CREATE TABLE shop.other (id int primary key)")
    stream.transaction([10])
    stream.begin()
    stream.query("CREATE TABLE shop.made (id int primary key)")
    stream.table_map(shop.PRODUCTS)
    stream.rows(shop.PRODUCTS, b"a" * 300, last=False)
    stream.rows(shop.PRODUCTS, b"b" * 300, last=False)
    stream.rows(shop.PRODUCTS, b"c" * 300)
    stream.commit()
    stream.transaction([600, 500])
    for first in range(len(stream.events) + 1):
        for second in range(first, len(stream.events) + 1, 4):
            log = FakeLog()
            log.run(stream, stop_after=first, per_chunk=2, bytes_max=bytes_max)
            log.run(stream, stop_after=second, per_chunk=3, bytes_max=bytes_max)
            log.run(stream, per_chunk=5, bytes_max=bytes_max)
            check(log, stream)
            made = [(s.table, s.version) for s in log.schemas]
            assert [name for name, _ in made if name in ("other", "made")] == ["other", "made"]


def test_an_event_larger_than_an_entry_is_one_of_its_own() -> None:
    stream = Stream()
    stream.transaction([10, 5000, 10])
    log = FakeLog()
    log.run(stream, bytes_max=1000)
    check(log, stream)
    large = [entry for entry in log.entries() if len(entry.events) > 1000]
    assert [split_events(entry.events).type.tolist() for entry in large] == [[19, 23]]


def test_a_ddl_is_alone_and_carries_its_schema() -> None:
    stream = Stream()
    stream.transaction([10])
    stream.ddl(shop.CUSTOMERS.create)
    stream.transaction([10])
    log = FakeLog()
    log.run(stream)
    kinds = [entry.transactions["kind"].tolist() for entry in log.entries()]
    assert kinds == [[Kind.ROWS], [Kind.DDL], [Kind.ROWS]]
    ddl = next(frame for frame in log.frames if any(s.table == "customers" for s in frame.schemas))
    assert ddl.schemas[0].version == ddl.position.commit_ts
    assert len(ddl.schemas[0].columns) == len(shop.CUSTOMERS.columns)


def test_an_unknown_table_is_registered_before_its_rows_and_once() -> None:
    stream = Stream()
    stream.transaction([10])
    stream.transaction([10])
    log = FakeLog()
    log.run(stream)
    assert [(bool(frame.data), [s.name for s in frame.schemas]) for frame in log.frames] == [
        (False, ["shop.products"]),
        (True, []),
    ]
    assert [column.name for column in log.schemas[0].columns] == [name for name, _ in shop.PRODUCTS.columns]


def test_the_schema_of_an_unknown_table_is_never_before_what_was_passed() -> None:
    """Frames' positions never go back: not after a FLUSH or a GRANT, and not after transactions that wait."""
    stream = Stream()
    stream.ddl("FLUSH TABLES")
    stream.begin()
    stream.commit()
    stream.transaction([10])
    cutter = TransactionCutter(START, SchemaTracker(), CommitClock(0, ManualClock()), NoGroups())
    tracker = PositionTracker(START, ManualClock())
    frames = []
    for chunk in StreamSource(stream, events_per_chunk=1).open(START):
        for frame in cutter.feed(chunk):
            tracker.appended(frame.position)
            frames.append(frame)
        if cutter.between_transactions:
            tracker.passed(cutter.passed)
    assert [schema.name for schema in frames[0].schemas] == ["shop.products"]
    assert (frames[0].position.pos, frames[0].position.gtid) == (stream.starts[-1], "0-7-2")


def test_the_schema_of_an_unknown_table_comes_after_older_rows() -> None:
    stream = Stream()
    stream.transaction([10])
    stream.begin()
    stream.table_map(shop.ORDERS)
    stream.rows(shop.ORDERS, b"\0" * 10)
    stream.commit()
    log = FakeLog()
    log.run(stream)
    assert [(bool(frame.data), [s.name for s in frame.schemas]) for frame in log.frames] == [
        (False, ["shop.products"]),
        (True, []),
        (False, ["shop.orders"]),
        (True, []),
    ]
    check(log, stream)


def test_a_damaged_event_is_named_with_file_offset_and_type() -> None:
    for damage, kind in ((0, "MARIADB_GTID"), (1, "TABLE_MAP"), (2, "WRITE_ROWS_V1")):
        stream = Stream()
        stream.transaction([10])
        at = 4 + len(FDE) + sum(map(len, stream.events[:damage]))
        stream.events[damage] = stream.events[damage][:-1] + b"\xee"
        with pytest.raises(BadEvent, match=rf"{FILE}: binlog event at offset {at} \({kind}\)"):
            FakeLog().run(stream)


def test_transactions_without_rows_leave_nothing_but_move_the_position() -> None:
    stream = Stream()
    stream.begin()
    stream.commit()
    stream.ddl("FLUSH TABLES")
    stream.transaction([10])
    stream.ddl("ANALYZE TABLE shop.products")
    log = FakeLog()
    log.run(stream)
    assert len(log.entries()) == 1
    assert log.entries()[0].transactions["events"].tolist() == [4]
    cutter = TransactionCutter(START, SchemaTracker(), CommitClock(0, ManualClock()), NoGroups())
    for chunk in StreamSource(stream).open(START):
        list(cutter.feed(chunk))
    list(cutter.flush())
    assert (cutter.passed.pos, cutter.passed.gtid) == (stream.at, "0-7-4")


@pytest.mark.parametrize(
    ("sql", "kind"),
    [("SELECT f(1)", SourceError), ("do f(2)", SourceError)],
)
def test_what_cannot_be_captured_is_refused_by_name(sql: str, kind: type[Exception]) -> None:
    stream = Stream()
    stream.begin()
    stream.query(sql)
    with pytest.raises(kind):
        FakeLog().run(stream)


def test_damaged_events_are_refused() -> None:
    stream = Stream()
    stream.transaction([50])
    stream.events[2] = stream.events[2][:-1] + b"!"
    with pytest.raises(BadChecksum):
        FakeLog().run(stream)
    stream = Stream()
    stream.rows(shop.PRODUCTS, b"without a transaction")
    with pytest.raises(BadEvent):
        FakeLog().run(stream)


def test_a_transaction_that_the_server_gave_up_is_left_out() -> None:
    stream = Stream()
    stream.transaction([10])
    stream.begin()
    stream.table_map(shop.PRODUCTS)
    cutter = TransactionCutter(START, SchemaTracker(), CommitClock(0, ManualClock()), NoGroups())
    frames: list[FrameContent] = []
    for chunk in [*StreamSource(stream).open(START), Chunk(np.frombuffer(FDE, np.uint8), "bin.000002", 4)]:
        frames += cutter.feed(chunk)
    frames += cutter.flush()
    assert sum(frame.transactions for frame in frames) == 1
    assert (cutter.passed.file, cutter.passed.pos) == ("bin.000002", 4 + len(FDE))


def test_offsets_above_four_gibibytes_and_left_out_bytes() -> None:
    """A server counts in 32 bits and leaves events out: end_log_pos gives the offset, which never goes back."""
    base = (1 << 32) - 100
    stream = Stream(at=base)
    stream.begin()
    body = shop.PRODUCTS.table_id.to_bytes(6, "little")
    stream.at += 50  # an ANNOTATE_ROWS that was not sent
    stream.add(EventType.TABLE_MAP, body + shop.PRODUCTS.table_map)
    stream.events.append(
        event(EventType.WRITE_ROWS_V1, body + b"\1\0rows", 0, end_pos=0)
    )  # as MariaDB 11.8 writes them
    stream.at += len(stream.events[-1])
    stream.commit()
    cutter = TransactionCutter(SourcePosition(FILE, base), SchemaTracker(), CommitClock(0, ManualClock()), NoGroups())
    list(
        cutter.feed(
            Chunk(np.frombuffer(event(EventType.FORMAT_DESCRIPTION, FDE[19:-4], 0, end_pos=0), np.uint8), gaps=True)
        )
    )
    list(cutter.feed(Chunk(np.frombuffer(b"".join(stream.events), np.uint8), gaps=True)))
    frame = next(iter(cutter.flush()))
    assert frame.position.pos == stream.at
    assert parse_format_description(FDE).trailer_bytes == 4
