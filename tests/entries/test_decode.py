"""Entries → changes: order, grouping, what counts and what does not."""

from __future__ import annotations

import struct
from dataclasses import replace

import numpy as np
import pytest

from penstock.binlog.errors import BadEvent
from penstock.binlog.types import ColumnType as C
from penstock.binlog.types import Flavour
from penstock.entries import group as module
from penstock.entries.decode import SchemaView, decode_entries
from penstock.entries.format import TXN_DTYPE, BadEntry, EntryHeader, Kind, encode_entry
from penstock.errors import BadInput
from penstock.log import Entry
from penstock.log.position import Position, Seq
from penstock.schema.changes import ChangeBatch, SchemaChange
from penstock.schema.model import ChangeKind, Column, DdlType, SchemaDrift, TableSchema
from tests.binlog.build import event, image, rows, table_map

FDE = event(
    15,
    b"\4\0"
    + b"10.11.6-MariaDB".ljust(50, b"\0")
    + b"\0" * 4
    + bytes([19, 56, 13, 0, 8, 0, 18, 0, 4, 4, 4, 4, 18, 0, 0, 95, 0, 4, 26, 8])
    + b"\0" * 150
    + b"\0" * 5,
)
HEADER = EntryHeader(Flavour.MARIADB, False, "test", ("f",), FDE)
XID = event(16, b"\0" * 8)
TWO = [(C.LONG, b""), (C.LONG, b"")]


def table(name: str, *, schema: str = "s", columns: int = 2, version: int = 1) -> TableSchema:
    made = tuple(Column(f"c{i}", "int") for i in range(columns))
    return TableSchema(schema, name, version, made, "create …", DdlType.CREATE_TABLE)


def insert(name: str, *values: int, table_id: int = 7, schema: str = "s") -> list[bytes]:
    images = [image([struct.pack("<i", value), None]) for value in values]
    return [table_map(TWO, table_id=table_id, schema=schema, table=name), rows(30, 2, images, table_id=table_id)]


def entry(position: Position, *transactions: tuple[int, Kind, list[bytes]]) -> Entry:
    records = np.zeros(len(transactions), TXN_DTYPE)
    offset = first = 0
    for record, (commit_ts, kind, events) in zip(records, transactions, strict=True):
        length = sum(map(len, events))
        for name, value in (
            ("offset", offset), ("length", length), ("commit_ts", commit_ts), ("first_event", first),
            ("events", len(events)), ("kind", kind),
        ):  # fmt: skip
            record[name] = value
        offset += length
        first += len(events)
    parts = encode_entry(HEADER, records, [e for _, _, events in transactions for e in events])
    return Entry(position, memoryview(b"".join(parts)), (), 0)


def view(*tables: TableSchema) -> SchemaView:
    return SchemaView((Position(1, 0), t) for t in tables)


def batches(*entries: Entry, schemas: SchemaView) -> list[ChangeBatch]:
    found = list(decode_entries(entries, schemas))
    assert all(isinstance(change, ChangeBatch) for change in found)
    return [change for change in found if isinstance(change, ChangeBatch)]


def seqs(batch: ChangeBatch) -> list[str]:
    return [str(Seq.from_bytes(seq.tobytes())) for seq in batch.seq]


def test_several_entries_and_tables_become_one_batch_a_table() -> None:
    entries = [
        entry(Position(1, 1), (10, Kind.ROWS, [*insert("a", 1, 2), XID]), (11, Kind.ROWS, [*insert("b", 3), XID])),
        entry(Position(1, 2), (12, Kind.ROWS, [*insert("a", 4, table_id=9), XID])),
        entry(Position(2, 0), (13, Kind.ROWS, [*insert("a", 5), *insert("b", 6, table_id=8), *insert("a", 7), XID])),
    ]
    a, b = batches(*entries, schemas=view(table("a"), table("b")))
    assert (a.table.table, b.table.table) == ("a", "b")
    assert a.after[0].to_pylist() == [1, 2, 4, 5, 7] and b.after[0].to_pylist() == [3, 6]
    assert seqs(a) == ["1:1:1:0", "1:1:1:1", "1:2:1:0", "2:0:1:0", "2:0:5:0"]
    assert seqs(b) == ["1:1:4:0", "2:0:3:0"]
    assert a.commit_ts.tolist() == [10, 10, 12, 13, 13] and b.commit_ts.tolist() == [11, 13]
    assert a.seq.tobytes() == b"".join(Seq.parse(text).to_bytes() for text in seqs(a))


