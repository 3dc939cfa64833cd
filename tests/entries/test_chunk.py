"""Chunks of an initial load as entries: what is written is read, as inserts at the chunk's place."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from penstock.entries.chunk import encode_chunk, read_chunk
from penstock.entries.decode import decode_entries
from penstock.entries.format import TXN_DTYPE, BadEntry, EntryHeader, Flavour, Kind, encode_entry, parse_entry
from penstock.errors import BadInput
from penstock.log import Entry
from penstock.log.position import Position, Seq
from penstock.schema.changes import OP_INSERT, ChangeBatch
from penstock.schema.model import Column, DdlType, TableSchema
from penstock.schema.view import SchemaView
from penstock.sources.position import SourcePosition

TABLE = TableSchema(
    "shop", "t", 5, (Column("id", "int", primary_key=True), Column("v", "varchar(9)", charset="utf8mb4"))
)
COLUMNS = [pa.array([1, 2, 3], pa.int32()), pa.array(["a", None, "ü"])]
PLACE = SourcePosition("bin.7", 400, source="mariadb:1")


def chunk_at(position: Position, table: TableSchema = TABLE) -> Entry:
    data = b"".join(bytes(part) for part in encode_chunk(table, COLUMNS, 77, PLACE))
    return Entry(position, memoryview(data), (), 0)


def test_the_rows_are_inserts_at_the_place_of_the_entry() -> None:
    (batch,) = decode_entries([chunk_at(Position(3, 9))], SchemaView([(Position(1, 0), TABLE)]))
    assert isinstance(batch, ChangeBatch)
    assert batch.table == TABLE
    assert batch.op.tolist() == [OP_INSERT] * 3 and batch.commit_ts.tolist() == [77] * 3
    assert [Seq.from_bytes(seq.tobytes()) for seq in batch.seq] == [Seq(3, 9, 0, row) for row in range(3)]
    assert [column.to_pylist() for column in batch.after] == [[1, 2, 3], ["a", None, "ü"]]
    assert [column.null_count for column in batch.before] == [3, 3]
    assert all(a.type == b.type for a, b in zip(batch.before, batch.after, strict=True))


def test_rows_of_tables_that_nobody_wants_are_passed_over() -> None:
    assert list(decode_entries([chunk_at(Position(3, 9))], SchemaView(), lambda schema, table: False)) == []


def test_rows_of_a_parked_table_are_held_back() -> None:
    parked = TableSchema("shop", "t", 5, (), "ALTER", DdlType.UNKNOWN, reason="?")
    (change,) = decode_entries([chunk_at(Position(3, 9))], SchemaView([(Position(1, 0), parked)]))
    assert change.table.parked


def test_a_chunk_of_another_version_is_an_error() -> None:
    later = TableSchema("shop", "t", 6, TABLE.columns)
    with pytest.raises(BadInput, match="version 5, not 6"):
        list(decode_entries([chunk_at(Position(3, 9))], SchemaView([(Position(1, 0), later)])))


@pytest.mark.parametrize("body", [b"", b"\0" * 64])
def test_bytes_that_are_no_chunk_are_an_error(body: bytes) -> None:
    record = np.zeros(1, TXN_DTYPE)
    record["kind"], record["length"] = Kind.CHUNK, len(body)
    header = EntryHeader(Flavour.MYSQL, False, "", ("f",), b"")
    with pytest.raises(BadEntry, match="chunk"):
        read_chunk(parse_entry(b"".join(bytes(part) for part in encode_entry(header, record, [body]))))
