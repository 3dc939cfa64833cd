"""Bytes, watermarks, wakes, the hard quota."""

from __future__ import annotations

import json
import tracemalloc

import pytest

from penstock.delivery.payload import SharedHeaders, dispatcher_id, parse_stage
from penstock.delivery.spool import DataItem, Disk, Spool, SpoolLimits, Wake
from penstock.delivery.spool.items import ITEM_BYTES
from penstock.errors import Terminal, TooMuch
from penstock.files.memory import MemoryFiles
from tests.delivery.rig import START_MS, table_schema
from tests.delivery.spool.world import DIRECTORY, INCARNATION, A, B, data, held, limits, marker, settle, spool_on


def rows(spool: Spool, dispatcher: str = A, **most: int) -> list[DataItem[int]]:
    return [item for item in spool.pop(dispatcher, **most) if isinstance(item, DataItem)]


def test_bytes_rise_with_enqueue_stay_with_pop_and_fall_with_flush() -> None:
    """Specification, section 10, test 1."""
    spool = spool_on(memory_low_bytes=0)
    spool.enqueue(A, [data(i) for i in range(4)])
    assert (spool.bytes, spool.memory_bytes, spool.disk_bytes) == (4 * held(), 4 * held(), 0)
    settle(spool)
    assert spool.memory_bytes == 4 * ITEM_BYTES  # what stays in memory of an item on disk
    assert spool.disk_bytes == 4 * (100 + 28)
    popped = rows(spool, items_max=3)
    assert spool.bytes == 4 * held() + 4 * 28
    spool.flushed(popped[:2])
    assert spool.disk_bytes == 2 * (100 + 28)
    spool.drop(popped[2:], Terminal("over"))
    spool.flushed(rows(spool))
    assert (spool.bytes, spool.memory_bytes, spool.disk_bytes, spool.totals().items) == (0, 0, 0, 0)


def test_wakes_are_kept_above_high_and_come_again_at_low() -> None:
    """Specification, section 10, test 2."""
    spool = Spool(limits(high_bytes=3 * held(), low_bytes=held()))
    woken: list[int] = []

    def enqueue(number: int, dispatcher: str = A) -> None:
        item = data(number, dispatcher=dispatcher)
        spool.enqueue(dispatcher, [item], wake=Wake(lambda: woken.append(number)))

    for i in range(3):
        enqueue(i)
    assert woken == [0, 1, 2]
    assert not spool.suppressed  # at high is not above it
    enqueue(3)
    enqueue(4, B)
    assert woken == [0, 1, 2]
    assert spool.suppressed
    spool.flushed(rows(spool, items_max=3))  # 2 left: below high, above low
    assert woken == [0, 1, 2]
    enqueue(5, B)
    spool.flushed(rows(spool))
    assert woken == [0, 1, 2] and spool.suppressed
    spool.flushed(rows(spool, B, items_max=1))
    assert woken == [0, 1, 2, 3, 4, 5]
    assert not spool.suppressed
    assert (spool.totals().wake_calls, spool.totals().wake_suppressed) == (6, 3)


def test_a_wake_is_no_flush_ack_and_a_flush_ack_no_wake() -> None:
    spool = Spool(limits(high_bytes=3 * held(), low_bytes=0))
    happened: list[str] = []
    wake = Wake(lambda: happened.append("wake"))
    first = data(0, post_flush=lambda: happened.append("flush 0"))
    spool.enqueue(A, [first], wake=wake)
    assert happened == ["wake"]  # the enqueue ack comes first, and runs no post_flush
    others = [data(i) for i in (1, 2, 3)]
    spool.enqueue(A, others, wake=Wake(lambda: happened.append("wake 2")))
    spool.flushed(rows(spool, items_max=1))
    assert happened == ["wake", "flush 0"]  # the flush ack alone does not let a kept wake go
    spool.flushed(others)
    assert happened == ["wake", "flush 0", "wake 2"]