def test_small_chunks_give_the_same_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = [entry(Position(1, i), (i, Kind.ROWS, [*insert("a", i), XID])) for i in range(1, 6)]
    monkeypatch.setattr(module, "GROUP_BYTES_MAX", 1)
    found = batches(*entries, schemas=view(table("a")))
    assert [batch.after[0].to_pylist() for batch in found] == [[1], [2], [3], [4], [5]]


def test_a_ddl_stands_between_rows() -> None:
    sql = "alter table s.a add x int"
    query = event(2, struct.pack("<IIBHH", 1, 0, 1, 0, 0) + b"s\0" + sql.encode())
    new = table("a", columns=3, version=20)
    schemas = view(table("a"))
    schemas.add(Position(1, 2), new)
    three = [table_map([*TWO, (C.LONG, b"")], table="a"), rows(30, 3, [image([struct.pack("<i", 2), None, None])])]
    found = list(
        decode_entries(
            [
                entry(Position(1, 1), (10, Kind.ROWS, [*insert("a", 1), XID])),
                entry(Position(1, 2), (20, Kind.DDL, [event(162, b"\0" * 19), query])),
                entry(Position(1, 3), (30, Kind.ROWS, [*three, XID])),
            ],
            schemas,
        )
    )
    before, change, after = found
    assert isinstance(before, ChangeBatch) and before.table.version == 1
    assert isinstance(change, SchemaChange) and change.table == new and change.commit_ts == 20
    assert str(Seq.from_bytes(change.seq)) == "1:2:1:0"
    assert isinstance(after, ChangeBatch) and after.table == new and len(after.after) == 3
    with pytest.raises(SchemaDrift, match="has 3 columns"):
        list(decode_entries([entry(Position(1, 4), (40, Kind.ROWS, [*insert("a", 1), XID]))], schemas))


def test_a_change_has_the_table_before_and_after() -> None:
    sql = "rename table s.a to s.c"
    query = event(2, struct.pack("<IIBHH", 1, 0, 1, 0, 0) + b"s\0" + sql.encode())
    schemas = view(table("a"))
    moved = replace(table("c", version=20), ddl_type=DdlType.RENAME_TABLE, other="s.a")
    gone = TableSchema("s", "a", 20, (), sql, DdlType.RENAME_TABLE, other="s.c")
    for version in (moved, gone):
        schemas.add(Position(1, 2), version)
    ddl = entry(Position(1, 2), (20, Kind.DDL, [event(162, b"\0" * 19), query]))
    two, one = list(decode_entries([ddl], schemas))  # the name that it left comes last
    assert isinstance(one, SchemaChange) and (one.table, one.before, one.after) == (gone, table("a"), None)
    assert isinstance(two, SchemaChange) and (two.table, two.before, two.after) == (moved, None, moved)
    assert one.kind is two.kind is ChangeKind.RENAME
    assert one.together == two.together == (moved, gone) and one.needed == (table("a"),)
    assert one.statement is not None and one.statement.sql == sql
    (one,) = list(decode_entries([ddl], schemas, lambda _s, t: t == "a"))
    assert one.table == gone
    with pytest.raises(BadInput, match=r"s\.a"):
        list(decode_entries([entry(Position(1, 3), (30, Kind.ROWS, [*insert("a", 1), XID]))], schemas))


