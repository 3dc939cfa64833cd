"""Single dispatchers left out and replayed beside the run: a seeded simulation of a driver over the real delivery.

The driver plans with the real `spark.replays`, at most two batches ahead, and publishes in order. Anything may be lost or come twice:
publishes, their answers, wishes; delivery dies; writes of a table fail for long. Whatever was refused ends the run.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from penstock.clock import ManualClock
from penstock.delivery.changefeed_delivery import ChangefeedDelivery
from penstock.delivery.keeper_client import DispatcherStart, LastRow
from penstock.delivery.payload import Payload, StageKey
from penstock.delivery.replays.outside import ExtraRange, Outside
from penstock.delivery.settings import FlushSettings
from penstock.delivery.staging import Held, PublishRange
from penstock.errors import BadInput, PenstockError, StaleRun
from penstock.log.position import Position, Seq
from penstock.schema.model import DdlType
from penstock.spark.plan import Routing
from penstock.spark.replays import Replays
from tests.delivery.rig import (
    DeliveryWorld,
    Row,
    data_payload,
    ddl_payload,
    expected_tables,
    id_of,
    payloads_of,
    read_tables,
    stage_all,
    stream,
    table_schema,
    work,
)
from tests.delivery.test_left_out import Partly, Rows
from tests.support.budget import scaled

TABLES = ("a", "b", "c")
ENTRIES = 60


@dataclass
class Planned:
    ranges: list[PublishRange]
    extras: list[ExtraRange]
    rejoin: dict[str, int]


def resume_of(facts: DispatcherStart) -> dict[str, Any]:
    return {
        "epoch": facts.epoch,
        "progress": facts.progress,
        "intent": facts.intent,
        "left_out": facts.left_out,
    }


@dataclass
class Driver:
    """A run of the driver, from its beginning to whatever ends it."""

    world: DeliveryWorld
    delivery: ChangefeedDelivery
    rows: list[Row]
    random: random.Random
    run: str
    attempts: int = 0
    flying: deque[Planned] = field(default_factory=deque)

    def __post_init__(self) -> None:
        self.incarnation = str(self.delivery.begin_run(self.run)["incarnation"])
        self.resume = {each: resume_of(facts) for each, facts in self.world.keeper.begin_run(self.run).items()}
        self.replays = Replays.of(self.resume)
        mark = self.world.keeper.mark_delete
        self.offset = Position(1, mark.entry_id + 1 if mark is not None else 0)
        self.replayed = 0

    def plan(self) -> None:
        pressure = self.delivery.pressure(self.run)
        self.replays.note(pressure["left_out"])
        if new := [each for each in pressure["replay"] if not self.replays.replays(each)]:
            found = self.world.keeper.begin_replay(self.run, new)
            self.delivery.replay(self.run, found)
            for each, (start, facts) in found.items():
                self.replays.begin(each, start, resume_of(facts))
        start, end = self.offset.entry_id, min(ENTRIES, self.offset.entry_id + self.random.randint(0, 4))
        extras: list[ExtraRange] = []
        stretch = self.replays.next(self.offset)
        if stretch is not None:
            upto = min(stretch.limit.entry_id, stretch.start.entry_id + self.random.randint(1, 6))
            self.replays.advance(stretch, Position(1, upto))
            self.replayed += 1
            for first, last in self._cut(stretch.start.entry_id, upto):
                extras.append(ExtraRange(self._stage(first, last, stretch.routing), stretch.epochs))
        rejoin = self.replays.rejoin(self.offset)
        routing = self.replays.routing
        ranges = [self._stage(first, last, routing) for first, last in self._cut(start, end)]
        self.offset = Position(1, end)
        if ranges or extras or rejoin:
            self.flying.append(Planned(ranges, extras, rejoin))

    def _cut(self, start: int, end: int) -> list[tuple[int, int]]:
        middle = self.random.randint(start, end)
        return [(first, last - 1) for first, last in ((start, middle), (middle, end)) if last > first]

    def _stage(self, first: int, last: int, routing: Routing) -> PublishRange:
        resume = {**self.resume, **routing.resume}
        facts = {
            each: DispatcherStart(one["epoch"], "shop", "", one["progress"], None, one["intent"])
            for each, one in resume.items()
        }
        held: dict[str, Held] = {}
        wanted = []
        for row in (row for row in self.rows if first <= row.seq.entry_id <= last):
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
        start, end = Position(1, first), Position(1, last)
        attempt = 0
        for _ in range(self.random.choice((1, 1, 2))):  # a task that was repeated
            self.attempts += 1
            attempt = self.attempts
            for ordinal, payload in enumerate(payloads):
                key = StageKey(self.run, start, end, attempt, ordinal, extra=routing.only is not None)
                self.delivery.stage(key, payload)
        commit_ts = max((row.commit_ts for row in self.rows if row.seq.entry_id <= last), default=0)
        return PublishRange(start, end, attempt, len(payloads), commit_ts, held)

    def publish(self) -> None:
        batch = self.flying.popleft()
        for _ in range(self.random.choice((1, 1, 1, 2))):
            self.delivery.publish(self.run, self.incarnation, batch.ranges, batch.extras, batch.rejoin)


class Simulation:
    def __init__(self, root: Path, seed: int) -> None:
        self.random = random.Random(seed)
        self.rows = stream(ENTRIES, tables=TABLES, seed=seed, ddl_every=self.random.choice((0, 7)))
        self.store = Partly(root)
        self.clock = ManualClock()
        self.world = DeliveryWorld(root, store=self.store, clock=self.clock, flush=FlushSettings(size=1024, every=5))
        self.delivery = self.world.open()
        self.runs = self.replayed = self.alone = 0
        self.lost: deque[Planned] = deque()
        self.driver = self.begin()

    def begin(self) -> Driver:
        self.runs += 1
        return Driver(self.world, self.delivery, self.rows, self.random, f"r{self.runs}")

    def again(self) -> None:
        self.replayed += self.driver.replayed
        old, self.driver = self.driver, self.begin()
        if old.flying:  # a message that was slow
            batch = old.flying.popleft()
            with pytest.raises(StaleRun):
                self.delivery.publish(old.run, old.incarnation, batch.ranges, batch.extras, batch.rejoin)

    def wish(self, table: str, *, out: bool, lost: bool = False) -> None:
        identity, keeper = id_of(table), self.world.keeper
        if identity in keeper.facts:
            keeper.facts[identity] = replace(keeper.facts[identity], left_out=out)
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
        except PenstockError as error:
            assert isinstance(error, StaleRun), error
            self.again()

    def step(self) -> None:
        what = self.random.choices(
            ("plan", "publish", "work", "time", "pause", "resume", "fail", "heal", "again", "die"),
            (30, 30, 20, 10, 4, 6, 1, 3, 0.5, 0.5),
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
        elif what == "die":
            self.delivery = self.world.open()
            self.again_after_death()
        self.check()

    def again_after_death(self) -> None:
        self.replayed += self.driver.replayed
        self.driver = self.begin()

    def check(self) -> None:
        """The cursor has passed nothing that somebody needs."""
        mark = self.world.keeper.mark_delete
        for row in self.rows if mark is not None else ():
            if mark is not None and row.seq.entry_id <= mark.entry_id:
                progress = self.world.keeper.facts[id_of(row.schema.table)].progress
                assert progress is not None and row.seq <= progress, (mark, row.seq, progress)

    def finish(self) -> None:
        self.store.away.clear()
        for table in TABLES:
            self.wish(table, out=False)
        last = Position(1, ENTRIES - 1)
        for _ in range(3000):
            self.drive("plan")
            self.drive("publish")
            self.clock.sleep(6)
            work(self.delivery)
            self.delivery.look_for_replay()
            self.check()
            if self.world.keeper.mark_delete == last:
                break
        self.replayed += self.driver.replayed
        status = self.delivery.status()
        assert self.world.keeper.mark_delete == last, status
        for _ in range(3):
            self.drive("plan")
            self.drive("publish")
        assert not self.delivery.status()["replaying"]


@pytest.mark.parametrize("part", range(4))
def test_nothing_is_lost_doubled_or_out_of_order(tmp_path: Path, part: int) -> None:
    replayed = 0
    for number in range(scaled(8)):
        seed = 1000 * part + number
        root = tmp_path / str(seed)
        root.mkdir()
        simulation = Simulation(root, seed)
        try:
            for _ in range(300):
                simulation.step()
            simulation.finish()
            assert read_tables(root) == expected_tables(simulation.rows)
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
        replayed += simulation.replayed
    assert replayed > 10, "hardly anything was replayed"


# ---- what a publish may bring


def extra(first: int, last: int, **epochs: int) -> ExtraRange:
    return ExtraRange(PublishRange(Position(1, first), Position(1, last), 0, 0, 0), epochs)


def outside(*left_out: str) -> Outside:
    made = Outside(lambda each: each in left_out)
    made.begin("d", 2, Position(1, 3))
    return made


@pytest.mark.parametrize("first", [2, 4])
def test_an_extra_range_starts_where_the_replay_has_come_to(first: int) -> None:
    with pytest.raises(BadInput, match="does not start at 1:3"):
        outside().check([extra(first, 5, d=2)], {}, Position(1, 9))
    two = [extra(3, 4, d=2), extra(5, 5, d=2)]
    state = outside()
    assert state.check(two, {}, Position(1, 9)) == two
    assert state.replayed("d") == Position(1, 3), "nothing is taken by a check"
    for one in two:
        state.take(one)
    assert state.replayed("d") == Position(1, 6)
    assert state.check(two, {}, Position(1, 9)) == [], "repetitions have no effect"


def test_an_extra_range_ends_where_the_run_has_come_to() -> None:
    with pytest.raises(BadInput, match="beyond 1:9"):
        outside().check([extra(3, 10, d=2)], {}, Position(1, 9))


def test_one_that_rejoins_has_come_to_where_the_run_has() -> None:
    state = outside()
    with pytest.raises(BadInput, match="rejoins at 1:9, before 1:9"):
        state.check([extra(3, 8, d=2)], {"d": 2}, Position(1, 9))
    state.check([extra(3, 9, d=2)], {"d": 2}, Position(1, 9))
    state.take(extra(3, 9, d=2))
    assert state.rejoin({"d": 2}) == ["d"]
    assert state.counts("d", 2, 2, ())
    assert state.rejoin({"d": 2}) == []


def test_what_is_of_an_older_epoch_or_left_out_does_not_count() -> None:
    for state, epoch in ((outside(), 1), (outside("d"), 2)):
        assert state.check([extra(7, 8, d=epoch)], {"d": epoch}, Position(1, 9)), "whatever it starts at"
        state.take(extra(7, 8, d=epoch))
        assert not state.takes("d", epoch)
        assert state.rejoin({"d": epoch}) == []
        assert not state.counts("d", 1, 2, ())
        state.check_held(["d"], ())
    with pytest.raises(StaleRun, match="epoch 2, not 3"):
        outside().check([extra(3, 4, d=3)], {}, Position(1, 9))


def test_rows_that_would_be_lost_or_out_of_order_are_refused() -> None:
    with pytest.raises(StaleRun, match="has not rejoined"):
        outside().counts("d", 2, 2, ())
    assert outside().counts("d", 2, 2, ("d",))
    with pytest.raises(StaleRun, match="of epoch 1, not 2"):
        outside().counts("e", 1, 2, ())
    for held, rejoin in (("e", ()), ("d", ("d",))):
        with pytest.raises(StaleRun, match="were held back"):
            outside().check_held([held], rejoin)


def test_those_that_lie_together_share_a_stretch() -> None:
    replays = Replays({"z"})
    for name, entry in (("a", 3), ("b", 3), ("c", 7)):
        replays.begin(name, Position(1, entry), {"epoch": 2})
    assert replays.routing.held == {"a", "b", "c", "z"}
    one = replays.next(Position(1, 20))
    assert one is not None and (one.start, one.limit, set(one.resume)) == (Position(1, 3), Position(1, 7), {"a", "b"})
    replays.advance(one, Position(1, 7))
    two = replays.next(Position(1, 20))
    assert two is not None and (two.start, two.limit, set(two.resume)) == (
        Position(1, 7),
        Position(1, 20),
        {"a", "b", "c"},
    )
    replays.note(["z", "b"])
    replays.advance(replace(two, resume={"a": {}, "c": {}}), Position(1, 20))
    assert replays.next(Position(1, 20)) is None
    assert replays.rejoin(Position(1, 20)) == {"a": 2, "c": 2}
    assert replays.routing.held == {"b", "z"} and set(replays.routing.resume) == {"a", "c"}


# ---- with others at the same time


class Two(Rows):
    """Runs whose tables replay one after another."""

    def write(self) -> None:
        self.world.clock.sleep(10)
        work(self.delivery)

    def pause(self, table: str) -> None:
        self.delivery.leave_out(id_of(table), out=True)
        work(self.delivery)

    def begin_replay(self, table: str) -> dict[str, int]:
        self.delivery.leave_out(id_of(table), out=False)
        assert id_of(table) in self.delivery.pressure()["replay"]
        found = self.world.keeper.begin_replay(self.run, [id_of(table)])
        self.delivery.replay(self.run, found)
        self.epochs[table] = found[id_of(table)][1].epoch
        return {id_of(table): self.epochs[table]}

    def stage_extra(self, table: str, first: int, last: int, attempt: int) -> PublishRange:
        start, end = Position(1, first), Position(1, last)
        self.delivery.stage(StageKey(self.run, start, end, attempt, 0, extra=True), self._payload(table, first, last))
        return PublishRange(start, end, attempt, 1, 0)


def two(tmp_path: Path) -> Two:
    world = DeliveryWorld(tmp_path, flush=FlushSettings(size=1024, every=5))
    return Two(world, world.open())


def test_one_that_replays_over_the_same_entries_keeps_what_is_staged_for_it(tmp_path: Path) -> None:
    """A second table comes back while the first one's batch is in flight: their ranges may have the same bounds."""
    rows = two(tmp_path)
    for table in "ab":
        rows.publish(table)  # so that both are known
    rows.write()
    for table in "ab":
        rows.pause(table)
    for _ in range(3):
        rows.publish("a", "b")
    epochs = rows.begin_replay("a")
    repeated = rows.stage_extra("a", 2, 4, attempt=1)
    one = rows.stage_extra("a", 2, 4, attempt=2)
    also = rows.begin_replay("b")
    other = rows.stage_extra("b", 2, 4, attempt=3)
    rows.delivery.publish(rows.run, rows.incarnation, [], [ExtraRange(one, epochs)], epochs)
    rows.delivery.publish(rows.run, rows.incarnation, [], [ExtraRange(other, also)], also)
    rows.stage_extra("a", 2, 4, repeated.attempt)  # of a task that was slow
    assert rows.delivery.spool.staged_bytes == 0, "what nobody will publish is dropped"
    rows.write()
    lines = read_tables(tmp_path)
    assert [len(lines[table]) for table in "ab"] == [4, 4]


