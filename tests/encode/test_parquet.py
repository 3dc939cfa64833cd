"""Parquet: typed values, bytes that depend on the rows alone, refusals."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.commit_ts import commit_ts_of, milliseconds_of
from penstock.encode import FORMATS
from penstock.encode.parquet.encoder import parquet_schema
from penstock.errors import BadInput, NotSupported
from penstock.log.position import Seq
from penstock.schema.model import Column, TableSchema
from tests.encode.reference import KINDS, Change, batch_of, change_lists, lake_value
from tests.support.budget import scaled

PARQUET = FORMATS["parquet"]
NAMES = list(KINDS)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@given(change_lists(NAMES))
@settings(max_examples=scaled(40))
def test_every_type_reads_back_typed(changes: list[Change]) -> None:
    rows = PARQUET.rows(PARQUET.assemble([PARQUET.encode(batch_of(NAMES, changes))]))
    assert rows.column_names == ["_op", "_commit_ts", "_seq", *NAMES]
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
def test_the_file_does_not_depend_on_how_its_rows_were_cut(changes: list[Change], data: st.DataObject) -> None:
    batch = batch_of(NAMES, changes)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(changes)), max_size=3)))
    bounds = [0, *cuts, len(changes)]
    payloads = [PARQUET.encode(batch.slice(a, b)) for a, b in pairwise(bounds)]
    assert bytes(PARQUET.assemble(payloads)) == bytes(PARQUET.assemble([PARQUET.encode(batch)]))


def test_large_files_do_not_depend_on_cuts_either() -> None:
    # More than one row group and more than one page a column, with a dictionary that overflows.
    names = ["big", "varchar", "double", "enum"]
    changes = [
        Change("I", None, {"big": n * 7919, "varchar": f"{n:x}" * 3 if n % 3 else None, "double": n / 7, "enum": n % 6}, Seq(1, n, 0, 0), commit_ts_of(n))
        for n in range(140_000)
    ]  # fmt: skip
    batch = batch_of(names, changes)
    whole = bytes(PARQUET.assemble([PARQUET.encode(batch)]))
    for step in (1_000, 49_999, 131_072):
        payloads = [PARQUET.encode(batch.slice(a, min(a + step, len(batch)))) for a in range(0, len(batch), step)]
        assert bytes(PARQUET.assemble(payloads)) == whole
    assert PARQUET.rows(whole)["big"].to_pylist() == [n * 7919 for n in range(140_000)]


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