def test_tables_are_dropped_with_their_database_for_whoever_wants_only_some_of_them() -> None:
    """Otherwise their readers keep the old rows when the table comes again."""
    sql = "drop database s"
    query = event(2, struct.pack("<IIBHH", 1, 0, 1, 0, 0) + b"s\0" + sql.encode())
    schemas = view(table("a"), table("b"), table("a", schema="other"))
    schemas.add(Position(1, 1), TableSchema("s", "old", 9, (), ddl_type=DdlType.DROP_TABLE))
    database = TableSchema("s", "", 20, (), sql, DdlType.DROP_SCHEMA)
    schemas.add(Position(1, 2), database)
    ddl = entry(Position(1, 2), (20, Kind.DDL, [event(162, b"\0" * 19), query]))
    (whole,) = list(decode_entries([ddl], schemas, lambda s, _t: s == "s"))
    assert whole.table == database
    found = list(decode_entries([ddl], schemas, lambda s, t: (s, t) in (("s", "a"), ("s", "old"))))
    one, whole = found
    assert isinstance(one, SchemaChange) and one.table.name == "s.a" and one.table.ddl_type is DdlType.DROP_TABLE
    assert (one.table.version, one.before, one.after, one.needed) == (20, table("a"), None, (table("a"),))
    assert whole.table == database and isinstance(whole, SchemaChange) and one.seq == whole.seq


def test_rows_of_a_parked_table_are_held_back_and_others_go_on() -> None:
    schemas = view(table("a"), table("b"))
    stuck = TableSchema("s", "a", 20, (), "alter table s.a frob", DdlType.UNKNOWN, reason="not understood")
    schemas.add(Position(1, 2), stuck)
    query = event(2, struct.pack("<IIBHH", 1, 0, 1, 0, 0) + b"s\0" + stuck.query.encode())
    entries = [
        entry(Position(1, 1), (10, Kind.ROWS, [*insert("a", 1), XID])),
        entry(Position(1, 2), (20, Kind.DDL, [event(162, b"\0" * 19), query])),
        entry(
            Position(1, 3),
            (20, Kind.ROWS, [*insert("b", 2, table_id=8), XID]),
            (21, Kind.ROWS, [*insert("a", 3), *insert("a", 4), XID]),
        ),
        entry(Position(1, 4), (30, Kind.ROWS, [*insert("a", 5), *insert("b", 6, table_id=8), XID])),
    ]
    found = list(decode_entries(entries, schemas))
    rows_ = {change.table.name: change.after[0].to_pylist() for change in found if isinstance(change, ChangeBatch)}
    assert rows_ == {"s.a": [1], "s.b": [2, 6]}
    told, held = (change for change in found if isinstance(change, SchemaChange))
    for change in (told, held):
        assert change.table == stuck and change.kind is ChangeKind.UNKNOWN and change.after is None
    assert told.before == table("a") and held.before == stuck
    assert str(Seq.from_bytes(told.seq)) == "1:2:1:0" and told.commit_ts == 20
    assert str(Seq.from_bytes(held.seq)) == "1:3:4:0" and held.commit_ts == 21


def test_rows_of_a_sequence_are_passed_over() -> None:
    sequence = TableSchema("s", "a", 1, (), "", DdlType.CREATE_SEQUENCE)
    assert list(decode_entries([entry(Position(1, 1), (1, Kind.ROWS, [*insert("a", 1), XID]))], view(sequence))) == []


def test_held_and_void_are_passed_over_and_mixed_chunks_refused() -> None:
    schemas = view(table("a"))
    (batch,) = batches(
        entry(
            Position(1, 1),
            (1, Kind.HELD, [*insert("a", 1), XID]),
            (2, Kind.ROWS, [*insert("a", 2), XID]),
            (3, Kind.VOID, [*insert("a", 3), XID]),
        ),
        schemas=schemas,
    )
    assert batch.after[0].to_pylist() == [2] and batch.commit_ts.tolist() == [2]
    with pytest.raises(BadEntry, match="not alone"):
        chunk = entry(Position(1, 1), (1, Kind.CHUNK, insert("a", 1)), (2, Kind.ROWS, [*insert("a", 2), XID]))
        list(decode_entries([chunk], schemas))


