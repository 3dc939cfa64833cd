"""The simulation of `test_replays.py` over the real keeper and a log of many ledgers: a spool that is soon full, statements that
concern all tables, a keeper that dies with everything else."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.changefeed.keeper import Keeper
from penstock.changefeed.maintainer import Maintainer
from penstock.clock import ManualClock
from penstock.delivery.changefeed_delivery import ChangefeedDelivery
from penstock.delivery.keeper_client import DispatcherStart, Intent, LastRow
from penstock.delivery.payload import Payload, StageKey, dispatcher_id
from penstock.delivery.replays.outside import ExtraRange
from penstock.delivery.settings import FlushSettings
from penstock.delivery.spool import Disk, SpoolLimits
from penstock.delivery.staging import Held, PublishRange
from penstock.errors import PenstockError, StaleRun, TooMuch
from penstock.files.memory import MemoryFiles
from penstock.log import LogSettings
from penstock.log.position import Position, Seq
from penstock.schema.model import DdlType, TableSchema
from penstock.spark.plan import Routing
from penstock.spark.replays import Replays
from tests.delivery.rig import (
    CHANGEFEED,
    DeliveryWorld,
    Row,
    expected_tables,
    id_of,
    payloads_of,
    read_tables,
    stream,
    work,
)
from tests.delivery.spool.world import DIRECTORY, INCARNATION
from tests.delivery.test_left_out import Partly
from tests.delivery.test_replays import Planned, resume_of
from tests.support.budget import scaled
from tests.support.worlds import DIRECTORY as LOG_DIRECTORY
from tests.support.worlds import LogInMemory

TABLES = ("a", "b", "c")
DATABASE = dispatcher_id(CHANGEFEED, "shop", "")
ENTRIES = 60
LEDGER_ENTRIES = 7


def place(index: int) -> Position:
    return Position(1 + index // LEDGER_ENTRIES, index % LEDGER_ENTRIES)


def index_of(position: Position) -> int:
    """Of an offset too, which may name no entry: the one after the last of a ledger is the first of the next."""
    return (position.ledger_id - 1) * LEDGER_ENTRIES + position.entry_id


def after(index: int) -> Position:
    """The offset after the entry before `index`, as a driver has it."""
    last = place(index - 1)
    return Position(last.ledger_id, last.entry_id + 1)


def a_stream(random_: random.Random, seed: int) -> list[Row]:
    rows = stream(ENTRIES, tables=TABLES, seed=seed, ddl_every=random_.choice((0, 7)))
    entry = random_.randint(10, 50)
    kind = random_.choice((DdlType.MODIFY_SCHEMA_CHARSET, DdlType.DROP_SCHEMA, None))
    if kind is not None:
        ts = next(row.commit_ts for row in rows if row.seq.entry_id >= entry)
        statement = TableSchema("shop", "", ts, (), "a statement on shop", kind)
        rows = [row for row in rows if row.seq.entry_id != entry]
        rows.append(Row(Seq(1, entry, 0, 0), ts, statement, ddl=True))
    made = []
    for row in sorted(rows, key=lambda one: one.seq):
        at = place(row.seq.entry_id)
        made.append(replace(row, seq=Seq(at.ledger_id, at.entry_id, row.seq.event, row.seq.row)))
    return made


class RealKeeper:
    """The keeper of a run as the simulation asks it, a `KeeperApi`. `die` is what a restart of everything does."""

    def __init__(self, rows: list[Row]) -> None:
        self._rows = rows
        self._log = LogInMemory(LogSettings(ledger_entries_max=LEDGER_ENTRIES), ENTRIES)
        self._open()

    def _open(self) -> None:
        self.keeper = Keeper.open(LOG_DIRECTORY.parent, CHANGEFEED, self._log.log.reader(), files=self._log.files)
        self.maintainer = Maintainer(self.keeper, lambda _name, _run, _wish: {"incarnation": "i"})

    def die(self) -> None:
        self.keeper.close()
        self._open()

    def close(self) -> None:
        self.keeper.close()
        self._log.log.close()

    @property
    def facts(self) -> dict[str, DispatcherStart]:
        return {each: DispatcherStart.from_json(facts.to_json()) for each, facts in self.keeper.facts().items()}

    def begin_run(self, run: str) -> tuple[Position, dict[str, DispatcherStart]]:
        return self.keeper.begin_run(run), self.facts

    def begin_replay(self, run: str, dispatchers: list[str]) -> dict[str, tuple[Position, DispatcherStart]]:
        found = self.maintainer.begin_replay(run, dispatchers)
        return {
            each: (Position.parse(one["start"]), DispatcherStart.from_json(one["facts"])) for each, one in found.items()
        }

    def published(
        self, changefeed: str, run: str, *, start: Position, end: Position, commit_ts: int, last: dict[str, LastRow]
    ) -> None:
        self.maintainer.published(run, start, end, commit_ts, last)

    def intent(
        self, changefeed: str, run: str, dispatcher: str, epoch: int, intent: Intent, *, replaces: bool = False
    ) -> None:
        self.maintainer.intent(run, dispatcher, epoch, intent, replaces=replaces)

    def done(self, changefeed: str, run: str, dispatcher: str, epoch: int, seq: Seq, *, path: str | None) -> int:
        if dispatcher == DATABASE:
            self._check_order(seq)
        return self.maintainer.done(run, dispatcher, epoch, seq, path)

    def _check_order(self, statement: Seq) -> None:
        """A statement that drops the database is told after every row before it, and before every row after it."""
        row = next(row for row in self._rows if row.seq == statement)
        if row.schema.ddl_type is not DdlType.DROP_SCHEMA:
            return
        facts = self.facts
        for table in TABLES:
            progress = facts[id_of(table)].progress if id_of(table) in facts else None
            last = max((r.seq for r in self._rows if r.schema.table == table and r.seq < statement), default=None)
            assert last is None or (progress is not None and progress >= last), (table, progress, last)
            assert progress is None or progress < statement, (table, progress)

    def drained(self, changefeed: str, run: str, dispatcher: str, seq: Seq) -> bool:
        return self.maintainer.drained(run, dispatcher, seq)

    def dispatchers(self, changefeed: str) -> dict[str, DispatcherStart]:
        return self.facts

    def checkpoint(self, changefeed: str) -> int:
        return self.keeper.checkpoint_ts

    def recovery_point(self, changefeed: str, known: str) -> dict[str, Any]:
        return {"point": None, "schemas": None}


class Driver:
    """A run of the driver, from its beginning to whatever ends it."""

    def __init__(
        self,
        keeper: RealKeeper,
        delivery: ChangefeedDelivery,
        *,
        rows: list[Row],
        random_: random.Random,
        run: str,
        most: int,
    ) -> None:
        self.keeper, self.delivery, self.rows, self.random = keeper, delivery, rows, random_
        self.run, self.most = run, most
        self.flying: deque[Planned] = deque()
        self.attempts = self.replayed = 0
        self.incarnation = str(delivery.begin_run(run)["incarnation"])
        self.offset, facts = keeper.begin_run(run)
        self.resume = {each: resume_of(one) for each, one in facts.items()}
        self.replays = Replays.of(self.resume)

    def plan(self) -> None:
        """As `runs.py` and `batches.py` do it."""
        pressure = self.delivery.pressure(self.run)
        if pressure["suppressed"]:
            return
        self.replays.note(pressure["left_out"])
        if new := [each for each in pressure["replay"] if not self.replays.replays(each)]:
            found = self.keeper.begin_replay(self.run, new)
            self.delivery.replay(self.run, found)
            for each, (first_needed, facts) in found.items():
                self.replays.begin(each, first_needed, resume_of(facts))
        start, end = index_of(self.offset), min(ENTRIES, index_of(self.offset) + self.random.randint(0, self.most))
        if pressure["until"] is not None:
            end = max(start, min(end, index_of(Position.parse(pressure["until"])) + 1))
        extras: list[ExtraRange] = []
        stretch = self.replays.next(self.offset)
        if stretch is not None:
            upto = min(index_of(stretch.limit), index_of(stretch.start) + self.random.randint(1, self.most + 2))
            to = stretch.limit if upto == index_of(stretch.limit) else after(upto)
            self.replays.advance(stretch, to)
            self.replayed += 1
            for first, last in self._cut(stretch.start, to):
                extras.append(ExtraRange(self._stage(first, last, stretch.routing), stretch.epochs))
        rejoin = self.replays.rejoin(self.offset)
        routing = self.replays.routing
        to = self.offset if end == start else after(end)
        ranges = [self._stage(first, last, routing) for first, last in self._cut(self.offset, to)]
        self.offset = to
        if ranges or extras or rejoin:
            self.flying.append(Planned(ranges, extras, rejoin))

    def _cut(self, start: Position, end: Position) -> Iterator[tuple[Position, Position]]:
        """In two, with both ends included."""
        if start == end:
            return
        middle = self.random.randint(index_of(start), index_of(end))
        if index_of(start) < middle < index_of(end):
            yield start, place(middle - 1)
            start = after(middle)
        yield start, Position(end.ledger_id, end.entry_id - 1)

    def _stage(self, first: Position, last: Position, routing: Routing) -> PublishRange:
        resume = {**self.resume, **routing.resume}
        facts = {
            each: DispatcherStart(one["epoch"], "shop", "", one["progress"], None, one["intent"])
            for each, one in resume.items()
        }
        held: dict[str, Held] = {}
        wanted: list[Row] = []
        here = range(index_of(first), index_of(last) + 1)
        for row in (row for row in self.rows if index_of(row.seq.position) in here):
            identity = id_of(row.schema.table)
            if routing.only is not None and identity not in routing.only:
                continue
            if identity in routing.held and not row.ddl:
                progress = facts[identity].progress if identity in facts else None
                if progress is None or row.seq > progress:
                    before = held[identity].rows if identity in held else 0
                    held[identity] = Held(LastRow(row.seq, "shop", row.schema.table), before + 1)
                continue
            wanted.append(row)
        payloads: list[Payload] = [
            replace(one, epoch=facts[one.dispatcher].epoch if one.dispatcher in facts else 1)
            for one in payloads_of(wanted, facts, rows_max=self.random.randint(1, 7))
        ]
        for _ in range(self.random.choice((1, 1, 2))):  # a task that was repeated
            self.attempts += 1
            for ordinal, payload in enumerate(payloads):
                key = StageKey(self.run, first, last, self.attempts, ordinal, extra=routing.only is not None)
                self.delivery.stage(key, payload)
        commit_ts = max((r.commit_ts for r in self.rows if index_of(r.seq.position) <= index_of(last)), default=0)
        return PublishRange(first, last, self.attempts, len(payloads), commit_ts, held)

    def publish(self) -> None:
        batch = self.flying.popleft()
        for _ in range(self.random.choice((1, 1, 1, 2))):
            self.delivery.publish(self.run, self.incarnation, batch.ranges, batch.extras, batch.rejoin)


class Simulation:
    def __init__(self, root: Path, seed: int) -> None:
        self.random = random.Random(seed)
        self.rows = a_stream(self.random, seed)
        self.keeper = RealKeeper(self.rows)
        self.store = Partly(root)
        self.clock = ManualClock()
        limits = SpoolLimits()
        if self.random.random() < 0.7:  # a few dozen items fill it: each counts 1,300 bytes beside its body
            limits = SpoolLimits(30_000, 15_000, 20_000, 8_000, 60_000)
        self.world = DeliveryWorld(
            root,
            keeper=self.keeper,  # type: ignore[arg-type]
            store=self.store,
            clock=self.clock,
            flush=FlushSettings(size=1024, every=5),
            limits=limits,
            disk=Disk(DIRECTORY, INCARNATION, MemoryFiles()) if self.random.random() < 0.5 else None,
        )
        self.runs = self.replayed = 0
        self.most = 4
        self.delivery = self.world.open()
        self.driver = self.begin()

    def begin(self) -> Driver:
        self.runs += 1
        run = f"r{self.runs}"
        return Driver(self.keeper, self.delivery, rows=self.rows, random_=self.random, run=run, most=self.most)

    def again(self) -> None:
        self.replayed += self.driver.replayed
        old, self.driver = self.driver, self.begin()
        if old.flying and old.incarnation == self.driver.incarnation:  # a message that was slow
            batch = old.flying.popleft()
            with pytest.raises(StaleRun):
                self.delivery.publish(old.run, old.incarnation, batch.ranges, batch.extras, batch.rejoin)

    def wish(self, table: str, *, out: bool, lost: bool = False) -> None:
        identity = id_of(table)
        if identity in self.keeper.facts:
            self.keeper.keeper.leave_out(identity, out=out)
            if lost:
                self.again()  # what the supervisor does where delivery cannot be asked
            else:
                self.delivery.leave_out(identity, out=out)

    def drive(self, what: str) -> None:
        try:
            if what == "plan" and len(self.driver.flying) < 2:
                self.driver.plan()
            elif what == "publish" and self.driver.flying:
                self.driver.publish()
            else:
                return
            self.most = 4 if what == "publish" else self.most
        except PenstockError as error:
            assert isinstance(error, (StaleRun, TooMuch)), error
            self.most = max(1, self.most // 2) if isinstance(error, TooMuch) else 4
            self.again()

    def step(self) -> None:
        what = self.random.choices(
            ("plan", "publish", "work", "time", "pause", "resume", "fail", "heal", "again", "die", "all die"),
            (30, 30, 20, 10, 4, 6, 1, 3, 0.5, 0.5, 0.3),
        )[0]
        table = self.random.choice(TABLES)
        if what in ("plan", "publish"):
            self.drive(what)
        elif what == "work":
            for _ in range(self.random.randint(1, 5)):
                assert self.delivery.writer is not None
                self.delivery.writer.step()
        elif what == "time":
            self.clock.sleep(self.random.choice((1, 6, 70, 310)))
            self.delivery.look_for_replay()
        elif what in ("pause", "resume"):
            self.wish(table, out=what == "pause", lost=self.random.random() < 0.1)
        elif what == "fail":
            self.store.away.add(table)
        elif what == "heal":
            self.store.away.clear()
        elif what == "again":
            self.again()
        else:
            if what == "all die":
                self.keeper.die()
            self.delivery = self.world.open()
            self.again()
        self.check()

    def check(self) -> None:
        """The cursor has passed nothing that somebody needs."""
        mark, facts = self.keeper.keeper.mark_delete, self.keeper.facts
        for row in self.rows:
            if index_of(row.seq.position) <= index_of(mark):
                progress = facts[id_of(row.schema.table)].progress
                assert progress is not None and row.seq <= progress, (mark, row.seq, progress)

    def finish(self) -> None:
        self.store.away.clear()
        for table in TABLES:
            self.wish(table, out=False)
        for _ in range(2000):
            self.drive("plan")
            self.drive("publish")
            self.clock.sleep(6)
            work(self.delivery)
            self.delivery.look_for_replay()
            self.check()
            if self.keeper.keeper.reached(place(ENTRIES - 1)):
                break
            if self.delivery.writer is not None and self.delivery.writer.stopped():
                self.again()  # what `penstock resume SINK` does
        self.replayed += self.driver.replayed
        assert self.keeper.keeper.reached(place(ENTRIES - 1)), self.delivery.status()
        for _ in range(3):
            self.drive("plan")
            self.drive("publish")
        status = self.delivery.status()
        assert not status["replaying"]
        assert (status["spool_bytes"], self.delivery.spool.totals().items) == (0, 0), status


@contextmanager
def simulated(root: Path, seed: int) -> Iterator[Simulation]:
    root.mkdir()
    simulation = Simulation(root, seed)
    try:
        yield simulation
    except BaseException as error:
        error.add_note(f"seed {seed}")
        raise
    finally:
        simulation.keeper.close()


@pytest.mark.parametrize("part", range(4))
def test_nothing_is_lost_doubled_or_out_of_order(tmp_path: Path, part: int) -> None:
    replayed = 0
    for number in range(scaled(6)):
        seed = 1000 * part + number
        root = tmp_path / str(seed)
        with simulated(root, seed) as simulation:
            for _ in range(300):
                simulation.step()
            simulation.finish()
            assert read_tables(root) == expected_tables(simulation.rows)
        replayed += simulation.replayed
    assert replayed > 10, "hardly anything was replayed"
