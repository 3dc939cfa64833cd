"""Files that go to a real S3 server in parts: requests that fail or are lost, and an old owner that wakes up in one."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from pathlib import Path

import pytest

from penstock.commit_ts import commit_ts_of
from penstock.errors import PenstockError
from penstock.log.position import Seq
from penstock.objects import open_objects
from penstock.wire import Server, socket_path
from tests.delivery.memory_keeper import MemoryKeeper
from tests.delivery.rig import START_MS, Row, table_schema
from tests.delivery.s3.proxy import Exchange, Fault
from tests.delivery.s3.world import CanalRow, S3World, keyed, unfinished_uploads
from tests.support.waiting import LIMIT_SECONDS, wait_until

pytestmark = pytest.mark.s3

AWAKE_SECONDS = 1.5  # longer than flush interval, retry and the second between two looks at the owner together
REQUESTS = ("create", "part", "complete")


class WideRow(CanalRow):
    @property
    def line(self) -> bytes:
        return super().line[:-2] + b" " * (3 << 20) + b"\r\n"


def wide_rows(count: int, kind: type[Row] = WideRow) -> list[Row]:
    schema = keyed(table_schema("orders", 5))
    return [kind(Seq(1, n, 0, 0), commit_ts_of(START_MS) + n, schema) for n in range(count)]


def request_of(exchange: Exchange) -> str | None:
    if exchange.method == "POST":
        return "create" if exchange.query.startswith("uploads") else "complete"
    return "part" if exchange.method == "PUT" and "partNumber=" in exchange.query else None


def check(world: S3World, rows: list[Row]) -> None:
    objects = open_objects(world.url)
    content = b""
    for name in sorted(world.sizes()):
        found = objects.read(name)
        assert found is not None
        content += found.data
    assert content == b"".join(row.line for row in rows)
    assert unfinished_uploads(world.server, world.prefix) == []


@pytest.mark.parametrize("fault", [Fault.LOSE, Fault.FAIL, Fault.DROP])
@pytest.mark.parametrize("request_", REQUESTS)
def test_one_request_goes_wrong(world: S3World, request_: str, fault: Fault) -> None:
    wrong, lock = [], threading.Lock()

    def plan(exchange: Exchange) -> Fault | None:
        with lock:
            if wrong or request_of(exchange) != request_:
                return None
            wrong.append(exchange)
            return fault

    world.proxy.plan = plan
    rows = wide_rows(7)
    world.deliver(world.start(size=64 << 20, every=60), "r1", rows)
    assert wrong
    check(world, rows)


@pytest.mark.parametrize("copied", [False, True])
@pytest.mark.parametrize("request_", REQUESTS)
def test_an_old_owner_that_wakes_up_in_a_large_file(
    world: S3World, tmp_path: Path, request_: str, copied: bool
) -> None:
    """With `copied` the new one has a keeper of its own, and writes another file under the same name."""
    asleep, lock = threading.Event(), threading.Lock()
    old = world.start(size=64 << 20, every=60)

    def plan(exchange: Exchange) -> Fault | None:
        with lock:
            if asleep.is_set() or request_of(exchange) != request_:
                return None
            old.signal(signal.SIGSTOP)
            asleep.set()
            return Fault.HOLD

    def run() -> None:
        with contextlib.suppress(PenstockError):  # it is killed in the end
            world.deliver(old, "r1", wide_rows(7))

    world.proxy.plan = plan
    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert asleep.wait(LIMIT_SECONDS)
    rows = wide_rows(9, CanalRow if copied else WideRow)
    with contextlib.ExitStack() as stack:
        if copied:
            world.keeper = MemoryKeeper()
            (tmp_path / "other/run").mkdir(parents=True)
            path = socket_path(tmp_path / "other/run", "control")
            stack.callback(Server(path, world.keeper.handlers()).close)
        state_dir = tmp_path / "other" if copied else world.state_dir
        new = world.start(size=64 << 20, every=60, state_dir=state_dir)
        world.deliver(new, "r2", rows)
        check(world, rows)
        world.proxy.release()
        old.signal(signal.SIGCONT)
        time.sleep(AWAKE_SECONDS)
        # The upload that it was about to begin is begun by now, and it ends it itself once it gets to run.
        wait_until(lambda: not unfinished_uploads(world.server, world.prefix), "end of the old one's upload")
        old.kill()
        wait_until(lambda: not thread.is_alive(), "end of the old run")
        check(world, rows)
