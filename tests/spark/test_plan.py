"""Planning without Spark: where a batch ends, and how it is split into ranges."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

from hypothesis import given
from hypothesis import strategies as st

from penstock.log.position import Position
from penstock.schema.model import TableSchema
from penstock.spark.plan import FrameSummary, Planner, PlanSettings, following


def in_steps(frames: Sequence[FrameSummary], step: int = 3) -> Callable[[], Sequence[FrameSummary]]:
    """Gives the frames in small steps, as the log does."""
    rest = list(frames)

    def more() -> Sequence[FrameSummary]:
        taken = rest[:step]
        del rest[:step]
        return taken

    return more


def planner(frames: Sequence[FrameSummary], step: int = 3, **settings: int) -> Planner:
    return Planner(in_steps(frames, step), PlanSettings(**{"batch_bytes_max": 100, "range_bytes_min": 10, **settings}))


def at(*entries: int, size: int = 10, whole: bool = True) -> list[FrameSummary]:
    return [FrameSummary(Position(1, entry), size, whole) for entry in entries]


def test_nothing_new_ends_where_it_starts() -> None:
    assert planner([]).end_of_batch(Position(1, 0)) == Position(1, 0)


def test_a_batch_without_entries_has_no_ranges() -> None:
    assert planner(at(0)).ranges(Position(1, 0), Position(1, 0)) == []


def test_an_open_transaction_is_left_for_later() -> None:
    frames = [*at(0, 1), *at(2, 3, whole=False)]
    more = in_steps(frames)
    extra: list[FrameSummary] = []
    subject = Planner(lambda: more() or [extra.pop(0)] if extra else more(), PlanSettings(100, 10))
    assert subject.end_of_batch(Position(1, 0)) == Position(1, 2)
    assert subject.end_of_batch(Position(1, 2)) == Position(1, 2)
    extra.extend(at(4))
    assert subject.end_of_batch(Position(1, 2)) == Position(1, 5)


def test_a_batch_is_bounded_and_may_end_inside_a_complete_transaction() -> None:
    frames = [*at(*range(20), whole=False), *at(20)]
    subject = planner(frames)
    assert subject.end_of_batch(Position(1, 0)) == Position(1, 10)
    assert subject.end_of_batch(Position(1, 10)) == Position(1, 20)
    assert subject.end_of_batch(Position(1, 20)) == Position(1, 21)


def test_one_entry_larger_than_a_batch_is_a_batch() -> None:
    subject = planner([*at(0, size=1000), *at(1)])
    assert subject.end_of_batch(Position(1, 0)) == Position(1, 1)


def test_a_start_far_into_the_log_is_reached_at_once() -> None:
    assert planner(at(*range(50)), step=1).end_of_batch(Position(1, 48)) == Position(1, 50)


def test_small_batches_are_one_range() -> None:
    subject = planner(at(0, 1, 2), range_bytes_min=40)
    [planned] = subject.ranges(Position(1, 0), Position(1, 3))
    assert (planned.start, planned.end, planned.data_bytes) == (Position(1, 0), Position(1, 2), 30)


def table(name: str, version: int) -> TableSchema:
    return TableSchema("shop", name, version, ())


def test_a_range_knows_the_schemas_in_force_and_those_made_inside() -> None:
    frames = [
        FrameSummary(Position(1, 0), 1, True, (table("a", 1), table("b", 2))),
        *at(1, 2),
        FrameSummary(Position(1, 3), 1, True, (table("a", 3),)),
        *at(4, 5),
    ]
    subject = planner(frames)
    assert subject.end_of_batch(Position(1, 2)) == Position(1, 6)
    first, second = subject.ranges(Position(1, 2), Position(1, 6))[:2]
    assert first.start == Position(1, 2)
    assert {(s.table.table, s.table.version) for s in first.schemas} >= {("a", 1), ("b", 2)}
    in_second = {(s.table.table, s.table.version) for s in second.schemas}
    made_in = first if first.end >= Position(1, 3) else second
    assert ("a", 3) in {(s.table.table, s.table.version) for s in made_in.schemas}
    assert ("b", 2) in in_second
    assert (("a", 1) in in_second) == (made_in is second)  # an older version is carried only where it still holds


@given(
    sizes=st.lists(st.tuples(st.integers(0, 60), st.booleans(), st.booleans()), min_size=1, max_size=60),
    step=st.integers(1, 7),
    parallelism=st.integers(1, 4),
)
def test_batches_and_ranges_tile_the_log(sizes: list[tuple[int, bool, bool]], step: int, parallelism: int) -> None:
    frames, ledger, entry = [], 1, 0
    for size, whole, rolls in sizes:
        frames.append(FrameSummary(Position(ledger, entry), size, whole))
        ledger, entry = (ledger + 1, 0) if rolls else (ledger, entry + 1)
    subject = planner(frames, step, parallelism=parallelism)
    covered: list[Position] = []
    start = Position(1, 0)
    while (end := subject.end_of_batch(start)) != start:
        ranges = subject.ranges(start, end)
        assert 1 <= len(ranges) <= 2 * parallelism
        assert ranges == subject.ranges(start, end), "planning the same batch again gives the same ranges"
        assert ranges[0].start == start
        assert following(ranges[-1].end) == end
        for before, after in itertools.pairwise(ranges):
            assert after.start == following(before.end)
        for planned in ranges:
            inside = [f for f in frames if planned.start <= f.position <= planned.end]
            assert sum(f.data_bytes for f in inside) == planned.data_bytes
            covered += [f.position for f in inside]
        batch = [f for f in frames if start <= f.position < end]
        assert len(batch) == 1 or sum(f.data_bytes for f in batch) <= 100
        start = end
    last_whole = max((i for i, f in enumerate(frames) if f.whole), default=-1)
    assert covered == [f.position for f in frames[: last_whole + 1]]
