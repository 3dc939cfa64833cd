"""The spool: order, active set, account, watermarks and wakes."""

from __future__ import annotations

import threading

import pytest

from penstock.delivery.payload import dispatcher_id
from penstock.delivery.spool import DrainMarker, PayloadItem, Spool, SpoolLimits, finish
from penstock.errors import BadInput, Closed, PenstockError, StaleRun
from tests.delivery.rig import data_payload

A, B = dispatcher_id("f", "s", "a"), dispatcher_id("f", "s", "b")


def item(first: int, last: int | None = None) -> PayloadItem:
    return PayloadItem(data_payload("orders", first, first if last is None else last), 0.0)


def test_identity_is_a_function_of_names() -> None:
    assert A == dispatcher_id("f", "s", "a", 0) != B
    assert len(A) == 32
    assert dispatcher_id("f", "sa", "") != dispatcher_id("f", "s", "a") != dispatcher_id("fs", "", "a")
    assert A == "5dcc7a4b1ec0d48fc73d9e1bf065b120"  # files and facts carry it: it must never change


def test_order_per_dispatcher_and_round_robin() -> None:
    spool = Spool()
    mine = [item(i) for i in range(50)]
    for each in mine:
        spool.enqueue(A, [each])
        spool.enqueue(B, [item(0)])
    assert {spool.pick(), spool.pick()} == {A, B}
    assert spool.pick() is None  # each is active once, however much it has
    assert [spool.dequeue(A) for _ in range(51)] == [*mine, None]
    assert not spool.activate(A)
    assert spool.activate(B)
    assert spool.pick() == B


def test_pick_never_looks_at_idle_dispatchers() -> None:
    spool = Spool()
    identities = [dispatcher_id("f", "s", str(i)) for i in range(1000)]
    for identity in identities:
        spool.enqueue(identity, [item(0)])
        assert spool.pick() == identity
        assert isinstance(spool.dequeue(identity), PayloadItem)
    assert spool.pick() is None
    assert spool.queued_dispatchers() == []
    spool.enqueue(identities[7], [item(1)])
    assert spool.pick() == identities[7]


def test_wakes_are_kept_above_high_and_released_at_low() -> None:
    size = item(0).size
    spool = Spool(SpoolLimits(high_bytes=3 * size, low_bytes=size))
    woken: list[int] = []
    for i in range(3):
        spool.enqueue(A, [item(i)], wake=lambda i=i: woken.append(i))
    assert woken == [0, 1, 2]
    assert not spool.suppressed  # at high is not above it
    spool.enqueue(A, [item(3)], wake=lambda: woken.append(3))
    spool.enqueue(B, [item(4)], wake=lambda: woken.append(4))
    assert woken == [0, 1, 2]
    assert spool.suppressed
    spool.release(3 * size)  # 2 left: below high, above low
    assert woken == [0, 1, 2]
    spool.enqueue(B, [item(5)], wake=lambda: woken.append(5))
    spool.release(size)
    assert woken == [0, 1, 2]
    spool.release(size)
    assert woken == [0, 1, 2, 3, 4, 5]
    assert not spool.suppressed
    assert (spool.stats.wakes, spool.stats.wakes_suppressed) == (6, 3)


def test_staged_bytes_count() -> None:
    spool = Spool(SpoolLimits(high_bytes=100, low_bytes=50))
    spool.stage(101)
    assert spool.suppressed
    woken: list[int] = []
    spool.enqueue(A, [], wake=lambda: woken.append(1))
    assert not woken
    spool.stage(-60)
    assert woken == [1]
    assert spool.bytes == 41


def test_markers_pass_above_high_and_weigh_nothing() -> None:
    spool = Spool(SpoolLimits(high_bytes=1, low_bytes=0))
    spool.enqueue(A, [item(0)])
    before = spool.bytes
    marker = DrainMarker("flush")
    spool.enqueue(A, [marker])
    assert spool.bytes == before
    spool.dequeue(A)
    assert spool.dequeue(A) is marker


def test_discard_runs_callbacks_once() -> None:
    spool = Spool(SpoolLimits(high_bytes=1, low_bytes=0))
    ended: list[PenstockError | None] = []
    woken: list[int] = []
    error = StaleRun("over")
    for i in range(3):
        spool.enqueue(
            A, [PayloadItem(data_payload("orders", i, i), 0.0, ended.append)], wake=lambda i=i: woken.append(i)
        )
    spool.enqueue(A, [DrainMarker("flush", ended.append)])
    first = spool.dequeue(A)
    assert first is not None
    finish(first, None)
    finish(first, error)
    spool.release(first.size)
    assert spool.discard(A, error) == 3
    assert spool.discard(A, error) == 0
    assert spool.discard_all(error) == 0
    assert ended == [None, error, error, error]
    assert spool.bytes == 0
    assert woken == [0, 1, 2]


def test_closed_and_wrong_limits() -> None:
    spool = Spool()
    spool.close()
    with pytest.raises(Closed):
        spool.enqueue(A, [item(0)])
    with pytest.raises(BadInput, match="low 2 bytes must be at most high 1"):
        SpoolLimits(1, 2)


def test_many_producers_keep_order_and_account() -> None:
    spool = Spool()
    identities = [dispatcher_id("f", "s", str(i)) for i in range(8)]

    def produce(identity: str) -> None:
        for i in range(200):
            spool.enqueue(identity, [item(i)])

    threads = [threading.Thread(target=produce, args=(i,)) for i in identities]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for identity in identities:
        entries = []
        while (each := spool.dequeue(identity)) is not None:
            assert isinstance(each, PayloadItem)
            entries.append(each.payload.first_seq.entry_id)
            spool.release(each.size)
        assert entries == list(range(200))
    assert spool.bytes == 0