def test_a_wake_runs_once_however_often_it_is_given() -> None:
    spool = Spool(limits(high_bytes=held(), low_bytes=0))
    woken: list[int] = []
    wake = Wake(lambda: woken.append(1))
    spool.enqueue(A, [data(0)], wake=wake)
    spool.enqueue(B, [data(0, dispatcher=B)], wake=wake)
    assert woken == [1]
    kept = Wake(lambda: woken.append(2))
    for i in range(3):
        spool.enqueue(A, [data(1 + i)], wake=kept)
    assert (woken, spool.totals().pending_wakes) == ([1], 1)
    spool.discard_all(Terminal("over"))
    assert woken == [1, 2]


def test_a_wake_that_enqueues_again_does_not_deadlock() -> None:
    spool = Spool(limits(high_bytes=2 * held(), low_bytes=0))

    def more() -> None:
        spool.enqueue(B, [data(9, dispatcher=B)])

    spool.enqueue(A, [data(0)], wake=Wake(more))
    spool.enqueue(A, [data(1)], wake=Wake(more))
    spool.discard(A, Terminal("over"))
    spool.discard(B, Terminal("over"))
    assert spool.held_bytes(B) == held()  # what the kept wake brought


def test_staged_and_unpublished_bytes_count() -> None:
    spool = Spool(limits(high_bytes=2 * held() - 1, low_bytes=held()))
    woken: list[int] = []
    items = [data(i) for i in range(2)]
    for item in items:
        spool.stage(item)
    assert spool.staged_bytes == spool.bytes == 2 * held()
    assert spool.suppressed and spool.pop(A) == []
    spool.enqueue(A, items[:1], wake=Wake(lambda: woken.append(1)))
    assert (spool.staged_bytes, spool.bytes) == (held(), 2 * held())  # only the account changes
    assert not woken
    spool.drop(items[1:], Terminal("a leftover"))
    assert woken == [1]
    assert (spool.staged_bytes, spool.bytes) == (0, held())


def test_staged_items_can_be_spilled_and_then_published() -> None:
    spool = spool_on(memory_low_bytes=0)
    items = [data(i) for i in range(3)]
    for item in items:
        spool.stage(item)
    settle(spool)
    assert spool.disk_bytes == 3 * 128
    spool.drop(items[2:], Terminal("a leftover"))
    spool.enqueue(A, items[:2])
    assert [bytes(body) for body in spool.bodies(rows(spool))] == [data(0).body, data(1).body]
    spool.flushed(items[:2])
    assert (spool.bytes, spool.staged_bytes, spool.disk_bytes) == (0, 0, 0)


def test_enqueue_never_blocks_and_the_overshoot_is_bounded() -> None:
    """Two batches are in flight when the mark is passed; after that nothing comes until a wake. The bound has a name."""
    batch = 10
    bounds = limits(high_bytes=20 * held(), low_bytes=5 * held(), quota_bytes=45 * held())
    spool = Spool(bounds)
    in_flight = 2
    for number in range(1000):
        if not spool.suppressed:
            in_flight = 2
        elif in_flight:
            in_flight -= 1
        else:
            spool.flushed(rows(spool))
            continue
        spool.enqueue(A, [data(number) for _ in range(batch)], wake=Wake(lambda: None))
        assert spool.bytes <= bounds.high_bytes + 3 * batch * held()
        assert spool.bytes <= bounds.high_bytes + bounds.overshoot_bytes + batch * held()


def test_staging_is_refused_above_the_hard_quota_and_nowhere_else() -> None:
    bounds = limits(high_bytes=2 * held(), low_bytes=0, quota_bytes=4 * held())
    spool = Spool(bounds, name="raw")
    items = []
    with pytest.raises(TooMuch, match="raw holds 7000 bytes in memory and 0 on disk, more than its quota of 5600"):
        for number in range(100):
            spool.admit()
            items.append(data(number))
            spool.stage(items[-1])
    assert spool.bytes == 5 * held()  # the quota and one item: the last one that was let in
    spool.enqueue(A, items)  # what was staged is always taken
    spool.enqueue(A, [marker()])
    spool.admit(always=True)  # rows that an open file waits for
    spool.flushed(rows(spool))
    spool.admit()