def test_tables_that_do_not_count() -> None:
    found = batches(entry(Position(1, 1), (1, Kind.ROWS, [*insert("user", 1, schema="mysql"), XID])), schemas=view())
    assert found == []
    one = entry(Position(1, 1), (1, Kind.ROWS, [*insert("a", 1), *insert("b", 2, table_id=8), XID]))
    (batch,) = list(decode_entries([one], view(table("a"))))  # nobody followed the other one then: it has no version
    assert batch.table.table == "a"
    with pytest.raises(BadInput, match=r"s\.b"):  # it had one, and has none now
        gone = replace(table("b"), columns=(), ddl_type=DdlType.DROP_TABLE)
        list(decode_entries([one], view(table("a"), gone)))
    (batch,) = list(decode_entries([one], view(table("a")), lambda _s, t: t == "a"))
    assert batch.table.table == "a"
    assert list(decode_entries([Entry(Position(1, 1), memoryview(b""), (), 0)], view())) == []


def test_rows_count_from_the_first_version_of_their_table_on() -> None:
    """A table that is followed from the second entry on; its rows of before and after are decoded together."""
    entries = [entry(Position(1, n), (n, Kind.ROWS, [*insert("a", n), XID])) for n in (1, 2, 3)]
    schemas = SchemaView([(Position(1, 2), table("a"))])
    (batch,) = batches(*entries, schemas=schemas)
    assert batch.after[0].to_pylist() == [2, 3] and seqs(batch) == ["1:2:1:0", "1:3:1:0"]
    assert batches(entries[0], schemas=schemas) == []


def test_a_table_map_does_not_reach_into_the_next_entry() -> None:
    first = entry(Position(1, 1), (1, Kind.ROWS, [*insert("a", 1), XID]))
    second = entry(Position(1, 2), (2, Kind.ROWS, [insert("a", 2)[1], XID]))
    with pytest.raises(BadInput, match="without a table map"):
        list(decode_entries([first, second], view(table("a"))))


def test_a_new_version_without_a_ddl() -> None:
    """Capture saw a table differ from its schema: a new version rides in a rows entry."""
    schemas = view(table("a"))
    seen = replace(table("a", columns=1, version=9), ddl_type=DdlType.NONE)
    schemas.add(Position(1, 2), seen)
    one = [table_map(TWO[:1], table="a"), rows(30, 1, [image([struct.pack("<i", 8)])])]
    old, new = batches(
        entry(Position(1, 1), (1, Kind.ROWS, [*insert("a", 7), XID])),
        entry(Position(1, 2), (2, Kind.ROWS, [*one, XID])),
        schemas=schemas,
    )
    assert (old.table.version, old.after[0].to_pylist()) == (1, [7])
    assert (new.table.version, new.after[0].to_pylist()) == (9, [8])


def test_bad_rows_name_the_entry_the_file_the_offset_and_the_type() -> None:
    bad = [table_map(TWO, table="a"), rows(30, 2, [b"\0\1\0"])]
    first = entry(Position(1, 4), (10, Kind.ROWS, [*insert("a", 1), XID]))
    second = entry(Position(1, 5), (20, Kind.ROWS, [*insert("a", 2), XID]), (30, Kind.ROWS, [*bad, XID]))
    with pytest.raises(
        BadEvent, match=r"log entry 1:5, transaction at f:0: binlog event at offset \d+ \(WRITE_ROWS_V2\): s.a"
    ) as told:
        list(decode_entries([first, second], view(table("a"))))
    assert told.value.offset == len(bad[0])  # after the start of its transaction, which is at offset 0 of this source


def test_a_table_whose_rows_cannot_be_read_parks_alone_in_front_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BATCH_BYTES_MAX", 1)  # so that rows before the bad ones are there already
    bad = [table_map(TWO, table="a"), rows(30, 2, [b"\0\1\0"])]
    entries = [
        entry(Position(1, 4), (10, Kind.ROWS, [*insert("a", 1), XID]), (11, Kind.ROWS, [*insert("b", 9), XID])),
        entry(Position(1, 5), (20, Kind.ROWS, [*bad, XID]), (30, Kind.ROWS, [*insert("b", 8), *insert("a", 2), XID])),
    ]
    found = list(decode_entries(entries, view(table("a"), table("b")), parks=True))
    rows_: dict[str, list[int]] = {}
    for change in found:
        if isinstance(change, ChangeBatch):
            rows_.setdefault(change.table.name, []).extend(change.after[0].to_pylist())
    assert rows_ in ({"s.a": [1], "s.b": [9, 8]}, {"s.b": [9, 8]})
    [parked] = (change for change in found if isinstance(change, SchemaChange))
    assert parked.table.parked and parked.table.name == "s.a" and parked.before == table("a")
    assert "log entry 1:5" in parked.table.reason and parked.table.columns
    after = max(
        (seq for c in found if isinstance(c, ChangeBatch) and c.table.name == "s.a" for seq in seqs(c)), default=""
    )
    assert after < str(Seq.from_bytes(parked.seq)) <= "1:5:1:0", "behind what was read, not behind what was not"


