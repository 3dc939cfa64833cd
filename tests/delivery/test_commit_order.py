"""Crashes at every gap of the commit order, then a new process that replays the rows split into other payloads."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from penstock.delivery.changefeed_delivery import ChangefeedDelivery
from penstock.delivery.settings import FlushSettings
from penstock.errors import PenstockError, Terminal, Unavailable
from penstock.files import REAL_FILES, Buffer
from penstock.files.memory import DiskFault, MemoryFiles
from penstock.log.position import Position, Seq
from penstock.objects import DirectoryObjects, ObjectChanged
from penstock.schema.model import DdlType, TableSchema
from tests.delivery.rig import (
    DeliveryWorld,
    Row,
    data_payload,
    expected_tables,
    export,
    files_of,
    id_of,
    local_objects,
    payloads_of,
    read_tables,
    stage_all,
    stream,
    work,
)

SINK = Path("/sink")


class Cut(BaseException):
    """The process dies here: nothing may catch it."""


class CuttingStore(DirectoryObjects):
    """Calls `hook` before and after each write, and once in the middle, where only the temporary file is there."""

    def __init__(self, files: MemoryFiles, hook: Callable[[str], None]) -> None:
        super().__init__(str(SINK), SINK, files)
        self._hook = hook

    def put(self, name: str, data: Buffer) -> None:
        kind = "index" if name.endswith("CDC.index") else "data" if "/CDC" in name else "other"
        self._hook(f"before {kind}")
        target = SINK / name
        temporary = target.with_name(f".{target.name}.tmp")
        self._files.make_directory(target.parent)
        self._files.remove(temporary)
        self._files.create(temporary).append([bytes(data)[: len(data) // 2]])
        self._hook(f"inside {kind}")
        super().put(name, data)
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


def with_a_database(rows: list[Row], entry: int) -> list[Row]:
    """The same stream with a statement on the whole database in the place of one entry."""
    ts = next(row.commit_ts for row in rows if row.seq.entry_id >= entry)
    schema = TableSchema("shop", "", ts, (), "ALTER DATABASE shop", DdlType.MODIFY_SCHEMA_CHARSET)
    statement = Row(Seq(1, entry, 0, 0), ts, schema, ddl=True)
    return sorted([*(r for r in rows if r.seq.entry_id != entry), statement], key=lambda row: row.seq)


def test_every_gap_around_a_statement_on_a_database(tmp_path: Path) -> None:
    """At no moment is it at the sink before a row of any table that precedes it, or after one that follows it."""
    rows = with_a_database(stream(8, seed=5, tables=("a", "b", "c")), 4)
    before = [row for row in rows if row.seq.entry_id < 4]
    whole, files = Cutter(None), MemoryFiles()
    run_once(a_world(files, whole, "canal-json"), rows, "r", rows_max=3, entries_a_range=8)
    moments = 0
    for at in range(len(whole.passed)):
        cutter, files = Cutter(at), MemoryFiles()
        world = a_world(files, cutter, "canal-json")
        with pytest.raises(Cut) as died:
            run_once(world, rows, "r1", rows_max=3, entries_a_range=8)
        where = f"cut {at} at {died.value}"
        root = export(files, SINK, tmp_path / f"{at} before")
        found = read_tables(root)
        # Not the file of version 4, which the first table brings that no statement created.
        if [each for each in root.glob("shop/meta/schema_*") if not each.name.startswith("schema_4_")]:
            moments += 1
            assert all(found[table][: len(lines)] == lines for table, lines in expected_tables(before).items()), where
        else:
            assert all(set(lines) <= set(expected_tables(before)[table]) for table, lines in found.items()), where
        cutter.at = None
        run_once(world, rows, "r2", rows_max=1 + at % 4, entries_a_range=3 + at % 3)
        assert read_tables(export(files, SINK, tmp_path / f"{at} after")) == expected_tables(rows), where
    assert 10 < moments < len(whole.passed) - 10


def a_machine(files: MemoryFiles, world: DeliveryWorld | None) -> DeliveryWorld:
    """The sink's machine with this disk; the keeper's facts are as they were."""
    made = DeliveryWorld(SINK, flush=FlushSettings(size=1024, every=60).model_copy(update={"size": 60}))
    made.store = local_objects(SINK, files)
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


class AllLost(random.Random):
    """Of a power cut that leaves only what is synced."""

    def random(self) -> float:
        return 0.15


@pytest.mark.parametrize("fault", list(DiskFault))
def test_every_file_operation_fails_once(tmp_path: Path, fault: DiskFault) -> None:
    """And what is tried again is there for good: the power goes afterwards."""
    rows = stream(5, seed=4, ddl_every=4)
    total = operations_of(rows)
    for at in range(1, total + 1):
        files = MemoryFiles()
        files.fail_at(at, fault)
        world = a_machine(files, None)
        run_once(world, rows, "r1", rows_max=3, entries_a_range=4)
        for when, disk in (("before", files), ("after", files.crash(AllLost()))):
            found = read_tables(export(disk, SINK, tmp_path / f"{at} {when}"))
            assert found == expected_tables(rows), f"{fault} at operation {at} of {total}, {when} the power went"


def test_killed_at_every_file_operation_before_the_power_goes(tmp_path: Path) -> None:
    """What a dead process put and did not sync is found by the next one, which tells the keeper of it."""
    rows = stream(5, seed=4, ddl_every=4)
    total = operations_of(rows)
    for at in range(1, total + 1):
        files = MemoryFiles()
        files.cut_power_at(at)
        world = a_machine(files, None)
        with contextlib.suppress(AssertionError, PenstockError):
            run_once(world, rows, "r1", rows_max=3, entries_a_range=4)
        files = files.kill()
        run_once(a_machine(files, world), rows, "r2", rows_max=3, entries_a_range=4)
        found = read_tables(export(files.crash(AllLost()), SINK, tmp_path / str(at)))
        assert found == expected_tables(rows), f"killed at operation {at} of {total}"


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


class LoadingReader(CuttingStore):
    """With a reader behind it that loads every data file at every PUT, and never looks at an index."""

    def __init__(self, files: MemoryFiles, hook: Callable[[str], None]) -> None:
        super().__init__(files, hook)
        self.loaded: dict[str, bytes] = {}
        self.rows: dict[bytes, str] = {}  # the file that brought a row

    def put(self, name: str, data: Buffer) -> None:
        super().put(name, data)
        if "/CDC" not in name or name.endswith(".index"):
            return
        found = self.read(name)
        assert found is not None
        assert self.loaded.setdefault(name, found.data) == found.data, f"the bytes of {name} have changed"
        for line in found.data.splitlines():
            row = name.encode().split(b"/")[1] + b" " + line
            assert self.rows.setdefault(row, name) == name, f"{row!r} is in {name} too"


@pytest.mark.parametrize("seed", range(8, 14))
def test_a_reader_that_loads_every_file_at_every_put_sees_each_row_once(tmp_path: Path, seed: int) -> None:
    """Without the index: no row twice under another name, no file whose bytes change, whatever dies in between."""
    random_ = random.Random(seed)
    rows = stream(20, seed=seed, ddl_every=random_.choice([0, 4, 7]))
    cutter, files = Cutter(None), MemoryFiles()
    world = a_world(files, cutter, "canal-json")
    world.store = reader = LoadingReader(files, lambda name: None if name.startswith("after") else cutter(name))
    for life in range(200):
        cutter.passed, cutter.at = [], random_.randint(0, 12)
        with contextlib.suppress(Cut):
            run_once(world, rows, f"r{life}", rows_max=random_.randint(1, 6), entries_a_range=random_.randint(1, 9))
            break
    assert life > 2 and len(reader.loaded) > 5
    assert len(reader.rows) == sum(not row.ddl for row in rows)
    assert read_tables(export(files, SINK, tmp_path)) == expected_tables(rows)


class OtherLines:
    """The next version of the encoder: the same rows give other bytes."""

    def join(self, payloads: Iterable[Buffer]) -> Iterator[Buffer]:
        for payload in payloads:
            yield from (b"+" + line for line in bytes(payload).splitlines(True))


class LateStore(DirectoryObjects):
    """A server that takes a put of a data file, has its client die over it, and carries it out later: just before the `nth`
    request for that name after that."""

    def __init__(self, files: MemoryFiles, nth: int) -> None:
        super().__init__(str(SINK), SINK, files)
        self._left = nth
        self._armed = True
        self._held: tuple[str, bytes] | None = None
        self.arrived = False

    def put_if(self, name: str, data: Buffer, token: str | None) -> str:
        if self._armed and "/CDC" in name and not name.endswith("index"):
            self._armed, self._held = False, (name, bytes(data))
            raise Cut(name)
        self._arrive_before(name)
        return super().put_if(name, data, token)

    def size(self, name: str) -> int | None:
        self._arrive_before(name)
        return super().size(name)

    def _arrive_before(self, name: str) -> None:
        if self._held is None or self._held[0] != name:
            return
        self._left -= 1
        if self._left == 0:
            (late, data), self._held = self._held, None
            with contextlib.suppress(ObjectChanged):  # the client that would hear of it is dead
                super().put_if(late, data, None)
                self.arrived = True


@pytest.mark.parametrize("nth", [1, 2, 3])
def test_a_put_of_a_dead_process_arrives_late(tmp_path: Path, nth: int) -> None:
    """And the rows give other bytes by then: between the look and the put it stopped the table, in every later run too. The
    second life dies as well, at each step over the keeper's facts."""
    rows = stream(6, seed=3, ddl_every=4)
    arrived = 0
    for at in range(9):
        files = MemoryFiles()
        world = DeliveryWorld(SINK, flush=FlushSettings(size=1024, every=60).model_copy(update={"size": 60}))
        world.store = store = LateStore(files, nth)
        with pytest.raises(Cut):
            run_once(world, rows, "r1", rows_max=3, entries_a_range=4)
        world.assembler, world.keeper.hook = OtherLines(), Cutter(at)
        with contextlib.suppress(Cut):
            run_once(world, rows, "r2", rows_max=2, entries_a_range=3)
        world.keeper.hook = Cutter(None)
        run_once(world, rows, "r3", rows_max=1, entries_a_range=5)
        found = read_tables(export(files, SINK, tmp_path / f"{at}"))
        lines = {table: [line.removeprefix(b"+") for line in each] for table, each in found.items()}
        assert lines == expected_tables(rows), at
        arrived += store.arrived
    assert arrived > 0


