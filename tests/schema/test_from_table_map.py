"""Table maps against schemas, and the schema at a position."""

from __future__ import annotations

import struct

import pytest

from penstock.binlog.table_map import TableMap, parse_table_map
from penstock.binlog.types import ColumnType as C
from penstock.errors import BadInput
from penstock.log.position import Position
from penstock.schema.ddl import table_from_show_create
from penstock.schema.from_table_map import complete_table_map, schema_from_table_map
from penstock.schema.model import DdlType, SchemaDrift, TableSchema
from penstock.schema.view import SchemaView
from tests.binlog.build import FDE, msb_bits, packed, table_map, tlv

COLUMNS = [
    (C.LONG, b""),
    (C.VARCHAR, struct.pack("<H", 80)),
    (C.STRING, bytes([C.ENUM, 1])),
    (C.BLOB, b"\2"),
    (C.NEWDECIMAL, bytes([10, 2])),
    (C.DATETIME2, b"\x03"),
    (C.STRING, bytes([C.STRING, 16])),
    (C.BIT, b"\1\1"),
    (C.STRING, bytes([C.SET, 1])),
]
NAMES = ("id", "v", "e", "x", "d", "dt", "b", "bits", "s")
FULL = (
    tlv(1, msb_bits([True, False]))
    + tlv(3, bytes([45, 8, 63]))
    + tlv(4, b"".join(packed(len(n)) + n.encode() for n in NAMES))
    + tlv(6, b"\2\1a\1b")
    + tlv(5, b"\1\1q")
    + tlv(8, b"\0")
    + tlv(10, b"\x08")
)
CREATE = (
    "create table s.t (id int unsigned primary key, v varchar(20), e enum('a','b') charset latin1, x text charset latin1, "
    "d decimal(10,2), dt datetime(3), b binary(16), bits bit(9), s set('q') charset latin1)"
)


def mapped(metadata: bytes = FULL) -> TableMap:
    return parse_table_map(table_map(COLUMNS, metadata=metadata), FDE)


def created(sql: str = CREATE) -> TableSchema:
    return table_from_show_create(sql, "s", 1)


def test_full_metadata_gives_the_schema() -> None:
    made = schema_from_table_map(mapped(), 9)
    assert made.version == 9 and made.name == "s.t"
    assert [(c.name, c.mysql_type, c.charset) for c in made.columns] == [
        (c.name, c.mysql_type, c.charset) for c in created().columns
    ]
    assert made.primary_key == (0,)
    assert made.columns[2].elements == ("a", "b")
    complete_table_map(mapped(), made)


def test_without_names_there_is_no_schema() -> None:
    with pytest.raises(BadInput, match="binlog_row_metadata=FULL"):
        schema_from_table_map(mapped(b""), 9)


def test_a_bare_table_map_is_completed() -> None:
    done = complete_table_map(mapped(b""), created())
    assert [c.name for c in done.columns] == list(NAMES)
    assert done.columns[0].unsigned and not done.columns[4].unsigned
    assert [done.columns[i].charset for i in (1, 3, 6)] == ["utf8mb4", "latin1", "binary"]


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("id int unsigned", "id int", "unsigned"),
        ("id int unsigned", "id bigint unsigned", "column id is bigint"),
        ("decimal(10,2)", "decimal(10,3)", r"decimal\(10,2\)"),
        ("datetime(3)", "datetime", "3 digits"),
        ("binary(16)", "char(16)", "bytes"),
        ("x text charset latin1", "x blob", "text in latin1"),
        ("'a','b'", "'a','c'", "elements"),
        (" x text", " y text", "calls it x"),
        (", bits bit(9)", "", "9"),
    ],
)
def test_drift_names_table_and_column(old: str, new: str, says: str) -> None:
    assert old in CREATE
    with pytest.raises(SchemaDrift, match=rf"schema drift: s\.t.*{says}"):
        complete_table_map(mapped(), created(CREATE.replace(old, new)))


def test_view() -> None:
    view = SchemaView()
    first = created("create table s.t (a int)")
    second = created("create table s.t (a int, b int)")
    view.add(Position(1, 5), first)
    view.add(Position(2, 0), second)
    assert view.at("s", "t", Position(1, 5)) == first
    assert view.at("s", "t", Position(1, 900)) == first
    assert view.at("s", "t", Position(2, 0)) == second
    assert view.changed_at(Position(2, 0)) == [second] and view.changed_at(Position(2, 1)) == []
    with pytest.raises(BadInput, match=r"s\.t at 1:4"):
        view.at("s", "t", Position(1, 4))
    view.add(Position(3, 1), TableSchema("s", "", 7, (), "drop database s", DdlType.DROP_SCHEMA))
    assert view.find("s", "t", Position(3, 0)) == second
    assert view.find("s", "t", Position(3, 1)) is None
    view.add(Position(3, 4), first)
    assert view.find("s", "t", Position(4, 0)) == first
