"""kill -9 of the real delivery process while it writes to a real S3 server."""

from __future__ import annotations

import random
import signal
import threading
from pathlib import Path

import pytest

from penstock.commit_ts import commit_ts_of
from penstock.errors import Unavailable
from penstock.log.position import Seq
from penstock.objects import open_objects
from tests.delivery.rig import START_MS, Row, table_schema
from tests.delivery.s3.nursery import Born
from tests.delivery.s3.proxy import Exchange, Fault
from tests.delivery.s3.world import CanalRow, S3World, canal_stream, keyed, unfinished_uploads
from tests.support.budget import DELIVERY_KILLS, SEED

pytestmark = [pytest.mark.s3, pytest.mark.slow]

TABLES = ["orders", "items", "users"]
POINTS_MAX = 60  # of one life
# What becomes of the request that was under way when its sender died.
FATES = [None, Fault.DROP, Fault.LOSE, Fault.LATE]


class Killer:
    """Kills at the n-th point of a life: at the keeper before and after it has something durably, and at the S3 server
    before a request."""

    def __init__(self, random_: random.Random) -> None:
        self._random = random_
        self._lock = threading.Lock()
        self._victim: Born | None = None
        self._left = 0
        self.killed_at: list[str] = []

    def aim(self, victim: Born, points: int) -> None:
        with self._lock:
            self._victim, self._left = victim, points

    def at_keeper(self, name: str) -> None:
        self._point(name)

    def at_request(self, exchange: Exchange) -> Fault | None:
        name = exchange.name.rpartition("/")[2]
        return self._random.choice(FATES) if self._point(f"{exchange.method} {name}") else None

    def _point(self, name: str) -> bool:
        with self._lock:
            self._left -= 1
            if self._left != 0 or self._victim is None:
                return False
            self._victim.signal(signal.SIGKILL)
            self.killed_at.append(name)
            return True


def test_killed_again_and_again(world: S3World, tmp_path: Path) -> None:
    random_ = random.Random(SEED)
    rows = canal_stream(7 * DELIVERY_KILLS, tables=TABLES, seed=SEED, ddl_every=17)
    killer = Killer(random_)
    world.keeper.hook, world.proxy.plan = killer.at_keeper, killer.at_request
    life = 0
    while True:
        life += 1
        born = world.start()
        if len(killer.killed_at) < DELIVERY_KILLS:
            killer.aim(born, random_.randint(1, POINTS_MAX))
        try:
            world.deliver(born, f"r{life}", rows, batch=random_.randint(3, 12), rows_max=random_.randint(1, 9))
            break
        except Unavailable:
            born.kill()
            assert len(killer.killed_at) == life, "nobody else ends it"
    assert len(killer.killed_at) == DELIVERY_KILLS, f"all rows were there after {life} lives: {killer.killed_at}"
    status = world.status(born)
    assert all(each["last_error"] is None for each in status["dispatchers"].values())
    assert world.keeper.mark_delete is not None
    assert world.keeper.mark_delete.entry_id == rows[-1].seq.entry_id
    world.check(rows, tmp_path / "copy")


class WideRow(CanalRow):
    @property
    def line(self) -> bytes:
        return super().line[:-2] + b" " * (3 << 20) + b"\r\n"


def test_killed_in_a_multipart_upload(world: S3World) -> None:
    """At its first request, in its parts, and at its last request: the file is there once, and no upload is left."""
    schema = keyed(table_schema("orders", 5))
    rows: list[Row] = [WideRow(Seq(1, n, 0, 0), commit_ts_of(START_MS) + n, schema) for n in range(7)]
    kinds = ["uploads", "partNumber=1&", "partNumber=2&", "uploadId"]
    killed: list[str] = []
    victim: list[Born] = []

    def plan(exchange: Exchange) -> Fault | None:
        left = kinds[len(killed) :]
        is_last = exchange.method == "POST" and exchange.query.startswith("uploadId")
        if not left or not (is_last if left[0] == "uploadId" else f"{exchange.query}&".startswith(left[0])):
            return None
        if exchange.method not in ("POST", "PUT"):
            return None
        killed.append(left[0])
        victim[0].signal(signal.SIGKILL)
        return Fault.LOSE if len(killed) % 2 else Fault.DROP

    world.proxy.plan = plan
    for life in range(len(kinds) + 1):
        victim[:] = [world.start(size=64 << 20, every=60)]
        try:
            world.deliver(victim[0], f"r{life}", rows)
            break
        except Unavailable:
            victim[0].kill()
    assert killed == kinds
    (name,) = world.sizes()
    found = open_objects(world.url).read(name)
    assert found is not None and found.data == b"".join(row.line for row in rows)
    assert unfinished_uploads(world.server, world.prefix) == []
