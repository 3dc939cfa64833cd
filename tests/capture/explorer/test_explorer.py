"""Random transactions on random servers, capture killed, cut off and moved to another server at random events, the log
trimmed, the power lost: a changefeed that reads in batches sees what the clients committed, each once, in order.

`PENSTOCK_BUDGET=soak` explores ten times as many; a failure names its seed.
"""

from __future__ import annotations

import contextlib
import random
from pathlib import Path

import pytest

from penstock.binlog.events import split_events
from penstock.binlog.types import ROWS_TYPES
from penstock.capture.loop import Capture
from penstock.clock import ManualClock
from penstock.entries.format import Kind, Part, parse_entry
from penstock.entries.stores import SOURCE, SOURCE_HELD, SOURCE_OPEN, SOURCE_POSITION
from penstock.files.memory import MemoryFiles
from penstock.log import Log, LogReader, LogSettings
from penstock.log.position import Position
from penstock.metadata.memory import MemoryMetadata
from penstock.spark.log_follower import LogFollower
from penstock.spark.plan import Planner, PlanSettings, preceding
from penstock.state import StateReader
from tests.capture.explorer.servers import Broken, Group, Replication, Server, Step, committed, number_of
from tests.support.budget import scaled

DIRECTORY = Path("/log")
SETTINGS = LogSettings(ledger_entries_max=4, preallocate_bytes=0, retention_seconds=0.0, maintenance_interval_seconds=0)


class Clients:
    """Makes groups by the dice."""

    def __init__(self, rng: random.Random, *, mysql: bool, gtids: bool) -> None:
        self._rng, self._mysql, self._gtids = rng, mysql, gtids
        self._row = 0
        self._prepared: dict[str, int] = {}
        self._domain_of: dict[
            str, int
        ] = {}  # of a name: a replica that runs domains beside each other refuses it in two
        self._numbers: dict[int, int] = {}
        self._domains = 1 if mysql else rng.randrange(1, 4)

    def groups(self) -> list[Group]:
        return [self._group() for _ in range(self._rng.randrange(2, 12))]

    def _group(self) -> Group:
        rng = self._rng
        kinds = ["plain"] * 4 + [
            "rollback",
            "prepare",
            "one phase",
            "xa commit",
            "xa commit",
            "xa rollback",
            "ddl",
            "none",
        ]
        kind = rng.choice([*kinds, "compressed", "compressed"] if self._mysql and self._gtids else kinds)
        domain, xid = rng.randrange(self._domains), ""
        if kind in ("xa commit", "xa rollback"):
            if not self._prepared:
                kind = "plain"
            else:
                xid = rng.choice(sorted(self._prepared))
                domain = self._prepared.pop(xid)  # the outcome follows in the same domain
        elif kind in ("prepare", "one phase"):
            xid = rng.choice([name for name in "abc" if name not in self._prepared] or ["plain"])
            if xid == "plain" or self._domain_of.setdefault(xid, domain) != domain:
                kind, xid = "plain", ""
            if kind == "prepare":
                self._prepared[xid] = domain
        self._numbers[domain] = self._numbers.get(domain, 0) + 1
        steps = () if kind in ("xa commit", "xa rollback", "ddl", "none") else self._steps(plain=kind == "compressed")
        return Group(kind, self._numbers[domain], domain, xid, steps)

    def _steps(self, *, plain: bool) -> tuple[Step, ...]:
        found: list[Step] = []
        names: list[str] = []
        for _ in range(self._rng.choice((0, 1, 2, 3, 8))):
            what = "rows" if plain else self._rng.choice(("rows", "rows", "rows", "savepoint", "rollback to"))
            name = self._rng.choice("xyz")
            if what == "rollback to":
                if not names:
                    continue
                name = self._rng.choice(names)
                del names[names.index(name) + 1 :]
            elif what == "savepoint":
                names = [*(one for one in names if one != name), name]
            self._row += what == "rows"
            found.append((what, self._row, name))
        return tuple(found)


def elsewhere(groups: list[Group], rng: random.Random, *, mysql: bool) -> list[Group]:
    """The order in which another server of the same replication committed the groups."""
    if not mysql:  # each domain in its own order
        queues = {domain: [g for g in groups if g.domain == domain] for domain in {g.domain for g in groups}}
        found = []
        while queues:
            domain = rng.choice(sorted(queues))
            found.append(queues[domain].pop(0))
            if not queues[domain]:
                del queues[domain]
        return found
    found = list(groups)
    for at in range(len(found) - 1):  # appliers beside each other: neighbours that have nothing to do with each other
        if {found[at].kind, found[at + 1].kind} <= {"plain", "compressed"} and rng.random() < 0.5:
            found[at], found[at + 1] = found[at + 1], found[at]
    return found


