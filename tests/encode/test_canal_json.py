"""canal-json: golden lines, every type against a slow formatter, slices, and what TiCDC's consumer insists on."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.commit_ts import commit_ts_of, milliseconds_of
from penstock.encode import FORMATS, open_format
from penstock.encode.lines import ROWS_AT_A_TIME
from penstock.encode.parquet.encoder import Parquet
from penstock.errors import NotSupported
from penstock.log.position import Seq
from penstock.schema.changes import OP_INSERT, SEQ_DTYPE, ChangeBatch, Presence
from penstock.schema.model import Column, TableSchema
from tests.encode.reference import KINDS, Change, batch_of, canal_value, change_lists, equal_text
from tests.support.budget import scaled

CANAL = FORMATS["canal-json"]
NAMES = list(KINDS)
COMMIT_TS = commit_ts_of(1_700_000_000_123) + 7


def lines_of(payload: Any) -> list[dict[str, Any]]:
    text = bytes(payload).decode()
    assert text.endswith("\r\n")
    lines = text.removesuffix("\r\n").split("\r\n")
    assert all(line and "\r" not in line and "\n" not in line for line in lines)
    return [json.loads(line) for line in lines]


def inserts(column: Column, values: pa.Array) -> ChangeBatch:  # type: ignore[type-arg]
    rows = len(values)
    table = TableSchema("d", "t", 1, (column,))
    seq = np.zeros(rows, SEQ_DTYPE)
    return ChangeBatch(
        table,
        np.full(rows, OP_INSERT, np.uint8),
        seq,
        np.full(rows, COMMIT_TS, np.uint64),
        [pa.nulls(rows, values.type)],
        [values],
    )


def test_golden_lines() -> None:
    images = [{"big": 1, "varchar": 'a"b', "enum": 2}, {"big": 1, "varchar": None, "enum": 2}]
    changes = [
        Change("I", None, images[0], Seq(1, 2, 3, 0), COMMIT_TS),
        Change("U", images[0], images[1], Seq(1, 2, 3, 1), COMMIT_TS),
        Change("D", images[1], None, Seq(1, 2, 4, 0), COMMIT_TS + 1),
    ]
    head = '{"id":0,"database":"shop","table":"every thing","pkNames":["big"],"isDdl":false,"type":'
    middle = (
        ',"es":1700000000123,"ts":1700000000123,"sql":"","sqlType":{"big":-5,"varchar":12,"enum":4},"mysqlType":'
        '{"big":"bigint","varchar":"varchar(20)","enum":"enum(\'small\',\'with space\',\'qu\\"ote\',\'ß\',\'Z\')"},"old":'
    )
    expected = [
        f'{head}"INSERT"{middle}null,"data":[{{"big":"1","varchar":"a\\"b","enum":"2"}}],'
        '"_tidb":{"commitTs":445644800032243719},"_penstock":{"seq":"1:2:3:0"}}',
        f'{head}"UPDATE"{middle}[{{"varchar":"a\\"b"}}],"data":[{{"big":"1","varchar":null,"enum":"2"}}],'
        '"_tidb":{"commitTs":445644800032243719},"_penstock":{"seq":"1:2:3:1"}}',
        f'{head}"DELETE"{middle}null,"data":[{{"big":"1","varchar":null,"enum":"2"}}],'
        '"_tidb":{"commitTs":445644800032243720},"_penstock":{"seq":"1:2:4:0"}}',
    ]
    payload = CANAL.encode(batch_of(["big", "varchar", "enum"], changes))
    assert bytes(payload).decode() == "".join(line + "\r\n" for line in expected)


@pytest.mark.parametrize(
    ("mysql_type", "physical", "value", "token"),
    [
        ("tinyint(1)", pa.int8(), -128, '"-128"'),
        ("bigint", pa.int64(), -(2**63), '"-9223372036854775808"'),
        ("bigint unsigned", pa.uint64(), 2**64 - 1, '"18446744073709551615"'),
        ("bit(64)", pa.uint64(), 2**64 - 1, '"18446744073709551615"'),
        ("year(4)", pa.int16(), 0, '"0000"'),
        ("date", pa.int32(), 0, '"0000-00-00"'),
        ("date", pa.int32(), 2024 << 9 | 5 << 5, '"2024-05-00"'),
        ("datetime(2)", pa.int64(), 0, '"0000-00-00 00:00:00.00"'),
        ("timestamp", pa.int64(), 0, '"0000-00-00 00:00:00"'),
        ("timestamp(6)", pa.int64(), 1, '"1970-01-01 00:00:00.000001"'),
        ("time", pa.int64(), -(838 * 3600 + 59 * 60 + 59) * 1_000_000, '"-838:59:59"'),
        ("time(3)", pa.int64(), -500_000, '"-00:00:00.500"'),
        ("float", pa.float32(), 0.1, '"0.1"'),
        ("double", pa.float64(), 5e-324, '"5e-324"'),
        ("set('a','b','c')", pa.uint64(), 5, '"5"'),
        ("enum('a')", pa.uint16(), 0, '"0"'),
        ("varchar(9)", pa.string(), '\b\t\n\f\r"\\/\x00\x1f\x7f😀', '"\\b\\t\\n\\f\\r\\"\\\\/\\u0000\\u001f\x7f😀"'),
        ("blob", pa.binary(), b"\x00A\x7f\x80\xbf\xc0\xff", '"\\u0000A\x7f\x80\xbf\xc0\xff"'),
        ("json", pa.string(), '{"a": 1}', '"{\\"a\\": 1}"'),
        ("int", pa.int32(), None, "null"),
        ("text", pa.string(), None, "null"),
        ("text", pa.string(), "", '""'),
    ],
)
def test_golden_tokens(mysql_type: str, physical: pa.DataType, value: Any, token: str) -> None:
    # The neighbour is missing or not, so that both ways through a kernel are taken.
    for values in ([value], [value, None]):
        payload = bytes(CANAL.encode(inserts(Column("c", mysql_type), pa.array(values, physical)))).decode()
        assert f'"data":[{{"c":{token}}}],' in payload.split("\r\n")[0]


@given(change_lists(NAMES))
@settings(max_examples=scaled(60))
def test_every_type_reads_back_as_the_slow_formatter_says(changes: list[Change]) -> None:
    for change, line in zip(changes, lines_of(CANAL.encode(batch_of(NAMES, changes))), strict=True):
        assert line["type"][0] == change.op
        assert line["pkNames"] == NAMES[:1]
        assert line["es"] == line["ts"] == milliseconds_of(change.commit_ts)
        assert line["_tidb"] == {"commitTs": change.commit_ts}
        assert line["_penstock"] == {"seq": str(change.seq)}
        assert list(line["sqlType"]) == list(line["mysqlType"]) == list(line["data"][0]) == NAMES
        assert len(line["data"]) == 1
        for name, found in line["data"][0].items():
            expected = canal_value(name, change.shown[name])
            assert equal_text(name, found, expected), (name, found, expected)
        if change.op != "U":
            assert line["old"] is None
            continue
        before, after = change.before or {}, change.after or {}
        texts = {name: (canal_value(name, before[name]), canal_value(name, after[name])) for name in NAMES}
        changed = {name: old for name, (old, new) in texts.items() if old != new}
        assert line["old"][0].keys() == changed.keys()
        for name, found in line["old"][0].items():
            assert equal_text(name, found, changed[name]), (name, found, changed[name])


@given(change_lists(NAMES, max_size=6), st.data())
@settings(max_examples=scaled(30))
def test_slices_encode_as_their_rows_do(changes: list[Change], data: st.DataObject) -> None:
    batch = batch_of(NAMES, changes)
    cut = data.draw(st.integers(0, len(changes)))
    parts = [CANAL.encode(batch.slice(0, cut)), CANAL.encode(batch.slice(cut, len(changes)))]
    assert bytes(CANAL.assemble(parts)) == bytes(CANAL.encode(batch))
    assert bytes(parts[1]) == (bytes(CANAL.encode(batch_of(NAMES, changes[cut:]))) if cut < len(changes) else b"")


def test_rows_longer_than_the_first_ones_still_fit() -> None:
    # The buffer is sized by the first rows; later ones are larger, and the batch spans several rounds.
    values = pa.array(["x"] * ROWS_AT_A_TIME + ["y" * 3000] * ROWS_AT_A_TIME + ["z"] * 10)
    found = [line["data"][0]["c"] for line in lines_of(CANAL.encode(inserts(Column("c", "text"), values)))]
    assert found == values.to_pylist()


def test_rows_reads_a_file_back() -> None:
    image = {"ubig": 2**64 - 1, "blob": b"\xff\x00"}
    changes = [Change("I", None, image, Seq(1, 2, 3, 4), 99), Change("D", image, None, Seq(1, 2, 3, 5), 100)]
    rows = CANAL.rows(CANAL.assemble([CANAL.encode(batch_of(["ubig", "blob"], [change])) for change in changes]))
    assert rows.to_pydict() == {
        "_seq": [change.seq.to_bytes() for change in changes],
        "_op": ["I", "D"],
        "_commit_ts": [99, 100],
        "ubig": ["18446744073709551615"] * 2,
        "blob": ["ÿ\x00"] * 2,
    }


def test_a_table_without_a_key_has_an_empty_array() -> None:
    (line,) = lines_of(CANAL.encode(inserts(Column("c", "int"), pa.array([1], pa.int32()))))
    assert line["pkNames"] == []


def test_an_empty_batch_is_no_bytes() -> None:
    # A blank line would end the file for TiCDC's consumer.
    assert bytes(CANAL.encode(inserts(Column("c", "int"), pa.array([], pa.int32())))) == b""


def test_an_unknown_type_is_refused_by_name() -> None:
    with pytest.raises(NotSupported, match="column c has type xmltype"):
        CANAL.encode(inserts(Column("c", "xmltype"), pa.array([b"x"])))


def test_zero_that_became_minus_zero_has_changed() -> None:
    change = Change("U", {"float": 0.0, "double": 0.0}, {"float": -0.0, "double": 0.0}, Seq(1, 1, 1, 1), 1)
    (line,) = lines_of(CANAL.encode(batch_of(["float", "double"], [change])))
    assert line["old"] == [{"float": "0"}]
    assert line["data"] == [{"float": "-0", "double": "0"}]


def test_a_line_of_a_wide_table_is_never_below_its_least() -> None:
    """Each line repeats all names and types: NULLs in a thousand columns are 128 bytes in a binlog, and far more here."""
    table = TableSchema("d", "t", 1, tuple(Column(f"c{i}", "bigint") for i in range(1017)))
    rows = 3
    nulls = [pa.nulls(rows, pa.int64())] * 1017
    op, ts = np.full(rows, OP_INSERT, np.uint8), np.full(rows, COMMIT_TS, np.uint64)
    payload = memoryview(CANAL.encode(ChangeBatch(table, op, np.zeros(rows, SEQ_DTYPE), ts, nulls, nulls)))
    least = CANAL.row_bytes_min(table)
    assert 10_000 < least <= payload.nbytes / rows < 2 * least


def _partial_batch() -> ChangeBatch:
    """Rows of a table (id, name, body) as `binlog_row_image` MINIMAL, FULL_NODUP and FULL log them."""
    table = TableSchema("s", "t", 1, (Column("id", "int", primary_key=True), Column("name", "varchar(9)"), Column("body", "text")))  # fmt: skip
    before = [
        pa.array([1, 2, None, 4], pa.int32()),
        pa.array([None, "b", None, None]),
        pa.array([None, "B", None, None]),
    ]
    after = [
        pa.array([None, None, 3, None], pa.int32()),
        pa.array(["x", "y", "c", None]),
        pa.array([None] * 4, pa.string()),
    ]
    return ChangeBatch(
        table,
        np.frombuffer(b"UUID", np.uint8),
        np.zeros(4, SEQ_DTYPE),
        np.arange(4, dtype=np.uint64),
        before,
        after,
        # before: the key alone; all columns; (none); the key alone. After: name; name; all, body NULL; (none).
        Presence(np.array([[0b001], [0b111], [0xFF], [0b001]], np.uint8), np.arange(4)),
        Presence(np.array([[0b010], [0b010], [0b111], [0xFF]], np.uint8), np.arange(4)),
    )


def test_absent_columns_are_left_out() -> None:
    lines = [json.loads(line) for line in bytes(CANAL.encode(_partial_batch())).decode().split("\r\n") if line]
    assert [line["data"] for line in lines] == [
        [{"id": "1", "name": "x"}],
        [{"id": "2", "name": "y", "body": "B"}],  # what the after image lacks, the update did not change
        [{"id": "3", "name": "c", "body": None}],
        [{"id": "4"}],
    ]
    assert [line["old"] for line in lines] == [[{}], [{"name": "b"}], None, None]
    assert all(set(line["mysqlType"]) == {"id", "name", "body"} for line in lines)
    read = CANAL.rows(CANAL.encode(_partial_batch()))
    assert read.column("body").to_pylist() == [None, "B", None, None]


def test_absent_columns_are_null_in_parquet() -> None:
    parquet = Parquet()
    read = parquet.rows(parquet.assemble([parquet.encode(_partial_batch())]))
    assert read.select(["id", "name", "body"]).to_pylist() == [
        {"id": 1, "name": "x", "body": None},
        {"id": 2, "name": "y", "body": "B"},
        {"id": 3, "name": "c", "body": None},
        {"id": 4, "name": None, "body": None},
    ]


def test_a_mask_that_lacks_nothing_changes_no_byte() -> None:
    batch = _partial_batch().slice(2, 3)
    full = ChangeBatch(batch.table, batch.op, batch.seq, batch.commit_ts, batch.before, batch.after)
    assert bytes(CANAL.encode(batch)) == bytes(CANAL.encode(full))


def test_the_image_before_may_be_whole() -> None:
    before, after = {"int": 1, "varchar": "a", "text": None}, {"int": 1, "varchar": "b", "text": None}
    batch = batch_of(["int", "varchar", "text"], [Change("U", before, after, Seq(1, 1, 1, 1), COMMIT_TS)])
    whole = open_format("canal-json", {"old": "all", "terminator": "lf"})
    text = bytes(whole.encode(batch)).decode()
    assert text.endswith("}\n") and "\r" not in text
    assert json.loads(text)["old"] == [{"int": "1", "varchar": "a", "text": None}]
    assert whole.rows(text.encode())["_op"].to_pylist() == ["U"]
    # Of a column that was not logged there is nothing to show.
    lines = bytes(whole.encode(_partial_batch())).decode().splitlines()
    assert [json.loads(line)["old"] for line in lines] == [[{"id": "1"}], [{"id": "2", "name": "b", "body": "B"}], None, None]  # fmt: skip


def test_rows_shows_an_update_of_the_key_as_a_delete_and_an_insert() -> None:
    """One line, because the consumer reads the old key from `old`; verify and others find rows by key."""
    before, after = {"int": 1, "varchar": "a"}, {"int": 2, "varchar": "a"}
    batch = batch_of(["int", "varchar"], [Change("U", before, after, Seq(1, 1, 1, 1), COMMIT_TS)])
    payload = CANAL.encode(batch)
    assert len(lines_of(payload)) == 1
    rows = CANAL.rows(payload)
    assert list(zip(rows["_op"].to_pylist(), rows["int"].to_pylist(), strict=True)) == [("D", "1"), ("I", "2")]


def test_files_are_assembled_without_kernels() -> None:
    """Delivery joins payloads; what it imports for that is small."""
    code = "import sys; from penstock.encode import open_assembler; open_assembler('csv'); open_assembler('canal-json'); print([m for m in ('numba', 'pyarrow') if m in sys.modules])"  # fmt: skip
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
