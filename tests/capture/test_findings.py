"""What went wrong once, each as it was found: healthy input that ended a flow, or rows that never were."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from penstock.binlog.events import split_events
from penstock.binlog.types import ROWS_TYPES, EventType
from penstock.capture.loop import Capture, open_log
from penstock.capture.transactions.classify import Verb, classify, tables_changed
from penstock.clock import ManualClock
from penstock.entries.stores import SOURCE, SOURCE_OPEN, SOURCE_POSITION
from penstock.sources.binlog_files import BinlogFilesSource
from penstock.sources.demo.plan import Plan
from penstock.sources.demo.stream import chunk_file
from penstock.sources.settings import BinlogFilesSettings, Tables
from penstock.sources.source import SourceError
from tests.capture.fake_log import FakeLog
from tests.capture.running import logged_events, state_of
from tests.capture.streams import Stream, StreamSource
from tests.capture.test_machine import LARGE, SMALL


class GrowingClock(ManualClock):
    """Writes the rest of the file when the source waits for it."""

    def __init__(self, path: Path, rest: bytes) -> None:
        super().__init__()
        self._path, self._rest, self.sleeps = path, rest, 0

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        self.sleeps += 1
        if self.sleeps == 2:
            with self._path.open("ab") as file:
                file.write(self._rest)


def test_a_followed_file_may_end_inside_a_transaction(tmp_path: Path) -> None:
    file = chunk_file(Plan(1, 100), 0)
    raw, events = file.data.tobytes(), split_events(file.data[4:])
    inside = next(i for i in range(20, len(events)) if events.type[i] == EventType.TABLE_MAP)
    cut = 4 + int(events.offset[inside]) + int(events.size[inside])
    (tmp_path / "bin").mkdir()
    path = tmp_path / "bin" / file.name
    path.write_bytes(raw[:cut])
    clock = GrowingClock(path, raw[cut:])
    settings = BinlogFilesSettings(type="binlog-files", path=tmp_path / "bin", follow=True)
    source = BinlogFilesSource(settings, clock)
    source.end = lambda: source.begin(0).position.at(file.name, len(raw))  # type: ignore[method-assign]
    log = open_log(tmp_path)
    try:
        assert Capture(log, source, clock=clock).run(until_now=True)
    finally:
        log.close()
    kinds = [one[4] for one in logged_events(tmp_path / "log")]
    assert kinds.count(EventType.XID) == int((events.type == EventType.XID).sum())


@pytest.mark.parametrize("first", ["FLUSH TABLES", "GRANT ALL ON *.* TO u"])
def test_traffic_before_the_first_rows_of_a_table(tmp_path: Path, first: str) -> None:
    stream = Stream()
    stream.ddl(first)
    stream.transaction([10])
    log = open_log(tmp_path)
    try:
        assert Capture(log, StreamSource(stream, events_per_chunk=2)).run()
    finally:
        log.close()
    position = state_of(tmp_path / "log").store(SOURCE_POSITION).get(SOURCE)
    assert position is not None and position.pos == stream.at


def test_held_groups_and_void_parts_in_a_real_log(tmp_path: Path) -> None:
    """XA over a restart of capture, with the pin that keeps its entries; readers see the commit only."""
    stream = Stream()
    stream.transaction([10])
    stream.xa_begin("g")
    stream.statement(300)
    stream.xa_prepare("g")
    stream.transaction([20])
    for finished in (False, True):
        if finished:
            stream.xa_commit("g")
            stream.transaction([30])
        log = open_log(tmp_path)
        try:
            assert Capture(log, StreamSource(stream, events_per_chunk=2)).run()
            assert ("capture.held" in log.pins()) != finished
        finally:
            log.close()
    rows = [one for one in logged_events(tmp_path / "log") if one[4] == EventType.WRITE_ROWS_V1]
    assert len(rows) == 5 and rows[1] == rows[3]  # held, and again when it commits
    assert state_of(tmp_path / "log").store(SOURCE_OPEN).get(SOURCE) is None


@pytest.mark.parametrize(
    ("sql", "followed"),
    [
        ("INSERT INTO other.t VALUES (1)", False),
        ("INSERT IGNORE INTO `other` . `t` SELECT * FROM shop.t", False),
        ("replace t values (1)", True),
        ("UPDATE other.a, shop.b SET b.x = a.x", True),
        ("UPDATE other.a JOIN other.b ON a.i = b.i SET a.x = b.x WHERE 1", False),
        ("DELETE FROM other.a WHERE id = 1", False),
        ("DELETE a FROM other.a, shop.b WHERE a.i = b.i", False),
        ("DELETE b FROM other.a, shop.b WHERE a.i = b.i", True),
        ("DELETE a, x FROM other.a JOIN shop.b AS x ON a.i = x.i", True),
        ("DELETE FROM x USING other.a AS x JOIN (SELECT i FROM shop.t) y ON x.i = y.i WHERE 1", False),
        ("DELETE other.a.* FROM other.a, shop.b", False),
        ("UPDATE other.a x JOIN shop.b y ON x.i = y.i SET x.v = (SELECT max(v) FROM shop.t), x.w = y.w", False),
        ("UPDATE other.a x JOIN shop.b y ON x.i = y.i SET v = 1", True),
        (
            "UPDATE /* shop.t */ LOW_PRIORITY other.`a b` /* x */ AS t SET i = 1 WHERE i IN (SELECT i FROM shop.t)",
            False,
        ),
        ("WITH c AS (SELECT 1 FROM shop.t), d (i) AS (SELECT 2) UPDATE other.a, c SET other.a.x = 1", False),
        ("WITH c AS (SELECT 1) DELETE FROM shop.t WHERE 1", True),
        ("insert /* shop.t */ into other.t values ('shop.t')", False),
        ("SELECT `other`.`f`(1)", False),
        ("DO `shop`.`f`(1)", True),
        ("LOAD DATA INFILE 'x' INTO TABLE other.t FIELDS TERMINATED BY ','", False),
        ("/* app */ insert into shop.t values (1)", True),
        ("DELETE", True),
    ],
)
def test_statements_name_the_tables_that_they_change(sql: str, followed: bool) -> None:
    tables = Tables(include=("shop.*",))
    assert classify(sql).verb is Verb.DML
    named = tables_changed(sql, "shop" if followed else "elsewhere")
    found = [
        tables.matches(one.schema or "", one.table) if one.table else tables.matches_database(one.schema or "")
        for one in named
    ]
    assert (not named or any(found)) == followed


@pytest.mark.parametrize(
    ("sql", "verb", "name"),
    [
        ("ROLLBACK", Verb.ROLLBACK, ""),
        ("ROLLBACK TO `a``B`", Verb.ROLLBACK_TO, "a`b"),
        ("rollback work to savepoint x", Verb.ROLLBACK_TO, "x"),
        ("SAVEPOINT `s 1`", Verb.SAVEPOINT, "s 1"),
        ("XA START X'7831',X'62',7", Verb.XA_START, "7:7831:62"),
        ("XA COMMIT 'x1'", Verb.XA_COMMIT, "1:7831:"),
        ("XA ROLLBACK 0x7831,0x,1", Verb.XA_ROLLBACK, "1:7831:"),
        ("XA END X'',X'',1", Verb.XA_END, "1::"),
        ("/*!50100 ALTER TABLE t ADD c int */", Verb.DDL, ""),
        ("# c\n-- d\n /* e */ CREATE TABLE t (a int)", Verb.DDL, ""),
        ("WITH x AS (SELECT 1) UPDATE t, x SET t.a = 1", Verb.DML, ""),
        ("SELECT `shop`.`f`(1)", Verb.DML, ""),
        ("FLUSH TABLES", Verb.OTHER, ""),
        ("", Verb.OTHER, ""),
    ],
)
def test_statements_are_known_by_their_first_words(sql: str, verb: Verb, name: str) -> None:
    assert (classify(sql).verb, classify(sql).name) == (verb, name)


def load_data(stream: Stream, sql: str) -> None:
    """LOAD DATA as servers log it outside of binlog_format=ROW: the file in blocks, then the statement."""
    stream.add(EventType.BEGIN_LOAD_QUERY, struct.pack("<I", 5) + b"1,2\n")
    stream.add(EventType.APPEND_BLOCK, struct.pack("<I", 5) + b"3,4\n")
    head = struct.pack("<IIBHH", 5, 0, 4, 0, 0) + struct.pack("<IIIB", 5, 9, 20, 0)
    stream.add(EventType.EXECUTE_LOAD_QUERY, head + b"shop\0" + sql.encode())


@pytest.mark.parametrize("bytes_max", [SMALL, LARGE])
@pytest.mark.parametrize("table", ["shop.products", "other.t"])
@pytest.mark.parametrize(
    "sql",
    [
        "INSERT INTO {} VALUES (1)",
        "UPDATE {} SET email = 'jane@example.com'",
        "LOAD DATA INFILE 'x' INTO TABLE {}",
        "WITH x AS (SELECT 1) DELETE FROM {}",
    ],
)
def test_a_statement_instead_of_rows_parks_its_table_alone(sql: str, table: str, bytes_max: int) -> None:
    """Killed after every event: rows of the table before it are there, those after it are held back, others go on."""
    stream = Stream()
    stream.transaction([300, 300])
    stream.begin()
    stream.statement(300)
    (load_data if sql.startswith("LOAD") else Stream.query)(stream, sql.format(table))
    stream.statement(300)
    stream.commit()
    stream.transaction([10])
    for stop in range(len(stream.events) + 1):
        log = FakeLog()
        tables = Tables(include=("shop.*",))
        log.run(stream, stop_after=stop, per_chunk=1, bytes_max=bytes_max, tables=tables)
        log.run(stream, per_chunk=3, bytes_max=bytes_max, tables=tables)
        parked = [one for one in log.schemas if one.parked]
        assert [one.name for one in parked] == (["shop.products"] if table == "shop.products" else [])
        rows = [[one for one in transaction if one[4] in ROWS_TYPES] for transaction in log.committed()]
        assert rows == stream.committed
        shown = sql.format(table).replace("'x'", "?").replace("'jane@example.com'", "?").replace("1", "?")
        assert not parked or parked[0].query == shown  # to whoever looks, a mask may hide the values


def test_a_statement_that_changes_nobody_knows_what_is_named(tmp_path: Path) -> None:
    stream = Stream()
    stream.transaction([10])
    stream.begin()
    stream.query("SELECT f(1)")
    log = open_log(tmp_path)
    try:
        with pytest.raises(SourceError, match="which tables it changes cannot be told"):
            Capture(log, StreamSource(stream)).run()
    finally:
        log.close()
    assert EventType.WRITE_ROWS_V1 in [one[4] for one in logged_events(tmp_path / "log")]
