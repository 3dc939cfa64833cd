"""One table left out and replayed alone while the others flow: a real log, keeper, delivery and tasks, and no JVM."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from penstock.log.position import Seq
from penstock.supervisor.control_server import control_path
from penstock.wire import connect
from tests.spark.rig import CHANGEFEED, MakeRig, Rig

CHANGES = 3000


class Engine:
    """Runs the tasks of a job one after another, where it is asked to. `jobs`: how many may run until there are more."""

    parallelism = 2

    def __init__(self, jobs: int = 1 << 30) -> None:
        self._jobs = threading.Semaphore(jobs)
        self._cancelled = threading.Event()
        self.extras = 0  # ranges for dispatchers that replay

    def more(self, jobs: int = 1 << 20) -> None:
        self._jobs.release(jobs)

    def run(self, _group: str, items: Sequence[Any], task: Callable[[Iterator[Any]], Iterator[Any]]) -> list[Any]:
        while not self._jobs.acquire(timeout=0.05):
            if self._cancelled.is_set():
                raise RuntimeError("cancelled")
        self.extras += sum(item.routing.only is not None for item in items)
        return [found for item in items for found in task(iter([item]))]

    def cancel(self, _group: str) -> None:
        self._cancelled.set()

    def check(self) -> None: ...


def pause(rig: Rig, table: str, *, paused: bool) -> dict[str, Any]:
    with connect(control_path(rig.state_dir)) as client:
        return client.call("pause", changefeed=CHANGEFEED, paused=paused, table=table)


def state(rig: Rig, table: str) -> dict[str, Any]:
    assert rig.delivery is not None
    found: dict[str, dict[str, Any]] = rig.delivery.delivery_of({"changefeed": CHANGEFEED}).status()["dispatchers"]
    return next((one for one in found.values() if f"{one['schema']}.{one['table']}" == table), {})


def busiest(rows: dict[str, list[Seq]]) -> str:
    return max(rows, key=lambda name: len(rows[name]))


SMALL = {"batch_bytes_max": 1 << 15, "range_bytes_min": 1 << 12}  # about twenty batches


def batches(rig: Rig) -> int:
    return rig.runs.counters.batches if rig.runs is not None else 0


def begun(make_rig: MakeRig, jobs: int, **arguments: Any) -> tuple[Rig, Engine]:
    """Some batches are at the sink, and the rest waits."""
    rig, engine = make_rig(**arguments), Engine(jobs)
    rig.start(engine, **SMALL)
    rig.wait_until("some batches", lambda: batches(rig) == jobs)
    rig.wait_until("their files", lambda: rig.keeper.waiting_ranges == 0)
    return rig, engine


def test_a_paused_table_is_held_and_comes_back_alone(make_rig: MakeRig) -> None:
    rig, engine = begun(make_rig, 6)
    expected = rig.expected()
    table = busiest(expected)
    before = rig.delivered()
    assert pause(rig, table, paused=True)["changed"]
    rig.wait_until("its pause", lambda: state(rig, table)["state"] == "paused")
    engine.more(6)
    rig.wait_until("more batches", lambda: batches(rig) == 12)
    rig.wait_until("the others", lambda: rig.keeper.settled(rig.keeper.published_end))
    delivered = rig.delivered()
    assert delivered[table] == before[table]
    assert sum(map(len, delivered.values())) > sum(map(len, before.values())), "the others go on"
    held = state(rig, table)["held_rows"]
    assert 0 < held < len(expected[table]) - len(before[table])
    mark = rig.keeper.mark_delete
    assert not rig.keeper.reached(rig.keeper.published_end), "the log keeps its rows"
    assert pause(rig, table, paused=False)["changed"]
    engine.more()
    rig.wait_delivered()
    assert rig.delivered() == expected
    assert rig.keeper.mark_delete > mark
    assert engine.extras > 2, "it was read again"
    assert (state(rig, table)["epoch"], state(rig, table)["held_rows"]) == (2, 0)
    assert rig.runs is not None
    assert rig.runs.counters.runs == 1, "nobody else began again"


@pytest.mark.parametrize("killed", [False, True])
def test_two_tables_come_back_together_over_a_new_delivery(make_rig: MakeRig, killed: bool) -> None:
    """One was paused later than the other: they share what they both need. A delivery that dies meanwhile ends the run, and
    the next one knows who is still paused."""
    rig, engine = begun(make_rig, 4)
    expected = rig.expected()
    one, two, three = sorted(expected, key=lambda name: len(expected[name]))[-3:]
    pause(rig, one, paused=True)
    engine.more(3)
    rig.wait_until("more batches", lambda: batches(rig) == 7)
    pause(rig, two, paused=True)
    pause(rig, three, paused=True)
    rig.wait_until("the pauses", lambda: {state(rig, each)["state"] for each in (one, two, three)} == {"paused"})
    engine.more(3)
    rig.wait_until("more batches", lambda: batches(rig) == 10)
    pause(rig, one, paused=False)
    pause(rig, two, paused=False)
    engine.more(3)  # two were planned before
    rig.wait_until("a replay", lambda: engine.extras > 0)
    if killed:
        rig.stop_delivery()
        rig.start_delivery()
    engine.more()
    rig.wait_until("the others", lambda: rig.keeper.settled(rig.reader.end()))
    delivered = rig.delivered()
    assert {name: rows for name, rows in delivered.items() if name != three} == {
        name: rows for name, rows in expected.items() if name != three
    }
    assert state(rig, three)["state"] == "paused" and len(delivered[three]) < len(expected[three])
    pause(rig, three, paused=False)
    rig.wait_delivered()
    assert rig.delivered() == expected
    assert rig.runs is not None
    assert (rig.runs.counters.runs > 1) == killed