class Changefeed:
    """Reads the log in batches as the planner cuts them, each range with what it is told of void transactions."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self.next: Position | None = None
        self.transactions: list[list[int]] = []
        self._commit_ts, self._inside = 0, False

    def read(self, reader: LogReader) -> None:
        start = self.next or reader.first
        follower = LogFollower(reader, start if self.next else None)
        if self.next is None:
            start = reader.next(follower.position)
        settings = PlanSettings(batch_bytes_max=self._rng.choice((1, 800, 4000)), range_bytes_min=1, parallelism=2)
        planner = Planner(follower.more, settings, follower.in_force())
        while (end := planner.end_of_batch(start)) != start:
            for planned in planner.ranges(start, end):
                for entry in reader.read(planned.start, planned.end):
                    if len(entry.data):
                        self._take(entry.data, planned.void)
            start = end
        self.next = start

    def _take(self, data: object, void: tuple[int, ...]) -> None:
        parsed = parse_entry(data)  # type: ignore[arg-type]
        events, raw = split_events(parsed.events), parsed.events.tobytes()
        for record in parsed.transactions:
            if record["kind"] in (Kind.HELD, Kind.VOID) or int(record["commit_ts"]) in void:
                continue
            first = record["part"] in (Part.WHOLE, Part.FIRST)
            assert first != self._inside, "a transaction begins inside another, or goes on without one"
            commit_ts = int(record["commit_ts"])
            assert commit_ts > self._commit_ts if first else commit_ts == self._commit_ts
            self._commit_ts, self._inside = commit_ts, record["part"] in (Part.FIRST, Part.MIDDLE)
            if first:
                self.transactions.append([])
            for i in range(int(record["first_event"]), int(record["first_event"]) + int(record["events"])):
                at = int(events.offset[i])
                if raw[at + 4] in ROWS_TYPES:
                    self.transactions[-1].append(number_of(raw[at:]))


class World:
    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        mysql = rng.random() < 0.5
        gtids = not mysql or rng.random() < 0.8
        self.groups = Clients(rng, mysql=mysql, gtids=gtids).groups()
        servers = [Server("bin", self.groups, rng, mysql=mysql, gtids=gtids)]
        if gtids and rng.random() < 0.6:
            other = elsewhere(self.groups, rng, mysql=mysql)
            servers.append(Server("replica", other, rng, mysql=mysql, gtids=True))
        self.source = Replication(servers, rng)
        self.files, self.metadata, self.clock = MemoryFiles(), MemoryMetadata(), ManualClock()
        self.feed = Changefeed(rng)
        self.bytes_max = rng.choice((700, 1500, 1 << 20))

    def run(self) -> None:
        rng = self.rng
        for _ in range(rng.randrange(4)):
            self.source.fuse, self.source.kill = rng.randrange(40), rng.random() < 0.6
            self._capture()
            self.clock.jump(rng.choice((-3600, 0, 60)))
        self.source.fuse = -1
        self._capture()

    def _capture(self) -> None:
        rng = self.rng
        log = Log.open(DIRECTORY, SETTINGS, self.files, self.clock, self.metadata)
        after = (self.files, self.metadata)
        try:
            capture = Capture(log, self.source, clock=self.clock, entry_bytes=1, events_bytes_max=self.bytes_max)
            try:
                capture.run()
            except Broken:
                if rng.random() < 0.5:
                    after = (self.files.crash(rng), self.metadata.crashed(rng))
                else:
                    after = (self.files.kill(), self.metadata.killed(rng))
            else:
                self._read_and_trim(log, capture)
        finally:
            log.close()
        self.files, self.metadata = after

    def _read_and_trim(self, log: Log, capture: Capture) -> None:
        """The changefeed reads; what it has read, and nobody pins, may go."""
        self.feed.read(LogReader.open(DIRECTORY, self.files, self.metadata))
        with log.open_cursor("feed") as cursor:
            assert self.feed.next is not None
            with contextlib.suppress(Exception):
                cursor.mark_delete(preceding(self.feed.next)).result(5)
        capture._recorder._state.checkpoint()
        log.roll()
        log.trim()


def explore(seed: int) -> World:
    world = World(seed)
    world.run()
    expected = committed(world.groups)
    got = [rows for rows in world.feed.transactions if rows]
    if not world.source.failovers:
        assert got == expected
    else:  # another server has another order, but the same transactions
        assert sorted(got) == sorted(expected)
    state = StateReader.open(LogReader.open(DIRECTORY, world.files, world.metadata))
    state.advance()
    position = state.store(SOURCE_POSITION).get(SOURCE)
    assert position is not None and state.store(SOURCE_OPEN).get(SOURCE) is None
    left = {g.xid for g in world.groups if g.kind == "prepare"}
    for group in world.groups:
        (left.add if group.kind == "prepare" else left.discard)(group.xid)
    held = {bytes.fromhex(xid.split(":")[1]).decode() for xid, _ in state.store(SOURCE_HELD).items()}
    assert held == left
    state.close()
    return world


def test_a_transaction_whose_gtid_was_given_up_before_is_read_again_once() -> None:
    explore(5488)  # was read again for ever: what was known of it was taken for the one that the server gave up


@pytest.mark.parametrize("part", range(4))
def test_explored(part: int) -> None:
    for seed in range(part, scaled(240), 4):
        try:
            explore(seed)
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
