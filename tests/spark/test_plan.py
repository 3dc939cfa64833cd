"""Planning without Spark: where a batch ends, and how it is split into ranges."""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import StaleRun
from penstock.log.position import Position
from penstock.schema.model import Column, DdlType, TableSchema
from penstock.schema.pack import CHANGED_MAX, PackedSchemas, SchemaPacker
from penstock.schema.view import SchemaAt
from penstock.spark import plan
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


def test_a_table_that_is_resumed_ends_the_run() -> None:
    """What the run held back is before its start, or was published as held back: only another run delivers it."""
    frames = [*at(0, 1), FrameSummary(Position(1, 2), 0, True, resumes=True)]
    with pytest.raises(StaleRun, match="resumed"):
        planner(frames).end_of_batch(Position(1, 0))
    subject = planner(frames, step=2)
    with pytest.raises(StaleRun):
        subject.end_of_batch(Position(1, 0))


def test_a_table_with_sql_has_one_version_in_a_batch() -> None:
    """Also where its new version comes in the middle of a transaction, whose end must be known before a part of it is read."""
    orders, other = (TableSchema("shop", name, 5, (Column("id", "int"),)) for name in ("orders", "other"))
    frames = [
        FrameSummary(Position(1, 0), 10, True, (orders,)),
        FrameSummary(Position(1, 1), 10, True, (other,)),
        FrameSummary(Position(1, 2), 10, False),
        FrameSummary(Position(1, 3), 0, False, (other, orders)),
        FrameSummary(Position(1, 4), 10, True),
        FrameSummary(Position(1, 5), 10, True),
    ]
    ends = []
    for known in (3, 5, 6):
        subject = Planner(in_steps(frames[:known]), PlanSettings(100, 10), begins_batch=lambda table: table is orders)
        ends.append(subject.end_of_batch(Position(1, 0)))
    assert ends == [Position(1, 2), Position(1, 3), Position(1, 3)]
    assert subject.end_of_batch(Position(1, 3)) == Position(1, 6)


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


def test_a_log_of_frames_without_data_is_planned_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """As months of filtered traffic leave it: planned at once, it would all be in memory, and nothing would move meanwhile."""
    monkeypatch.setattr(plan, "FRAMES_MAX", 50)
    read = 0

    def more() -> list[FrameSummary]:
        nonlocal read
        assert read < 10_000, "it reads on and on"
        read += 10
        return at(*range(read - 10, read), size=0, whole=False)[:-1] + at(read - 1, size=0)

    subject = Planner(more, PlanSettings())
    start = Position(1, 0)
    for number in range(1, 4):
        end = subject.end_of_batch(start)
        assert end == Position(1, 50 * number)
        assert [one.end for one in subject.ranges(start, end)] == [Position(1, 50 * number - 1)]
        start = end


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
    made_in = first if first.end >= Position(1, 3) else second
    for planned in (first, second):
        view = pickle.loads(pickle.dumps(planned)).view()
        assert [view.find("shop", name, planned.first) for name in "abc"] == [table("a", 1 if planned is first or made_in is second else 3), table("b", 2), None]  # fmt: skip
        assert view.find("shop", "a", Position(1, 5)) == table("a", 3 if planned.end >= Position(1, 3) else 1)


def test_a_pack_stays_the_same_until_many_tables_changed() -> None:
    columns = (Column("id", "int"),)

    def made(n: int, version: int) -> TableSchema:
        return TableSchema("shop", f"t{n}", version, columns)

    frames = [FrameSummary(Position(1, 0), 10, True, tuple(made(n, 1) for n in range(500)))]
    frames += [FrameSummary(Position(1, entry), 10, True, (made(entry, 1 + entry),)) for entry in range(1, 200)]
    subject = planner(frames, parallelism=1, ranges_per_core=1)
    packs: list[bytes] = []
    current = dict.fromkeys(range(500), 1)
    for entry in range(1, 200):
        (planned,) = subject.ranges(Position(1, entry), Position(1, entry + 1))
        packs.append(planned.pack)
        assert len(planned.schemas) <= CHANGED_MAX + 1
        view = pickle.loads(pickle.dumps(planned)).view()
        for n in (0, entry - 1, entry, 499):
            if 0 < n < 499:
                assert view.at("shop", f"t{n}", Position(1, entry - 1)).version == current[n]
        current[entry] = 1 + entry
        assert view.at("shop", f"t{entry}", Position(1, entry)).version == current[entry]
        assert view.changed_at(Position(1, entry)) == [made(entry, 1 + entry)]
    assert len(set(packs)) == 199 // (CHANGED_MAX + 1) + 1


def test_a_dropped_database_is_seen_through_a_pack() -> None:
    drop = TableSchema("shop", "", 7, (), ddl_type=DdlType.DROP_SCHEMA)
    for in_pack in (True, False):
        packer = SchemaPacker([SchemaAt(Position(0, 0), TableSchema("shop", "t", 1, (Column("id", "int"),)))])
        if not in_pack:
            packer.pack()
        packer.take(SchemaAt(Position(1, 1), drop))
        view = PackedSchemas(*packer.pack())
        assert view.find("shop", "t", Position(1, 2)) is None
        assert view.find("shop", "t", Position(1, 0)) is not None
        assert len(list(view.items())) == 2


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
            assert planned.first == inside[0].position, "reading begins at an entry, in a ledger that is not passed yet"
            covered += [f.position for f in inside]
        batch = [f for f in frames if start <= f.position < end]
        assert len(batch) == 1 or sum(f.data_bytes for f in batch) <= 100
        start = end
    last_whole = max((i for i, f in enumerate(frames) if f.whole), default=-1)
    assert covered == [f.position for f in frames[: last_whole + 1]]


def test_a_range_of_a_void_transaction_knows_it_although_its_end_lies_further_on() -> None:
    frames = [*at(0), *at(1, 2, 3, whole=False), FrameSummary(Position(1, 4), 10, True, void=(77,)), *at(5)]
    for step in (1, 3):
        subject = planner(frames, step)
        ranges = subject.ranges(Position(1, 1), Position(1, 3))
        assert ranges and all(one.void == (77,) for one in ranges)
        assert ranges[-1].end == Position(1, 2)
    assert all(one.void == () for one in planner(frames[:1]).ranges(Position(1, 0), Position(1, 1)))
