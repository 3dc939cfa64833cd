"""The transaction machine: XA groups, savepoints, rollbacks, abandoned and continued transactions, killed anywhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.entries.format import Kind, Part
from penstock.sources.demo import shop
from penstock.sources.position import SourcePosition
from penstock.sources.source import IDLE, Chunk, SourceError
from tests.capture.fake_log import START, FakeLog
from tests.capture.streams import FDE, FILE, Stream, StreamSource
from tests.support.budget import scaled

SMALL, LARGE = 700, 1 << 20  # bytes of an entry: one that cuts nearly everything, one that cuts nothing


def check(log: FakeLog, stream: Stream) -> None:
    assert log.committed() == stream.committed
    assert log.frames[-1].open is None
    assert set(stream.prepared) == {
        bytes.fromhex(f.held.xid.split(":")[1]).decode() for f in log.frames if f.held and log.find(f.held.xid)
    }
    orders = [frame.position.order for frame in log.frames]
    assert orders == sorted(orders)
    assert log.frames[-1].position.pos <= stream.at


def xa(stream: Stream) -> None:
    stream.transaction([20])
    stream.xa_begin("one")
    stream.statement(300)
    stream.statement(300)
    stream.xa_prepare("one")
    stream.transaction([30, 500])
    stream.xa_begin("two")
    stream.statement(400)
    stream.statement(20)
    stream.xa_prepare("two")
    stream.xa_commit("one")
    stream.transaction([40])
    stream.xa_commit("two", rollback=True)
    stream.xa_begin("none")
    stream.xa_prepare("none")
    stream.xa_commit("none")
    stream.xa_begin("left")
    stream.statement(10)
    stream.xa_prepare("left")
    stream.transaction([50])


def one_phase(stream: Stream) -> None:
    stream.transaction([20])
    stream.xa_begin("one")
    stream.statement(300)
    stream.statement(300)
    stream.statement(300)
    stream.xa_prepare("one", one_phase=True)
    stream.transaction([30])


def savepoints(stream: Stream) -> None:
    stream.begin()
    stream.statement(200)
    stream.savepoint("a")
    stream.statement(300)
    stream.savepoint("b c")
    stream.statement(300)
    stream.rollback_to("b c")
    stream.statement(100)
    stream.rollback_to("a")
    stream.statement(250)
    stream.statement(350)
    stream.commit()
    stream.transaction([10])


def rollbacks(stream: Stream) -> None:
    stream.transaction([10])
    stream.begin()
    stream.statement(100)
    stream.statement(400)
    stream.statement(400)
    stream.rollback()
    stream.transaction([20])
    stream.begin()
    stream.rollback()
    stream.begin()
    stream.statement(100)
    stream.rollback()
    stream.transaction([20, 700])


def create_select(stream: Stream, sql: str = "CREATE TABLE IF NOT EXISTS shop.made (id int primary key)") -> None:
    stream.transaction([10])
    stream.begin()
    stream.query(sql)
    stream._rows.append(stream.events[-1])
    stream.table_map(shop.PRODUCTS)
    stream.rows(shop.PRODUCTS, b"a" * 300, last=False)
    stream.rows(shop.PRODUCTS, b"b" * 300)
    stream.commit()
    stream.transaction([20])


def compressed(stream: Stream) -> None:
    stream.mysql = True
    stream.transaction([20])
    stream.compressed([30])
    stream.compressed([30, 400, 400, 300])
    stream.compressed([])
    stream.transaction([40, 500])
    stream.compressed([50])


SCENARIOS: dict[str, Callable[[Stream], None]] = {
    f.__name__: f for f in (xa, one_phase, savepoints, rollbacks, create_select, compressed)
}


@pytest.mark.parametrize("bytes_max", [SMALL, LARGE])
@pytest.mark.parametrize("mysql", [False, True])
@pytest.mark.parametrize("name", SCENARIOS)
def test_killed_after_every_event_and_every_frame(name: str, mysql: bool, bytes_max: int) -> None:
    stream = Stream(mysql=mysql)
    SCENARIOS[name](stream)
    whole = FakeLog()
    whole.run(stream, bytes_max=bytes_max)
    check(whole, stream)
    for stop in range(len(stream.events) + 1):
        log = FakeLog()
        log.run(stream, stop_after=stop, per_chunk=1, bytes_max=bytes_max)
        log.run(stream, stop_after=min(stop + 2, len(stream.events)), per_chunk=2, bytes_max=bytes_max)
        log.run(stream, per_chunk=3, bytes_max=bytes_max)
        check(log, stream)
    for frames in range(1, len(whole.frames) + 1):  # killed between two frames of one event, too
        log = FakeLog()
        log.run(stream, per_chunk=4, bytes_max=bytes_max, frames_max=frames)
        log.run(stream, per_chunk=1, bytes_max=bytes_max, frames_max=frames + 1)
        log.run(stream, per_chunk=3, bytes_max=bytes_max)
        check(log, stream)


steps = st.lists(
    st.tuples(
        st.sampled_from(["rows", "rows", "savepoint", "rollback to"]), st.integers(2, 500), st.sampled_from("ab")
    ),
    max_size=7,
)
transactions = st.lists(
    st.tuples(
        st.sampled_from(["plain", "plain", "rollback", "xa", "one phase", "xa commit", "xa rollback", "ddl", "empty"]),
        steps,
    ),
    min_size=1,
    max_size=9,
)


def build(shape: list[tuple[str, list[tuple[str, int, str]]]], *, mysql: bool) -> Stream:
    stream = Stream(mysql=mysql)
    for number, (kind, inner) in enumerate(shape):
        xid = f"x{number}"
        if kind in ("xa commit", "xa rollback"):
            if stream.prepared:
                stream.xa_commit(sorted(stream.prepared)[number % len(stream.prepared)], rollback=kind == "xa rollback")
            continue
        if kind == "ddl":
            stream.ddl(f"CREATE TABLE shop.t{number} (id int primary key)")
            continue
        if kind == "empty":
            stream.ddl("FLUSH TABLES")
            continue
        stream.xa_begin(xid) if kind in ("xa", "one phase") else stream.begin()
        for what, size, name in inner:
            if what == "rows":
                stream.statement(size)
            elif what == "savepoint":
                stream.savepoint(name)
            elif name in stream._savepoints:
                stream.rollback_to(name)
        if kind in ("xa", "one phase"):
            stream.xa_prepare(xid, one_phase=kind == "one phase")
        elif kind == "rollback":
            stream.rollback()
        else:
            stream.commit()
    return stream


@settings(max_examples=scaled(40), deadline=None)
@given(transactions, st.booleans(), st.sampled_from([SMALL, 1500, LARGE]), st.integers(1, 5), st.data())
def test_generated_streams_killed_anywhere(
    shape: list[tuple[str, list[tuple[str, int, str]]]],
    mysql: bool,
    bytes_max: int,
    per_chunk: int,
    data: st.DataObject,
) -> None:
    stream = build(shape, mysql=mysql)
    log = FakeLog()
    for _ in range(data.draw(st.integers(0, 3))):
        stop = data.draw(st.integers(0, len(stream.events)))
        log.run(stream, stop_after=stop, per_chunk=per_chunk, bytes_max=bytes_max)
    log.run(stream, per_chunk=per_chunk, bytes_max=bytes_max)
    if log.frames:
        check(log, stream)
    else:
        assert not stream.committed


def test_a_held_group_is_no_transaction_until_it_commits() -> None:
    stream = Stream()
    stream.xa_begin("g")
    stream.statement(30)
    stream.xa_prepare("g")
    log = FakeLog()
    log.run(stream)
    (entry,) = log.entries()
    assert entry.transactions["kind"].tolist() == [Kind.HELD] and entry.transactions["part"].tolist() == [Part.WHOLE]
    assert log.frames[-1].transactions == 0 and log.committed() == []
    stream.transaction([10])
    stream.xa_commit("g")
    log.run(stream)
    kinds = [entry.transactions["kind"].tolist() for entry in log.entries()]
    assert kinds == [[Kind.HELD], [Kind.ROWS], [Kind.ROWS]]
    held, _, again = log.entries()
    assert again.events.tobytes() == held.events.tobytes()
    assert again.transactions["commit_ts"][0] > log.entries()[1].transactions["commit_ts"][0]
    assert again.transactions["gtid"][0] != held.transactions["gtid"][0]


@pytest.mark.parametrize("rollback", [False, True])
def test_the_rows_of_a_group_that_was_prepared_before_the_start_lie_before_the_start(rollback: bool) -> None:
    """Where XA is in use, some group is prepared at any moment: none of them may end a flow that starts now."""
    stream = Stream()
    stream.transaction([10])
    stream.prepared["old"] = []
    stream.xa_commit("old", rollback=rollback)
    stream.transaction([10])
    for stop in range(len(stream.events) + 1):
        log = FakeLog()
        log.run(stream, stop_after=stop, per_chunk=1)
        log.run(stream)
        check(log, stream)
        assert [frame.missed for frame in log.frames if frame.missed] == ([] if rollback else ["1:6f6c64:"])


class TwoFiles:
    """A file that ends inside a transaction, and the next one: the server died between them."""

    name = "test"

    def __init__(self, first: Stream, second: Stream, stop_after: int | None = None) -> None:
        self._first, self._second, self._stop_after = first, second, stop_after

    def open(self, position: SourcePosition) -> Iterator[Chunk]:
        left = self._stop_after
        for file, stream in ((FILE, self._first), ("bin.000002", self._second)):
            if position.file not in (file, FILE):
                continue
            start = position.pos if position.file == file else 4
            yield Chunk(np.frombuffer(stream.fde, np.uint8), file, 4)
            at = 4 + len(FDE)
            for raw in stream.events:
                if left is not None:
                    if not left:
                        return
                    left -= 1
                if at >= start:
                    yield Chunk(np.frombuffer(raw, np.uint8), file, at)
                at += len(raw)
        if self._stop_after is None:
            yield IDLE


@pytest.mark.parametrize("bytes_max", [SMALL, LARGE])
@pytest.mark.parametrize("xa_group", [False, True])
def test_a_transaction_that_the_server_gave_up_is_void(xa_group: bool, bytes_max: int) -> None:
    first, second = Stream(), Stream()
    first.transaction([20])
    first.xa_begin("g") if xa_group else first.begin()
    for _ in range(4):
        first.statement(300)
    second.gtid = 1
    second.transaction([40, 300, 300])
    second.transaction([50])
    for stop in range(len(first.events) + len(second.events) + 1):
        log = FakeLog()
        log.run(TwoFiles(first, second, stop), bytes_max=bytes_max)  # type: ignore[arg-type]
        log.run(TwoFiles(first, second), bytes_max=bytes_max)  # type: ignore[arg-type]
        assert log.committed() == first.committed + second.committed, stop
        assert bool(log.void) == (bytes_max == SMALL)
        assert log.frames[-1].position.file == "bin.000002"


def test_a_cut_transaction_goes_on_only_where_it_is_the_same() -> None:
    """Another server, another file, or other events: the parts in the log are void, and it starts again."""

    def one(payloads: list[bytes], gtid: int = 0) -> Stream:
        stream = Stream(gtid=gtid)
        stream.begin()
        stream.table_map(shop.PRODUCTS)
        for number, payload in enumerate(payloads):
            stream.rows(shop.PRODUCTS, payload, last=number == len(payloads) - 1)
        stream.commit()
        return stream

    stream = one([b"a" * 500] * 3)
    for now, again in (
        (one([b"a" * 499 + b"z", b"a" * 500, b"a" * 500]), 1),
        (one([]), 1),
        (one([b"a" * 500] * 3, gtid=7), 0),
    ):
        log = FakeLog()
        log.run(stream, stop_after=4, bytes_max=1000, per_chunk=1)
        assert log.frames[-1].open is not None and log.frames[-1].open.appended == 3
        log.run(now, bytes_max=1000)
        assert log.committed() == now.committed
        assert len(log.void) == 1 and log.read_again == again
    log = FakeLog()
    log.run(stream, stop_after=4, bytes_max=1000, per_chunk=1)
    log.moved(source="a replica")
    log.run(stream, bytes_max=1000)
    assert log.committed() == stream.committed and len(log.void) == 1


def test_a_schema_that_a_void_transaction_made_is_taken_back() -> None:
    first, second = Stream(), Stream()
    first.begin()
    first.query("CREATE TABLE shop.made (id int primary key)")
    first.statement(300)
    second.transaction([10])
    log = FakeLog()
    log.run(TwoFiles(first, second))  # type: ignore[arg-type]
    assert log.committed() == second.committed
    made = [table for table in log.schemas if table.table == "made"]
    assert [table.dropped for table in made] == [False, True]
    assert made[0].version < made[1].version


def test_a_source_that_was_reset_is_found_by_its_gtids() -> None:
    """RESET MASTER while capture was stopped, and new files up to the old number: nothing is skipped in silence."""
    before = Stream()
    for _ in range(5):
        before.transaction([100])
    log = FakeLog()
    log.run(before)
    after = Stream(at=before.at)
    after.transaction([10])  # 0-7-1 again, at the place where the log goes on

    class Reset(StreamSource):
        def open(self, position: SourcePosition) -> Iterator[Chunk]:
            yield Chunk(np.frombuffer(FDE, np.uint8), FILE, 4)
            yield Chunk(np.frombuffer(b"".join(after.events), np.uint8), FILE, position.pos)

    with pytest.raises(SourceError, match=r"holds 0-7-1, which is in the log already.*RESET MASTER"):
        log.run(Reset(after))
    mysql = Stream(mysql=True)
    mysql.transaction([10])
    log = FakeLog(SourcePosition(FILE, 4, gtid="3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5:9", source="test"))
    with pytest.raises(SourceError, match="RESET MASTER"):
        log.run(mysql)


def test_gtid_sets_of_mysql_keep_their_gaps() -> None:
    stream = Stream(mysql=True, gtid=11)
    stream.transaction([10])
    stream.transaction([10])
    log = FakeLog(SourcePosition(FILE, 4, gtid="3e11fa47-71ca-11e1-9e33-c80aa9429562:1-7:9-10", source="test"))
    log.run(stream)
    assert log.frames[-1].position.gtid == "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-7:9-10:12-13"


def test_a_two_phase_alter_takes_effect_with_its_second_statement() -> None:
    stream = Stream()
    stream.ddl("CREATE TABLE shop.t (id int primary key)")
    for extra, sql in (
        (2, "ALTER TABLE shop.t ADD COLUMN a int"),
        (4, "ALTER TABLE shop.t ADD COLUMN a int"),
        (2, "ALTER TABLE shop.t ADD COLUMN b int"),
        (8, "ALTER TABLE shop.t ADD COLUMN b int"),
    ):
        stream.announce(0x29, bytes([extra]) + bytes(8))
        stream.query(sql)
    log = FakeLog()
    log.run(stream)
    assert [len(table.columns) for table in log.schemas if table.table == "t"] == [1, 2]
    assert log.frames[-1].position.gtid == "0-7-5" or log.frames[-1].position.gtid == "0-7-3"


def test_statements_on_tables_that_nobody_follows_do_not_end_the_flow() -> None:
    stream = Stream()
    stream.begin()
    stream.query("INSERT INTO mysql.t VALUES (1)")
    stream.commit()
    stream.transaction([10])
    log = FakeLog()
    log.run(stream)
    assert log.committed() == stream.committed
    assert START.file == FILE
