"""The lines of `penstock binlog decode`, against a slow formatter: every type, absent columns, the order of tables."""

from __future__ import annotations

import base64
import json
import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.binlog.rows import DecodedRows, Presence
from penstock.binlog.types import Flavour
from penstock.encode.change_lines.encoder import ChangeLines, Lines
from penstock.encode.change_lines.interleave import interleaved
from penstock.encode.change_lines.origins import Origins
from penstock.entries.format import gtid_text, pack_gtid
from penstock.errors import BadInput
from penstock.schema.model import Column, TableSchema
from tests.encode.reference import KINDS, Change, batch_of, change_lists, float32, table_of

NAMES = list(KINDS)
NUMBERS = {"tinyint", "smallint", "mediumint", "int", "bigint", "year", "bit", "float", "double"}
FILES = ['a"b.1', "bin.2"]
OPS = {"I": "insert", "U": "update", "D": "delete"}


def origins(count: int, *, flavour: Flavour = Flavour.MARIADB, gtid: bytes = b"", tag: int = 0) -> Origins:
    raw = np.frombuffer((gtid or pack_gtid(0, 1, 42)) * count, np.uint8).reshape(count, 24)
    pos = np.arange(count) * 1_000_000_007
    return Origins(
        flavour, FILES, ["tag_1"], np.arange(count) % 2, pos, raw, np.full(count, tag),
        np.arange(count, dtype=np.uint32) + 7,
    )  # fmt: skip


def rows_of(batch: Any, **present: Any) -> DecodedRows:
    count = len(batch.op)
    return DecodedRows(batch.op, np.arange(count), np.zeros(count, np.uint32), batch.before, batch.after, **present)


def encoded(table: TableSchema, rows: DecodedRows) -> list[dict[str, Any]]:
    texts = origins(len(rows)).texts()
    data, count = b"", 0
    for block in ChangeLines(table).encode(rows, texts, np.arange(len(rows))):
        data += bytes(block.data)
        count += len(block)
        assert int(block.ends[-1]) == len(block.data)
    assert count == len(rows)
    assert data.endswith(b"\n")
    return [json.loads(line) for line in data.decode().split("\n")[:-1]]


def expected_value(name: str, value: Any) -> Any:
    kind = KINDS[name]
    base = kind.column.base_type
    if value is None:
        return None
    if base == "enum":
        return kind.lake(value)
    if base == "set":
        return kind.lake(value)
    if isinstance(value, bytes):
        return {"base64": base64.b64encode(value).decode()}
    text = kind.text(value)
    return json.loads(text.lstrip("0") or "0") if base == "year" else float(text) if base in ("float", "double") else int(text) if base in NUMBERS else text  # fmt: skip


def same(name: str, found: Any, expected: Any) -> bool:
    if isinstance(expected, float):
        if name == "float":
            found, expected = float32(found), float32(expected)
        return bool(found == expected) and math.copysign(1, found) == math.copysign(1, expected)
    return type(found) is type(expected) and bool(found == expected)


@given(change_lists(NAMES))
def test_every_type_as_the_slow_formatter_says(changes: list[Change]) -> None:
    lines = encoded(table_of(NAMES), rows_of(batch_of(NAMES, changes)))
    for k, (line, change) in enumerate(zip(lines, changes, strict=True)):
        assert list(line) == ["op", "schema", "table", "position", "gtid", "timestamp", "before", "after"]
        assert (line["op"], line["schema"], line["table"]) == (OPS[change.op], "shop", "every thing")
        assert line["position"] == f"{FILES[k % 2]}:{k * 1_000_000_007}"
        assert (line["gtid"], line["timestamp"]) == ("0-1-42", 7 + k)
        for image, found in ((change.before, line["before"]), (change.after, line["after"])):
            if image is None:
                assert found is None
                continue
            assert list(found) == NAMES
            for name in NAMES:
                expected = expected_value(name, image[name])
                assert same(name, found[name], expected), (name, found[name], expected)


def test_many_rows_take_several_blocks_and_any_slice_is_the_same() -> None:
    table = TableSchema("s", "t", 1, (Column("id", "int"), Column("v", "varchar(9)"), Column("b", "blob")))
    count = 9_000
    ids = pa.array([None if i % 7 == 0 else i for i in range(count)], pa.int32())
    texts = pa.array([None if i % 5 == 0 else 'x"\n' * (i % 4) + "é" for i in range(count)])
    blobs = pa.array([bytes(range(i % 9)) for i in range(count)], pa.binary())
    nothing: list[Any] = [pa.nulls(count, one.type) for one in (ids, texts, blobs)]
    rows = DecodedRows(
        np.full(count, ord("I"), np.uint8), np.arange(count), np.zeros(count, np.uint32), nothing, [ids, texts, blobs]
    )
    lines = encoded(table, rows)
    assert [line["after"]["id"] for line in lines] == ids.to_pylist()
    assert [line["after"]["v"] for line in lines] == texts.to_pylist()
    assert [base64.b64decode(line["after"]["b"]["base64"]) for line in lines] == blobs.to_pylist()
    part = encoded(table, rows.slice(4_000, 4_010))
    assert [line["after"] for line in part] == [line["after"] for line in lines[4_000:4_010]]


