"""A hypothesis state machine: the spool beside lists and sums, with spilling, faults and time in any order."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from penstock.clock import ManualClock
from penstock.delivery.payload import dispatcher_id
from penstock.delivery.spool import DataItem, Disk, DrainMarkerItem, Place, Spool, SpoolItem, Wake
from penstock.delivery.spool.spiller import RETRY_SECONDS_MAX
from penstock.errors import PenstockError, Terminal
from penstock.files.memory import DiskFault, MemoryFiles
from tests.delivery.spool.world import DIRECTORY, INCARNATION, body_of, limits
from tests.support.budget import scaled

TABLES = [dispatcher_id("f", "s", str(i)) for i in range(5)]
QUOTA = 60_000
HIGH, LOW = 40_000, 20_000
MEMORY_HIGH, MEMORY_LOW = 30_000, 12_000
dispatchers = st.sampled_from(TABLES)
sizes = st.sampled_from([0, 1, 100, 900, 5000, 20_000])


class FaultyFiles(MemoryFiles):
    def __init__(self) -> None:
        super().__init__()
        self.fault: DiskFault | None = None

    def count(self, name: str, path: Path) -> DiskFault | None:
        found = super().count(name, path)
        return found or (self.fault if name in ("append", "create", "remove") else None)


@dataclass
class Model:
    staged: list[DataItem[int]] = field(default_factory=list)
    queues: dict[str, list[SpoolItem]] = field(default_factory=dict)
    popped: dict[str, list[DataItem[int]]] = field(default_factory=dict)
    failed: dict[str, PenstockError] = field(default_factory=dict)
    flushed: list[int] = field(default_factory=list)
    dropped: list[int] = field(default_factory=list)
    acks: list[tuple[int, bool]] = field(default_factory=list)
    wakes_given: int = 0
    suppressed: bool = False


class SpoolMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.number = 0
        self.seen_flushed: list[int] = []
        self.seen_dropped: list[int] = []
        self.seen_acks: list[tuple[int, bool]] = []
        self.wakes_run = 0
        self.model = Model()
        self.files = FaultyFiles()
        self.clock = ManualClock()

    @initialize(shards=st.sampled_from([1, 3]))
    def make(self, shards: int) -> None:
        self.spool = Spool(
            limits(
                high_bytes=HIGH,
                low_bytes=LOW,
                memory_high_bytes=MEMORY_HIGH,
                memory_low_bytes=MEMORY_LOW,
                quota_bytes=QUOTA,
            ),
            disk=Disk(DIRECTORY, INCARNATION, self.files),
            clock=self.clock,
            shards=shards,
            background=False,
        )

    def _item(self, dispatcher: str, size: int) -> DataItem[int]:
        self.number += 1
        number = self.number
        return DataItem(
            dispatcher,
            number,
            body_of(dispatcher, number, size),
            number,
            number,
            self.clock.monotonic(),
            (lambda: self.seen_flushed.append(number),),
            lambda _error: self.seen_dropped.append(number),
            overhead=50,
        )

    def _wake(self) -> Wake:
        self.model.wakes_given += 1
        return Wake(self._count_wake)

    def _count_wake(self) -> None:
        self.wakes_run += 1

    def _enqueued(self, dispatcher: str, items: list[SpoolItem]) -> None:
        if dispatcher in self.model.failed:
            self._ended(items)
        else:
            self.model.queues.setdefault(dispatcher, []).extend(items)

    def _ended(self, items: list[SpoolItem]) -> None:
        for item in items:
            if isinstance(item, DataItem):
                self.model.dropped.append(item.payload)
            else:
                self.model.acks.append((int(item.marker_id), False))

    @rule(dispatcher=dispatchers, sizes=st.lists(sizes, min_size=1, max_size=4))
    def enqueue(self, dispatcher: str, sizes: list[int]) -> None:
        items: list[SpoolItem] = [self._item(dispatcher, size) for size in sizes]
        self.spool.enqueue(dispatcher, items, wake=self._wake())
        self._enqueued(dispatcher, items)

    @rule(dispatcher=dispatchers, size=sizes)
    def stage(self, dispatcher: str, size: int) -> None:
        item = self._item(dispatcher, size)
        self.spool.stage(item)
        self.model.staged.append(item)

    @rule(publish=st.booleans())
    def publish_or_drop_staged(self, publish: bool) -> None:
        staged, self.model.staged = self.model.staged, []
        if not publish:
            self.spool.drop(staged, Terminal("leftovers"))
            self._ended(list(staged))
            return
        for dispatcher in TABLES:
            items: list[SpoolItem] = [item for item in staged if item.dispatcher == dispatcher]
            self.spool.enqueue(dispatcher, items, wake=self._wake())
            self._enqueued(dispatcher, items)

    @rule(dispatcher=dispatchers)
    def mark(self, dispatcher: str) -> None:
        self.number += 1
        number = self.number

        def ack(error: PenstockError | None) -> None:
            self.seen_acks.append((number, error is None))

        marker = DrainMarkerItem(dispatcher, ack, number, str(number))
        queued = self.model.queues.get(dispatcher, [])
        if any(isinstance(item, DataItem) and item.max_commit_ts >= number for item in queued):
            return
        self.spool.enqueue(dispatcher, [marker])
        self._enqueued(dispatcher, [marker])

    @rule(items_max=st.integers(1, 5), again=st.booleans())
    def pick_and_pop(self, items_max: int, again: bool) -> None:
        picked = self.spool.pick()
        if picked is None:
            return
        assert self.model.queues.get(picked), "a dispatcher without items was picked"
        popped = self.spool.pop(picked, items_max=items_max)
        queue = self.model.queues[picked]
        assert popped == queue[: len(popped)] and popped
        del queue[: len(popped)]
        assert self.spool.activate(picked) == bool(queue)
        for item in popped:
            if isinstance(item, DataItem):
                self.model.popped.setdefault(picked, []).append(item)
            else:  # a marker forces the flush
                self._flush(picked, [item])

    @rule(dispatcher=dispatchers)
    def read(self, dispatcher: str) -> None:
        held = self.model.popped.get(dispatcher, [])
        before = self.spool.memory_bytes
        for item, body in zip(held, self.spool.bodies(held), strict=True):
            assert bytes(body) == body_of(dispatcher, item.payload, item.size)
        assert self.spool.memory_bytes == before

    @rule(dispatcher=dispatchers)
    def flush(self, dispatcher: str) -> None:
        self._flush(dispatcher, [])

    def _flush(self, dispatcher: str, markers: list[DrainMarkerItem]) -> None:
        held = self.model.popped.pop(dispatcher, [])
        self.spool.flushed(held, markers)
        self.model.flushed += [item.payload for item in held]
        self.model.acks += [(int(marker.marker_id), True) for marker in markers]

    @rule(dispatcher=dispatchers)
    def fail_or_revive(self, dispatcher: str) -> None:
        if dispatcher in self.model.failed:
            self.spool.revive(dispatcher)
            del self.model.failed[dispatcher]
            return
        error = Terminal("failed")
        self.spool.fail(dispatcher, error)
        self._ended(self.model.queues.pop(dispatcher, []))
        held = self.model.popped.pop(dispatcher, [])
        self.spool.drop(held, error)
        self._ended(list(held))
        self.model.failed[dispatcher] = error

    @rule()
    def new_run(self) -> None:
        error = Terminal("run over")
        self.spool.drop(self.model.staged, error)
        self._ended(list(self.model.staged))
        self.model.staged = []
        for table in list(self.model.popped):
            held = self.model.popped.pop(table)
            self.spool.drop(held, error)
            self._ended(list(held))
        self.spool.discard_all(error)
        for queue in self.model.queues.values():
            self._ended(queue)
        self.model.queues.clear()
        self.model.failed.clear()

    @rule(fault=st.sampled_from([None, None, *DiskFault]))
    def disk_changes(self, fault: DiskFault | None) -> None:
        self.files.fault = fault

    @rule(steps=st.integers(1, 10))
    def work(self, steps: int) -> None:
        for _ in range(steps):
            self.spool.step()

    @rule()
    def time_passes(self) -> None:
        self.clock.sleep(RETRY_SECONDS_MAX)

    def _items(self) -> list[DataItem[int]]:
        queued = [item for queue in self.model.queues.values() for item in queue if isinstance(item, DataItem)]
        return [*self.model.staged, *queued, *(item for held in self.model.popped.values() for item in held)]

    @invariant()
    def accounts(self) -> None:
        if not hasattr(self, "spool"):
            return
        items = self._items()
        spool = self.spool
        assert spool.totals().items == len(items)
        on_disk = [item for item in items if item.place is Place.DISK]
        assert spool.disk_bytes == sum(item.size + 28 for item in on_disk)
        assert spool.memory_bytes == sum(50 + (item.size if item.place is Place.MEMORY else 0) for item in items)
        assert spool.staged_bytes == sum(50 + item.size for item in self.model.staged)
        for table in TABLES:
            assert spool.held_bytes(table) == sum(50 + item.size for item in items if item.dispatcher == table)
        assert spool.disk_bytes <= spool.segment_bytes <= QUOTA + (20_000 if self.files.fault else 0)

    @invariant()
    def callbacks(self) -> None:
        assert sorted(self.seen_flushed) == sorted(self.model.flushed)
        assert sorted(self.seen_dropped) == sorted(self.model.dropped)
        assert sorted(self.seen_acks) == sorted(self.model.acks)
        assert len(set(self.seen_flushed)) == len(self.seen_flushed)

    @invariant()
    def wakes(self) -> None:
        if not hasattr(self, "spool"):
            return
        assert self.wakes_run + self.spool.totals().pending_wakes == self.model.wakes_given
        memory, total = self.spool.memory_bytes, self.spool.bytes
        if total > HIGH or memory > MEMORY_HIGH:
            assert self.spool.suppressed
        if total <= LOW and memory <= MEMORY_LOW:
            assert not self.spool.suppressed

    def teardown(self) -> None:
        if not hasattr(self, "spool"):
            return
        self.files.fault = None
        self.new_run()
        self.clock.sleep(RETRY_SECONDS_MAX)
        while self.spool.step():
            pass
        self.clock.sleep(RETRY_SECONDS_MAX)
        while self.spool.step():
            pass
        assert (self.spool.bytes, self.spool.segment_bytes, self.files.list(DIRECTORY)) == (0, 0, [])
        assert self.wakes_run == self.model.wakes_given
        self.callbacks()


TestSpool = SpoolMachine.TestCase
TestSpool.settings = settings(
    max_examples=scaled(60),
    stateful_step_count=50,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