def test_a_table_whose_columns_are_not_those_of_its_rows_parks_alone() -> None:
    entries = [entry(Position(1, 4), (10, Kind.ROWS, [*insert("a", 1), *insert("b", 9, table_id=8), XID]))]
    schemas = view(table("a", columns=5), table("b"))
    with pytest.raises(SchemaDrift):
        list(decode_entries(entries, schemas))
    parked, other = decode_entries(entries, schemas, parks=True)
    assert isinstance(parked, SchemaChange) and parked.table.parked and parked.table.name == "s.a"
    assert (str(Seq.from_bytes(parked.seq)), parked.commit_ts) == ("1:4:1:0", 10)
    assert isinstance(other, ChangeBatch) and other.after[0].to_pylist() == [9]


def test_rows_from_before_the_columns_drifted_come_before_the_stop() -> None:
    """Delivery refuses a range whose payloads of a table are not in order: all tables of the sink would stand still."""
    drifted = [
        table_map([*TWO, TWO[1]], table="a", table_id=9),
        rows(30, 3, [image([struct.pack("<i", 5), None, None])], table_id=9),
    ]
    entries = [
        entry(Position(1, 4), (10, Kind.ROWS, [*insert("a", 1), XID])),
        entry(Position(1, 5), (20, Kind.ROWS, [*drifted, XID])),
        entry(Position(1, 6), (30, Kind.ROWS, [*insert("a", 3), XID])),
    ]
    before, parked = decode_entries(entries, view(table("a")), parks=True)
    assert isinstance(before, ChangeBatch) and seqs(before) == ["1:4:1:0"]
    assert isinstance(parked, SchemaChange) and parked.table.parked and str(Seq.from_bytes(parked.seq)) == "1:5:1:0"


def test_a_group_gives_small_batches_of_one_table_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BATCH_BYTES_MAX", 1)
    one = entry(Position(1, 1), (1, Kind.ROWS, [*insert("a", 1, 2), *insert("b", 3, table_id=8), *insert("a", 4), XID]))
    found = batches(one, schemas=view(table("a"), table("b")))
    assert [batch.table.table for batch in found] == ["a", "a", "a", "b"]
    assert [batch.after[0].to_pylist() for batch in found] == [[1], [2], [4], [3]]


def test_parts_of_a_void_transaction_and_its_ddl_are_passed_over() -> None:
    query = event(2, struct.pack("<IIBHH", 1, 0, 1, 0, 0) + b"s\0" + b"create table s.b (x int)")
    schemas = view(table("a"))
    schemas.add(Position(1, 2), table("b", version=20))
    entries = [
        entry(Position(1, 1), (10, Kind.ROWS, [*insert("a", 1), XID])),
        entry(Position(1, 2), (20, Kind.DDL, [query])),
        entry(Position(1, 3), (20, Kind.ROWS, insert("a", 2))),
        entry(Position(1, 4), (20, Kind.VOID, [])),
        entry(Position(1, 5), (21, Kind.ROWS, [*insert("a", 3), XID])),
    ]
    (batch,) = list(decode_entries(entries, schemas, void={20}))
    assert isinstance(batch, ChangeBatch)
    assert batch.after[0].to_pylist() == [1, 3] and batch.commit_ts.tolist() == [10, 21]
    # A range that ends before the void record gets the same answer: the planner has read on to it.
    assert list(decode_entries(entries[1:3], schemas, void={20})) == []
    assert len(list(decode_entries(entries, schemas))) > 1
