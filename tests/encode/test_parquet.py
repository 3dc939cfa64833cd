"""Parquet: typed values, bytes that depend on the rows alone, refusals."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.commit_ts import commit_ts_of, milliseconds_of
from penstock.encode import FORMATS, open_format
from penstock.encode.parquet.encoder import parquet_schema
from penstock.errors import BadInput, NotSupported
from penstock.log.position import Seq
from penstock.schema.changes import SEQ_DTYPE, ChangeBatch, Presence
from penstock.schema.model import Column, TableSchema
from tests.encode.reference import KINDS, Change, batch_of, change_lists, lake_value, rows_of
from tests.support.budget import scaled

PARQUET = FORMATS["parquet"]
NAMES = list(KINDS)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@given(change_lists(NAMES))
@settings(max_examples=scaled(40))
def test_every_type_reads_back_typed(changes: list[Change]) -> None:
    rows = PARQUET.rows(PARQUET.assemble([PARQUET.encode(batch_of(NAMES, changes))]))
    assert rows.column_names == ["_op", "_commit_ts", "_seq", *NAMES]
    changes = rows_of(NAMES, changes)
    assert rows["_op"].to_pylist() == [change.op for change in changes]
    assert rows["_seq"].to_pylist() == [change.seq.to_bytes() for change in changes]
    assert rows["_commit_ts"].to_pylist() == [
        EPOCH + timedelta(milliseconds=milliseconds_of(change.commit_ts)) for change in changes
    ]
    for name in NAMES:
        expected = [lake_value(name, change.shown[name]) for change in changes]
        assert rows[name].to_pylist() == expected, name


@given(change_lists(NAMES, max_size=6), st.data())
@settings(max_examples=scaled(30))
def test_the_rows_do_not_depend_on_how_they_were_cut(changes: list[Change], data: st.DataObject) -> None:
    batch = batch_of(NAMES, changes)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(changes)), max_size=3)))
    bounds = [0, *cuts, len(changes)]
    payloads = [PARQUET.encode(batch.slice(a, b)) for a, b in pairwise(bounds)]
    file = PARQUET.assemble(payloads)
    assert file == PARQUET.assemble(payloads)
    assert PARQUET.rows(file).equals(PARQUET.rows(PARQUET.assemble([PARQUET.encode(batch)])))


KEY_CHANGES = [
    Change("I", None, {"int": 1, "varchar": "a"}, Seq(1, 1, 1, 0), 1),
    Change("I", None, {"int": 2, "varchar": "b"}, Seq(1, 1, 1, 1), 1),
    Change("U", {"int": 1, "varchar": "a"}, {"int": 3, "varchar": "a"}, Seq(1, 1, 2, 0), 2),
    Change("U", {"int": 2, "varchar": "b"}, {"int": 2, "varchar": "c"}, Seq(1, 1, 2, 1), 2),
]


def test_an_update_of_the_key_leaves_no_ghost() -> None:
    """The last row of each key tells what is left of it: the old key ends with a delete."""
    read = PARQUET.rows(PARQUET.assemble([PARQUET.encode(batch_of(["int", "varchar"], KEY_CHANGES))]))
    rows = list(zip(read["_op"].to_pylist(), read["int"].to_pylist(), read["varchar"].to_pylist(), strict=True))
    assert rows == [("I", 1, "a"), ("I", 2, "b"), ("D", 1, "a"), ("I", 3, "a"), ("U", 2, "c")]
    assert read["_seq"].to_pylist() == [KEY_CHANGES[n].seq.to_bytes() for n in (0, 1, 2, 2, 3)]
    last = {key: (op, value) for op, key, value in rows}
    assert {key: value for key, (op, value) in last.items() if op != "D"} == {2: "c", 3: "a"}


def test_without_a_key_every_update_is_a_delete_and_an_insert() -> None:
    batch = batch_of(["int", "varchar"], KEY_CHANGES)
    columns = tuple(replace(column, primary_key=False) for column in batch.table.columns)
    read = PARQUET.rows(PARQUET.assemble([PARQUET.encode(replace(batch, table=replace(batch.table, columns=columns)))]))
    assert "".join(map(str, read["_op"].to_pylist())) == "IIDIDI"


def test_a_key_change_in_partial_images_shows_what_did_not_change() -> None:
    """MINIMAL: the image before has the old key, the one after the new key and what was set."""
    table = TableSchema("s", "t", 1, (Column("id", "int", primary_key=True), Column("a", "int"), Column("b", "int")))
    batch = ChangeBatch(
        table,
        np.frombuffer(b"UU", np.uint8),
        np.zeros(2, SEQ_DTYPE),
        np.arange(2, dtype=np.uint64),
        [pa.array(values, pa.int32()) for values in ([1, 2], [None, 7], [None, None])],
        [pa.array(values, pa.int32()) for values in ([5, None], [6, None], [None, 8])],
        Presence(np.array([[0b001], [0b011]], np.uint8), np.arange(2)),
        Presence(np.array([[0b011], [0b100]], np.uint8), np.arange(2)),
    )
    read = PARQUET.rows(PARQUET.assemble([PARQUET.encode(batch)])).select(["_op", "id", "a", "b"]).to_pylist()
    assert [tuple(row.values()) for row in read] == [
        ("D", 1, None, None),
        ("I", 5, 6, None),
        ("U", 2, 7, 8),
    ]


@pytest.mark.parametrize("compression", ["zstd", "snappy", "gzip", "none"])
def test_the_compression_is_as_asked_for(compression: str) -> None:
    made = open_format("parquet", {"compression": compression})
    batch = batch_of(["int"], [Change("I", None, {"int": 1}, Seq(1, 1, 1, 1), 1)])
    file = made.assemble([made.encode(batch)])
    found = pq.ParquetFile(pa.BufferReader(pa.py_buffer(file))).metadata.row_group(0).column(3).compression
    assert found == {"none": "UNCOMPRESSED"}.get(compression, compression.upper())
    assert made.rows(file)["int"].to_pylist() == [1]


def test_large_files_of_many_row_groups() -> None:
    # More than one row group and more than one page a column, with a dictionary that overflows.
    names = ["big", "varchar", "double", "enum"]
    changes = [
        Change("I", None, {"big": n * 7919, "varchar": f"{n:x}" * 3 if n % 3 else None, "double": n / 7, "enum": n % 6}, Seq(1, n, 0, 0), commit_ts_of(n))
        for n in range(140_000)
    ]  # fmt: skip
    batch = batch_of(names, changes)
    whole = PARQUET.rows(PARQUET.assemble([PARQUET.encode(batch)]))
    for step in (1_000, 49_999, 131_072):
        payloads = [PARQUET.encode(batch.slice(a, min(a + step, len(batch)))) for a in range(0, len(batch), step)]
        file = PARQUET.assemble(payloads)
        assert PARQUET.rows(file).equals(whole)
        described = pq.ParquetFile(pa.BufferReader(file)).metadata
        assert described.num_rows == 140_000
        assert described.num_row_groups == sum(-(-len(p) // 131_072) for p in _lengths(len(batch), step))
        kept = [described.row_group(i).column(3).statistics for i in range(described.num_row_groups)]
        assert [each.min for each in kept] == [n * 7919 for n in _starts(len(batch), step)]  # of its own rows
    assert whole["big"].to_pylist() == [n * 7919 for n in range(140_000)]


def _lengths(rows: int, step: int) -> list[range]:
    return [range(a, min(a + step, rows)) for a in range(0, rows, step)]


def _starts(rows: int, step: int) -> list[int]:
    return [start for piece in _lengths(rows, step) for start in piece[::131_072]]


@pytest.mark.parametrize("at", [0, 3, -1, -6])
def test_a_damaged_payload_is_refused(at: int) -> None:
    payload = bytearray(PARQUET.encode(batch_of(["int"], [Change("I", None, {"int": 1}, Seq(1, 1, 1, 1), 1)])))
    good = bytes(payload)
    payload[at] ^= 0xFF
    with contextlib.suppress(BadInput):
        assert PARQUET.assemble([good, bytes(payload)]) != PARQUET.assemble([good, good])
    for cut in (0, 3, 11, len(good) // 2):
        with pytest.raises(BadInput):
            PARQUET.assemble([good[:cut]])


def test_files_are_read_on_the_thread_that_asks() -> None:
    """A thread of Arrow's that still holds a buffer of Python's when the process ends aborts it: exit code 134 of a `verify`
    that found nothing wrong."""
    script = """
