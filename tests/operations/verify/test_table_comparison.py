"""The comparison tells lost, doubled, wrong and unknown rows apart, however files and batches are split."""

from __future__ import annotations

import itertools

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.log.position import Seq
from penstock.operations.verify.report import Differences
from penstock.operations.verify.table_comparison import TableComparison, file_rows


def rows(ids: list[int], values: list[int] | None = None) -> pa.Table:
    seqs = pa.array([Seq(1, i, 0, 0).to_bytes() for i in ids], pa.binary())
    return pa.table(
        {
            "_seq": seqs,
            "_op": pa.array(["I"] * len(ids), pa.string()),
            "value": pa.array(values if values is not None else ids, pa.int64()),
        }
    )


def compare(expected: list[pa.Table], files: list[pa.Table], *, pending_after: int | None = None) -> Differences:
    comparison = TableComparison(file_rows(table, VERSION) for table in files)
    for i, table in enumerate(expected):
        comparison.expect(table, VERSION, may_be_pending=pending_after is not None and i >= pending_after)
    return comparison.finish()


def cut(ids: list[int], cuts: list[int]) -> list[pa.Table]:
    edges = sorted({0, len(ids), *(c % (len(ids) + 1) for c in cuts)})
    return [rows(ids[a:b]) for a, b in itertools.pairwise(edges)]


VERSION = 7  # of the table
CUTS = st.lists(st.integers(0, 100), max_size=6)


@given(count=st.integers(1, 60), batches=CUTS, files=CUTS)
def test_equal_whatever_the_cuts(count: int, batches: list[int], files: list[int]) -> None:
    ids = list(range(1, count + 1))
    found = compare(cut(ids, batches), cut(ids, files))
    assert found.equal
    assert found.changes == count


@given(count=st.integers(2, 60), gone=st.integers(0, 100), batches=CUTS, files=CUTS)
def test_one_lost_row_is_found(count: int, gone: int, batches: list[int], files: list[int]) -> None:
    ids = list(range(1, count + 1))
    left = [i for i in ids if i != ids[gone % count]]
    found = compare(cut(ids, batches), cut(left, files))
    assert (found.lost, found.doubled, found.wrong, found.unknown) == (1, 0, 0, 0)


@given(count=st.integers(1, 60), twice=st.integers(0, 100), later=st.booleans(), batches=CUTS, files=CUTS)
def test_one_doubled_row_is_found(count: int, twice: int, later: bool, batches: list[int], files: list[int]) -> None:
    ids = list(range(1, count + 1))
    again = ids[twice % count]
    doubled = [*ids, again] if later else sorted([*ids, again])
    found = compare(cut(ids, batches), cut(doubled, files))
    assert (found.lost, found.doubled, found.wrong, found.unknown) == (0, 1, 0, 0)


def test_a_wrong_value_names_row_and_column() -> None:
    found = compare([rows([1, 2, 3])], [rows([1, 2, 3], [1, 20, 3])])
    assert found.wrong == 1
    assert found.examples == ["wrong: seq 1:2:0:0 column value: 20 instead of 2"]


def test_a_row_that_the_log_does_not_have() -> None:
    assert compare([rows([1, 2])], [rows([1, 2, 9])]).unknown == 1


@pytest.mark.parametrize("there", [[1, 2], [1, 2, 3]])
def test_what_is_on_its_way_is_not_lost(there: list[int]) -> None:
    found = compare([rows([1, 2]), rows([3, 4])], [rows(there)], pending_after=1)
    assert found.equal
    assert found.pending == 4 - len(there)


@given(count=st.integers(2, 60), at=st.integers(0, 100), apart=st.integers(1, 20), batches=CUTS, files=CUTS)
def test_two_rows_that_changed_places_are_found(
    count: int, at: int, apart: int, batches: list[int], files: list[int]
) -> None:
    ids = list(range(1, count + 1))
    swapped = list(ids)
    first, second = at % (count - 1), min(count - 1, at % (count - 1) + apart)
    swapped[first], swapped[second] = swapped[second], swapped[first]
    found = compare(cut(ids, batches), cut(swapped, files))
    assert (found.lost, found.doubled, found.wrong, found.unknown) == (0, 0, 0, 0)
    assert found.misplaced >= 1 and not found.equal


def test_a_row_that_comes_late_and_twice() -> None:
    found = compare([rows([1, 2]), rows([3, 4])], [rows([1, 3, 2, 2, 4])])
    assert (found.lost, found.doubled, found.misplaced) == (0, 1, 1)
    assert found.examples[-2:] == ["out of order: seq 1:2:0:0 comes too late", "doubled: seq 1:2:0:0"]


def test_rows_of_trimmed_entries_are_counted_and_not_compared() -> None:
    comparison = TableComparison(file_rows(table, VERSION, Seq(1, 3, 0, 0)) for table in (rows([1, 2, 3]), rows([4])))
    comparison.expect(rows([3, 4]), VERSION)
    assert comparison.finish().equal and comparison.before == 2


@pytest.mark.parametrize(
    ("files", "doubled", "misplaced"),
    [
        ([[1, 2, 2, 3, 9]], 1, 0),
        ([[1, 2], [2, 3, 9]], 1, 0),
        ([[1, 2, 3], [1, 2, 3, 9]], 0, 1),  # a file that is there again
        ([[1, 3, 2], [9]], 0, 1),
    ],
)
def test_rows_of_trimmed_entries_come_once_and_in_order(files: list[list[int]], doubled: int, misplaced: int) -> None:
    comparison = TableComparison(file_rows(rows(ids), VERSION, Seq(1, 9, 0, 0)) for ids in files)
    comparison.expect(rows([9]), VERSION)
    found = comparison.finish()
    assert (found.doubled, found.misplaced, found.lost, found.unknown) == (doubled, misplaced, 0, 0)
    assert len(found.examples) == 1


def test_a_missing_column_is_wrong() -> None:
    assert compare([rows([1, 2])], [rows([1, 2]).drop(["value"])]).wrong == 2


def test_rows_among_those_of_another_version() -> None:
    """Readers take the columns of the version in whose directory a row is."""
    comparison = TableComparison(file_rows(rows(ids), version) for ids, version in (([1, 2], 7), ([3, 4, 5], 8)))
    comparison.expect(rows([1, 2, 3]), 7)
    comparison.expect(rows([4, 5]), 8)
    found = comparison.finish()
    assert (found.changes, found.misplaced, found.lost, found.unknown) == (5, 1, 0, 0)
    assert "seq 1:3:0:0 is among the files of version 8, not of 7" in found.examples[0]
