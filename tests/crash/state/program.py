"""What a random program does with a log and its state in one session: commits, checkpoints, merges, trims, truncations."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial

from penstock.errors import PenstockError
from penstock.files.memory import DiskFault
from penstock.log import Pending, Position
from penstock.state import StateLost
from tests.crash.framework.program import DEFAULT_FAULTS, Session, Sessions
from tests.crash.framework.promises import must
from tests.crash.state.world import DIRECTORY, Opened, StateWorld
from tests.crash.stepping import STEPS

_VALUES = (b"", b"a", b"value " * 20, b"v" * 700)


class StateSession(Session[StateWorld, Opened]):
    def commit(self) -> None:
        """A group of one to three, each a few puts and deletes."""
        rng = self.rng
        for _ in range(rng.choice((1, 1, 2, 3))):
            edits = {rng.randrange(6): rng.choice((None, *_VALUES)) for _ in range(rng.randrange(1, 4))}
            number = self.facts.next_number
            content = {**self.facts.newest, **edits, "number": number}
            self.facts.commit({key: value for key, value in content.items() if value is not None})
            self.opened.commit(number, edits).add_done_callback(partial(self._committed, number))
        self.let_run()

    def _committed(self, number: int, done: Pending[Position]) -> None:
        if not self.dead and done.exception() is None:
            self.facts.acknowledge(number, done.result())

    def checkpoint(self) -> None:
        self.opened.state.checkpoint()

    def compact(self) -> None:
        self.opened.state.engine.compact()

    def decay(self) -> None:
        """The disk flips a bit of a checkpoint file, also of the only one that is left; a scrub finds and mends it, whatever else goes on."""
        directory = DIRECTORY / "state"
        files = self.world.files
        names = [name for name in files.list(directory) if name.startswith(("run-", "checkpoint-"))]
        if not names:
            return
        if list(self.opened.state.engine.verify()):  # one that a failed scrub left: a second damage may be one too many
            self.opened.state.scrub()
            return
        node = files._names[directory / self.rng.choice(names)]
        at = self.rng.randrange(len(node.content))
        for content in (node.content, node.durable):
            if at < len(content):
                content[at] ^= 1 << self.rng.randrange(8)
        STEPS.pump()
        self.opened.state.scrub()
        must(not list(self.opened.state.engine.verify()), "a scrub left damage behind")

    def roll(self) -> None:
        """A roll begins a checkpoint, which is written beside the next actions."""
        self.opened.log.roll()

    def trim(self) -> None:
        self.opened.log.trim()

    def truncate(self) -> None:
        """Back to a durable entry. Refused where no checkpoint and no entries are left to build its state from."""
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
            if "has no entry" in str(error):  # the entry was trimmed
                self.facts.truncating = None
                return
            raise
        self.facts.truncated(number)

    def look(self) -> None:
        """The live state is that of everything committed."""
        must(self.opened.content() == self.facts.newest, "the live state is not what was committed")


_ACTIONS: tuple[tuple[int, Callable[[StateSession], None]], ...] = (
    (10, StateSession.commit),
    (3, StateSession.checkpoint),
    (1, StateSession.compact),
    (1, StateSession.decay),
    (2, StateSession.roll),
    (1, StateSession.trim),
    (2, StateSession.truncate),
    (1, StateSession.look),
)


def _open(world: StateWorld, rng: random.Random) -> StateSession:
    return StateSession(world, rng, world.open(follower=rng.random() < 0.3))


def _fail_metadata(world: StateWorld, rng: random.Random) -> None:
    world.fail_metadata(rng.randrange(1, 20), unknown=rng.random() < 0.5)


_SESSIONS = Sessions(
    _open,
    _ACTIONS,
    actions_min=4,
    actions_max=16,
    operations_max=120,
    faults=(DiskFault.EIO, DiskFault.ENOSPC, DiskFault.SHORT_WRITE),
    fail_metadata=_fail_metadata,
)


def run_program(world: StateWorld, rng: random.Random, *, faults: float = DEFAULT_FAULTS) -> None:
    """Chooses whether the log is trimmed, then runs a few sessions."""
    world.trims = rng.random() < 0.5
    _SESSIONS.run(world, rng, faults=faults)
