"""Which ranges are complete: in any order, at a cost that does not grow with the number of ranges."""

from __future__ import annotations

import random
import time
import tracemalloc

import pytest

from penstock.changefeed import ranges as module
from penstock.changefeed.ranges import EXACT_MAX, PublishedRange, PublishedRanges, merged
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


@pytest.mark.parametrize("in_every_range", [True, False])
def test_a_parked_table_does_not_fill_the_memory(in_every_range: bool) -> None:
    """Its rows are in every range, or only in the first: for as long as it is parked no range before it is complete."""
    ranges = PublishedRanges()
    ranges.add(Position(1, 0), Position(1, 0), 1, {"parked": at(0)})
    used = []
    tracemalloc.start()
    try:
        for entry in range(1, 12 * EXACT_MAX):
            pending = {"other": at(entry)} | ({"parked": at(entry, 1)} if in_every_range else {})
            ranges.add(Position(1, entry), Position(1, entry), 1 + entry, pending)
            complete, commit_ts = ranges.progress("other", at(entry))
            assert commit_ts == 1 + entry and ends(complete) == ([] if in_every_range else [entry])
            if entry % (4 * EXACT_MAX) == 4 * EXACT_MAX - 1:
                used.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    assert len(ranges) <= 2 * EXACT_MAX and used[-1] < 1.2 * used[0] + 100_000, used
    assert ranges.head_commit_ts == 0 and ranges.oldest_pending("parked") is not None
    complete, _ = ranges.progress("parked", at(12 * EXACT_MAX, 9))
    assert len(ranges) == 0 and ranges.head_commit_ts == 12 * EXACT_MAX
    if in_every_range:
        assert merged(complete) == [(Position(1, 0), Position(1, 12 * EXACT_MAX - 1))]


@pytest.mark.parametrize("seed", range(40))
def test_joined_ranges_are_never_acked_too_early_and_all_in_the_end(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Against ranges that are never joined."""
    rng = random.Random(seed)
    names = [f"d{i}" for i in range(4)]
    joined, exact = PublishedRanges(), PublishedRanges()
    acked: dict[int, set[int]] = {id(joined): set(), id(exact): set()}
    given_out: list[tuple[PublishedRange, tuple[Position, Position]]] = []
    rows = dict.fromkeys(names, 0)  # the entry of each dispatcher's last row
    done = dict(rows)

    def both(step: str, *arguments: object) -> None:
        for ranges, exact_max in ((joined, 3), (exact, 1 << 30)):
            monkeypatch.setattr(module, "EXACT_MAX", exact_max)
            found = getattr(ranges, step)(*arguments)
            complete = found[0] if isinstance(found, tuple) else [found] if found else []
            given_out.extend((one, (one.start, one.end)) for one in complete)
            for one in complete:
                acked[id(ranges)].update(range(one.start.entry_id, one.end.entry_id + 1))
        assert acked[id(joined)] <= acked[id(exact)] and joined.head_commit_ts <= exact.head_commit_ts

    end = 0
    for _ in range(300):
        if rng.random() < 0.5:
            first, end = end + 1, end + rng.randint(1, 3)
            last = {name: at(rng.randint(first, end)) for name in names if rng.random() < 0.4}
            rows.update({name: seq.entry_id for name, seq in last.items()})
            both("add", Position(1, first), Position(1, end), end, last)
        elif done[name := rng.choice(names[: 3 if rng.random() < 0.97 else 4])] < rows[name]:  # one is slow
            done[name] = rng.randint(done[name] + 1, rows[name])
            both("progress", name, at(done[name]))
    for name in names:
        both("progress", name, at(end))
    assert acked[id(joined)] == acked[id(exact)] == set(range(1, end + 1))
    assert len(joined) == 0 and joined.head_commit_ts == end
    assert all((one.start, one.end) == before for one, before in given_out)  # somebody may be acking them