def test_an_item_larger_than_the_quota_passes() -> None:
    spool = spool_on(memory_low_bytes=1000, memory_high_bytes=5000, high_bytes=8000, low_bytes=10, quota_bytes=10_000)
    spool.admit()
    large = data(0, size=50_000)
    spool.stage(large)
    spool.enqueue(A, [large, data(1)])
    settle(spool)
    assert spool.alarm is None  # it never fits on the disk: it stays in memory, and that is no fault of the disk
    assert spool.segment_bytes <= 10_000
    popped = rows(spool)
    assert [bytes(body) for body in spool.bodies(popped)] == [data(0, size=50_000).body, data(1).body]
    spool.flushed(popped)
    assert (spool.bytes, spool.suppressed) == (0, False)


def test_a_watermark_below_one_item_is_slow_but_correct() -> None:
    spool = spool_on(high_bytes=1, low_bytes=0, memory_low_bytes=0, memory_high_bytes=1)
    delivered: list[int] = []
    woken: list[int] = []
    for number in range(10):
        spool.enqueue(A, [data(number)], wake=Wake(lambda n=number: woken.append(n)))  # type: ignore[misc]
        assert spool.suppressed and woken == list(range(number))
        settle(spool)
        popped = rows(spool)
        delivered += [item.payload for item in popped]
        assert [bytes(body) for body in spool.bodies(popped)] == [data(number).body]
        spool.flushed(popped)
        assert not spool.suppressed
    assert delivered == woken == list(range(10))


def test_memory_above_its_high_mark_suppresses_until_it_is_spilled() -> None:
    spool = spool_on(memory_low_bytes=2 * held(), memory_high_bytes=4 * held())
    woken: list[int] = []
    spool.enqueue(A, [data(i) for i in range(5)], wake=Wake(lambda: woken.append(1)))
    assert spool.suppressed and not woken
    spool.enqueue(B, [data(0, dispatcher=B, size=9000, at=0.0)])
    settle(spool)
    assert spool.suppressed  # what an item takes beside its body cannot be spilled
    spool.flushed(rows(spool))
    settle(spool)
    assert woken == [1]


def test_the_account_is_what_is_really_held() -> None:
    """Small payloads with a wide table's schema in each message: bodies alone were 4 % of what was held."""
    table = table_schema("orders", 5, 60)
    header = {
        "run": "r" * 32, "start": "1:100", "end": "1:200", "attempt": 7, "ordinal": 0, "kind": "data",
        "dispatcher": dispatcher_id("f", "shop", "orders"), "epoch": 1, "schema": "shop", "table": "orders",
        "version": table.version, "date": "2024-10-04", "first_seq": "1:100:3:0", "last_seq": "1:100:3:0",
        "first_commit_ts": START_MS << 18, "last_commit_ts": START_MS << 18, "rows": 1,
        "table_schema": table.to_json(),
    }  # fmt: skip
    count, size = 4000, 400

    def fill(spool: Spool) -> None:
        headers = SharedHeaders()
        for entry in range(count):
            message = json.loads(
                json.dumps({**header, "first_seq": f"1:{900 + entry}:3:0", "last_seq": f"1:{900 + entry}:9:0"})
            )
            _key, payload = parse_stage(message, memoryview(bytearray(size)))
            item = headers.item(payload, 0.5)
            spool.stage(item)
            spool.enqueue(item.dispatcher, [item])

    disk = Disk(DIRECTORY, INCARNATION, MemoryFiles())
    for spool in (Spool(), Spool(SpoolLimits(memory_low_bytes=0), disk=disk, background=False)):
        tracemalloc.start()
        try:
            before = tracemalloc.get_traced_memory()[0]
            fill(spool)
            settle(spool)
            on_disk = spool.segment_bytes  # this disk is in memory, once as it is and once as not synced
            found = tracemalloc.get_traced_memory()[0] - before
            assert 0.8 * found <= spool.memory_bytes + 2 * on_disk <= 1.5 * found
        finally:
            tracemalloc.stop()
