"""A changefeed on its spool: outages, restarts, the hard quota, spilled files; what suppression may never do."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.clock import SYSTEM_CLOCK
from penstock.commit_ts import commit_ts_of
from penstock.delivery.changefeed_delivery import ChangefeedDelivery
from penstock.delivery.payload import StageKey
from penstock.delivery.settings import FlushSettings
from penstock.delivery.spool import DataItem, Disk, DrainMarkerItem, SpoolLimits
from penstock.delivery.spool.items import ITEM_BYTES
from penstock.errors import PenstockError, Terminal, TooMuch, Unavailable
from penstock.files import REAL_FILES, Buffer
from penstock.files.memory import DiskFault, MemoryFiles
from penstock.log.position import Position, Seq
from penstock.objects import DirectoryObjects
from tests.delivery.rig import (
    START_MS,
    DeliveryWorld,
    Row,
    data_payload,
    expected_tables,
    files_of,
    id_of,
    payloads_of,
    read_tables,
    stage_all,
    table_schema,
    work,
)
from tests.delivery.spool.test_faults import FailingFiles
from tests.delivery.spool.world import DIRECTORY, INCARNATION

TABLES = [f"t{i}" for i in range(6)]
ENTRIES = 200
ROWS = [
    Row(Seq(1, entry, event, 0), commit_ts_of(START_MS) + entry, table_schema(table, 5))
    for entry in range(ENTRIES)
    for event, table in enumerate(TABLES)
]


class Outage(DirectoryObjects):
    """Takes no data file while `down`."""

    down = True

    def put(self, path: str, data: Buffer) -> None:
        if self.down and "/CDC" in path:
            raise Unavailable("the bucket is away")
        super().put(path, data)


def feed(  # noqa: PLR0917
    world: DeliveryWorld,
    delivery: ChangefeedDelivery,
    run: str,
    start: int,
    batch: int,
    rounds: int,
    *,
    busy: bool,
    most: list[int] | None = None,
) -> int:
    """A driver that obeys `pressure`; with `busy` the writers take what came after each publish. Where it came to."""
    incarnation = world.begin(delivery, run)
    facts = world.keeper.dispatchers("")
    at = start
    for _ in range(rounds):
        pressure = delivery.pressure()
        if not pressure["suppressed"] and at < ENTRIES:
            end = min(at + batch, ENTRIES) - 1
            if pressure["until"] is not None:
                end = min(end, Position.parse(pressure["until"]).entry_id)
            inside = [row for row in ROWS if at <= row.seq.entry_id <= end]
            named = stage_all(delivery, run, at, end, payloads_of(inside, facts, rows_max=8))
            delivery.publish(run, incarnation, [named])
            at = end + 1
            if most is not None:
                most.append(delivery.spool.bytes)
            if busy:
                work(delivery)
        if delivery.pressure()["suppressed"] or at >= ENTRIES:
            world.clock.sleep(61)
            work(delivery)
    return at


@pytest.mark.parametrize("busy", [True, False])
def test_suppression_never_keeps_out_rows_that_an_open_file_waits_for(tmp_path: Path, busy: bool) -> None:
    """An outage leaves open intents; after a restart their rows come in other batches, above the high mark. This stood
    still for ever (`flow-s1`)."""
    item = ITEM_BYTES + 40
    high = 12 * len(TABLES) * item
    outage = Outage(str(tmp_path), tmp_path, REAL_FILES)
    limits = SpoolLimits(high, high // 2)
    world = DeliveryWorld(tmp_path, limits=limits, flush=FlushSettings(size=1 << 20, every=60), store=outage)
    delivery = world.open()
    reached = feed(world, delivery, "r1", 0, 13, 30, busy=busy)
    assert delivery.pressure()["suppressed"] and 0 < reached < ENTRIES
    assert all(fact.intent is not None for fact in world.keeper.facts.values())
    held_before = delivery.spool.bytes
    delivery.close(0)
    outage.down = False
    delivery = world.open()
    most: list[int] = []
    start = (world.keeper.mark_delete.entry_id + 1) if world.keeper.mark_delete else 0
    assert feed(world, delivery, "r2", start, 5, 400, busy=busy, most=most) == ENTRIES
    assert read_tables(tmp_path) == expected_tables(ROWS)
    assert delivery.spool.bytes == 0
    # No more is held than before the restart, and one batch.
    assert max(most) <= held_before + 5 * len(TABLES) * (item + 700)
    delivery.close(0)


def test_what_piled_up_in_an_outage_becomes_full_files(tmp_path: Path) -> None:
    """Every late payload became a file of its own: 804 files for 57 KB (`flow-s1b`)."""
    size = 1024
    outage = Outage(str(tmp_path), tmp_path, REAL_FILES)
    world = DeliveryWorld(tmp_path, flush=FlushSettings(size=size, every=60), store=outage)
    delivery = world.open()
    incarnation = world.begin(delivery, "r")
    for at in range(0, ENTRIES, 4):
        inside = [row for row in ROWS if at <= row.seq.entry_id < at + 4]
        named = stage_all(delivery, "r", at, at + 3, payloads_of(inside, {}, rows_max=2))
        delivery.publish("r", incarnation, [named])
        work(delivery)
        world.clock.sleep(61)
    outage.down = False
    for _ in range(20):
        world.clock.sleep(20)
        work(delivery)
    assert read_tables(tmp_path) == expected_tables(ROWS)
    files = [data for path, data in files_of(tmp_path).items() if not path.endswith(".index")]
    total = sum(len(data) for data in files)
    assert len(files) <= total / size + 3 * len(TABLES)
    flushes = delivery.status()["flushes"]
    assert flushes["size"] >= total // (2 * size)
    delivery.close(0)


def spilling(tmp_path: Path, **changes: int) -> tuple[DeliveryWorld, ChangefeedDelivery, str]:
    world = DeliveryWorld(tmp_path, limits=SpoolLimits(**changes), disk=Disk(DIRECTORY, INCARNATION, MemoryFiles()))
    delivery = world.open()
    return world, delivery, world.begin(delivery, "r")


def test_files_are_the_same_whether_their_payloads_were_spilled_or_not(tmp_path: Path) -> None:
    found = []
    for name, low in (("memory", 1 << 30), ("disk", 0)):
        world, delivery, incarnation = spilling(tmp_path / name, memory_low_bytes=low, memory_high_bytes=1 << 30)
        for at in range(0, ENTRIES, 20):
            inside = [row for row in ROWS if at <= row.seq.entry_id < at + 20]
            named = stage_all(delivery, "r", at, at + 19, payloads_of(inside, {}, rows_max=7))
            while delivery.spool.step():  # while they are staged
                pass
            delivery.publish("r", incarnation, [named])
            work(delivery)
            while delivery.spool.step():  # and while writers hold them
                pass
        world.clock.sleep(60)
        work(delivery)
        assert (delivery.spool.totals().spilled_bytes > 0) == (low == 0)
        assert read_tables(tmp_path / name) == expected_tables(ROWS)
        assert delivery.spool.bytes == 0
        found.append(files_of(tmp_path / name))
        delivery.close(0)
    assert found[0] == found[1]


def test_a_stage_above_the_hard_quota_is_refused_and_the_batch_comes_again_smaller(tmp_path: Path) -> None:
    quota = 20 * (ITEM_BYTES + 400)
    world, delivery, incarnation = spilling(tmp_path, high_bytes=quota // 2, low_bytes=0, quota_bytes=quota)
    payloads = [data_payload("orders", n, n) for n in range(100)]
    with pytest.raises(TooMuch, match="more than its quota"):
        stage_all(delivery, "r", 0, 99, payloads)
    assert delivery.spool.bytes <= quota + ITEM_BYTES + 1000
    incarnation = world.begin(delivery, "r")  # the run begins again, and nothing of the dead one is left
    assert delivery.spool.bytes == 0
    at, batch = 0, 10
    while at < 100:
        named = stage_all(delivery, "r", at, at + batch - 1, payloads[at : at + batch])
        delivery.publish("r", incarnation, [named])
        world.clock.sleep(60)
        work(delivery)
        at += batch
    assert read_tables(tmp_path) == {"orders": [line for p in payloads for line in bytes(p.body).splitlines(True)]}


def test_an_entry_larger_than_the_quota_passes_alone(tmp_path: Path) -> None:
    """It cannot be cut, and nothing that is held could make room."""
    world, delivery, incarnation = spilling(tmp_path, high_bytes=100, low_bytes=0, quota_bytes=200)
    payloads = [data_payload(table, 7, 7) for table in TABLES]
    named = stage_all(delivery, "r", 7, 7, payloads)
    delivery.publish("r", incarnation, [named])
    with pytest.raises(TooMuch):
        delivery.stage(StageKey("r", Position(1, 8), Position(1, 8), 0, 0), data_payload("t1", 8, 8))
    world.clock.sleep(60)
    work(delivery)
    assert set(read_tables(tmp_path)) == set(TABLES)
    assert delivery.spool.bytes == 0


def test_an_entry_larger_than_the_quota_passes_although_a_part_of_it_was_spilled(tmp_path: Path) -> None:
    """On disk its first payloads take a little more than in memory: that counted as if something else were held, and the
    entry was refused for ever."""
    _world, delivery, incarnation = spilling(
        tmp_path, high_bytes=100, low_bytes=0, quota_bytes=1 << 16, memory_high_bytes=0, memory_low_bytes=0
    )
    tables = [f"t{i}" for i in range(60)]
    payloads = [data_payload(table, 7, 7) for table in tables]
    for ordinal, payload in enumerate(payloads):
        delivery.stage(StageKey("r", Position(1, 7), Position(1, 7), 0, ordinal), payload)
        while delivery.spool.step():
            pass
    assert delivery.spool.totals().disk_items > 0 and delivery.spool.bytes > 1 << 16
    named = stage_all(delivery, "r", 7, 7, payloads)  # another attempt passes, too
    delivery.publish("r", incarnation, [named])
    work(delivery)
    assert set(read_tables(tmp_path)) == set(tables)
    assert delivery.spool.bytes == delivery.spool._account.staged_items == 0


def test_a_drain_marker_forces_the_flush_and_is_acked_when_its_rows_are_at_the_sink(tmp_path: Path) -> None:
    """Specification, section 10, test 4: staging → spool → writer → sink, then the ack."""
    _world, delivery, incarnation = spilling(tmp_path, memory_low_bytes=0)
    payload = data_payload("orders", 0, 3)
    named = stage_all(delivery, "r", 0, 3, [payload])
    delivery.publish("r", incarnation, [named])
    seen: list[tuple[PenstockError | None, bool, int]] = []

    def ack(error: PenstockError | None) -> None:
        at_sink = read_tables(tmp_path).get("orders") == bytes(payload.body).splitlines(True)
        seen.append((error, at_sink, delivery.spool.held_bytes(payload.dispatcher)))

    marker = DrainMarkerItem(payload.dispatcher, ack, payload.last_commit_ts + 1, "m1")
    delivery.spool.enqueue(payload.dispatcher, [marker])
    while delivery.spool.step():
        pass
    assert seen == [] and files_of(tmp_path) == {}
    work(delivery)  # no time has passed: the marker is the reason
    assert seen == [(None, True, 0)]
    assert delivery.status()["flushes"]["ddl"] == 1


def test_rows_at_or_above_t_before_the_marker_stop_the_table(tmp_path: Path) -> None:
    world, delivery, incarnation = spilling(tmp_path)
    payload = data_payload("orders", 0, 3)
    delivery.publish("r", incarnation, [stage_all(delivery, "r", 0, 3, [payload])])
    work(delivery)  # the rows are at the writer: the queue does not know them any more
    acks: list[PenstockError | None] = []
    marker = DrainMarkerItem(payload.dispatcher, acks.append, payload.last_commit_ts)
    delivery.spool.enqueue(payload.dispatcher, [marker])
    work(delivery)
    assert len(acks) == 1 and isinstance(acks[0], Terminal)
    assert delivery.writer is not None and "came before the DDL" in str(delivery.writer.stopped()[0].stopped)
    assert delivery.spool.bytes == 0
    world.clock.sleep(60)


def test_a_table_whose_payload_was_damaged_on_disk_stops_alone(tmp_path: Path) -> None:
    world, delivery, incarnation = spilling(tmp_path, memory_low_bytes=0)
    payloads = [data_payload("orders", 0, 3), data_payload("items", 0, 3)]
    delivery.publish("r", incarnation, [stage_all(delivery, "r", 0, 3, payloads)])
    while delivery.spool.step():
        pass
    shard = delivery.spool._shard(payloads[0].dispatcher)
    (item,) = shard.queues[payloads[0].dispatcher]
    assert isinstance(item, DataItem) and item.pointer is not None
    file = item.pointer.segment.file
    file.write_at(item.pointer.offset + 40, b"\xff")
    world.clock.sleep(60)
    work(delivery)
    assert set(read_tables(tmp_path)) == {"items"}
    assert "checksum" in delivery.status()["dispatchers"][id_of("orders")]["last_error"]
    assert delivery.spool.bytes == 0


def test_suppression_acts_where_the_rows_of_an_open_file_never_come(tmp_path: Path) -> None:
    """Its table was filtered between two runs. For the rest of the run nothing was ever suppressed."""
    outage = Outage(str(tmp_path), tmp_path, REAL_FILES)
    world = DeliveryWorld(tmp_path, store=outage, limits=SpoolLimits(high_bytes=2000, low_bytes=1000))
    delivery = world.open()
    incarnation = world.begin(delivery, "r1")
    delivery.publish("r1", incarnation, [stage_all(delivery, "r1", 0, 3, [data_payload("orders", 0, 3)])])
    world.clock.sleep(61)
    work(delivery)
    assert world.keeper.facts[id_of("orders")].intent is not None
    incarnation = world.begin(delivery, "r2")
    delivery.publish("r2", incarnation, [stage_all(delivery, "r2", 0, 2, [data_payload("items", 0, 2)])])
    delivery.publish("r2", incarnation, [stage_all(delivery, "r2", 3, 3, [data_payload("items", 3, 3)])])
    assert delivery.spool.suppressed
    spool = delivery.spool
    room = max(0, spool.limits.quota_bytes - spool.bytes)
    assert delivery.pressure() == {
        "suppressed": True,
        "spool_bytes": spool.bytes,
        "room_bytes": room,
        "until": None,
        "left_out": [],
        "replay": [],
    }


# ---- a full spool makes room before the interval


def small_batches(
    tmp_path: Path, store: DirectoryObjects | None = None, **changes: int
) -> tuple[DeliveryWorld, ChangefeedDelivery, str]:
    """Batches that would wait for an hour, in a spool that holds ten of them."""
    item = ITEM_BYTES + 400
    limits = SpoolLimits(**{"high_bytes": 10 * item, "low_bytes": 5 * item, "quota_bytes": 100 * item, **changes})
    world = DeliveryWorld(tmp_path, limits=limits, flush=FlushSettings(size=1 << 20, every=3600), store=store)
    delivery = world.open()
    return world, delivery, world.begin(delivery, "r")


def publish_round(delivery: ChangefeedDelivery, incarnation: str, at: int, tables: list[str]) -> None:
    payloads = [data_payload(table, at, at) for table in tables]
    delivery.publish("r", incarnation, [stage_all(delivery, "r", at, at, payloads)])


def test_many_small_batches_in_a_full_spool_are_written_before_their_interval(tmp_path: Path) -> None:
    """Nothing came in for an hour: wakes were suppressed, and no batch was large or old enough to leave."""
    world, delivery, incarnation = small_batches(tmp_path)
    tables = [f"t{i}" for i in range(7)]
    for at in range(40):
        assert not delivery.pressure()["suppressed"], f"at {at}: the throughput is tied to the interval"
        publish_round(delivery, incarnation, at, tables)
        work(delivery)  # no time passes
    flushes = delivery.status()["flushes"]
    assert flushes["quota"] > 0 and flushes["interval"] == flushes["size"] == 0
    assert f'penstock_flush_total{{changefeed="raw",reason="quota"}} {flushes["quota"]}.0' in (
        world.metrics.render().decode()
    )
    world.clock.sleep(3600)
    work(delivery)
    rows = [bytes(data_payload(table, 0, 39).body) for table in tables]
    assert [b"".join(read_tables(tmp_path)[table]) for table in tables] == rows


def test_the_largest_batches_make_room_and_no_more_of_them_than_it_takes(tmp_path: Path) -> None:
    world, delivery, incarnation = small_batches(tmp_path)
    for at in range(4):
        publish_round(delivery, incarnation, at, ["large"])
    publish_round(delivery, incarnation, 4, ["a", "b", "c"])
    work(delivery)
    assert files_of(tmp_path) == {}
    publish_round(delivery, incarnation, 5, ["large"] + [f"t{i}" for i in range(5)])
    assert delivery.pressure()["suppressed"]
    work(delivery)
    assert not delivery.pressure()["suppressed"]
    found = read_tables(tmp_path)
    assert len(found.pop("large")) == 5, "in one file, with what was queued"
    assert len(found) <= 4, "the others go on growing"
    assert world.limits.low_bytes - 2 * (ITEM_BYTES + 400) < delivery.spool.bytes <= world.limits.low_bytes
    delivery.close(0)


def test_in_an_outage_a_full_spool_makes_no_small_files(tmp_path: Path) -> None:
    """What could not be written is not cut into files for it: all but one table still have one batch that grows."""
    outage = Outage(str(tmp_path), tmp_path, REAL_FILES)
    world, delivery, incarnation = small_batches(tmp_path, outage)
    tables = [f"t{i}" for i in range(12)]
    publish_round(delivery, incarnation, 0, tables)
    for _ in range(20):
        work(delivery)
        world.clock.sleep(5)
    assert sum(fact.intent is not None for fact in world.keeper.facts.values()) == 1
    publish_round(delivery, incarnation, 1, tables)
    outage.down = False
    for _ in range(20):
        work(delivery)
        world.clock.sleep(5)
    assert not delivery.pressure()["suppressed"]
    world.clock.sleep(3600)
    work(delivery)
    names = [path for path in files_of(tmp_path) if not path.endswith(".index")]
    assert len(names) == len(tables) + 1
    assert all(len(lines) == 2 for lines in read_tables(tmp_path).values())


def test_where_memory_is_full_and_the_disk_fails_writing_makes_room(tmp_path: Path) -> None:
    """Far below the high mark: it is memory's low mark that counts, and nothing but the sink can take something."""
    item = ITEM_BYTES + 400
    limits = SpoolLimits(memory_low_bytes=3 * item, memory_high_bytes=100 * item)
    disk = FailingFiles()
    world = DeliveryWorld(
        tmp_path,
        limits=limits,
        flush=FlushSettings(size=1 << 20, every=3600),
        disk=Disk(DIRECTORY, INCARNATION, disk),
    )
    delivery = world.open()
    incarnation = world.begin(delivery, "r")
    disk.failing["append"] = DiskFault.ENOSPC
    publish_round(delivery, incarnation, 0, [f"t{i}" for i in range(8)])
    while delivery.spool.step():
        pass
    assert delivery.spool.alarm is not None and delivery.pressure()["suppressed"]
    work(delivery)
    assert delivery.spool.memory_bytes <= limits.memory_low_bytes and delivery.status()["flushes"]["quota"] >= 5
    assert not delivery.pressure()["suppressed"]
    delivery.close(0)


