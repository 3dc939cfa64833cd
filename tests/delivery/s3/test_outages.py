"""A remote that stops answering, fails, or loses its replies: limits hold, and in the end every row is there once."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from penstock.log.position import Position
from tests.delivery.rig import CHANGEFEED, payloads_of
from tests.delivery.s3.nursery import Born
from tests.delivery.s3.proxy import Exchange, Fault
from tests.delivery.s3.world import S3World, canal_stream
from tests.delivery.test_process import stage
from tests.support.budget import OUTAGE_SECONDS, SEED
from tests.support.waiting import LIMIT_SECONDS

pytestmark = [pytest.mark.s3, pytest.mark.slow]

TABLES = ["orders", "items", "users"]
ENTRIES = 500
ROWS = canal_stream(ENTRIES, tables=TABLES, seed=SEED)
KIB = 1 << 10
FILE_BYTES = 16 * KIB
BATCH = 10  # entries
BATCH_BYTES_MAX = 64 * KIB  # that one batch takes in the spool, with what each item costs
LIMITS = {
    "spool_high_bytes": 384 * KIB,
    "spool_low_bytes": 256 * KIB,
    "spool_memory_high_bytes": 192 * KIB,
    "spool_memory_low_bytes": 96 * KIB,
    "spool_quota_bytes": 2048
    * KIB,  # a table's share is more than all may hold: none is left out while others' writes succeed
}
GROWTH_BYTES_MAX = 48 << 20  # of the process: buffers of threads and connections, not of what is held


class Feeder:
    """Sends batch after batch as a driver does: nothing while it is suppressed. Watches the limits meanwhile."""

    def __init__(self, world: S3World, born: Born) -> None:
        self._world, self._born = world, born
        self._incarnation = world.begin(born, "r")
        self._resident = born.memory_high_bytes()
        self.at = 0
        self.most: Counter[str] = Counter()

    def send(self) -> bool:
        """False while nothing may be sent, or where all was."""
        self.look()
        pressure = self._born.client.call("pressure", changefeed=CHANGEFEED)
        if pressure["suppressed"] or self.at >= ENTRIES:
            return False
        end = min(self.at + BATCH, ENTRIES) - 1
        if pressure["until"] is not None:
            end = min(end, Position.parse(pressure["until"]).entry_id)
        inside = [row for row in ROWS if self.at <= row.seq.entry_id <= end]
        named = stage(self._born.client, "r", self.at, end, payloads_of(inside, {}, rows_max=5))
        sent = {"changefeed": CHANGEFEED, "run": "r", "incarnation": self._incarnation, "ranges": [named]}
        self._born.client.call("publish", **sent)
        self.at = end + 1
        return True

    def send_rest(self) -> None:
        deadline = time.monotonic() + LIMIT_SECONDS
        while self.at < ENTRIES:
            assert time.monotonic() < deadline, f"stands still at entry {self.at}: {self.look()}"
            if not self.send():
                time.sleep(0.02)
        self._born.client.call("flush", changefeed=CHANGEFEED, timeout_seconds=LIMIT_SECONDS)
        self.look()

    def look(self) -> dict[str, Any]:
        status = self._world.status(self._born)
        for name in ("spool_bytes", "spool_memory_bytes", "spool_disk_bytes"):
            self.most[name] = max(self.most[name], status[name])
        return status

    def check_limits(self) -> None:
        most = self.most
        assert most["spool_bytes"] <= LIMITS["spool_high_bytes"] + BATCH_BYTES_MAX, most
        assert most["spool_memory_bytes"] <= LIMITS["spool_memory_high_bytes"] + BATCH_BYTES_MAX, most
        assert most["spool_disk_bytes"] <= LIMITS["spool_high_bytes"] + BATCH_BYTES_MAX, most
        grown = self._born.memory_high_bytes() - self._resident
        assert grown <= GROWTH_BYTES_MAX, f"{grown >> 20} MiB"
        assert self.look()["spool_bytes"] == 0


def test_one_that_stops_answering(world: S3World, tmp_path: Path) -> None:
    """`flow-s1`, `flow-s1b`: it goes on by itself, and what has piled up becomes full files."""
    born = world.start(size=FILE_BYTES, every=0.3, **LIMITS)
    feeder = Feeder(world, born)
    world.proxy.plan = lambda _exchange: Fault.HOLD
    back_at = time.monotonic() + OUTAGE_SECONDS
    while feeder.send() or time.monotonic() < back_at:
        time.sleep(0.01)
    assert feeder.at < ENTRIES
    assert sum(len(row.line) for row in ROWS if row.seq.entry_id < feeder.at) > 10 * FILE_BYTES
    status = feeder.look()
    assert status["suppressed"] and status["wakes_suppressed"] > 0
    assert feeder.most["spool_disk_bytes"] > 0
    assert not world.history.puts[1:], "only the owner object"
    world.proxy.plan = lambda _exchange: None
    world.proxy.release()
    feeder.send_rest()
    feeder.check_limits()
    world.check(ROWS, tmp_path / "copy")
    sizes = world.sizes()
    directories = {name.rpartition("/")[0] for name in sizes}
    # What has piled up is in full files, not one a payload. What came later may be of any size: on a busy machine its
    # interval is over before there is enough for a file.
    full = sum(size >= FILE_BYTES / 2 for size in sizes.values())
    assert full > len(directories), sorted(sizes.values())


@pytest.mark.parametrize("fault", [Fault.FAIL, Fault.DROP, Fault.LOSE])
def test_one_that_fails_a_third_of_the_requests(world: S3World, tmp_path: Path, fault: Fault) -> None:
    random_, lock = random.Random(SEED), threading.Lock()
    bad: list[str] = []

    def plan(exchange: Exchange) -> Fault | None:
        with lock:
            if random_.random() >= 1 / 3:
                return None
            bad.append(exchange.method)
            return fault

    born = world.start(size=FILE_BYTES, every=0.3, **LIMITS)
    feeder = Feeder(world, born)
    world.proxy.plan = plan
    feeder.send_rest()
    world.proxy.plan = lambda _exchange: None
    feeder.check_limits()
    assert len(bad) > 20
    world.check(ROWS, tmp_path / "copy")
