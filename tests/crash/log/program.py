"""Seeded random programs over the public interface of the log, in sessions that end cleanly, by a fault or by kill -9."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Sequence
from functools import partial

from penstock.errors import PenstockError
from penstock.files.memory import DiskFault, PowerCut
from penstock.log import OffloadInProgress, Pending, Position, Span
from tests.crash.framework.stepping import STEPS
from tests.crash.log.facts import CursorFacts, must
from tests.crash.log.world import NAMES, PASSING, Opened, World, has, read_all

_SIZES = (0, 10, 400, 700, 1500)
_FAULTS = (
    DiskFault.EIO,
    DiskFault.EIO,
    DiskFault.ENOSPC,
    DiskFault.SHORT_WRITE,
    None,
)  # None: the metadata store goes away
Action = Callable[["Session"], None]


class Session:
    """What one process does, from open to its end."""

    def __init__(self, world: World, rng: random.Random, opened: Opened) -> None:
        self.world = world
        self.facts = world.facts
        self.rng = rng
        self.opened = opened
        self.dead = False  # what comes from then on is no fact

    def append(self) -> None:
        """A group of one to four."""
        for _ in range(self.rng.choice((1, 1, 2, 4))):
            number = len(self.facts.payloads)
            data = b"%d|" % number + bytes([number % 251]) * self.rng.choice(_SIZES)
            self.facts.submit(data)
            self.opened.append(number, data).add_done_callback(partial(self._appended, number))
        self._wait()

    def append_many(self) -> None:
        """A batch with one answer. It carries no state: only where there is none."""
        if not self.world.trims:
            return
        numbers = range(len(self.facts.payloads), len(self.facts.payloads) + self.rng.choice((1, 3, 30)))
        batch = [b"%d|" % number + bytes([number % 251]) * self.rng.choice(_SIZES[:3]) for number in numbers]
        for data in batch:
            self.facts.submit(data)
        self.opened.log.append_many(batch).add_done_callback(partial(self._appended_many, numbers))
        self._wait()

    def _appended_many(self, numbers: Sequence[int], done: Pending[Span]) -> None:
        if self.dead:
            return
        failed = done.exception() is not None
        first = None if failed else done.result().first
        for at, number in enumerate(numbers):
            if first is None:
                self.facts.fail(number)
            else:
                self.facts.acknowledge(number, Position(first.ledger_id, first.entry_id + at))

    def roll(self) -> None:
        self.opened.log.roll()

    def _appended(self, number: int, done: Pending[Position]) -> None:
        if self.dead:
            return
        if done.exception() is None:
            self.facts.acknowledge(number, done.result())
        else:
            self.facts.fail(number)

    def ack(self) -> None:
        """One entry, or a few in a row."""
        entries = list(self.facts.durable.items())
        if not entries:
            return
        name = self.rng.choice(NAMES)
        first = self.rng.randrange(len(entries))
        last = min(first + self.rng.choice((0, 0, 0, 1, 5)), len(entries) - 1)
        self._send(name, {number for number, _ in entries[first : last + 1]},
                   lambda cursor: cursor.ack(entries[first][1], entries[last][1]))  # fmt: skip

    def mark_delete(self) -> None:
        name = self.rng.choice(NAMES)
        cursor = self.opened.cursors[name]
        entries = [(n, p) for n, p in self.facts.durable.items() if p > cursor.mark_delete_position]
        unacked = [(n, p) for n, p in entries if not cursor.is_acked(p)]
        if not unacked:
            return
        number, position = unacked[self.rng.randrange(min(3, len(unacked)))]
        self._send(name, {n for n in self.facts.durable if n <= number}, lambda cursor: cursor.mark_delete(position))

    def ack_each(self) -> None:
        """Some entries, with gaps."""
        entries = [(n, p) for n, p in self.facts.durable.items() if self.rng.random() < 0.4]
        if entries:
            self._send(self.rng.choice(NAMES), {n for n, _ in entries}, lambda c: c.ack_each([p for _, p in entries]))

    def clear_backlog(self) -> None:
        self._send(self.rng.choice(NAMES), set(self.facts.durable), lambda cursor: cursor.clear_backlog())

    def reset(self) -> None:
        """Back or forward to an entry that cannot have been trimmed."""
        entries = [(n, p) for n, p in self.facts.durable.items() if n >= self.facts.removable]
        if entries:
            number, position = self.rng.choice(entries)
            self._send(self.rng.choice(NAMES), {n for n in self.facts.durable if n < number},
                       lambda cursor: cursor.reset(position), forget=True)  # fmt: skip

    def come_and_go(self) -> None:
        """A cursor that is made and deleted again. It may hold back a trim; whether it is there after a crash is open."""
        if self.rng.random() < 0.6:
            cursor = self.opened.log.open_cursor(PASSING, self.rng.choice(("earliest", "latest")))
            cursor.set_properties({"seen": str(len(self.facts.durable))}).result()
            cursor.clear_backlog()
        elif any(info.name == PASSING for info in self.opened.log.cursors()):
            self.opened.log.delete_cursor(PASSING)

    def trim(self) -> None:
        if self.world.trims:
            self.opened.log.trim()

    def offload(self) -> None:
        """All sealed ledgers, whatever the threshold; those whose lag is over are moved."""
        if self.world.offloads:
            with contextlib.suppress(OffloadInProgress):
                self.opened.log.offload()

    def truncate(self) -> None:
        """Every sealed ledger goes, whatever the cursors say: they move on."""
        if self.world.trims:
            self.facts.removable = len(self.facts.payloads)
            self.opened.log.clear()
            self.facts.durable = {number: position for number, position, _ in read_all(self.opened.reader)}

    def _send(self, name: str, numbers: set[int], send: Callable[..., Pending[None]], *, forget: bool = False) -> None:
        facts = self.facts.cursors[name]
        version = facts.send(frozenset(numbers) if forget else facts.newest | numbers)
        send(self.opened.cursors[name]).add_done_callback(partial(self._acked, facts, version))
        self._wait()

    def _acked(self, facts: CursorFacts, version: int, done: Pending[None]) -> None:
        if not self.dead and done.exception() is None:
            self.facts.confirm(facts, version)

    def read(self) -> None:
        """The live log shows what is durable, to a reader that was there before."""
        found = read_all(self.opened.reader)
        self.facts.check_entries(found)
        must(all(n in self.facts.durable for n, _, _ in found), "a reader sees what is not durable")

    def pass_time(self) -> None:
        self.world.clock.advance(self.rng.choice((0.001, 1.0, 700.0)))

    def _wait(self) -> None:
        """Sometimes lets more come before what is on its way is written: larger groups, acks beside appends."""
        if self.rng.random() < 0.7:
            STEPS.pump()


_ACTIONS: tuple[tuple[int, Action], ...] = (
    (10, Session.append),
    (6, Session.ack),
    (3, Session.mark_delete),
    (2, Session.ack_each),
    (1, Session.clear_backlog),
    (1, Session.reset),
    (1, Session.read),
    (1, Session.trim),
    (1, Session.come_and_go),
    (2, Session.offload),
    (1, Session.truncate),
    (1, Session.roll),
    (2, Session.append_many),
    (1, Session.pass_time),
)


def run_program(world: World, rng: random.Random, *, faults: float = 0.3) -> None:
    """Some sessions over the world, the last one closed cleanly."""
    world.trims = has("trim") and rng.random() < 0.5
    world.offloads = rng.random() < 0.5
    sessions = rng.randrange(2, 5)
    for number in range(sessions):
        last = number == sessions - 1
        ending = rng.random()
        if not last and ending < min(0.35, 1 - faults):
            world.files.cut_power_at(world.files.operations + rng.randrange(1, 80))
        faulty = False
        if not last and ending > 1 - faults:
            faulty = True
            fault = rng.choice(_FAULTS)
            if fault is None:
                world.fail_metadata(rng.randrange(1, 12), rng.choice((1, 2, 20)), answer_is_lost=rng.random() < 0.3)
            else:
                world.files.fail_at(world.files.operations + rng.randrange(1, 80), fault)
        session = None
        try:
            session = Session(world, rng, world.open())
            kinds = rng.choices([a for _, a in _ACTIONS], [w for w, _ in _ACTIONS], k=rng.randrange(3, 12))
            for action in kinds:
                action(session)
            if ending < 0.9 or last:
                STEPS.pump()
                session.opened.close()
        except PowerCut:
            pass
        except (PenstockError, OSError):
            if not faulty and not world.files.power_is_off:
                raise
        if session is not None:
            session.dead = True
        world.fail_metadata(0, 0, answer_is_lost=False)
        world.kill()  # whatever it holds yet: the process is gone
        STEPS.reset()
