"""One owner for a prefix of a real S3 server: a second sink is refused, and an old process that wakes up writes nothing."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from pathlib import Path

import pytest

from penstock.errors import BadInput, PenstockError
from penstock.wire import Server, socket_path
from tests.delivery.memory_keeper import MemoryKeeper
from tests.delivery.rig import CHANGEFEED
from tests.delivery.s3.proxy import Exchange, Fault
from tests.delivery.s3.world import S3World, canal_stream
from tests.support.waiting import LIMIT_SECONDS, wait_until

pytestmark = pytest.mark.s3

ROWS = canal_stream(40, tables=["orders", "items"], seed=3, ddl_every=13)
FIRST_HALF = [row for row in ROWS if row.seq.entry_id < 20]
AWAKE_SECONDS = 1.5  # longer than flush interval, retry and the second between two looks at the owner together


def test_a_second_sink_on_the_same_prefix_is_refused(world: S3World, tmp_path: Path) -> None:
    first = world.start()
    world.deliver(first, "r1", ROWS)
    before = list(world.history.puts)
    (tmp_path / "other/run").mkdir(parents=True)
    with contextlib.closing(Server(socket_path(tmp_path / "other/run", "control"), MemoryKeeper().handlers())):
        second = world.start(state_dir=tmp_path / "other", log_uuid="u2")
        with pytest.raises(BadInput, match="holds files of feed raw of another state directory"):
            second.client.call("begin_run", changefeed=CHANGEFEED, run="x")
    assert world.history.puts == before
    world.check(ROWS, tmp_path / "copy")


@pytest.mark.parametrize("at", ["CDC00000000000000000002.json", "CDC.index", "schema_", "metadata", "owner.json"])
def test_an_old_owner_that_wakes_up_writes_nothing(world: S3World, tmp_path: Path, at: str) -> None:
    """It falls asleep with a request under way, which reaches the server when the new owner has done everything."""
    asleep, lock = threading.Event(), threading.Lock()
    old = world.start()

    def plan(exchange: Exchange) -> Fault | None:
        with lock:
            if asleep.is_set() or exchange.method != "PUT" or not exchange.name.rpartition("/")[2].startswith(at):
                return None
            old.signal(signal.SIGSTOP)
            asleep.set()
            return Fault.HOLD

    world.proxy.plan = plan

    def run() -> None:
        with contextlib.suppress(PenstockError):  # it is killed in the end
            world.deliver(old, "r1", FIRST_HALF, batch=5)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert asleep.wait(LIMIT_SECONDS)
    new = world.start()
    world.deliver(new, "r2", ROWS)
    done = len(world.history.puts)
    world.check(ROWS, tmp_path / "copy")
    world.proxy.release()
    old.signal(signal.SIGCONT)
    time.sleep(AWAKE_SECONDS)
    later = world.history.puts[done:]
    if at == "schema_":  # the same bytes again; nobody can tell
        later = [put for put in later if put not in world.history.puts[:done]]
    assert later == []
    world.check(ROWS, tmp_path / "copy")
    old.kill()
    wait_until(lambda: not thread.is_alive(), "end of the old run")