@pytest.mark.parametrize("life", range(3))
def test_every_gap_with_another_encoder_afterwards(tmp_path: Path, life: int) -> None:
    """Each row once, in files that are of one encoder each; no file that was seen changes, and no number is missing."""
    rows = stream(6, seed=3 + life, ddl_every=4)
    whole, files = Cutter(None), MemoryFiles()
    run_once(a_world(files, whole, "canal-json"), rows, "r", rows_max=3, entries_a_range=4)
    replaced = 0
    for at in range(len(whole.passed)):
        cutter, files = Cutter(at), MemoryFiles()
        world = a_world(files, cutter, "canal-json")
        with pytest.raises(Cut) as died:
            run_once(world, rows, "r1", rows_max=3, entries_a_range=4)
        where = f"cut {at} at {died.value}"
        visible = {
            p: b for p, b in files_of(export(files, SINK, tmp_path / f"{at} before")).items() if not p.endswith("index")
        }
        # The new encoder dies too, later; a third life goes on.
        world.assembler, cutter.at, cutter.passed = OtherLines(), at % 7, []
        with contextlib.suppress(Cut):
            run_once(world, rows, "r2", rows_max=1 + at % 4, entries_a_range=3 + at % 3)
        cutter.at = None
        run_once(world, rows, "r3", rows_max=2, entries_a_range=4)
        root = export(files, SINK, tmp_path / f"{at} after")
        found, after = read_tables(root), files_of(root)
        assert {t: [line.removeprefix(b"+") for line in lines] for t, lines in found.items()} == expected_tables(rows)
        assert all(after[path] == content for path, content in visible.items()), where
        for path, content in after.items():
            if not path.endswith("index"):
                assert len({line[:1] == b"+" for line in content.splitlines()}) == 1, (where, path)
        intents = [intent for name, intent in world.keeper.calls if name == "intent"]
        replaced += sum(a.same_rows(b) and a != b for a, b in pairwise(intents))
    assert replaced > 3


