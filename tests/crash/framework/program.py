"""Seeded random programs: sessions over a world that end cleanly, by a fault, by a power cut or by kill -9."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from penstock.errors import PenstockError
from penstock.files.memory import DiskFault, PowerCut
from tests.crash.framework.stepping import STEPS
from tests.crash.framework.world import CrashWorld

DEFAULT_FAULTS = 0.3  # the share of sessions in which an operation fails


class Closable(Protocol):
    def close(self) -> None: ...


WorldT = TypeVar("WorldT", bound=CrashWorld[Any])
OpenedT = TypeVar("OpenedT", bound=Closable)


class Session(Generic[WorldT, OpenedT]):
    """What one process does, from open to its end."""

    def __init__(self, world: WorldT, rng: random.Random, opened: OpenedT) -> None:
        self.world = world
        self.facts = world.facts
        self.rng = rng
        self.opened = opened
        self.dead = False  # an answer that arrives from then on is no fact
        self.faulty = False  # an operation of the disk or the store fails: calls may fail, too

    def let_run(self) -> None:
        """Most times lets background threads finish; else more arrives first, which makes larger groups."""
        if self.rng.random() < 0.7:
            STEPS.pump()

    def act(self, action: Callable[[Any], None]) -> None:
        """Does one thing."""
        action(self)

    def close(self) -> None:
        """Ends cleanly."""
        self.opened.close()


@dataclass(frozen=True)
class Sessions(Generic[WorldT]):
    """How the sessions of a program are made."""

    open: Callable[[WorldT, random.Random], Session[WorldT, Any]]
    actions: Sequence[tuple[int, Callable[[Any], None]]]  # (weight, what the session does)
    actions_min: int
    actions_max: int
    operations_max: int  # a fault or a power cut comes within that many file operations
    faults: Sequence[DiskFault]
    fail_metadata: Callable[[WorldT, random.Random], None]  # chosen three times as often as one of the faults

    def run(self, world: WorldT, rng: random.Random, *, faults: float) -> None:
        """A few sessions, one after another, the last of them closed cleanly. `faults`: see `DEFAULT_FAULTS`."""
        sessions = rng.randrange(2, 5)
        for number in range(sessions):
            self._run_one(world, rng, faults, last=number == sessions - 1)

    def _run_one(self, world: WorldT, rng: random.Random, faults: float, *, last: bool) -> None:
        ending = rng.random()
        if not last and ending < min(0.35, 1 - faults):
            world.files.cut_power_at(world.files.operations + rng.randrange(1, self.operations_max))
        faulty = not last and ending > 1 - faults
        fails_later = False  # the metadata store, once the session is open: opening it alone writes a few times
        if faulty:
            fault = rng.choice((*self.faults, None, None, None))
            if fault is None:
                fails_later = rng.random() < 0.7
                if not fails_later:
                    self.fail_metadata(world, rng)
            else:
                world.files.fail_at(world.files.operations + rng.randrange(1, self.operations_max), fault)
        session = None
        try:
            session = self.open(world, rng)
            session.faulty = faulty
            if fails_later and rng.random() < 0.5:
                self.fail_metadata(world, rng)
            elif fails_later:  # and the disk with it
                world.fail_metadata(1, 20, unknown=rng.random() < 0.3)
                world.files.fail_at(world.files.operations + rng.randrange(1, 12), rng.choice(self.faults))
            weights = [weight for weight, _ in self.actions]
            count = rng.randrange(self.actions_min, self.actions_max)
            for action in rng.choices([action for _, action in self.actions], weights, k=count):
                session.act(action)
            if ending < 0.9 or last:
                STEPS.pump()
                session.close()
        except PowerCut:
            pass
        except (PenstockError, OSError):
            if not faulty and not world.files.power_is_off:
                raise
        if session is not None:
            session.dead = True
        world.mend_metadata()
        world.kill(rng)  # a session that did not close is ended by kill -9
        STEPS.reset()
