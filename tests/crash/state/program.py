"""What a random program does with a log and its state in one session: commits, drops, checkpoints, merges,
trims, truncations; and what a process that follows it sees."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from pathlib import Path

from penstock.errors import PenstockError
from penstock.files.memory import DiskFault
from penstock.log import Pending, Position
from penstock.state import StateLost
from tests.crash.framework.program import DEFAULT_FAULTS, Session, Sessions
from tests.crash.framework.promises import must
from tests.crash.state.world import DIRECTORY, SCRATCH_KEY, Follower, Opened, StateWorld
from tests.crash.stepping import STEPS

_VALUES = (b"", b"a", b"value " * 20, b"v" * 700)


_SCRATCH_KEYS = range(SCRATCH_KEY, SCRATCH_KEY + 2)
_KEYS = (*range(6), *_SCRATCH_KEYS)


class StateSession(Session[StateWorld, Opened]):
    follower: Follower | None = None

    def commit(self) -> None:
        """A group of one to three, each a few puts and deletes."""
        rng = self.rng
        for _ in range(rng.choice((1, 1, 2, 3))):
            self._commit({rng.choice(_KEYS): rng.choice((None, *_VALUES)) for _ in range(rng.randrange(1, 4))})
        self.let_run()

    def _commit(self, edits: dict[int, bytes | None]) -> None:
        number = self.facts.next_number
        content = {**self.facts.newest, **edits, "number": number}
        self.facts.commit({key: value for key, value in content.items() if value is not None})
        self.opened.commit(number, edits).add_done_callback(partial(self._committed, number))

    def drop(self) -> None:
        """The scratch store with what is in it; then there is a new one of its name."""
        if not any(key in self.facts.newest for key in _SCRATCH_KEYS):  # a drop is known by what is gone
            self._commit(dict.fromkeys(_SCRATCH_KEYS, b"to be dropped"))
        followed = self.rng.random() < 0.5
        if followed:
            self.follow()
        self.facts.drops = True
        content = self.facts.newest.items()
        number = self.facts.commit({key: value for key, value in content if key not in _SCRATCH_KEYS})
        self.opened.drop_scratch().add_done_callback(partial(self._committed, number))
        if followed:
            self._commit({SCRATCH_KEY: b"in the new one"})
            self.follow()
        self.let_run()

    def follow(self) -> None:
        """A process that reads: opened once, then it goes on, whatever happens; where its place was trimmed, anew."""
        STEPS.pump()
        if self.facts.durable + 1 < len(self.facts.chain):
            return
        if self.follower is not None:
            try:
                found = self.follower.content()
            except PenstockError:
                if not self.world.trims:
                    raise
                self.follower = None
        if self.follower is None:
            self.follower = Follower(self.world)
            found = self.follower.content()
        must(found == self.facts.newest, "a follower does not see what was committed")

    def _committed(self, number: int, done: Pending[Position]) -> None:
        if not self.dead and done.exception() is None:
            self.facts.acknowledge(number, done.result())

    def checkpoint(self) -> None:
        self.opened.state.checkpoint()

    def compact(self) -> None:
        self.opened.state.engine.compact()

    def decay(self) -> None:
        """The disk flips a bit of a checkpoint file, or one of each manifest; a scrub finds and mends it, whatever else goes on."""
        directory = DIRECTORY / "state"
        files = self.world.files
        names = [name for name in files.list(directory) if name.startswith(("run-", "checkpoint-"))]
        if not names or not self.opened.state.checkpoints():  # what a failed one left is removed by the next
            return
        if list(self.opened.state.engine.verify()):  # one that a failed scrub left: a second damage may be one too many
            self.opened.state.scrub()
            return
        if self.rng.random() < 0.4:  # one copy of each manifest; of its bytes not those that only fill it up
            for name in names:
                if name.startswith("checkpoint-"):
                    half = len(files._names[directory / name].content) // 2
                    self._flip(directory / name, self.rng.choice((0, half)) + self.rng.randrange(200))
        else:
            name = self.rng.choice(names)
            self._flip(directory / name, self.rng.randrange(len(files._names[directory / name].content)))
        STEPS.pump()
        self.opened.state.scrub()
        must(not list(self.opened.state.engine.verify()), "a scrub left damage behind")

    def _flip(self, path: Path, at: int) -> None:
        node = self.world.files._names[path]
        for content in (node.content, node.durable):
            if at < len(content):
                content[at] ^= 1 << self.rng.randrange(8)

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
        self.opened.open_scratch()

    def look(self) -> None:
        """The live state is that of everything committed."""
        must(self.opened.content() == self.facts.newest, "the live state is not what was committed")


_ACTIONS: tuple[tuple[int, Callable[[StateSession], None]], ...] = (
    (10, StateSession.commit),
    (3, StateSession.checkpoint),
    (1, StateSession.compact),
    (1, StateSession.decay),
    (1, StateSession.drop),
    (2, StateSession.follow),
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