def test_a_named_file_is_finished_without_its_bytes(tmp_path: Path) -> None:
    """The index names it: it counts, whatever the encoder would write today. Nothing is put together."""

    class Nothing:
        def join(self, payloads: Iterable[Buffer]) -> Iterator[Buffer]:
            raise AssertionError("not needed")

    for point in ("after index", "before index"):  # named; there and whole
        cutter, files = Cutter(None), MemoryFiles()
        world = a_world(files, cutter, "canal-json")

        def die(name: str, point: str = point, cutter: Cutter = cutter) -> None:
            if name == point and cutter.at is None:
                cutter.at = len(cutter.passed)
            cutter(name)

        world.store = CuttingStore(files, die)
        delivery = world.open()
        incarnation = world.begin(delivery, "r1")
        delivery.publish("r1", incarnation, [stage_all(delivery, "r1", 0, 3, [data_payload("orders", 0, 3)])])
        world.clock.sleep(100)
        with pytest.raises(Cut):
            work(delivery)
        world.store, world.assembler, cutter.at = local_objects(SINK, files), Nothing(), None
        delivery = world.open()
        incarnation = world.begin(delivery, "r2")
        delivery.publish("r2", incarnation, [stage_all(delivery, "r2", 0, 3, [data_payload("orders", 0, 3)])])
        drain(delivery, world)
        found = read_tables(export(files, SINK, tmp_path / point))
        assert found == {"orders": bytes(data_payload("orders", 0, 3).body).splitlines(True)}


