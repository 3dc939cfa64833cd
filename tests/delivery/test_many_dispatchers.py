"""Thousands of tables: large files for the busy ones, files by age for the others, and idle ones cost nothing."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from penstock.clock import ManualClock
from penstock.delivery.changefeed_delivery import ChangefeedDelivery
from penstock.delivery.dispatcher import Dispatcher
from penstock.delivery.settings import FlushSettings
from penstock.delivery.storage.sink import AtStorage
from penstock.errors import Terminal, Unavailable
from penstock.files import Buffer
from penstock.objects import Found
from tests.delivery.rig import DeliveryWorld, data_payload, stage_all, work

KIB = 1 << 10


class MemoryObjects:
    """`SinkObjects` in a dict: a disk would take most of the time here."""

    def __init__(self) -> None:
        self.found: dict[str, bytes] = {}
        self._below: dict[str, set[str]] = {}  # names by directory

    def put(self, name: str, data: Buffer) -> None:
        self.found[name] = bytes(data)
        self._below.setdefault(name.rpartition("/")[0], set()).add(name)

    def put_stream(self, name: str, parts: Iterable[Buffer]) -> None:
        self.put(name, b"".join(parts))

    def end_uploads(self, _name: str) -> int:
        return 0

    def settle(self, _name: str) -> None:
        pass

    def put_if(self, name: str, data: Buffer, token: str | None) -> str:
        now = self.found.get(name)
        assert now == (None if token is None else bytes.fromhex(token))
        self.put(name, data)
        return bytes(data).hex()

    def read(self, name: str) -> Found | None:
        data = self.found.get(name)
        return Found(data, data.hex()) if data is not None else None

    def size(self, name: str) -> int | None:
        return len(self.found[name]) if name in self.found else None

    def get(self, name: str, offset: int, size: int) -> bytes:
        return self.found[name][offset : offset + size]

    def list(self, directory: str) -> list[str]:
        return sorted(self._below.get(directory, ()))


class Tables:
    """One changefeed in memory, whose entries go to any of its tables; a tick is a second."""

    def __init__(self, flush: FlushSettings) -> None:
        self.clock = ManualClock()
        self.store = MemoryObjects()
        self.world = DeliveryWorld(Path("/"), clock=self.clock, flush=flush, store=self.store)
        self.delivery: ChangefeedDelivery = self.world.open()
        self._incarnation = self.world.begin(self.delivery, "r")
        self._entry = 0

    def tick(self, bytes_by_table: dict[str, int]) -> None:
        payloads = []
        for table, size in bytes_by_table.items():
            made = data_payload(table, self._entry, self._entry)
            payloads.append(replace(made, body=b"x" * (size - 1) + b"\n"))
        named = stage_all(self.delivery, "r", self._entry, self._entry, payloads)
        self.delivery.publish("r", self._incarnation, [named])
        self._entry += 1
        work(self.delivery)
        self.clock.advance(1.0)
        work(self.delivery)


def table_of(path: str) -> str:
    return path.split("/")[1]


def test_hot_tables_get_full_files_and_cold_ones_files_by_age() -> None:
    size, piece, every, ticks = 64 * KIB, 12 * KIB, 20.0, 60
    tables = Tables(FlushSettings(size=size, every=every))
    hot = [f"hot{n}" for n in range(10)]
    for tick in range(ticks):
        cold = [f"cold{n}" for n in range(1000) if n % 30 == tick % 30]  # each one every 30 seconds
        tables.tick({**dict.fromkeys(hot, piece), **dict.fromkeys(cold, 100)})
    files = {path: data for path, data in tables.store.found.items() if path.endswith(".json") and "/CDC" in path}
    of_hot = {path: len(data) for path, data in files.items() if table_of(path).startswith("hot")}
    assert all(size <= length < size + piece for length in of_hot.values()), sorted(of_hot.values())
    # Throughput is not tied to the interval: all but the batches that still grow is at the sink.
    assert sum(of_hot.values()) > len(hot) * (ticks * piece - size)
    of_cold = [len(data) for path, data in files.items() if table_of(path).startswith("cold")]
    due = [n for tick in range(ticks - int(every) + 1) for n in range(1000) if n % 30 == tick % 30]
    assert of_cold == [100] * len(due), "one file each, as soon as its payload was old enough"
    flushes = tables.delivery.status()["flushes"]
    assert {reason: count for reason, count in flushes.items() if count} == {
        "size": len(of_hot),
        "interval": len(of_cold),
    }
    tables.delivery.close(0)


def operations(do: Callable[[], None]) -> int:
    """How many bytecodes of Python run meanwhile on this thread: the same on every machine, however busy it is."""
    count = 0

    def trace(frame: FrameType, event: str, _argument: Any) -> Any:
        nonlocal count
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        do()
    finally:
        sys.settrace(before)
    return count


@pytest.mark.slow
def test_dispatchers_that_are_idle_cost_nothing() -> None:
    """10,000 with 100 active ones against 1,000 with 100 active ones."""
    costs = []
    for known in (1_000, 10_000):
        tables = Tables(FlushSettings(size=64 * KIB, every=5.0))
        names = [f"t{n}" for n in range(known)]
        for at in range(0, known, 500):
            tables.tick(dict.fromkeys(names[at : at + 500], 100))
        for _ in range(6):
            tables.tick({})
        assert tables.delivery.spool.bytes == 0
        active = dict.fromkeys(names[:: known // 100], 2000)

        def ticks(tables: Tables = tables, active: dict[str, int] = active) -> None:
            for _ in range(7):  # beyond the interval: enqueue, batch, timer, write
                tables.tick(active)
                tables.delivery.pressure()

        written = tables.delivery.status()["rows"]
        costs.append(operations(ticks))
        assert tables.delivery.status()["rows"] > written
        tables.delivery.close(0)
    assert costs[1] <= 1.2 * costs[0], costs


def test_the_run_is_told_of_those_in_trouble_alone(tmp_path: Path) -> None:
    """It asks every second: of ten thousand tables that are well, that took a seventh of a core, for ever."""
    world = DeliveryWorld(tmp_path)
    delivery = world.open()
    world.begin(delivery, "r")
    assert delivery.writer is not None
    for number in range(300):
        delivery.writer.add(Dispatcher(f"{number:032x}", 1, "shop", f"t{number}", "r", at_sink=AtStorage()))
    assert len(delivery.status()["dispatchers"]) == 300
    assert not delivery.status(every=False)["dispatchers"]
    broken = list(delivery.writer.dispatchers.values())[:5]
    broken[0].stats.last_error = "the disk is full"
    broken[1].stopped = Terminal("a foreign file")
    broken[2].left_out = Unavailable("it fails")
    broken[3].asked_out = True
    broken[4].replaying = True
    found = delivery.status(every=False)["dispatchers"]
    assert list(found) == [each.id for each in broken]
    assert found == {each.id: delivery.status()["dispatchers"][each.id] for each in broken}


def test_a_table_with_a_long_queue_does_not_keep_out_the_others(tmp_path: Path) -> None:
    """After an outage, or with a sink that is slower than its source, one table a thread had all the turns until its queue
    was empty; the others' rows waited for it, whatever their interval."""
    objects = MemoryObjects()
    world = DeliveryWorld(tmp_path, store=objects, flush=FlushSettings(size=KIB, every=5))
    delivery = world.open()
    incarnation = world.begin(delivery, "r")
    hot = [data_payload("hot", 10 * n, 10 * n + 9) for n in range(400)]
    delivery.publish("r", incarnation, [stage_all(delivery, "r", 0, 3999, hot)])
    assert delivery.writer is not None and delivery.writer.step()
    cold = [data_payload(f"cold{n}", 4000, 4000) for n in range(5)]
    delivery.publish("r", incarnation, [stage_all(delivery, "r", 4000, 4000, cold)])
    world.clock.sleep(6)
    steps = 0
    while sum("/cold" in name and name.endswith(".json") and "/CDC0" in name for name in objects.found) < len(cold):
        assert delivery.writer.step()
        steps += 1
    files_of_hot = sum("/hot/" in name and "/CDC0" in name for name in objects.found)
    assert steps <= 4 * len(cold) and 2 <= files_of_hot <= 4 * len(cold), "in turn, both of them"
    work(delivery)
    delivery.close(0)