def test_absent_is_not_null() -> None:
    table = TableSchema("s", "t", 1, (Column("id", "int"), Column("a", "int"), Column("b", "varchar(5)")))
    one: list[Any] = [pa.array([1, 1], pa.int32()), pa.array([None, 2], pa.int32()), pa.array(["x", None])]
    rows = DecodedRows(
        np.frombuffer(b"UU", np.uint8), np.arange(2), np.zeros(2, np.uint32), one, one,
        Presence(np.array([[0b001]], np.uint8), np.zeros(2, np.int64)),
        Presence(np.array([[0b110], [0b010]], np.uint8), np.arange(2)),
    )  # fmt: skip
    lines = encoded(table, rows)
    assert [line["before"] for line in lines] == [{"id": 1}, {"id": 1}]
    assert [line["after"] for line in lines] == [{"a": None, "b": "x"}, {"a": 2}]


def test_what_nobody_knows_is_shown_as_it_is_stored() -> None:
    table = TableSchema("s", "t", 1, (Column("@1", "bytes"), Column("@2", "enum"), Column("@3", "set")))
    values: list[Any] = [pa.array([b"abc"]), pa.array([3], pa.uint16()), pa.array([2**64 - 1], pa.uint64())]
    rows = DecodedRows(
        np.frombuffer(b"D", np.uint8), np.zeros(1, np.int64), np.zeros(1, np.uint32), values,
        [pa.nulls(1, one.type) for one in values],
    )  # fmt: skip
    assert encoded(table, rows)[0]["before"] == {"@1": {"base64": "YWJj"}, "@2": 3, "@3": 2**64 - 1}


def test_floats_that_no_server_stores_are_still_json() -> None:
    table = TableSchema("s", "t", 1, (Column("f", "double"),))
    values = pa.array([float("nan"), float("inf"), -0.0, 1e300, None])
    rows = DecodedRows(
        np.full(5, ord("I"), np.uint8), np.arange(5), np.zeros(5, np.uint32), [pa.nulls(5, pa.float64())], [values]
    )
    assert [line["after"]["f"] for line in encoded(table, rows)] == ["nan", "inf", -0.0, 1e300, None]


def test_an_ordinal_that_the_enum_lacks_is_refused() -> None:
    table = TableSchema("s", "t", 1, (Column("e", "enum('a')", elements=("a",)),))
    values: list[Any] = [pa.array([2], pa.uint16())]
    rows = DecodedRows(np.frombuffer(b"I", np.uint8), np.zeros(1, np.int64), np.zeros(1, np.uint32), values, values)
    with pytest.raises(BadInput, match="column e holds an ordinal"):
        encoded(table, rows)


@pytest.mark.parametrize(
    ("flavour", "gtid", "tag"),
    [
        (Flavour.MARIADB, pack_gtid(4_294_967_295, 1, 2**64 - 1), 0),
        (Flavour.MYSQL, bytes(range(1, 17)) + (2**63).to_bytes(8, "little"), 0),
        (Flavour.MYSQL, bytes(range(1, 17)) + (7).to_bytes(8, "little"), 1),
        (Flavour.MYSQL, bytes(24), 0),
    ],
)
def test_gtids_as_text_and_as_a_column(flavour: Flavour, gtid: bytes, tag: int) -> None:
    some = origins(3, flavour=flavour, gtid=gtid, tag=tag)
    expected = gtid_text(flavour, gtid, "tag_1" if tag else "") or None
    assert some.gtid_column().to_pylist() == [expected] * 3
    texts = some.texts()
    for k in range(3):
        text = bytes(texts.data[texts.starts[k] : texts.starts[k + 1]]).decode()
        assert json.loads("{" + text + "}")["gtid"] == expected


@given(st.lists(st.integers(0, 3), min_size=1, max_size=60), st.integers(1, 5))
def test_tables_come_in_the_order_of_the_log(tables: list[int], block: int) -> None:
    """Event k belongs to `tables[k]` and has k % 3 + 1 rows."""
    streams = []
    for table in sorted(set(tables)):
        where = [(k, r) for k, of in enumerate(tables) if of == table for r in range(k % 3 + 1)]
        cut = [where[at : at + block] for at in range(0, len(where), block)]
        streams.append(iter([_lines(table, part) for part in cut]))
    found = b"".join(bytes(part) for part in interleaved(streams)).decode().split("\n")[:-1]
    assert found == [f"{of}:{k}:{r}" for k, of in enumerate(tables) for r in range(k % 3 + 1)]


def _lines(table: int, where: list[tuple[int, int]]) -> Lines:
    texts = [f"{table}:{k}:{r}\n".encode() for k, r in where]
    ends = np.cumsum([len(text) for text in texts])
    event, row = np.array([k for k, _ in where]), np.array([r for _, r in where], np.uint32)
    return Lines(event, row, ends, np.frombuffer(b"".join(texts), np.uint8))
