"""Order, active dispatchers, batched pops, markers."""

from __future__ import annotations

import threading

import pytest

from penstock.delivery.payload import dispatcher_id
from penstock.delivery.spool import DataItem, Place, Spool, SpoolLimits
from penstock.delivery.spool.limits import SHARDS
from penstock.errors import BadInput, Closed, PenstockError, Terminal
from tests.delivery.spool.world import A, B, C, body_of, data, held, marker, numbers, pop_all, settle, spool_on


def test_identity_is_a_function_of_names() -> None:
    assert A == dispatcher_id("f", "s", "a", 0) != B
    assert len(A) == 32
    assert dispatcher_id("f", "sa", "") != dispatcher_id("f", "s", "a") != dispatcher_id("fs", "", "a")
    assert A == "5dcc7a4b1ec0d48fc73d9e1bf065b120"  # files and facts carry it: it must never change


def test_items_of_a_dispatcher_keep_their_order_whatever_is_spilled() -> None:
    """Specification, section 10, test 3."""
    spool = spool_on(memory_low_bytes=0)
    for number in range(100):
        spool.enqueue(A, [data(number)])
        spool.enqueue(B, [data(number, dispatcher=B), data(1000 + number, dispatcher=B)])
        if number % 7 == 0:
            settle(spool)
    assert numbers(pop_all(spool, A)) == list(range(100))
    assert numbers(pop_all(spool, B)) == [n for i in range(100) for n in (i, 1000 + i)]


def test_pick_goes_round_and_each_dispatcher_is_active_once() -> None:
    spool = Spool()
    for number in range(50):
        for dispatcher in (A, B, C):
            spool.enqueue(dispatcher, [data(number, dispatcher=dispatcher)])
    turns = [spool.pick() for _ in range(3)]
    assert set(turns) == {A, B, C}
    assert spool.pick() is None  # each is active once, however much it has
    assert all(spool.activate(dispatcher) for dispatcher in turns if dispatcher is not None)
    assert {spool.pick() for _ in range(3)} == {A, B, C}  # a hot one does not come twice before the others


def test_a_hot_dispatcher_of_the_same_shard_does_not_keep_out_others() -> None:
    spool = Spool(shards=1)
    spool.enqueue(A, [data(i) for i in range(10)])
    spool.enqueue(B, [data(0, dispatcher=B)])
    assert spool.pick() == A
    spool.enqueue(A, [data(10)])
    assert spool.activate(A)
    assert [spool.pick(), spool.pick(), spool.pick()] == [B, A, None]


def test_only_active_dispatchers_are_looked_at() -> None:
    """Specification, section 10, test 5: 10,000 dispatchers were there, one is active."""
    spool = Spool()
    identities = [dispatcher_id("f", "s", str(i)) for i in range(10_000)]
    for identity in identities:
        spool.enqueue(identity, [data(0, dispatcher=identity)])
    while (picked := spool.pick()) is not None:
        spool.flushed([item for item in spool.pop(picked) if isinstance(item, DataItem)])
    assert spool.queued_dispatchers() == []
    assert [len(shard.held) + len(shard.queues) for shard in spool._shards] == [0] * SHARDS  # nothing per dispatcher
    spool.enqueue(identities[7], [data(1, dispatcher=identities[7])])
    assert [spool.pick(), spool.pick()] == [identities[7], None]


def test_stale_active_ids_are_skipped() -> None:
    """A dispatcher whose queue another worker has emptied is still in the active queue."""
    spool = Spool(shards=1)
    for dispatcher in (A, B, C):
        spool.enqueue(dispatcher, [data(0, dispatcher=dispatcher)])
    assert len(pop_all(spool, A)) == 1
    assert spool.discard(B, Terminal("gone")) == 1
    assert [spool.pick(), spool.pick()] == [C, None]
    assert spool._shards[0].stale_skipped == 2
    assert not spool.activate(A)
    spool.enqueue(A, [data(1)])
    assert [spool.pick(), spool.pick()] == [A, None]  # once, although its id was there twice


