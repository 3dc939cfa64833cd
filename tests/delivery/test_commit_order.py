"""Crashes at every gap of the commit order, then a new process that replays the rows split into other payloads."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.delivery.changefeed_delivery import ChangefeedDelivery
from penstock.delivery.settings import FlushSettings
from penstock.delivery.storage.store import LocalStore
from penstock.errors import PenstockError, Terminal, Unavailable
from penstock.files import REAL_FILES, Buffer
from penstock.files.memory import DiskFault, MemoryFiles
from penstock.log.position import Position
from tests.delivery.rig import (
    DeliveryWorld,
    Row,
    data_payload,
    expected_tables,
    export,
    files_of,
    id_of,
    payloads_of,
    read_tables,
    stage_all,
    stream,
    work,
)

SINK = Path("/sink")


class Cut(BaseException):
    """The process dies here: nothing may catch it."""


class CuttingStore(LocalStore):
    """Calls `hook` before and after each write, and once in the middle, where only the temporary file is there."""

    def __init__(self, files: MemoryFiles, hook: Callable[[str], None]) -> None:
        super().__init__(SINK, files)
        self._hook = hook

    def put(self, path: str, data: Buffer) -> None:
        kind = "index" if path.endswith("CDC.index") else "data" if "/CDC" in path else "other"
        self._hook(f"before {kind}")
        target = SINK / path
        temporary = target.with_name(f".{target.name}.tmp")
        self._files.make_directory(target.parent)
        self._files.remove(temporary)
        self._files.create(temporary).append([bytes(data)[: len(data) // 2]])
        self._hook(f"inside {kind}")
        super().put(path, data)
        self._hook(f"after {kind}")


class Cutter:
    """Dies at the n-th point that it passes."""

    def __init__(self, at: int | None) -> None:
        self.at = at
        self.passed: list[str] = []

    def __call__(self, name: str) -> None:
        if len(self.passed) == self.at:
            raise Cut(name)
        self.passed.append(name)


def run_once(world: DeliveryWorld, rows: list[Row], run: str, *, rows_max: int, entries_a_range: int) -> None:
    """A whole run from the resume table on: begin, stage, publish, drain."""
    delivery = world.open()
    incarnation = world.begin(delivery, run)
    facts = world.keeper.dispatchers("")
    start = world.keeper.mark_delete.entry_id + 1 if world.keeper.mark_delete is not None else 0
    entries = rows[-1].seq.entry_id + 1
    while start < entries:
        end = min(entries, start + entries_a_range) - 1
        inside = [r for r in rows if start <= r.seq.entry_id <= end]
        named = stage_all(delivery, run, start, end, payloads_of(inside, facts, rows_max=rows_max))
        delivery.publish(run, incarnation, [named])
        work(delivery)
        start = end + 1
    drain(delivery, world)


def drain(delivery: ChangefeedDelivery, world: DeliveryWorld) -> None:
    for _ in range(4):  # a failed write goes on after its pause
        world.clock.sleep(100)
        work(delivery)
    assert delivery.writer is not None
    assert not delivery.writer.stopped(), delivery.writer.stopped()[0].stopped
    assert not delivery.writer.holding()
    delivery.flush()


def a_world(files: MemoryFiles, cutter: Cutter, format_name: str) -> DeliveryWorld:
    world = DeliveryWorld(SINK, format_name=format_name)
    world.store = CuttingStore(files, cutter)
    world.keeper.hook = cutter
    world.flush = world.flush.model_copy(update={"size": 60})  # a few rows a file: many commits
    return world


@pytest.mark.parametrize("format_name", ["canal-json", "parquet"])
def test_every_gap(tmp_path: Path, format_name: str) -> None:
    rows = stream(6, seed=3, ddl_every=4)
    whole, files = Cutter(None), MemoryFiles()
    run_once(a_world(files, whole, format_name), rows, "r", rows_max=3, entries_a_range=4)
    assert read_tables(export(files, SINK, tmp_path / "whole"), format_name) == expected_tables(rows)
    points = {f"{w} {k}" for w in ("before", "inside", "after") for k in ("data", "index")}
    assert points | {"before intent", "after intent", "before progress", "after progress", "after cursor"} <= set(
        whole.passed
    )
    for at in range(len(whole.passed)):
        cutter, files = Cutter(at), MemoryFiles()
        world = a_world(files, cutter, format_name)
        with pytest.raises(Cut) as died:
            run_once(world, rows, "r1", rows_max=3, entries_a_range=4)
        where = f"cut {at} at {died.value}"
        root = export(files, SINK, tmp_path / f"{at} before")
        before = read_tables(root, format_name)
        visible = {p: b for p, b in files_of(root).items() if not p.endswith("index")}
        cutter.at = None
        run_once(world, rows, "r2", rows_max=1 + at % 4, entries_a_range=3 + at % 3)
        root = export(files, SINK, tmp_path / f"{at} after")
        found, after = read_tables(root, format_name), files_of(root)
        assert found == expected_tables(rows), where
        assert all(found[table][: len(lines)] == lines for table, lines in before.items()), where
        assert all(after[path] == content for path, content in visible.items()), where
        assert world.keeper.mark_delete == Position(1, 5), where


def a_machine(files: MemoryFiles, world: DeliveryWorld | None) -> DeliveryWorld:
    """The sink's machine with this disk; the keeper's facts are as they were."""
    made = DeliveryWorld(SINK, flush=FlushSettings(size=1024, every=60).model_copy(update={"size": 60}))
    made.store = LocalStore(SINK, files)
    if world is not None:
        made.keeper = world.keeper
    return made


def operations_of(rows: list[Row]) -> int:
    counted: list[int] = []
    run_once(
        a_machine(MemoryFiles(lambda n, _what, _path: counted.append(n)), None),
        rows,
        "r",
        rows_max=3,
        entries_a_range=4,
    )
    return counted[-1]


def test_power_cut_at_every_file_operation(tmp_path: Path) -> None:
    """What was not synced may be lost or torn; what the keeper was told is at the sink is there."""
    rows = stream(6, seed=3, ddl_every=4)
    total = operations_of(rows)
    assert total > 100
    for at in range(1, total + 1):
        files = MemoryFiles()
        files.cut_power_at(at)
        world = a_machine(files, None)
        with contextlib.suppress(AssertionError, PenstockError):
            run_once(world, rows, "r1", rows_max=3, entries_a_range=4)
        files = files.crash(random.Random(at))
        world = a_machine(files, world)
        run_once(world, rows, "r2", rows_max=1 + at % 4, entries_a_range=3 + at % 3)
        found = read_tables(export(files, SINK, tmp_path / str(at)))
        assert found == expected_tables(rows), f"power cut at operation {at} of {total}"


@pytest.mark.parametrize("fault", list(DiskFault))
def test_every_file_operation_fails_once(tmp_path: Path, fault: DiskFault) -> None:
    rows = stream(5, seed=4, ddl_every=4)
    total = operations_of(rows)
    for at in range(1, total + 1, 3):
        files = MemoryFiles()
        files.fail_at(at, fault)
        world = a_machine(files, None)
        run_once(world, rows, "r1", rows_max=3, entries_a_range=4)
        found = read_tables(export(files, SINK, tmp_path / str(at)))
        assert found == expected_tables(rows), f"{fault} at operation {at} of {total}"


@pytest.mark.parametrize("seed", range(8))
def test_many_deaths(tmp_path: Path, seed: int) -> None:
    """Dies again and again at random points, every run splits the rows otherwise; a failure prints the seed as its parameter."""
    random_ = random.Random(seed)
    rows = stream(20, seed=seed, ddl_every=random_.choice([0, 4, 7]))
    cutter, files = Cutter(None), MemoryFiles()
    world = a_world(files, cutter, "canal-json")
    for life in range(200):
        cutter.passed, cutter.at = [], random_.randint(0, 12)
        try:
            run_once(world, rows, f"r{life}", rows_max=random_.randint(1, 6), entries_a_range=random_.randint(1, 9))
            break
        except Cut:
            continue
    else:
        raise AssertionError("it never came through")
    assert life > 2
    assert read_tables(export(files, SINK, tmp_path)) == expected_tables(rows)


def test_other_bytes_for_an_open_intent_are_refused(tmp_path: Path) -> None:
    cutter = Cutter(None)
    world = DeliveryWorld(tmp_path)
    world.keeper.hook = lambda name: cutter(name) if name == "after intent" else None
    cutter.at = 0
    delivery = world.open()
    incarnation = world.begin(delivery, "r1")
    delivery.publish("r1", incarnation, [stage_all(delivery, "r1", 0, 3, [data_payload("orders", 0, 3)])])
    world.clock.sleep(100)
    with pytest.raises(Cut):
        work(delivery)
    cutter.at = None
    delivery = world.open()
    incarnation = world.begin(delivery, "r2")
    without_one = [data_payload("orders", 0, 1), data_payload("orders", 3, 3)]
    delivery.publish("r2", incarnation, [stage_all(delivery, "r2", 0, 3, without_one)])
    work(delivery)
    assert delivery.writer is not None
    (stopped,) = delivery.writer.stopped()
    assert isinstance(stopped.stopped, Terminal)
    assert "CDC00000000000000000001.json was promised" in str(stopped.stopped)
    assert files_of(tmp_path) == {}
    assert delivery.status()["dispatchers"][id_of("orders")]["state"] == "stopped"
    with pytest.raises(Terminal, match="promised"):
        delivery.flush()


class FailingStore(LocalStore):
    def __init__(self, root: Path, kind: str, times: int) -> None:
        super().__init__(root, REAL_FILES)
        self.kind, self.times = kind, times
        self.puts: list[tuple[str, bytes]] = []

    def put(self, path: str, data: Buffer) -> None:
        self.puts.append((path, bytes(data)))
        if self.times and (path.endswith("index") == (self.kind == "index")) and "/CDC" in path:
            self.times -= 1
            raise Unavailable("the disk is full")
        super().put(path, data)


@pytest.mark.parametrize("kind", ["data", "index"])
def test_a_failed_write_is_tried_again_with_the_same_bytes(tmp_path: Path, kind: str) -> None:
    store = FailingStore(tmp_path, kind, 2)
    world = DeliveryWorld(tmp_path, store=store)
    delivery = world.open()
    incarnation = world.begin(delivery, "r")
    delivery.publish("r", incarnation, [stage_all(delivery, "r", 0, 3, [data_payload("orders", 0, 3)])])
    size = delivery.spool.bytes
    world.clock.sleep(60)
    work(delivery)
    facts = world.keeper.facts[id_of("orders")]
    assert facts.progress is None
    assert facts.intent is not None
    assert delivery.spool.bytes == size > 0
    assert not (tmp_path / "shop/orders/5" / "2024-10-04/meta/CDC.index").exists()
    assert "disk is full" in delivery.status()["dispatchers"][id_of("orders")]["last_error"]
    for _ in range(3):
        world.clock.sleep(1)
        work(delivery)
    assert world.keeper.facts[id_of("orders")].progress == data_payload("orders", 0, 3).last_seq
    assert delivery.spool.bytes == 0
    assert delivery.status()["dispatchers"][id_of("orders")]["last_error"] is None
    assert len({data for path, data in store.puts if path.endswith(".json") and "/CDC" in path}) == 1
    assert read_tables(tmp_path) == {"orders": data_payload("orders", 0, 3).body.splitlines(True)}
    assert [name for name, _ in world.keeper.calls].count("intent") == 1


def test_a_foreign_file_is_not_overwritten(tmp_path: Path) -> None:
    world = DeliveryWorld(tmp_path)
    delivery = world.open()
    incarnation = world.begin(delivery, "r")
    payload = data_payload("orders", 0, 3)
    path = tmp_path / "shop/orders/5" / payload.date / "CDC00000000000000000001.json"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"not ours")
    delivery.publish("r", incarnation, [stage_all(delivery, "r", 0, 3, [payload])])
    world.clock.sleep(60)
    work(delivery)
    assert path.read_bytes() == b"not ours"
    assert world.keeper.facts[payload.dispatcher].intent is None
    assert delivery.writer is not None
    assert "there already" in str(delivery.writer.stopped()[0].stopped)
