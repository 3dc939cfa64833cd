"""What a random program does with a log in one session, through its public interface."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Sequence
from functools import partial

from penstock.files.memory import DiskFault
from penstock.log import OffloadInProgress, Pending, Position, Span
from tests.crash.framework.program import DEFAULT_FAULTS, Session, Sessions
from tests.crash.framework.promises import must
from tests.crash.log.facts import CursorFacts
from tests.crash.log.world import NAMES, PASSING, LogWorld, Opened, read_all

_SIZES = (0, 10, 400, 700, 1500)


class LogSession(Session[LogWorld, Opened]):
    def append(self) -> None:
        """A group of one to four."""
        for _ in range(self.rng.choice((1, 1, 2, 4))):
            number = len(self.facts.payloads)
            data = b"%d|" % number + bytes([number % 251]) * self.rng.choice(_SIZES)
            self.facts.submit(data)
            self.opened.append(number, data).add_done_callback(partial(self._appended, number))
        self.let_run()

    def append_many(self) -> None:
        """A batch with one answer. Batches carry no state, so this is done only where the log has none (where it trims)."""
        if not self.world.trims:
            return
        numbers = range(len(self.facts.payloads), len(self.facts.payloads) + self.rng.choice((1, 3, 30)))
        batch = [b"%d|" % number + bytes([number % 251]) * self.rng.choice(_SIZES[:3]) for number in numbers]
        for data in batch:
            self.facts.submit(data)
        self.opened.log.append_many(batch).add_done_callback(partial(self._appended_many, numbers))
        self.let_run()

    def _appended_many(self, numbers: Sequence[int], done: Pending[Span]) -> None:
        if self.dead:
            return
        error = done.exception()
        first = None if error is not None else done.result().first
        for at, number in enumerate(numbers):
            if first is None:
                self.facts.fail(number, error)
            else:
                self.facts.acknowledge(number, Position(first.ledger_id, first.entry_id + at))

    def roll(self) -> None:
        self.opened.log.roll()

    def _appended(self, number: int, done: Pending[Position]) -> None:
        if self.dead:
            return
        error = done.exception()
        if error is None:
            self.facts.acknowledge(number, done.result())
        else:
            self.facts.fail(number, error)

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
        """A cursor that is made, or deleted again. It may hold back a trim; a crash may leave it there or not."""
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
        """Copies all sealed ledgers, whatever the threshold; local files go once the deletion lag is over."""
        if self.world.offloads:
            with contextlib.suppress(OffloadInProgress):
                self.opened.log.offload()

    def clear(self) -> None:
        """Every sealed ledger goes, though cursors may not have passed it: they are moved on."""
        if self.world.trims:
            self.facts.removable = len(self.facts.payloads)
            self.opened.log.clear()
            self.facts.durable = {number: position for number, position, _ in read_all(self.opened.reader)}

    def _send(self, name: str, numbers: set[int], send: Callable[..., Pending[None]], *, forget: bool = False) -> None:
        facts = self.facts.cursors[name]
        version = facts.send(frozenset(numbers) if forget else facts.newest | numbers)
        send(self.opened.cursors[name]).add_done_callback(partial(self._acked, facts, version))
        self.let_run()

    def _acked(self, facts: CursorFacts, version: int, done: Pending[None]) -> None:
        if not self.dead and done.exception() is None:
            self.facts.confirm(facts, version)

    def read(self) -> None:
        """A reader that was open before sees what is durable, and nothing else."""
        found = read_all(self.opened.reader)
        self.facts.check_entries(found)
        must(all(n in self.facts.durable for n, _, _ in found), "a reader sees what is not durable")

    def pass_time(self) -> None:
        self.world.clock.advance(self.rng.choice((0.001, 1.0, 700.0)))


_ACTIONS: tuple[tuple[int, Callable[[LogSession], None]], ...] = (
    (10, LogSession.append),
    (6, LogSession.ack),
    (3, LogSession.mark_delete),
    (2, LogSession.ack_each),
    (1, LogSession.clear_backlog),
    (1, LogSession.reset),
    (1, LogSession.read),
    (1, LogSession.trim),
    (1, LogSession.come_and_go),
    (2, LogSession.offload),
    (1, LogSession.clear),
    (1, LogSession.roll),
    (2, LogSession.append_many),
    (1, LogSession.pass_time),
)


def _open(world: LogWorld, rng: random.Random) -> LogSession:
    return LogSession(world, rng, world.open())


def _fail_metadata(world: LogWorld, rng: random.Random) -> None:
    world.fail_metadata(rng.choice((1, 1, 2, 3, 5, 8)), rng.choice((1, 20, 20)), unknown=rng.random() < 0.5)


_SESSIONS = Sessions(
    _open,
    _ACTIONS,
    actions_min=3,
    actions_max=12,
    operations_max=80,
    faults=(DiskFault.EIO, DiskFault.EIO, DiskFault.ENOSPC, DiskFault.SHORT_WRITE),
    fail_metadata=_fail_metadata,
)


def run_program(world: LogWorld, rng: random.Random, *, faults: float = DEFAULT_FAULTS) -> None:
    """Chooses what the log does by itself, then runs a few sessions."""
    world.trims = rng.random() < 0.5
    world.offloads = rng.random() < 0.5
    _SESSIONS.run(world, rng, faults=faults)