def test_pop_takes_a_batch_up_to_its_limits() -> None:
    spool = Spool()
    spool.enqueue(A, [*(data(i) for i in range(10)), marker(), data(10, size=5000), data(11)])
    assert numbers(spool.pop(A, items_max=4)) == [0, 1, 2, 3]
    assert numbers(spool.pop(A, bytes_max=250)) == [4, 5]
    assert numbers(spool.pop(A, bytes_max=0)) == [6]  # never less than one
    rest = spool.pop(A, bytes_max=1000)
    assert numbers(rest) == [7, 8, 9] and not isinstance(rest[-1], DataItem)  # the marker has its place
    assert numbers(spool.pop(A)) == [10, 11]
    assert spool.pop(A) == []


def test_markers_never_spill_count_nothing_and_carry_no_callbacks() -> None:
    spool = spool_on(memory_low_bytes=0, high_bytes=1, low_bytes=0)
    spool.enqueue(A, [data(0)])
    before = spool.bytes
    mark = marker(ts=5)
    spool.enqueue(A, [mark])
    assert spool.bytes == before
    settle(spool)
    assert spool.suppressed  # and the marker passed
    first, second = spool.pop(A)
    assert isinstance(first, DataItem) and first.place is Place.DISK
    assert second is mark and not hasattr(mark, "post_flush") and not hasattr(mark, "pointer")


def test_a_marker_at_t_comes_after_rows_below_t_only() -> None:
    spool = Spool()
    spool.enqueue(A, [data(7)])
    for ts in (6, 7):
        with pytest.raises(BadInput, match=f"a DDL at {ts} would drain rows at 7"):
            spool.enqueue(A, [marker(ts=ts)])
    with pytest.raises(BadInput, match="a DDL at 8 would drain rows at 9"):
        spool.enqueue(A, [data(9), marker(ts=8)])
    assert spool.bytes == held()  # a refused enqueue changes nothing
    spool.enqueue(A, [marker(ts=8), data(8)])
    spool.enqueue(B, [marker(B, ts=1)])  # each dispatcher has its own order


def test_dml_callbacks_run_before_the_ack_of_the_marker() -> None:
    spool = Spool()
    happened: list[object] = []
    items = [data(i, post_flush=lambda i=i: happened.append(i)) for i in range(3)]  # type: ignore[misc]
    spool.enqueue(A, [*items, marker(ts=9, ack=lambda error: happened.append(("ack", error, spool.bytes)))])
    *rows, mark = spool.pop(A)
    assert happened == []
    spool.flushed([r for r in rows if isinstance(r, DataItem)], [m for m in (mark,) if not isinstance(m, DataItem)])
    assert happened == [0, 1, 2, ("ack", None, 0)]


def test_a_marker_of_a_failed_dispatcher_ends_with_its_error() -> None:
    spool = Spool()
    acks: list[PenstockError | None] = []
    error = Terminal("the table is gone")
    spool.enqueue(A, [data(0), marker(ack=acks.append)])
    spool.enqueue(B, [marker(B, ack=acks.append)])
    assert spool.fail(A, error) == 2
    assert acks == [error]
    spool.enqueue(A, [data(1), marker(ack=acks.append)])  # also one that comes afterwards
    assert acks == [error, error]
    assert spool.bytes == 0 and spool.pop(A) == []
    spool.revive(A)
    spool.enqueue(A, [data(2)])
    assert numbers(spool.pop(A)) == [2]
    assert len(spool.pop(B)) == 1


def test_a_dropped_dispatcher_frees_its_share() -> None:
    spool = spool_on(memory_low_bytes=9 * held() + 1000)
    spool.enqueue(A, [data(i, size=1000) for i in range(8)])
    spool.enqueue(B, [data(0, dispatcher=B, at=99.0)])
    settle(spool)
    assert spool.disk_bytes > 0
    assert spool.held_bytes(A) == 8 * held(1000)
    popped = spool.pop(A, items_max=2)
    ended: list[PenstockError] = []
    staged = data(9, on_drop=ended.append)
    spool.stage(staged)
    assert spool.held_bytes(A) == 8 * held(1000) + held()
    error = Terminal("stuck")
    spool.drop([*popped, staged], error)
    assert spool.fail(A, error) == 6
    settle(spool)
    assert ended == [error]
    assert (spool.held_bytes(A), spool.bytes, spool.disk_bytes, spool.segment_bytes) == (0, held(), 0, 0)
    assert spool.held_bytes(B) == held()