def test_a_named_file_is_done_even_if_a_reader_has_taken_it_away(tmp_path: Path) -> None:
    world = DeliveryWorld(tmp_path)
    cutter = Cutter(0)
    world.keeper.hook = lambda name: cutter(name) if name == "before progress" else None
    payload = data_payload("orders", 0, 3)
    for run in ("r1", "r2"):
        delivery = world.open()
        incarnation = world.begin(delivery, run)
        delivery.publish(run, incarnation, [stage_all(delivery, run, 0, 3, [payload])])
        world.clock.sleep(100)
        with contextlib.suppress(Cut):
            work(delivery)
        if cutter.at is not None:
            (file,) = tmp_path.rglob("CDC*.json")
            file.unlink()
            cutter.at = None
    assert world.keeper.facts[id_of("orders")].progress == payload.last_seq
    assert not list(tmp_path.rglob("CDC*.json"))


def test_something_else_under_an_open_name_is_not_overwritten(tmp_path: Path) -> None:
    cutter = Cutter(0)
    world = DeliveryWorld(tmp_path)
    world.keeper.hook = lambda name: cutter(name) if name == "after intent" else None
    delivery = world.open()
    incarnation = world.begin(delivery, "r1")
    delivery.publish("r1", incarnation, [stage_all(delivery, "r1", 0, 3, [data_payload("orders", 0, 3)])])
    world.clock.sleep(100)
    with pytest.raises(Cut):
        work(delivery)
    cutter.at = None
    intent = world.keeper.facts[id_of("orders")].intent
    assert intent is not None
    (tmp_path / intent.path).parent.mkdir(parents=True)
    (tmp_path / intent.path).write_bytes(b"x" * intent.length)
    delivery = world.open()
    incarnation = world.begin(delivery, "r2")
    delivery.publish("r2", incarnation, [stage_all(delivery, "r2", 0, 3, [data_payload("orders", 0, 3)])])
    work(delivery)
    assert delivery.writer is not None
    assert "is not what was promised" in str(delivery.writer.stopped()[0].stopped)
    assert (tmp_path / intent.path).read_bytes() == b"x" * intent.length


def test_other_rows_for_an_open_intent_are_refused(tmp_path: Path) -> None:
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


class FailingStore(DirectoryObjects):
    def __init__(self, root: Path, kind: str, times: int) -> None:
        super().__init__(str(root), root, REAL_FILES)
        self.kind, self.times = kind, times
        self.puts: list[tuple[str, bytes]] = []

    def put(self, name: str, data: Buffer) -> None:
        self.puts.append((name, bytes(data)))
        if self.times and (name.endswith("index") == (self.kind == "index")) and "/CDC" in name:
            self.times -= 1
            raise Unavailable("the disk is full")
        super().put(name, data)


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
    assert delivery.spool.bytes == size  # the items; the file is put together again
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
