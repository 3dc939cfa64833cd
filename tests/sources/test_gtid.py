"""Sets of GTIDs against plain sets of Python."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import BadInput
from penstock.sources.gtid import (
    DomainPosition,
    GtidSource,
    MariadbGtidSet,
    MysqlGtidSet,
    contains,
    parse_gtid_set,
)

A = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
B = "00000000-0000-0000-0000-00000000000b"
SOURCES = [GtidSource(A), GtidSource(A, "blue"), GtidSource(B), GtidSource(B, "a_9")]

plain_sets = st.sets(st.tuples(st.sampled_from(SOURCES), st.integers(1, 30)), max_size=40)


def mysql(plain: set[tuple[GtidSource, int]]) -> MysqlGtidSet:
    found = MysqlGtidSet()
    for source in SOURCES:
        found = found.add(source, [n for s, n in plain if s == source])
    return found


def plain_of(value: MysqlGtidSet) -> set[tuple[GtidSource, int]]:
    return {(s, n) for s, intervals in value.intervals.items() for a, b in intervals for n in range(a, b + 1)}


@given(plain_sets, plain_sets)
def test_mysql_sets_behave_as_plain_sets(a: set[Any], b: set[Any]) -> None:
    one, two = mysql(a), mysql(b)
    assert plain_of(one) == a
    assert plain_of(one.union(two)) == a | b
    assert plain_of(one.subtract(two)) == a - b
    assert one.contains(two) == (a >= b)
    assert bool(one) == bool(a)
    assert (one == two) == (a == b)
    assert all(one.has(s, n) == ((s, n) in a) for s, n in a | b)
    for value in (one, one.union(two), one.subtract(two)):
        assert parse_gtid_set(str(value)) == value
        for intervals in value.intervals.values():  # canonical: nothing that touches, nothing empty
            assert intervals and all(x[1] + 1 < y[0] for x, y in itertools.pairwise(intervals))


@given(plain_sets, st.sampled_from(SOURCES), st.lists(st.integers(1, 40)))
def test_mysql_numbers_are_added_one_by_one_or_together(a: set[Any], source: GtidSource, numbers: list[int]) -> None:
    together = mysql(a).add(source, numbers)
    single = mysql(a)
    for number in numbers:
        single = single.add(source, [number])
    assert plain_of(together) == a | {(source, n) for n in numbers}
    assert single == together and hash(single) == hash(together)


domains = st.dictionaries(st.integers(0, 3), st.tuples(st.integers(1, 3), st.integers(1, 20)), max_size=4)


def plain_of_domains(value: MariadbGtidSet) -> set[tuple[int, int]]:
    return {(d, n) for d, at in value.domains.items() for n in range(1, at.sequence + 1)}


@given(domains, domains)
def test_mariadb_sets_behave_as_plain_sets(a: dict[int, Any], b: dict[int, Any]) -> None:
    one, two = (MariadbGtidSet({d: DomainPosition(*at) for d, at in x.items()}) for x in (a, b))
    first, second = plain_of_domains(one), plain_of_domains(two)
    assert plain_of_domains(one.union(two)) == first | second
    assert one.contains(two) == (first >= second)
    assert set(one.subtract(two).domains) == {d for d, _ in first - second}
    assert bool(one.subtract(two)) == bool(first - second)
    if one:
        assert parse_gtid_set(str(one)) == one


def test_the_text_of_servers() -> None:
    text = f"{A.upper()}:1-7:9-10:blue:1-3:5,\n {B}:8"
    value = parse_gtid_set(text)
    assert str(value) == f"{B}:8,{A}:1-7:9-10:blue:1-3:5"
    assert isinstance(value, MysqlGtidSet)
    assert not value.has(GtidSource(A), 8) and value.has(GtidSource(A), 9)
    assert not value.has(GtidSource(A), 5_000_000)
    assert value.has(GtidSource(A, "blue"), 5) and not value.has(GtidSource(A, "blue"), 4)
    assert not value.contains(parse_gtid_set(f"{A}:1-10"))  # type: ignore[arg-type] # K: gaps are kept
    assert str(parse_gtid_set(" 1-1-7 ,0-2-42")) == "0-2-42,1-1-7"
    assert not parse_gtid_set("")


@pytest.mark.parametrize(
    "text",
    [
        "0-1",
        "0-1-2-3",
        "x-1-2",
        "0-1-2,0-2-3",
        f"{2**32}-1-1",
        f"{A}:0-3",
        f"{A}:5-4",
        f"{A}:1-2:9x",
        "zz:1",
        f"{A}:1-",
        f"{A}:{2**63}",
    ],
)
def test_what_is_no_set_is_refused(text: str) -> None:
    with pytest.raises(BadInput):
        parse_gtid_set(text)


def test_a_domain_may_go_back_and_families_have_nothing_in_common() -> None:
    value = MariadbGtidSet().add(0, 1, 10).add(0, 2, 7)
    assert str(value) == "0-2-7"  # without gtid_strict_mode: the last by binlog order
    assert not contains(value, parse_gtid_set(f"{A}:1"))
    assert not contains(parse_gtid_set(f"{A}:1"), value)
    assert contains(value, MysqlGtidSet())
