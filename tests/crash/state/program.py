"""Seeded random programs over a log with state: commits, checkpoints, merges, trims, truncations, in sessions that end cleanly,
by a fault or by kill -9."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial

from penstock.errors import PenstockError
from penstock.files.memory import DiskFault, PowerCut
from penstock.log import Pending, Position
from penstock.state import StateLost
from tests.crash.framework.stepping import STEPS
from tests.crash.log.facts import must
from tests.crash.state.world import Opened, StateWorld

_FAULTS = (
    DiskFault.EIO,
    DiskFault.ENOSPC,
    DiskFault.SHORT_WRITE,
    None,
)  # None: the metadata store does not answer once
_VALUES = (b"", b"a", b"value " * 20, b"v" * 700)
Action = Callable[["Session"], None]


class Session:
    """What one process does, from open to its end."""

    def __init__(self, world: StateWorld, rng: random.Random, opened: Opened) -> None:
        self.world = world
        self.facts = world.facts
        self.rng = rng
        self.opened = opened
        self.dead = False  # what comes from then on is no fact

    def commit(self) -> None:
        """A group of one to three, each a few puts and deletes."""
        rng = self.rng
        for _ in range(rng.choice((1, 1, 2, 3))):
            edits = {rng.randrange(6): rng.choice((None, *_VALUES)) for _ in range(rng.randrange(1, 4))}
            number = self.facts.next_number
            content = {**self.facts.newest, **edits, "number": number}
            self.facts.commit({key: value for key, value in content.items() if value is not None})
            self.opened.commit(number, edits).add_done_callback(partial(self._committed, number))
        if rng.random() < 0.7:
            STEPS.pump()

    def _committed(self, number: int, done: Pending[Position]) -> None:
        if not self.dead and done.exception() is None:
            self.facts.acknowledge(number, done.result())

    def checkpoint(self) -> None:
        self.opened.state.checkpoint()

    def compact(self) -> None:
        self.opened.state.engine.compact()

    def roll(self) -> None:
        """A checkpoint is written beside what comes next."""
        self.opened.log.roll()

    def trim(self) -> None:
        self.opened.log.trim()

    def truncate(self) -> None:
        """Back to an entry that is durable. Refused where its state is gone."""
        STEPS.pump()
        numbers = [number for number in self.facts.chain[: self.facts.durable + 1] if number in self.facts.positions]
        numbers = numbers[-6:]
        if not numbers or self.facts.durable + 1 < len(self.facts.chain):
            return
        number = self.rng.choice(numbers)
        position = self.facts.positions[number]
        self.facts.truncating = number
        try:
            self.opened.state.truncate(position)
        except StateLost:
            self.facts.truncating = None
            return
        except PenstockError as error:
            if "has no entry" in str(error):  # it was trimmed
                self.facts.truncating = None
                return
            raise
        self.facts.truncated(number)

    def look(self) -> None:
        """The live state is that of everything committed."""
        must(self.opened.content() == self.facts.newest, "the live state is not what was committed")


_ACTIONS: tuple[tuple[int, Action], ...] = (
    (10, Session.commit),
    (3, Session.checkpoint),
    (1, Session.compact),
    (2, Session.roll),
    (1, Session.trim),
    (2, Session.truncate),
    (1, Session.look),
)


def run_program(world: StateWorld, rng: random.Random, *, faults: float = 0.3) -> None:
    """Some sessions over the world, the last one closed cleanly."""
    world.trims = rng.random() < 0.5
    sessions = rng.randrange(2, 5)
    for number in range(sessions):
        last = number == sessions - 1
        ending = rng.random()
        if not last and ending < min(0.35, 1 - faults):
            world.files.cut_power_at(world.files.operations + rng.randrange(1, 120))
        faulty = not last and ending > 1 - faults
        if faulty:
            fault = rng.choice(_FAULTS)
            if fault is None:
                world.fail_metadata(rng.randrange(1, 20))
            else:
                world.files.fail_at(world.files.operations + rng.randrange(1, 120), fault)
        session = None
        try:
            session = Session(world, rng, world.open(follower=rng.random() < 0.3))
            kinds = rng.choices([a for _, a in _ACTIONS], [w for w, _ in _ACTIONS], k=rng.randrange(4, 16))
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
        world.fail_metadata(0)
        world.kill()  # whatever it holds yet: the process is gone
        STEPS.reset()
