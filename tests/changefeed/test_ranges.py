"""Which ranges are complete: in any order, at a cost that does not grow with the number of ranges."""

from __future__ import annotations

import time

from penstock.changefeed.ranges import PublishedRange, PublishedRanges, merged
from penstock.log.position import Position, Seq


def at(entry: int, row: int = 0) -> Seq:
    return Seq(1, entry, 0, row)


def ends(complete: list[PublishedRange]) -> list[int]:
    return [one.end.entry_id for one in complete]


def test_a_range_is_complete_once_its_last_dispatcher_is_past_it() -> None:
    ranges = PublishedRanges()
    assert ranges.add(Position(1, 0), Position(1, 9), 100, {"a": at(4), "b": at(9)}) is None
    assert ranges.progress("a", at(3)) == ([], 0)
    assert ranges.progress("b", at(9)) == ([], 100)
    complete, _ = ranges.progress("a", at(4))
    assert ends(complete) == [9]
    assert len(ranges) == 0


def test_ranges_complete_in_any_order_but_the_checkpoint_waits_for_the_first() -> None:
    ranges = PublishedRanges()
    ranges.add(Position(1, 0), Position(1, 9), 100, {"a": at(9)})
    ranges.add(Position(1, 10), Position(1, 19), 200, {"b": at(19)})
    assert ends(ranges.progress("b", at(19))[0]) == [19]
    assert ranges.head_commit_ts == 0
    assert ends(ranges.progress("a", at(9))[0]) == [9]
    assert ranges.head_commit_ts == 200


def test_a_range_without_rows_is_complete_at_once_and_one_progress_may_complete_several() -> None:
    ranges = PublishedRanges()
    ranges.add(Position(1, 0), Position(1, 0), 1, {"a": at(0)})
    entered = ranges.add(Position(1, 1), Position(1, 1), 2, {})
    assert entered is not None
    assert ranges.head_commit_ts == 0
    ranges.add(Position(1, 2), Position(1, 2), 3, {"a": at(2)})
    assert ends(ranges.progress("a", at(7))[0]) == [0, 2]
    assert ranges.head_commit_ts == 3


def test_neighbours_become_one_ack_and_gaps_do_not() -> None:
    def make(ledger: int, first: int, last: int) -> PublishedRange:
        return PublishedRange(Position(ledger, first), Position(ledger, last), 0)

    pairs = merged([make(1, 5, 9), make(1, 0, 4), make(1, 12, 13), make(2, 14, 15)])
    assert pairs == [
        (Position(1, 0), Position(1, 9)),
        (Position(1, 12), Position(1, 13)),
        (Position(2, 14), Position(2, 15)),
    ]


def test_the_cost_of_progress_does_not_grow_with_the_ranges_that_wait() -> None:
    """A scan over all ranges would make the second half thousands of times slower than the first."""

    def cost(stuck: int) -> float:
        ranges = PublishedRanges()
        for entry in range(stuck):
            ranges.add(Position(1, entry), Position(1, entry), entry, {"stuck": at(entry), f"d{entry % 50}": at(entry)})
        began = time.thread_time()
        for entry in range(2000):
            ranges.progress(f"d{entry % 50}", at(entry))
        return time.thread_time() - began

    few = min(cost(2_000) for _ in range(3))
    many = min(cost(60_000) for _ in range(3))
    assert many < 10 * few + 0.05