import os
import pyarrow as pa
import pyarrow.parquet as pq
from penstock.encode import FORMATS

sink = pa.BufferOutputStream()
pq.write_table(pa.table({f"c{i}": pa.array(range(100_000)) for i in range(8)}), sink, row_group_size=10_000)
file = memoryview(sink.getvalue())
before = set(os.listdir("/proc/self/task"))
assert FORMATS["parquet"].rows(file).num_rows == 100_000
assert sum(piece.num_rows for piece in FORMATS["parquet"].pieces(file)) == 100_000
assert set(os.listdir("/proc/self/task")) == before
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=300)


def test_no_batch_changes_the_types() -> None:
    """Columns of nothing but nulls have the types of the table, so that files of one version are read together."""
    nothing: dict[str, Any] = dict.fromkeys(NAMES)
    rows = PARQUET.rows(
        PARQUET.assemble([PARQUET.encode(batch_of(NAMES, [Change("I", None, nothing, Seq(1, 1, 1, 1), 1)]))])
    )
    expected = parquet_schema(batch_of(NAMES, []).table)
    assert rows.schema.types == expected.types
    assert not any(pa.types.is_large_string(kind) or pa.types.is_large_binary(kind) for kind in rows.schema.types)


def test_an_ordinal_outside_the_enum_is_refused() -> None:
    batch = batch_of(["enum"], [])
    broken = type(batch)(batch.table, *(getattr(batch_of(["usmall"], [Change("I", None, {"usmall": 9}, Seq(1, 1, 1, 1), 1)]), field) for field in ("op", "seq", "commit_ts", "before", "after")))  # fmt: skip
    with pytest.raises(BadInput, match="an ordinal that enum"):
        PARQUET.encode(broken)


