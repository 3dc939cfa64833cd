"""commit_ts grows strictly under every clock."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from penstock.clock import ManualClock
from penstock.commit_ts import CommitClock, commit_ts_of, milliseconds_of, milliseconds_of_all


@given(st.lists(st.tuples(st.floats(-1e6, 1e6), st.integers(0, 5), st.booleans()), max_size=30))
def test_grows_across_jumps_and_restarts(steps: list[tuple[float, int, bool]]) -> None:
    clock = ManualClock()
    given_out: list[int] = []
    source = CommitClock(0, clock)
    for jump, count, restart in steps:
        clock.jump(jump)
        given_out += [*source.take(count).tolist(), source.next()]
        if restart:
            source = CommitClock(source.last, clock)
    assert all(a < b for a, b in itertools.pairwise(given_out))


def test_reads_as_time() -> None:
    clock = ManualClock(1_700_000_000_123)
    source = CommitClock(0, clock)
    assert milliseconds_of(source.next()) == 1_700_000_000_123
    clock.advance(2.0)
    assert milliseconds_of(int(source.take(3)[0])) == 1_700_000_002_123


def test_it_is_made_as_tidb_makes_it() -> None:
    assert commit_ts_of(1_700_000_000_123) == 1_700_000_000_123 << 18
    assert milliseconds_of(commit_ts_of(7) + (1 << 18) - 1) == 7
    assert milliseconds_of_all(np.array([commit_ts_of(7), commit_ts_of(8) - 1], np.uint64)).tolist() == [7, 7]


def test_an_empty_take_gives_nothing_away() -> None:
    source = CommitClock(5, ManualClock(0))
    assert source.take(0).tolist() == []
    assert source.next() == 6
