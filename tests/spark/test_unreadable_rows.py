"""Rows of one table that cannot be read park that table at the sink; the task goes on with the others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.delivery.payload import dispatcher_id
from penstock.delivery.storage.ddl import SchemaFiles
from penstock.entries.format import Kind
from penstock.errors import NotSupported
from penstock.log import Entry
from penstock.log.position import Position
from penstock.schema.model import TableSchema
from penstock.schema.pack import SchemaPacker
from penstock.schema.view import SchemaAt
from penstock.spark import task
from penstock.spark.job import Job
from penstock.spark.plan import PlannedRange
from tests.binlog.build import rows, table_map
from tests.entries.test_decode import TWO, XID, entry, insert, table
from tests.spark.test_poison import Delivery


class Reader:
    def __init__(self, entries: list[Entry]) -> None:
        self._entries = entries

    def read(self, _start: Position, _end: Position) -> Iterator[Entry]:
        return iter(self._entries)


BAD = [table_map(TWO, table="a"), rows(30, 2, [b"\0\1\0"])]


def staged_of_a(
    entries: list[Entry], progress: str | None, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> list[tuple[str, str, str]]:
    """(kind, first and last seq) of what a task stages of table a, of which the sink has everything up to `progress`."""
    pack, since = SchemaPacker([SchemaAt(Position(1, 0), table("a"))]).pack()
    first, last = entries[0].position, entries[-1].position
    resume = {dispatcher_id("raw", "s", "a"): {"epoch": 1, "progress": progress, "intent_last_seq": None}}
    job = Job(str(directory), "socket", "raw", "run", "1:0", "canal-json", resume=resume)
    delivery = Delivery()
    monkeypatch.setattr(task, "open_reader", lambda _job: Reader(entries))
    monkeypatch.setitem(task._clients, "socket", delivery)
    manifest = task.run_range(job, PlannedRange(first, first, last, 100, pack, tuple(since)), 3)
    assert not manifest.error
    return [(given["kind"], given["first_seq"], given["last_seq"]) for _, _, given in delivery.calls]


def test_rows_that_a_run_read_with_others_before_still_stop_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first run took entry 4 by itself, and was killed before it was acked. The next one reads both together: the stop
    does not go to the rows that are delivered, where it would be passed over, and the rows of entry 5 with it."""
    good = entry(Position(1, 4), (10, Kind.ROWS, [*insert("a", 1, 2), *insert("a", 3), XID]))
    bad = entry(Position(1, 5), (20, Kind.ROWS, [*BAD, XID]), (30, Kind.ROWS, [*insert("a", 4), XID]))
    assert staged_of_a([good], None, tmp_path, monkeypatch) == [("data", "1:4:1:0", "1:4:3:0")]
    for progress, rest in (
        (None, [("data", "1:4:1:0", "1:4:3:0")]),
        ("1:4:1:0", [("data", "1:4:1:1", "1:4:3:0")]),
        ("1:4:3:0", []),
    ):
        staged = staged_of_a([good, bad], progress, tmp_path, monkeypatch)
        assert staged == [*rest, ("ddl", "1:5:1:0", "1:5:1:0")], progress
    assert staged_of_a([bad], "1:4:3:0", tmp_path, monkeypatch) == [("ddl", "1:5:1:0", "1:5:1:0")]


def test_a_stop_before_progress_is_one_right_after_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bad = entry(Position(1, 5), (20, Kind.ROWS, [*BAD, XID]))
    assert staged_of_a([bad], "1:5:1:3", tmp_path, monkeypatch) == [("ddl", "1:5:1:4", "1:5:1:4")]
    assert staged_of_a([bad], "1:6:0:0", tmp_path, monkeypatch) == [], "all of the range is at the sink"


def test_the_table_is_parked_and_the_range_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bad = [table_map(TWO, table="a"), rows(30, 2, [b"\0\1\0"])]
    entries = [
        entry(Position(1, 4), (10, Kind.ROWS, [*insert("b", 9), XID])),
        entry(Position(1, 5), (20, Kind.ROWS, [*bad, XID]), (30, Kind.ROWS, [*insert("b", 8), *insert("a", 2), XID])),
    ]
    pack, since = SchemaPacker([SchemaAt(Position(1, 0), table("a")), SchemaAt(Position(1, 0), table("b"))]).pack()
    taken = PlannedRange(Position(1, 4), Position(1, 4), Position(1, 5), 100, pack, tuple(since))
    delivery = Delivery()
    job = Job(str(tmp_path), "socket", "raw", "run", "1:0", "canal-json")
    monkeypatch.setattr(task, "open_reader", lambda _job: Reader(entries))
    monkeypatch.setitem(task._clients, "socket", delivery)
    manifest = task.run_range(job, taken, 3)
    assert not manifest.error, "the changefeed goes on"
    staged: dict[str, list[tuple[str, int, bytes]]] = {}
    for _, body, given in delivery.calls:
        staged.setdefault(given["table"], []).append((given["kind"], given["rows"], body))
    assert [(kind, count) for kind, count, _ in staged["b"]] == [("data", 2)]
    [(kind, count, body)] = staged["a"]
    parked = TableSchema.from_json(body)
    assert (kind, count) == ("ddl", 0) and parked.parked and "log entry 1:5" in parked.reason
    sink: Any = None
    payload: Any = SimpleNamespace(body=body, schema="s", table="a", version=parked.version)
    with pytest.raises(NotSupported, match="cannot be read from here on") as told:
        SchemaFiles(sink, sink, sink).deliverable(payload)
    assert "penstock resume SINK" in told.value.hint