def test_memory_that_cannot_be_spilled_is_made_free_by_writing(tmp_path: Path) -> None:
    """What items take beside their bodies stays in memory, and the disk is fine: only the sink can take something."""
    limits = SpoolLimits(memory_low_bytes=3 * ITEM_BYTES, memory_high_bytes=6 * ITEM_BYTES)
    disk = Disk(DIRECTORY, INCARNATION, MemoryFiles())
    flush = FlushSettings(size=1 << 20, every=3600)
    world = DeliveryWorld(tmp_path, limits=limits, flush=flush, disk=disk)
    delivery = world.open()
    incarnation = world.begin(delivery, "r")
    publish_round(delivery, incarnation, 0, [f"t{i}" for i in range(8)])
    work(delivery)
    assert files_of(tmp_path) == {}, "spilling comes first"
    while delivery.spool.step():
        pass
    assert delivery.pressure()["suppressed"] and delivery.spool.alarm is None
    world.clock.sleep(2)
    work(delivery)
    assert not delivery.pressure()["suppressed"] and delivery.status()["flushes"]["quota"] > 0
    delivery.close(0)


def test_idle_writer_threads_hear_of_a_full_spool(tmp_path: Path) -> None:
    item = ITEM_BYTES + 400
    world = DeliveryWorld(
        tmp_path,
        clock=SYSTEM_CLOCK,
        limits=SpoolLimits(high_bytes=10 * item, low_bytes=5 * item, quota_bytes=100 * item),
        flush=FlushSettings(size=1 << 20, every=3600),
    )
    delivery = world.open(writers=2)
    incarnation = world.begin(delivery, "r")
    deadline = SYSTEM_CLOCK.monotonic() + 60
    for at in range(10):
        while delivery.pressure()["suppressed"]:
            assert SYSTEM_CLOCK.monotonic() < deadline, "suppressed until the interval"
            SYSTEM_CLOCK.sleep(0.01)
        publish_round(delivery, incarnation, at, TABLES)
    assert delivery.close(30)
    assert all(len(lines) == 10 for lines in read_tables(tmp_path).values())
