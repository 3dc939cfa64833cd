"""What an operator sees of flushes: counts by reason, sizes, drains, log lines, the state of one table. No dispatcher is
ever a label."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any

import pytest

from penstock.clock import ManualClock
from penstock.commit_ts import commit_ts_of
from penstock.delivery.dispatcher import Dispatcher
from penstock.delivery.flushes import (
    LOG_SECONDS,
    SLOT_SECONDS,
    WINDOW_SECONDS,
    FlushHistory,
    FlushLog,
    FlushReason,
)
from penstock.delivery.payload import Payload
from penstock.delivery.settings import FlushSettings
from penstock.delivery.spool import Disk, SpoolLimits
from penstock.errors import Terminal, Unavailable
from penstock.files import REAL_FILES, Buffer
from penstock.files.memory import MemoryFiles
from penstock.log.position import Seq
from penstock.objects import DirectoryObjects
from penstock.observe.metrics import FLUSH_REASONS
from tests.delivery.rig import (
    CHANGEFEED,
    START_MS,
    DeliveryWorld,
    Row,
    data_payload,
    ddl_payload,
    id_of,
    stage_all,
    table_schema,
    work,
)
from tests.delivery.spool.world import DIRECTORY, INCARNATION


class Feed:
    """Publishes one range after another in one run."""

    def __init__(self, world: DeliveryWorld) -> None:
        self.world = world
        self.delivery = world.open()
        self.incarnation = world.begin(self.delivery, "r1")
        self.clock = world.clock
        assert isinstance(self.clock, ManualClock)
        self._next = 0

    def send(self, *payloads: Payload, entries: int) -> None:
        first, self._next = self._next, self._next + entries
        named = stage_all(self.delivery, "r1", first, self._next - 1, payloads)
        self.delivery.publish("r1", self.incarnation, [named])
        work(self.delivery)

    def wait(self, seconds: float) -> None:
        assert isinstance(self.clock, ManualClock)
        self.clock.advance(seconds)
        work(self.delivery)


def sample(world: DeliveryWorld, name: str, **labels: str) -> float:
    value = world.metrics.registry.get_sample_value(name, {"changefeed": CHANGEFEED, **labels})
    return 0.0 if value is None else value


def flush_lines(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    return [vars(record) for record in caplog.records if record.message == "flush"]


def alter(table: str, entry: int) -> Payload:
    ts = commit_ts_of(START_MS) + entry
    return ddl_payload(Row(Seq(1, entry, 0, 0), ts, table_schema(table, ts, 2), ddl=True))


def test_flushes_count_by_reason_and_files_have_a_histogram_by_reason(tmp_path: Path) -> None:
    world = DeliveryWorld(tmp_path, flush=FlushSettings(size=1024, every=60))
    feed = Feed(world)
    feed.send(data_payload("orders", 0, 199), entries=200)  # more than 1024 bytes
    feed.send(data_payload("orders", 200, 201), entries=2)
    feed.wait(60)
    feed.send(data_payload("orders", 202, 203), entries=2)
    feed.clock.advance(3)  # type: ignore[attr-defined]
    feed.send(alter("orders", 204), entries=1)
    for reason, files in (("size", 1), ("interval", 1), ("ddl", 1), ("close", 0), ("error", 0)):
        assert sample(world, "penstock_flush_total", reason=reason) == files, reason
        assert sample(world, "penstock_flush_bytes_count", reason=reason) == files, reason
    written = sum(p.stat().st_size for p in tmp_path.rglob("CDC*.json"))
    summed = [sample(world, "penstock_flush_bytes_sum", reason=r) for r in ("size", "interval", "ddl")]
    assert summed[0] > 1024 > summed[1] and sum(summed) == written
    assert feed.delivery.status()["flushes"]["interval"] == 1
    feed.delivery.close(0)


def test_every_reason_is_in_the_list_of_the_metric() -> None:
    assert {reason.value for reason in FlushReason} == set(FLUSH_REASONS)


def test_a_plain_ddl_has_a_drain_duration_too(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    world = DeliveryWorld(tmp_path)
    feed = Feed(world)
    feed.send(data_payload("orders", 0, 1), alter("orders", 2), entries=3)
    assert sample(world, "penstock_ddl_drain_duration_seconds_count") == 1
    assert sample(world, "penstock_ddl_flush_dml_duration_seconds_count") == 1
    said = [(record.message, getattr(record, "ddl", "")) for record in caplog.records if "drain" in record.message]
    assert said == [("a drain began", "shop.orders 1:2:0:0 to 1:2:0:0"), ("a DDL is drained", said[0][1])]
    feed.delivery.close(0)


class Failing(DirectoryObjects):
    error: Exception | None = None

    def put(self, path: str, data: Buffer) -> None:
        if self.error is not None and "/CDC0" in path:
            raise self.error
        super().put(path, data)


@pytest.mark.parametrize("error", [Unavailable("away"), Terminal("no")])
def test_a_try_that_failed_is_counted_as_an_error_and_not_as_a_file(tmp_path: Path, error: Exception) -> None:
    store = Failing(str(tmp_path), tmp_path, REAL_FILES)
    store.error = error
    world = DeliveryWorld(tmp_path, store=store)
    feed = Feed(world)
    feed.send(data_payload("orders", 0, 199), entries=200)
    assert sample(world, "penstock_flush_total", reason="error") == 1
    assert sample(world, "penstock_flush_total", reason="size") == 0
    assert sample(world, "penstock_flush_bytes_count", reason="error") == 0
    [state] = feed.delivery.table("shop", "orders")
    assert (state["last_flush_reason"], state["recent_flushes"]) == (None, {"error": 1})
    if isinstance(error, Unavailable):
        store.error = None
        feed.wait(1)
        [state] = feed.delivery.table("shop", "orders")
        assert (state["last_flush_reason"], state["recent_flushes"]) == ("size", {"error": 1, "size": 1})
    feed.delivery.close(0)


def test_a_flush_line_says_why_and_how_much(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    feed = Feed(DeliveryWorld(tmp_path, flush=FlushSettings(size=1024, every=60)))
    feed.send(data_payload("orders", 0, 1), data_payload("items", 0, 199), entries=200)
    feed.wait(60)
    lines = {line["table"]: line for line in flush_lines(caplog)}
    orders, items = lines["shop.orders"], lines["shop.items"]
    assert (orders["reason"], items["reason"]) == ("interval", "size")
    assert orders["file_bytes"] == 2 * len("1:0:0:0 5\n") and items["file_bytes"] > 1024
    assert (orders["file_size_target"], orders["flush_interval_seconds"]) == (1024, 60)
    assert orders["dispatcher"] == id_of("orders")
    assert orders["spool_bytes"] >= orders["batch_bytes"] == 20
    assert orders["seconds_since_last_flush"] is None

    for entry in range(200, 206):
        feed.send(data_payload("orders", entry, entry), entries=1)
        feed.wait(60)
    again = [line for line in flush_lines(caplog) if line["table"] == "shop.orders"][1:]
    assert [line["seconds_since_last_flush"] for line in again] == [60.0] * 6
    feed.delivery.close(0)


def test_a_dispatcher_has_one_line_a_minute_and_the_line_counts_the_rest(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    clock = ManualClock()
    log, orders = FlushLog(CHANGEFEED, FlushSettings(), clock), Dispatcher(id_of("orders"), 1, "shop", "orders", "r1")
    for second in range(int(LOG_SECONDS) + 1):
        reason = FlushReason.SIZE if second % 2 else FlushReason.INTERVAL
        log.note(orders, reason, 1, batch_bytes=1, spool_bytes=1)
        clock.advance(1)
    first, second_line = flush_lines(caplog)
    assert first["flushes_since_last_line"] == {"interval": 1}
    assert second_line["flushes_since_last_line"] == {"size": 30, "interval": 30}


def test_all_dispatchers_together_have_a_limit_of_lines(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    clock = ManualClock()
    log = FlushLog(CHANGEFEED, FlushSettings(), clock, lines_max=5)
    dispatchers = [Dispatcher(id_of(f"t{i}"), 1, "shop", f"t{i}", "r1") for i in range(100)]
    for _ in range(2):
        for one in dispatchers:
            log.note(one, FlushReason.SIZE, 1, batch_bytes=1, spool_bytes=1)
        clock.advance(LOG_SECONDS)
    assert len(flush_lines(caplog)) == 10


def test_the_recent_window_forgets_and_does_not_grow() -> None:
    history = FlushHistory()
    for second in range(5000):
        history.note(FlushReason.SIZE, 1, float(second), second)
    seen = history.recent(4999.0)["size"]
    assert WINDOW_SECONDS - SLOT_SECONDS < seen <= WINDOW_SECONDS
    assert len(history._slots) == WINDOW_SECONDS / SLOT_SECONDS
    history.note(FlushReason.DDL, 7, 5000.0 + WINDOW_SECONDS, 0)
    assert history.recent(5000.0 + WINDOW_SECONDS) == {"ddl": 1}
    assert history.recent(5000.0 + 3 * WINDOW_SECONDS) == {}


def test_one_table_can_be_asked_about(tmp_path: Path) -> None:
    feed = Feed(DeliveryWorld(tmp_path, flush=FlushSettings(size=1024, every=60)))
    assert feed.delivery.table("shop", "orders") == []
    feed.send(data_payload("orders", 0, 199), entries=200)
    feed.clock.advance(5)  # type: ignore[attr-defined]
    feed.send(data_payload("orders", 200, 202), data_payload("items", 200, 200), entries=3)
    feed.clock.advance(2)  # type: ignore[attr-defined]
    [state] = feed.delivery.table("shop", "orders")
    assert (state["changefeed"], state["dispatcher"], state["state"]) == (CHANGEFEED, id_of("orders"), "idle")
    assert (state["batch_rows"], state["batch_bytes"], state["batch_age_seconds"]) == (3, 36, 2.0)
    assert state["buffered_bytes"] == feed.delivery.spool.held_bytes(id_of("orders")) > state["batch_bytes"]
    assert (state["last_flush_reason"], state["recent_flushes"]) == ("size", {"size": 1})
    assert (state["seconds_since_last_flush"], state["file_size_target"]) == (7.0, 1024)
    assert state["last_flush_bytes"] > 1024 and not state["suppressed"]
    feed.delivery.close(0)


def test_spool_items_are_counted_for_memory_and_disk(tmp_path: Path) -> None:
    files = MemoryFiles()
    limits = SpoolLimits(memory_low_bytes=0, memory_high_bytes=1 << 20)
    world = DeliveryWorld(tmp_path, limits=limits, disk=Disk(DIRECTORY, INCARNATION, files))
    feed = Feed(world)
    feed.send(data_payload("orders", 0, 1), data_payload("items", 0, 1), entries=2)
    names = ("penstock_spool_items", "penstock_spool_memory_items", "penstock_spool_disk_items")
    assert [sample(world, name) for name in names] == [2, 2, 0]
    while feed.delivery.spool.step():
        pass
    assert [sample(world, name) for name in names] == [2, 0, 2]
    feed.wait(60)
    assert [sample(world, name) for name in names] == [0, 0, 0]
    feed.delivery.close(0)


def test_no_metric_names_a_table_or_a_dispatcher(tmp_path: Path) -> None:
    world = DeliveryWorld(tmp_path)
    feed = Feed(world)
    feed.send(*(data_payload(f"t{i}", 0, 199) for i in range(50)), entries=200)
    text = world.metrics.render().decode()
    assert 'reason="size"' in text
    assert set(re.findall(r'[{,](\w+)="', text)) <= {"changefeed", "reason", "le", "way"}
    assert id_of("t1") not in text and "t1" not in re.findall(r'"([^"]*)"', text)
    feed.delivery.close(0)