def test_discard_runs_callbacks_once_and_never_those_of_a_flush() -> None:
    spool = Spool()
    ended: list[PenstockError | None] = []
    flushed: list[int] = []
    error = Terminal("over")
    items = [
        data(i, post_flush=lambda i=i: flushed.append(i), on_drop=ended.append)  # type: ignore[misc]
        for i in range(3)
    ]
    spool.enqueue(A, [*items, marker(ack=ended.append)])
    first = spool.pop(A, items_max=1)
    spool.flushed(items[:1])
    spool.flushed(items[:1])
    spool.drop(first, error)
    assert (spool.discard(A, error), spool.discard(A, error), spool.discard_all(error)) == (3, 0, 0)
    assert flushed == [0]
    assert ended == [error, error, error]
    assert spool.bytes == 0


def test_everything_is_let_go_although_a_callback_raises() -> None:
    spool = Spool()
    happened: list[object] = []

    def broken() -> None:
        raise RuntimeError("callback")

    items = [data(0, post_flush=broken), data(1, post_flush=lambda: happened.append(1))]
    spool.enqueue(A, [*items, marker(ack=happened.append)])
    *_, mark = spool.pop(A)
    with pytest.raises(RuntimeError, match="callback"):
        spool.flushed(items, [mark])  # type: ignore[list-item]
    assert happened == [1, None]
    assert spool.bytes == 0


def test_an_item_is_enqueued_once_and_for_its_own_dispatcher() -> None:
    spool = Spool()
    item = data(0)
    with pytest.raises(BadInput, match="was enqueued for"):
        spool.enqueue(B, [item])
    spool.enqueue(A, [item])
    with pytest.raises(BadInput, match="enqueued twice"):
        spool.enqueue(A, [item])
    with pytest.raises(BadInput, match="staged twice"):
        spool.stage(item)
    spool.flushed([item])
    with pytest.raises(BadInput, match="twice"):
        spool.enqueue(A, [item])
    assert spool.bytes == 0


def test_a_closed_spool_takes_nothing_and_leaves_the_item_as_it_was() -> None:
    spool = Spool()
    acks: list[PenstockError | None] = []
    spool.enqueue(A, [data(0), marker(ack=acks.append)])
    spool.close()
    spool.close()
    assert isinstance(acks[0], Closed)
    item = data(1)
    with pytest.raises(Closed):
        spool.enqueue(A, [item])
    with pytest.raises(Closed):
        spool.stage(item)
    assert item.place is Place.NEW and item.body == body_of(A, 1, 100)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"high_bytes": 1, "low_bytes": 2}, "watermarks: low 2 bytes must be at most high 1"),
        ({"memory_high_bytes": 1, "memory_low_bytes": 2}, "memory: low 2 bytes must be at most high 1"),
        ({"high_bytes": 100, "low_bytes": 2, "quota_bytes": 10}, "quota: 10 bytes are less than high, 100"),
    ],
)
def test_limits_that_contradict_themselves_are_refused(changes: dict[str, int], says: str) -> None:
    with pytest.raises(BadInput, match=says):
        SpoolLimits(**changes)


def test_many_producers_keep_order_and_account() -> None:
    spool = Spool()
    identities = [dispatcher_id("f", "s", str(i)) for i in range(8)]

    def produce(identity: str) -> None:
        for i in range(200):
            spool.enqueue(identity, [data(i, dispatcher=identity)])

    threads = [threading.Thread(target=produce, args=(i,)) for i in identities]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for identity in identities:
        items = pop_all(spool, identity)
        assert numbers(items) == list(range(200))
        spool.flushed([item for item in items if isinstance(item, DataItem)])
    assert (spool.bytes, spool.totals().items) == (0, 0)
