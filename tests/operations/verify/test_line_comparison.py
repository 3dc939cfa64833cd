"""Lines are compared as bytes while they are equal, and row by row from the first difference on."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.encode import FORMATS
from penstock.log.position import Seq
from penstock.operations.verify.line_comparison import LineComparison
from penstock.operations.verify.report import Differences
from penstock.operations.verify.table_comparison import file_rows
from tests.encode.reference import Change, batch_of
from tests.support.budget import scaled

NAMES = ["int", "varchar"]
CUTS = st.lists(st.integers(0, 100), max_size=4)


def lines(fmt: str, ids: list[int], wrong: int | None = None) -> list[bytes]:
    """A line for each row."""
    made = []
    for one in ids:
        image = {"int": one, "varchar": "x\n" * one if one != wrong else "wrong"}
        made.append(bytes(FORMATS[fmt].encode(batch_of(NAMES, [Change("I", None, image, Seq(1, one, 0, 0), one)]))))
    return made


VERSION = 7  # of the table


def cut(every: list[bytes], cuts: list[int]) -> list[list[bytes]]:
    edges = sorted({0, len(every), *(c % (len(every) + 1) for c in cuts)})
    return [every[a:b] for a, b in itertools.pairwise(edges)]


def opened(fmt: str, files: list[list[bytes]], first: Seq | None = None) -> LineComparison:
    return LineComparison(
        iter([(str(number), VERSION, b"".join(file)) for number, file in enumerate(files)]),
        lambda _, version, data, since: (
            file_rows(one, version, since) for one in FORMATS[fmt].pieces(data, before=True)
        ),
        first,
    )


def compare(fmt: str, expected: list[list[bytes]], files: list[list[bytes]], pending_after: int = 99) -> Differences:
    comparison = opened(fmt, files)
    for number, batch in enumerate(expected):
        data = b"".join(batch)
        seq = bytes(FORMATS[fmt].rows(data)["_seq"][-1].as_py())
        comparison.expect(data, VERSION, len(batch), seq + b"Z", may_be_pending=number >= pending_after)
    return comparison.finish()


@pytest.mark.parametrize("fmt", ["canal-json", "debezium-json"])
@settings(max_examples=scaled(12))
@given(count=st.integers(2, 8), at=st.integers(0, 100), batches=CUTS, files=CUTS)
def test_each_kind_of_difference(fmt: str, count: int, at: int, batches: list[int], files: list[int]) -> None:
    ids = list(range(1, count + 1))
    one = ids[at % count]
    whole = cut(lines(fmt, ids), batches)

    def found(there: list[int], wrong: int | None = None) -> tuple[int, ...]:
        seen = compare(fmt, whole, cut(lines(fmt, there, wrong), files))
        assert seen.changes == count
        return seen.lost, seen.doubled, seen.wrong, seen.misplaced, seen.unknown

    assert found(ids) == (0, 0, 0, 0, 0)
    assert found([i for i in ids if i != one]) == (1, 0, 0, 0, 0)
    assert found(sorted([*ids, one])) == (0, 1, 0, 0, 0)
    assert found([*ids, one]) == (0, 1, 0, 0, 0)
    assert found(ids, wrong=one) == (0, 0, 1, 0, 0)
    assert found([*ids, count + 1]) == (0, 0, 0, 0, 1)
    swapped = [one + 1 if i == one else one if i == one + 1 else i for i in ids] if one < count else [*ids[1:], 1]
    assert found(swapped)[3] >= 1 and found(swapped)[:3] == (0, 0, 0)


def test_what_is_on_its_way() -> None:
    found = compare(
        "canal-json", [lines("canal-json", [1, 2]), lines("canal-json", [3, 4])], [lines("canal-json", [1, 2, 3])], 1
    )
    assert found.equal and (found.changes, found.pending) == (3, 1)


@pytest.mark.parametrize("fmt", ["canal-json", "debezium-json"])
@settings(max_examples=scaled(12))
@given(count=st.integers(2, 8), trimmed=st.integers(0, 100), at=st.integers(0, 100), files=CUTS)
def test_of_a_trimmed_log_the_rest_is_compared_whole(
    fmt: str, count: int, trimmed: int, at: int, files: list[int]
) -> None:
    """With the values before an update, which only a comparison of everything that a line says sees."""

    def line(one: int, old: str) -> bytes:
        change = Change("U", {"int": one, "varchar": old}, {"int": one, "varchar": "new"}, Seq(1, one, 0, 0), one)
        return bytes(FORMATS[fmt].encode(batch_of(NAMES, [change])))

    ids = list(range(1, count + 1))
    left = trimmed % count
    wrong = ids[left:][at % (count - left)]
    for altered in (None, wrong):
        there = [line(one, "other" if one == altered else "old") for one in ids]
        comparison = opened(fmt, cut(there, files), Seq(1, left + 1, 0, 0))
        for one in ids[left:]:
            comparison.expect(line(one, "old"), VERSION, 1, Seq(1, one, 0, 0).to_bytes() + b"Z")
        found = comparison.finish()
        assert (found.changes, found.wrong, comparison.before) == (count - left, int(altered is not None), left)
        assert found.equal == (altered is None) and not comparison.altered