def copy_of_a(rows: Two) -> PublishRange:
    """A statement that makes a table after the model of `a`, which has to be at the sink as it is at that place."""
    copy = replace(table_schema("x", 9), ddl_type=DdlType.CREATE_TABLE, other="shop.a")
    ts = data_payload("x", rows.entry, rows.entry).first_commit_ts
    made = ddl_payload(Row(Seq(1, rows.entry, 0, 0), ts, copy, ddl=True))
    return stage_all(rows.delivery, rows.run, rows.entry, rows.entry, [made])


def test_a_statement_of_several_tables_is_refused_while_one_of_them_replays(tmp_path: Path) -> None:
    """That one would go on beyond the statement, which waits for it. Only a new run brings them together."""
    rows = two(tmp_path)
    rows.publish("a")
    rows.write()
    rows.pause("a")
    rows.publish("a")
    rows.begin_replay("a")
    with pytest.raises(StaleRun, match=r"shop\.a is replaying"):
        rows.delivery.publish(rows.run, rows.incarnation, [copy_of_a(rows)])
    assert id_of("x") not in rows.delivery.status()["dispatchers"], "nothing was published"


@pytest.mark.parametrize("noticed", [True, False])
def test_one_that_did_not_come_to_a_statement_comes_back_in_a_new_run(tmp_path: Path, noticed: bool) -> None:
    """Also before the writers have come to the statement, which cannot be delivered: the replay would go beyond it."""
    rows = two(tmp_path)
    rows.publish("a", "b")
    rows.write()
    rows.pause("a")
    rows.pause("b")
    rows.delivery.publish(rows.run, rows.incarnation, [copy_of_a(rows)])
    rows.entry += 1
    if noticed:
        work(rows.delivery)
        assert "cannot be delivered" in str(rows.delivery.status()["dispatchers"][id_of("x")]["last_error"])
    rows.begin_replay("b")  # which has nothing to do with it
    rows.delivery.leave_out(id_of("a"), out=False)
    with pytest.raises(StaleRun, match="stopped at a statement"):
        rows.delivery.pressure(rows.run)


def test_one_that_was_to_rejoin_and_came_back_once_more_meanwhile_ends_no_run(tmp_path: Path) -> None:
    rows = two(tmp_path)
    rows.publish("a")
    rows.write()
    rows.pause("a")
    rows.publish("a")
    epochs = rows.begin_replay("a")
    one = rows.stage_extra("a", 1, 1, attempt=1)
    regular = stage_all(rows.delivery, rows.run, 2, 2, [rows._payload("a", 2, 2)])
    rows.pause("a")
    again = rows.begin_replay("a")
    rows.delivery.publish(rows.run, rows.incarnation, [regular], [ExtraRange(one, epochs)], epochs)
    rows.entry = 3
    two_ = [ExtraRange(rows.stage_extra("a", entry, entry, attempt=2), again) for entry in (1, 2)]
    rows.delivery.publish(rows.run, rows.incarnation, [], two_, again)
    rows.write()
    assert len(read_tables(tmp_path)["a"]) == 3
