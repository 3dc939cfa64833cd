"""One changefeed: runs, staging and publishing, flush reasons, DDL, pressure."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.clock import SYSTEM_CLOCK
from penstock.commit_ts import commit_ts_of
from penstock.delivery.changefeed_delivery import ChangefeedDelivery
from penstock.delivery.keeper_client import DispatcherStart, Intent
from penstock.delivery.payload import Payload, StageKey
from penstock.delivery.settings import FlushSettings
from penstock.delivery.sink import Sink
from penstock.delivery.spool import SpoolLimits
from penstock.delivery.spool.items import ITEM_BYTES
from penstock.delivery.staging import PublishRange
from penstock.errors import BadInput, StaleRun, Unavailable
from penstock.files import REAL_FILES, Buffer
from penstock.log.position import Position, Seq
from penstock.objects import DirectoryObjects
from penstock.schema.model import DdlType
from tests.delivery.rig import (
    DAY_MS,
    START_MS,
    DeliveryWorld,
    Row,
    data_payload,
    ddl_payload,
    expected_tables,
    files_of,
    id_of,
    metadata,
    payloads_of,
    read_tables,
    stage_all,
    stream,
    table_schema,
    work,
)
from tests.support.waiting import LIMIT_SECONDS, wait_until


def lines(*payloads: Payload) -> list[bytes]:
    return [line for p in payloads for line in bytes(p.body).splitlines(True)]


def begun(tmp_path: Path, **changes: object) -> tuple[DeliveryWorld, ChangefeedDelivery, str]:
    world = DeliveryWorld(tmp_path, **changes)  # type: ignore[arg-type]
    delivery = world.open()
    return world, delivery, world.begin(delivery, "r")


def publish(delivery: ChangefeedDelivery, incarnation: str, start: int, end: int, *payloads: Payload) -> None:
    delivery.publish("r", incarnation, [stage_all(delivery, "r", start, end, payloads)])


# ---- staging and publishing


def test_publish_is_idempotent(tmp_path: Path) -> None:
    world, delivery, incarnation = begun(tmp_path)
    first = stage_all(delivery, "r", 0, 3, [data_payload("orders", 0, 3)])
    second = stage_all(delivery, "r", 4, 5, [data_payload("orders", 4, 5)])
    assert delivery.publish("r", incarnation, [second, first]) == 2  # in any order in the message
    assert delivery.publish("r", incarnation, [first]) == 1
    assert delivery.publish("r", incarnation, [first, second]) == 2
    world.clock.sleep(60)
    work(delivery)
    assert read_tables(tmp_path) == {"orders": lines(data_payload("orders", 0, 5))}
    assert delivery.publish("r", incarnation, [second]) == 1
    assert delivery.spool.bytes == 0


def test_other_runs_and_incarnations_are_refused(tmp_path: Path) -> None:
    world, delivery, incarnation = begun(tmp_path)
    named = stage_all(delivery, "r", 0, 3, [data_payload("orders", 0, 3)])
    with pytest.raises(StaleRun, match="incarnation"):
        delivery.publish("r", "another", [named])
    with pytest.raises(StaleRun, match="run old is over"):
        delivery.publish("old", incarnation, [named])
    with pytest.raises(StaleRun):
        delivery.stage(StageKey("old", Position(1, 0), Position(1, 3), 0, 0), data_payload("orders", 0, 3))
    with pytest.raises(StaleRun, match="no run has begun"):
        world.open().publish("r", "i2", [named])
    world.begin(delivery, "next")
    with pytest.raises(StaleRun):
        delivery.publish("r", incarnation, [named])
    assert delivery.spool.bytes == 0


def test_gaps_and_overlaps_are_refused(tmp_path: Path) -> None:
    _world, delivery, incarnation = begun(tmp_path)
    publish(delivery, incarnation, 7, 9, data_payload("orders", 7, 9))  # the first range may start anywhere
    for start, end, what in ((11, 12, "gap"), (9, 12, "overlaps"), (5, 8, "overlaps")):
        named = stage_all(delivery, "r", start, end, [data_payload("orders", start, end)])
        if end <= 9:
            named = PublishRange(named.start, named.end, 0, 0, 0)  # its payload was dropped as a leftover
        with pytest.raises(BadInput, match=what):
            delivery.publish("r", incarnation, [named])
    publish(delivery, incarnation, 10, 10)
    assert delivery.status()["published_end"] == "1:10"
    named = PublishRange(Position(2, 0), Position(2, 4), 0, 0, 0)
    assert delivery.publish("r", incarnation, [named]) == 1  # the next ledger
    with pytest.raises(BadInput, match="gap"):
        delivery.publish("r", incarnation, [PublishRange(Position(3, 2), Position(3, 4), 0, 0, 0)])


def test_missing_payloads_are_refused(tmp_path: Path) -> None:
    world, delivery, incarnation = begun(tmp_path)
    named = stage_all(delivery, "r", 0, 3, [data_payload("orders", 0, 1), data_payload("orders", 2, 3)])
    for wrong in (PublishRange(named.start, named.end, 0, 3, 0), PublishRange(named.start, named.end, 1, 2, 0)):
        with pytest.raises(BadInput, match="staged the payloads"):
            delivery.publish("r", incarnation, [wrong])
    assert world.keeper.calls == []
    assert delivery.publish("r", incarnation, [named]) == 1


def test_leftovers_of_other_attempts_are_dropped(tmp_path: Path) -> None:
    world, delivery, incarnation = begun(tmp_path)
    stage_all(delivery, "r", 0, 3, [data_payload("orders", 0, 1)], attempt=0)  # died half-way
    named = stage_all(delivery, "r", 0, 3, [data_payload("orders", 0, 3)], attempt=1)
    assert delivery.spool.staged_bytes > 0
    delivery.publish("r", incarnation, [named])
    stage_all(delivery, "r", 0, 3, [data_payload("orders", 0, 3)], attempt=2)  # a zombie
    assert delivery.spool.staged_bytes == 0
    assert delivery.status()["leftovers_dropped"] == 2
    world.clock.sleep(60)
    work(delivery)
    assert read_tables(tmp_path) == {"orders": lines(data_payload("orders", 0, 3))}
    assert delivery.spool.bytes == 0


def test_the_keeper_does_not_answer_and_publish_comes_again(tmp_path: Path) -> None:
    world, delivery, incarnation = begun(tmp_path)
    named = stage_all(delivery, "r", 0, 3, [data_payload("orders", 0, 3)])
    real = world.keeper.published
    world.keeper.published = _fail_after(real)  # type: ignore[method-assign]
    with pytest.raises(Unavailable):
        delivery.publish("r", incarnation, [named])
    world.keeper.published = real  # type: ignore[method-assign]
    delivery.publish("r", incarnation, [named])
    world.clock.sleep(60)
    work(delivery)
    assert read_tables(tmp_path) == {"orders": lines(data_payload("orders", 0, 3))}


def test_a_run_that_begins_during_a_publish_wins(tmp_path: Path) -> None:
    world, delivery, incarnation = begun(tmp_path)
    named = stage_all(delivery, "r", 0, 3, [data_payload("orders", 0, 3)])
    real = world.keeper.published

    def begin_meanwhile(*arguments: object, **named_: object) -> None:
        real(*arguments, **named_)  # type: ignore[arg-type]
        delivery.begin_run("r2")

    world.keeper.published = begin_meanwhile  # type: ignore[method-assign]
    with pytest.raises(StaleRun):
        delivery.publish("r", incarnation, [named])
    world.clock.sleep(60)
    work(delivery)
    assert files_of(tmp_path) == {}
    assert delivery.spool.bytes == 0


def _fail_after(real: object) -> object:
    def call(*arguments: object, **named: object) -> None:
        real(*arguments, **named)  # type: ignore[operator]
        raise Unavailable("the answer was lost")

    return call


def test_straddling_payloads_are_refused(tmp_path: Path) -> None:
    world = DeliveryWorld(tmp_path)
    intent = Intent("shop/orders/5/x/CDC00000000000000000001.json", Seq(1, 3, 0, 0), Seq(1, 6, 0, 0), 1, 1)
    world.keeper.facts[id_of("orders")] = DispatcherStart(1, "shop", "orders", Seq(1, 2, 0, 0), None, intent)
    delivery = world.open()
    incarnation = world.begin(delivery, "r")
    for first, last, what in ((2, 6, "progress"), (3, 7, "the open file"), (6, 7, "the open file")):
        named = stage_all(delivery, "r", 0, 9, [data_payload("orders", first, last)])
        with pytest.raises(BadInput, match=f"straddles {what}"):
            delivery.publish("r", incarnation, [named])
    named = stage_all(delivery, "r", 0, 9, [data_payload("orders", 3, 4), data_payload("orders", 4, 6)])
    with pytest.raises(BadInput, match="comes after"):
        delivery.publish("r", incarnation, [named])
    assert [name for name, _ in world.keeper.calls] == []
    other = world.keeper.facts[id_of("orders")]
    world.keeper.facts[id_of("orders")] = DispatcherStart(2, "shop", "orders", other.progress, None, None)
    incarnation = world.begin(delivery, "r2")
    named = stage_all(delivery, "r2", 0, 9, [data_payload("orders", 3, 6)])
    with pytest.raises(StaleRun, match="epoch 1, not 2"):
        delivery.publish("r2", incarnation, [named])


# ---- when a file is written


def test_flush_by_size_age_directory_and_request(tmp_path: Path) -> None:
    world, delivery, incarnation = begun(tmp_path, flush=FlushSettings(size=1024, every=60))
    big = [data_payload("orders", i * 40, i * 40 + 39) for i in range(5)]
    publish(delivery, incarnation, 0, 199, *big)
    work(delivery)
    flushes = delivery.status()["flushes"]
    assert flushes["size"] >= 1
    assert world.keeper.facts[id_of("orders")].progress is not None
    assert sum(flushes.values()) == flushes["size"]
    world.clock.sleep(30)
    publish(delivery, incarnation, 200, 200, data_payload("items", 200, 200))
    world.clock.sleep(59.9)
    work(delivery)
    assert id_of("items") not in {d for d, f in world.keeper.facts.items() if f.progress}
    world.clock.sleep(0.1)
    work(delivery)
    assert world.keeper.facts[id_of("items")].progress == Seq(1, 200, 0, 0)  # 60 s after its own payload came
    publish(delivery, incarnation, 201, 201, data_payload("items", 201, 201))
    publish(delivery, incarnation, 202, 202, data_payload("items", 202, 202, at_ms=START_MS + DAY_MS))
    publish(delivery, incarnation, 203, 203, data_payload("items", 203, 203, version=6, at_ms=START_MS + DAY_MS))
    work(delivery)
    assert delivery.status()["flushes"]["key"] == 2
    assert world.keeper.facts[id_of("items")].progress == Seq(1, 202, 0, 0)
    flusher = threading.Thread(target=delivery.flush)
    flusher.start()
    wait_until(lambda: not flusher.is_alive() or work(delivery), "end of the flush")
    assert delivery.status()["flushes"]["close"] == 1
    assert delivery.spool.bytes == 0
    numbers = [path for path in files_of(tmp_path) if path.startswith("shop/items") and path.endswith("json")]
    assert [n.rpartition("/")[2] for n in numbers] == [
        "CDC00000000000000000001.json",
        "CDC00000000000000000002.json",
        "CDC00000000000000000001.json",
        "CDC00000000000000000001.json",
    ]
    assert read_tables(tmp_path)["orders"][:40] == lines(big[0])


def test_a_flush_has_what_the_keeper_knows_and_nobody_enqueued_yet(tmp_path: Path) -> None:
    world, delivery, incarnation = begun(tmp_path)
    flusher = threading.Thread(target=delivery.flush)

    def hook(name: str) -> None:
        if name == "after published":
            flusher.start()
            flusher.join(0.2)
            assert flusher.is_alive(), "it is over, and the rows are not at the sink"
            with pytest.raises(Unavailable, match=r"not there after 0\.01 s"):
                delivery.flush(0.01)

    world.keeper.hook = hook
    publish(delivery, incarnation, 0, 3, data_payload("orders", 0, 3))
    wait_until(lambda: not flusher.is_alive() or work(delivery), "end of the flush")
    assert world.keeper.facts[id_of("orders")].progress == Seq(1, 3, 0, 0)


def test_ddl_drains_first(tmp_path: Path) -> None:
    world, delivery, incarnation = begun(tmp_path)
    ts = commit_ts_of(START_MS) + 50
    ddl = Row(Seq(1, 5, 0, 0), ts, table_schema("orders", ts, 2), ddl=True)
    before, after = data_payload("orders", 0, 4), data_payload("orders", 6, 8, version=ts)
    other = data_payload("items", 0, 4)
    payloads = [before, other, ddl_payload(ddl), _with_schema(after, ddl)]
    publish(delivery, incarnation, 0, 8, *payloads)
    seen: list[str] = []
    meta = tmp_path / "shop/orders/meta"

    def hook(name: str) -> None:
        if name == "after drained":
            seen.extend(p.name for p in meta.iterdir())
            assert read_tables(tmp_path) == {"orders": lines(before)}

    world.keeper.hook = hook
    work(delivery)
    assert [name.rpartition("_")[0] for name in seen] == ["schema_5"]  # the new one was not there before the drain
    assert [c for c in world.keeper.calls if c[0] in ("drained", "done")] == [
        ("done", (Seq(1, 4, 0, 0), f"shop/orders/5/{before.date}/CDC00000000000000000001.json")),
        ("drained", Seq(1, 5, 0, 0)),
        ("done", (Seq(1, 5, 0, 0), None)),
    ]
    assert {p.name.rpartition("_")[0] for p in meta.iterdir()} == {"schema_5", f"schema_{ts}"}
    assert world.keeper.facts[id_of("items")].progress is None  # a marker drains its own table only
    world.clock.sleep(60)
    work(delivery)
    assert read_tables(tmp_path)["orders"] == lines(before, after)


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        (0, "is parked at 'frobnicate': not understood"),
        (2, "readers of the sink cannot be told of 'frobnicate': not understood"),
    ],
)
def test_a_ddl_that_the_sink_cannot_deliver_stops_its_table_alone(tmp_path: Path, columns: int, says: str) -> None:
    world, delivery, incarnation = begun(tmp_path)
    ts = commit_ts_of(START_MS) + 50
    made = table_schema("orders", ts, columns)
    table = replace(made, ddl_type=DdlType.UNKNOWN, query="frobnicate", reason="not understood")
    ddl = Row(Seq(1, 5, 0, 0), ts, table, ddl=True)
    before, after = data_payload("orders", 0, 4), data_payload("orders", 6, 8, version=ts)
    other = data_payload("items", 0, 8)
    publish(delivery, incarnation, 0, 8, before, other, ddl_payload(ddl), _with_schema(after, ddl))
    work(delivery)
    world.clock.sleep(60)
    work(delivery)
    assert read_tables(tmp_path) == {"orders": lines(before), "items": lines(other)}
    assert [p.name.rpartition("_")[0] for p in (tmp_path / "shop/orders/meta").iterdir()] == ["schema_5"]
    assert world.keeper.facts[id_of("orders")].progress == Seq(1, 4, 0, 0)  # the DDL and what follows come again
    assert delivery.writer is not None
    (stopped,) = delivery.writer.stopped()
    assert stopped.table == "orders" and says in str(stopped.stopped)


def _with_schema(payload: Payload, ddl: Row) -> Payload:
    changed = {name: getattr(payload, name) for name in Payload.__slots__}
    return Payload(**{**changed, "table_schema": ddl.schema.to_json()})


def test_rows_without_a_schema_are_refused(tmp_path: Path) -> None:
    world, delivery, incarnation = begun(tmp_path)
    payload = data_payload("orders", 0, 3)
    bare = Payload(**{n: getattr(payload, n) for n in Payload.__slots__ if n != "table_schema"})
    publish(delivery, incarnation, 0, 3, bare, data_payload("items", 0, 3))
    world.clock.sleep(60)
    work(delivery)
    assert "came without their schema" in delivery.status()["dispatchers"][id_of("orders")]["last_error"]
    assert read_tables(tmp_path) == {"items": lines(data_payload("items", 0, 3))}  # one table stops, the others go on
    publish(delivery, incarnation, 4, 4, data_payload("orders", 4, 4))
    world.clock.sleep(60)
    work(delivery)
    assert delivery.spool.bytes == 0  # what a stopped table gets is dropped, and still in the log
    assert world.keeper.facts[id_of("orders")].progress is None


class StuckTable(DirectoryObjects):
    """Never takes a file of one table."""

    def put(self, name: str, data: Buffer) -> None:
        if name.startswith("shop/orders/") and "/CDC" in name:
            raise Unavailable("the bucket is away")
        super().put(name, data)


def test_a_stuck_table_holds_up_nobody(tmp_path: Path) -> None:
    """Even with a single thread: a write that failed waits in a timer, not on a thread."""
    world = DeliveryWorld(tmp_path, store=StuckTable(str(tmp_path), tmp_path, REAL_FILES), clock=SYSTEM_CLOCK)
    world.flush = FlushSettings(size=1024, every=0.05)
    delivery = world.open(writers=1)
    incarnation = world.begin(delivery, "r")
    for i in range(5):
        publish(delivery, incarnation, i, i, data_payload("orders", i, i), data_payload("items", i, i))
    wait_until(lambda: world.keeper.facts[id_of("items")].progress == Seq(1, 4, 0, 0), "progress")
    assert read_tables(tmp_path) == {"items": lines(data_payload("items", 0, 4))}
    with pytest.raises(Unavailable, match="1 tables are not at the sink"):
        delivery.flush(0.3)
    status = delivery.status()["dispatchers"][id_of("orders")]
    assert status["state"] in ("retrying", "busy")
    assert "bucket is away" in status["last_error"]
    world.begin(delivery, "r2")  # does not wait for what cannot end
    assert delivery.spool.bytes == 0
    assert world.keeper.facts[id_of("orders")].intent is not None  # binding for whoever comes next
    assert delivery.close(1)


# ---- pressure


def test_enqueue_ack_comes_before_the_flush_ack_and_pressure_holds(tmp_path: Path) -> None:
    payload = data_payload("orders", 0, 3)
    size = payload.size + ITEM_BYTES + len(payload.table_schema or "")
    world, delivery, incarnation = begun(tmp_path, limits=SpoolLimits(high_bytes=size, low_bytes=0))
    publish(delivery, incarnation, 0, 3, data_payload("orders", 0, 3))
    quota = delivery.spool.limits.quota_bytes
    assert delivery.pressure() == {
        "suppressed": False,
        "spool_bytes": size,
        "room_bytes": quota - size,
        "until": None,
        "left_out": [],
        "replay": [],
    }
    assert world.keeper.facts[id_of("orders")].progress is None
    publish(delivery, incarnation, 4, 7, data_payload("items", 4, 7))  # never blocks
    assert delivery.pressure()["suppressed"]
    world.clock.sleep(60)
    assert delivery.writer is not None
    assert delivery.writer.step()
    while delivery.spool.bytes > 1.5 * size:
        assert delivery.writer.step()
    assert delivery.pressure()["suppressed"]  # below high, above low
    work(delivery)
    assert delivery.pressure() == {
        "suppressed": False,
        "spool_bytes": 0,
        "room_bytes": quota,
        "until": None,
        "left_out": [],
        "replay": [],
    }
    assert delivery.status()["wakes_suppressed"] == 1


# ---- runs and threads


class SlowStore(DirectoryObjects):
    """Holds a data write until it is let go."""

    def __init__(self, root: Path) -> None:
        super().__init__(str(root), root, REAL_FILES)
        self.entered = threading.Event()
        self.go = threading.Event()

    def put(self, name: str, data: Buffer) -> None:
        if "/CDC0" in name:
            self.entered.set()
            assert self.go.wait(LIMIT_SECONDS)
        super().put(name, data)


def test_begin_run_waits_for_the_write_in_flight_and_discards_the_rest(tmp_path: Path) -> None:
    store = SlowStore(tmp_path)
    world = DeliveryWorld(tmp_path, store=store, clock=SYSTEM_CLOCK, flush=FlushSettings(size=1024, every=3000))
    delivery = world.open(writers=2)
    incarnation = world.begin(delivery, "r")
    publish(delivery, incarnation, 0, 99, data_payload("orders", 0, 99))
    assert store.entered.wait(LIMIT_SECONDS)
    publish(delivery, incarnation, 100, 103, data_payload("orders", 100, 103), data_payload("items", 100, 103))
    stage_all(delivery, "r", 104, 105, [data_payload("orders", 104, 105)])
    beginner = threading.Thread(target=delivery.begin_run, args=("r2",))
    beginner.start()
    beginner.join(0.3)
    assert beginner.is_alive()
    with pytest.raises(StaleRun):
        stage_all(delivery, "r", 104, 105, [data_payload("orders", 104, 105)])
    store.go.set()
    beginner.join(LIMIT_SECONDS)
    assert not beginner.is_alive()
    assert world.keeper.facts[id_of("orders")].progress == Seq(1, 99, 0, 0)
    assert delivery.spool.bytes == 0
    assert delivery.status()["run"] == "r2"
    assert delivery.close(5)
    assert read_tables(tmp_path) == {"orders": lines(data_payload("orders", 0, 99))}


def test_threads_keep_order_for_every_table(tmp_path: Path) -> None:
    tables = [f"t{i}" for i in range(12)]
    rows = stream(60, tables=tables, seed=11, ddl_every=13)
    world = DeliveryWorld(tmp_path, clock=SYSTEM_CLOCK, flush=FlushSettings(size=1024, every=0.05))
    delivery = world.open(writers=4)
    incarnation = world.begin(delivery, "r")
    for start in range(0, 60, 5):
        inside = [r for r in rows if start <= r.seq.entry_id < start + 5]
        publish(delivery, incarnation, start, start + 4, *payloads_of(inside, {}, rows_max=3))
    delivery.flush(30)
    assert read_tables(tmp_path) == expected_tables(rows)
    assert world.keeper.mark_delete == Position(1, 59)
    assert metadata(tmp_path) == {"checkpoint-ts": max(r.commit_ts for r in rows)}
    assert delivery.spool.bytes == 0
    assert delivery.close(1)


def test_a_sink_that_is_taken_while_delivery_closes_is_given_back(tmp_path: Path) -> None:
    """Otherwise nobody in this process could take it again: its lock would be held for ever."""
    world = DeliveryWorld(tmp_path)
    delivery = world.open()
    open_sink, asked, answer, closed = delivery._open_sink, threading.Event(), threading.Event(), threading.Event()

    def slow() -> Sink:
        asked.set()
        assert answer.wait(LIMIT_SECONDS)
        sink = open_sink()
        monkeypatch.setattr(sink, "close", closed.set)
        return sink

    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(delivery, "_open_sink", slow)
        threads = [threading.Thread(target=delivery.begin_run, args=("r",))]
        threads[0].start()
        assert asked.wait(LIMIT_SECONDS)
        threads.append(threading.Thread(target=delivery.close, args=(0,)))
        threads[1].start()
        threads[1].join(0.2)  # it waits for the run that begins, or is over too early
        answer.set()
        for thread in threads:
            thread.join(LIMIT_SECONDS)
        assert closed.is_set()