def test_payloads_of_two_versions_are_refused() -> None:
    change = Change("I", None, {"int": 1, "big": 1}, Seq(1, 1, 1, 1), 1)
    with pytest.raises(BadInput, match="different table versions"):
        PARQUET.assemble([PARQUET.encode(batch_of(["int"], [change])), PARQUET.encode(batch_of(["big"], [change]))])
    with pytest.raises(BadInput, match="at least one payload"):
        PARQUET.assemble([])


def test_columns_named_as_our_own_are_refused() -> None:
    with pytest.raises(NotSupported, match="has a column _OP"):
        parquet_schema(TableSchema("d", "t", 1, (Column("_OP", "int"),)))


def test_days_that_no_calendar_has_are_null() -> None:
    days = [
        (2023, 4, 31),
        (2023, 2, 29),
        (1900, 2, 29),
        (2023, 0, 1),
        (2023, 1, 0),
        (0, 1, 1),
        (2000, 2, 29),
        (2023, 12, 31),
    ]
    changes = [Change("I", None, {"date": day, "datetime": (*day, 1, 2, 3, 0)}, Seq(1, 1, 1, 1), 1) for day in days]
    rows = PARQUET.rows(PARQUET.assemble([PARQUET.encode(batch_of(["date", "datetime"], changes))]))
    assert rows["date"].to_pylist() == [None] * 6 + [date(2000, 2, 29), date(2023, 12, 31)]
    assert rows["datetime"].to_pylist() == [None] * 6 + [
        datetime(2000, 2, 29, 1, 2, 3),
        datetime(2023, 12, 31, 1, 2, 3),
    ]
