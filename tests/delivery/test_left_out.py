"""A table whose writes fail while others' succeed: its share of the spool is freed, the others go on, and it is replayed
later, alone or by a new run. In an outage nobody is left out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import chain
from pathlib import Path

import pytest

from penstock.delivery.changefeed_delivery import ChangefeedDelivery
from penstock.delivery.payload import Payload, StageKey
from penstock.delivery.replays.outside import ExtraRange
from penstock.delivery.replays.retry import REPLAY_SECONDS_FIRST
from penstock.delivery.settings import FlushSettings
from penstock.delivery.spool import Disk, SpoolLimits
from penstock.delivery.spool.items import ITEM_BYTES
from penstock.delivery.staging import PublishRange
from penstock.delivery.storage import commit
from penstock.delivery.writer import LEAVE_OUT_SECONDS
from penstock.errors import Unavailable
from penstock.files import REAL_FILES, Buffer
from penstock.files.memory import MemoryFiles
from penstock.log.position import Position, Seq
from penstock.objects import DirectoryObjects
from tests.delivery.rig import DeliveryWorld, data_payload, id_of, read_tables, stage_all, work
from tests.delivery.spool.world import DIRECTORY, INCARNATION


class Partly(DirectoryObjects):
    """Writes of rows of the tables in `away` fail; with `dead` nothing answers."""

    def __init__(self, root: Path, *away: str) -> None:
        super().__init__(str(root), root, REAL_FILES)
        self.away, self.dead = set(away), False

    def put(self, name: str, data: Buffer) -> None:
        if self.dead or ("/CDC" in name and name.split("/")[1] in self.away):
            raise Unavailable("503")
        super().put(name, data)

    def size(self, name: str) -> int | None:
        if self.dead:
            raise Unavailable("503")
        return super().size(name)


class Rows:
    """Publishes an entry at a time, with a row of each table."""

    def __init__(self, world: DeliveryWorld, delivery: ChangefeedDelivery) -> None:
        self.world, self.delivery, self.entry, self.run = world, delivery, 0, "r1"
        self.epochs: dict[str, int] = {}
        self.incarnation = world.begin(delivery, "r1")

    def publish(self, *tables: str) -> None:
        payloads = [self._payload(table, self.entry, self.entry) for table in tables]
        named = stage_all(self.delivery, self.run, self.entry, self.entry, payloads)
        self.delivery.publish(self.run, self.incarnation, [named])
        self.entry += 1

    def _payload(self, table: str, first: int, last: int) -> Payload:
        return replace(data_payload(table, first, last), epoch=self.epochs.get(table, 1))

    def replay_alone(self, table: str) -> None:
        """Beside the run, as the driver does it: in two stretches, of which the last one meets the run."""
        found = self.world.keeper.begin_replay(self.run, [id_of(table)])
        self.delivery.replay(self.run, found)
        start, facts = found[id_of(table)]
        self.epochs[table] = facts.epoch
        epochs = {id_of(table): facts.epoch}
        middle = (start.entry_id + self.entry) // 2
        for first, last in ((start.entry_id, middle - 1), (middle, self.entry - 1)):
            start, end = Position(1, first), Position(1, last)
            for entry in range(first, last + 1):  # a payload each: a file that is open ends somewhere among them
                key = StageKey(self.run, start, end, 0, entry - first, extra=True)
                self.delivery.stage(key, self._payload(table, entry, entry))
            extra = ExtraRange(PublishRange(start, end, 0, last - first + 1, 0), epochs)
            rejoin = epochs if last == self.entry - 1 else {}
            self.delivery.publish(self.run, self.incarnation, [], [extra], rejoin)

    def pass_time(self, seconds: float, *tables: str) -> None:
        for _ in range(int(seconds // 10)):
            self.publish(*tables)
            self.world.clock.sleep(10)
            work(self.delivery)
            self.delivery.look_for_replay()

    def replay(self, run: str, tables: tuple[str, ...]) -> None:
        """A new run from mark-delete on, as the driver begins one."""
        self.run, self.incarnation = run, self.world.begin(self.delivery, run)
        facts = self.world.keeper.dispatchers("")
        mark = self.world.keeper.mark_delete
        start = mark.entry_id + 1 if mark is not None else 0
        payloads = [
            data_payload(table, entry, entry)
            for table in tables
            for entry in range(start, self.entry)
            if (done := facts[id_of(table)].progress) is None or Seq(1, entry, 0, 0) > done
        ]
        payloads.sort(key=lambda payload: payload.first_seq)
        self.delivery.publish(run, self.incarnation, [stage_all(self.delivery, run, start, self.entry - 1, payloads)])


def begun(tmp_path: Path, store: Partly, limits: SpoolLimits | None = None) -> Rows:
    world = DeliveryWorld(tmp_path, store=store, flush=FlushSettings(size=1024, every=5))
    if limits is not None:
        world.limits = limits
    return Rows(world, world.open())


def state(rows: Rows, table: str) -> str:
    return str(rows.delivery.status()["dispatchers"][id_of(table)]["state"])


@pytest.mark.parametrize("alone", [True, False])
def test_left_out_after_a_deadline_and_replayed(tmp_path: Path, alone: bool) -> None:
    store = Partly(tmp_path, "b")
    rows = begun(tmp_path, store)
    rows.pass_time(LEAVE_OUT_SECONDS - 50, "a", "b")
    assert state(rows, "b") == "retrying"
    for _ in range(10):
        if state(rows, "b") != "left out":
            rows.pass_time(10, "a", "b")
    assert state(rows, "b") == "left out"
    assert rows.delivery.spool.held_bytes(id_of("b")) == 0
    assert rows.delivery.status()["left_out"] == ["shop.b"]
    before = rows.world.keeper.facts[id_of("a")].progress
    rows.pass_time(20, "a", "b")
    after = rows.world.keeper.facts[id_of("a")].progress
    assert before is not None and after is not None and after > before  # the other goes on
    with pytest.raises(Unavailable, match="left out: 503"):
        rows.delivery.flush()
    assert (rows.delivery.pressure()["left_out"], rows.delivery.pressure()["replay"]) == ([id_of("b")], [])
    store.away.clear()
    rows.pass_time(REPLAY_SECONDS_FIRST, "a", "b")
    assert rows.delivery.pressure()["replay"] == [id_of("b")]
    if alone:
        rows.replay_alone("b")
    else:
        rows.replay("r2", ("a", "b"))
    rows.pass_time(30, "a", "b")
    rows.delivery.flush()
    assert (rows.delivery.pressure()["left_out"], rows.delivery.pressure()["replay"]) == ([], [])
    expected = [bytes(data_payload("a", 0, rows.entry - 1).body)]
    found = read_tables(tmp_path)
    assert b"".join(found["a"]) == b"".join(found["b"]) == expected[0]
    assert rows.world.keeper.mark_delete == Position(1, rows.entry - 1)


def test_a_sink_that_does_not_answer_gets_no_replay(tmp_path: Path) -> None:
    store = Partly(tmp_path, "b")
    rows = begun(tmp_path, store)
    while state(rows, "b") != "left out" if rows.entry else True:
        rows.pass_time(10, "a", "b")
    store.dead = True
    rows.pass_time(2 * REPLAY_SECONDS_FIRST, "a")
    assert rows.delivery.pressure()["replay"] == []
    store.dead = False
    rows.pass_time(20, "a")
    assert rows.delivery.pressure()["replay"] == [id_of("b")]


def test_it_comes_later_and_later_while_it_fails(tmp_path: Path) -> None:
    store = Partly(tmp_path, "b")
    rows = begun(tmp_path, store)
    for turn in range(3):
        rows.pass_time(LEAVE_OUT_SECONDS + 50, "a", "b")
        while state(rows, "b") != "left out":
            rows.pass_time(10, "a", "b")
        while not rows.delivery._absences.retry.due:
            rows.pass_time(10, "a", "b")
        rows.replay(f"r{turn + 2}", ("a", "b"))
    assert rows.delivery._absences.retry.pause == 8 * REPLAY_SECONDS_FIRST


def test_left_out_above_its_share(tmp_path: Path) -> None:
    limits = SpoolLimits(
        high_bytes=40_000, low_bytes=20_000, quota_bytes=40_000, memory_high_bytes=40_000, memory_low_bytes=20_000
    )
    rows = begun(tmp_path, Partly(tmp_path, "b"), limits)
    seen = 0
    for _ in range(20):
        rows.pass_time(10, "a", "b")
        seen = max(seen, rows.delivery.spool.held_bytes(id_of("b")))
        if state(rows, "b") == "left out":
            break
    assert state(rows, "b") == "left out"
    assert limits.share_bytes / 2 < seen <= limits.share_bytes + 2 * ITEM_BYTES
    assert rows.delivery.spool.held_bytes(id_of("b")) == 0
    assert not rows.delivery.pressure()["suppressed"]


def test_in_an_outage_nobody_is_left_out(tmp_path: Path) -> None:
    store = Partly(tmp_path)
    rows = begun(tmp_path, store)
    rows.pass_time(20, "a", "b")
    store.dead = True
    rows.pass_time(3 * LEAVE_OUT_SECONDS, "a", "b")
    assert {state(rows, "a"), state(rows, "b")} == {"retrying"}
    store.dead = False
    rows.pass_time(60, "a", "b")
    rows.delivery.flush()
    found = read_tables(tmp_path)
    assert b"".join(found["a"]) == b"".join(found["b"]) == bytes(data_payload("a", 0, rows.entry - 1).body)


class Streams(Partly):
    """Takes the first part of a stream before it fails."""

    def put_stream(self, name: str, parts: Iterable[Buffer]) -> None:
        taken = iter(parts)
        first = next(taken)
        if name.split("/")[1] in self.away:
            raise Unavailable("503")
        super().put_stream(name, chain([first], taken))


@pytest.mark.parametrize("lasting", [False, True])
def test_a_table_that_fails_in_a_stream_holds_no_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lasting: bool
) -> None:
    """Its error was kept with the frames that it came through, and these with a payload and a share of what may be read back:
    the others had less and less of that, and one who wants all of it waited for ever."""
    monkeypatch.setattr(commit, "ONE_PUT_BYTES_MAX", 1)
    store = Streams(tmp_path, "b")
    disk = Disk(DIRECTORY, INCARNATION, MemoryFiles())
    limits = SpoolLimits(memory_low_bytes=0)
    world = DeliveryWorld(tmp_path, store=store, flush=FlushSettings(size=1024, every=5), limits=limits, disk=disk)
    rows = Rows(world, world.open())
    if lasting:
        monkeypatch.setattr(Unavailable, "transient", False)
    for _ in range(int(LEAVE_OUT_SECONDS // 10) + 5):
        rows.publish("a", "b")
        while rows.delivery.spool.step():
            pass
        world.clock.sleep(10)
        work(rows.delivery)
        assert rows.delivery.spool._read_back.taken == 0, state(rows, "b")
    assert state(rows, "b") == ("stopped" if lasting else "left out")
    assert rows.delivery.spool.bytes == 0
    rows.delivery.close(0)
