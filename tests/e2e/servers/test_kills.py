"""Real servers under a load of every kind, while capture and the server are killed, connections break, and the server is
replaced by its replica. The log must hold every transaction once, in order, and give the server's tables."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.servers import workload
from tests.e2e.servers.captures import Captures
from tests.e2e.servers.mirror import compare
from tests.e2e.servers.proxy import Fault, Proxy
from tests.e2e.servers.workload import DATABASE, SKIPPED, Workload
from tests.support.budget import SEED, SERVER_KILLS
from tests.support.waiting import wait_until
from tools.components.database import DatabaseServer

WORKERS = 2


class World:
    """A server, its replica, a proxy in front of them, and capture."""

    def __init__(
        self, primary: DatabaseServer, replica: DatabaseServer, proxy: Proxy, captures: Captures, seed: int
    ) -> None:
        self.primary, self.replica, self.proxy, self.captures = primary, replica, proxy, captures
        self.chance = random.Random(seed)
        self.load = Workload(primary, seed, WORKERS, 0.05)

    def kill_capture(self, seconds_max: float, *, forked: bool = True) -> None:
        """At a random moment: before it is ready, or some time after."""
        capture = self.captures.start(forked=forked)
        if self.chance.random() < 0.2:
            time.sleep(self.chance.random() * 0.3)
        else:
            capture.wait_for("ready")
            time.sleep(self.chance.random() * seconds_max)
        capture.kill()
        errors = [event for event in capture.said if event["event"] == "error"]
        assert not errors, errors


@pytest.fixture
def mirror(server: DatabaseServer) -> DatabaseServer:
    """The server to whose tables the log is applied."""
    return server


@pytest.fixture
def world(mirror: DatabaseServer, tmp_path: Path) -> Iterator[World]:
    print(f"seed {SEED}")
    with contextlib.ExitStack() as stack:
        primary = stack.enter_context(type(mirror)(tmp_path / "primary", server_id=1))
        replica = stack.enter_context(type(mirror)(tmp_path / "replica", server_id=2))
        workload.create(primary, WORKERS)
        follow(replica, primary)
        proxy = stack.enter_context(Proxy((primary.host, primary.port)).running())
        source = {
            "type": mirror.kind,
            "port": proxy.port,
            "user": "capture",
            "password": "secret",
            "tables": {"include": [f"{DATABASE}.*"], "exclude": [f"*.{SKIPPED}*"]},
        }
        captures = stack.enter_context(Captures(tmp_path / "state", source).ready())
        yield World(primary, replica, proxy, captures, SEED)


def follow(replica: DatabaseServer, primary: DatabaseServer) -> None:
    """The replica has all that the primary has, and goes on by GTID."""
    workload.create_follower(primary)
    with contextlib.closing(replica.connect()) as connection, connection.cursor() as cursor:
        by_gtid = "MASTER_USE_GTID = slave_pos" if replica.kind == "mariadb" else "MASTER_AUTO_POSITION = 1"
        cursor.execute(
            f"CHANGE MASTER TO MASTER_HOST = '{primary.host}', MASTER_PORT = {primary.port}, MASTER_USER = 'capture', "
            f"MASTER_PASSWORD = 'secret', {by_gtid}"
        )
        cursor.execute("START SLAVE")


def gtids(server: DatabaseServer) -> str:
    with contextlib.closing(server.connect()) as connection, connection.cursor() as cursor:
        name = "gtid_binlog_pos" if server.kind == "mariadb" else "gtid_executed"
        cursor.execute(f"SELECT @@GLOBAL.{name}")
        return str(cursor.fetchone()[0])


def status(server: DatabaseServer) -> Any:
    with contextlib.closing(server.connect()) as connection, connection.cursor() as cursor:
        cursor.execute("SHOW SLAVE STATUS")
        return cursor.fetchone()


def test_the_log_has_each_transaction_once_and_gives_the_servers_tables(world: World, mirror: DatabaseServer) -> None:
    chance, load = world.chance, world.load
    share = (SERVER_KILLS - 8) // 3  # eight more come with what else happens
    for _ in range(2):  # a fresh start, with nothing to read
        world.kill_capture(0.05)
    world.captures.catch_up()  # where it begins is durable now, whatever was killed
    with load.running():
        for number in range(share):
            world.kill_capture(0.3, forked=number % 4 != 0)
        world.proxy.harass(random.Random(SEED), 20_000)
        for _ in range(share):
            world.kill_capture(0.4)
        harassed(world)
        world.proxy.be_kind()
        stalled(world)
        kill_server(world)
        first_of_a_file(world)
        capture = world.captures.start()
        assert capture.wait_for("ready")
        fail_over(world)
        wait_until(lambda: any(e["event"] == "retrying" for e in capture.said), "notice of the failover")
        time.sleep(1)
        capture.kill()
        for _ in range(share):
            world.kill_capture(0.5)
        with contextlib.closing(world.replica.connect(DATABASE)) as connection, connection.cursor() as cursor:
            # A worker may have left an XA group that is prepared: it ends that some steps later, which take their time.
            cursor.execute("SET SESSION innodb_lock_wait_timeout = 600")
            cursor.execute("DELETE FROM big0")
        world.proxy.fail_after(Fault.RESET, chance.randrange(20_000))
        world.kill_capture(0.5)
    world.proxy.be_kind()
    world.captures.catch_up()
    count = compare(world.captures.state_dir, world.replica, mirror, lambda server: workload.create(server, WORKERS))
    print(
        count,
        "transactions,",
        sum(worker.steps for worker in load.workers),
        "steps,",
        len(world.proxy.faults),
        "faults",
    )
    assert count > 200


def harassed(world: World) -> None:
    """Connections that break again and again, at random bytes: of logins, queries and events."""
    capture = world.captures.start()
    goal = len(world.proxy.faults) + 8
    wait_until(lambda: len(world.proxy.faults) >= goal, "faults", lambda: capture.said[-3:])
    capture.kill()


def stalled(world: World) -> None:
    """A connection on which nothing comes any more is given up, and nothing is skipped."""
    capture = world.captures.start()
    assert capture.wait_for("ready")
    before = len(world.proxy.faults)
    world.proxy.fail_after(Fault.STALL, world.chance.randrange(200_000))
    wait_until(lambda: len(world.proxy.faults) > before, "stall")
    assert capture.wait_for("retrying")
    capture.kill()


def kill_server(world: World) -> None:
    capture = world.captures.start()
    assert capture.wait_for("ready")
    for _ in range(2):
        time.sleep(world.chance.random())
        with world.load.fragile:
            world.primary.kill()
            world.primary.start()
    assert capture.stop() == 0, capture.said[-1]


def first_of_a_file(world: World) -> None:
    """Killed where a file begins, with capture at its first transaction."""
    for _ in range(2):
        with world.load.paused():
            world.captures.catch_up()
            with contextlib.closing(world.primary.connect()) as connection, connection.cursor() as cursor:
                cursor.execute("FLUSH BINARY LOGS")
                cursor.execute(f"INSERT INTO {DATABASE}.nopk0 VALUES (0, 'first')")
            world.kill_capture(0.02)


def fail_over(world: World) -> None:
    """The primary dies once its replica has all of it, and the replica takes its place. Capture is inside a transaction: the
    rest of it comes from the replica, in other files."""
    load = world.load
    with load.paused():
        world.proxy.fail_after(Fault.STALL, 1_500_000)
        with contextlib.closing(world.primary.connect(DATABASE)) as connection, connection.cursor() as cursor:
            cursor.execute("INSERT INTO big0 (v) SELECT REPEAT('z', 100000) FROM information_schema.columns LIMIT 40")
        wait_until(lambda: world.proxy.faults[-1] is Fault.STALL, "stall in the transaction")
        goal = gtids(world.primary)
        wait_until(lambda: gtids(world.replica) == goal, "replica that has all", lambda: status(world.replica))
        world.primary.kill()
        with contextlib.closing(world.replica.connect()) as connection, connection.cursor() as cursor:
            cursor.execute("STOP SLAVE")
        world.proxy.target = (world.replica.host, world.replica.port)
        world.proxy.hang_up()
        load.server = world.replica
