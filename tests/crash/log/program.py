"""Seeded random programs over a log: what its sessions do, how often, and what fails."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from penstock.errors import PenstockError
from penstock.files.memory import DiskFault
from tests.crash.framework.program import DEFAULT_FAULTS, Sessions
from tests.crash.log.actions.acks import Acks
from tests.crash.log.actions.keeping import Keeping
from tests.crash.log.actions.others import Others
from tests.crash.log.world import LogWorld


class LogSession(Others, Acks, Keeping):
    def act(self, action: Callable[[Any], None]) -> None:
        opened = self.opened
        try:
            action(self)
        except PenstockError:
            if self.opened is opened or self.world.files.power_is_off:
                raise  # else another owner came meanwhile

    def truncate(self) -> None:
        """A reader elsewhere may have the list of just before it: it asks at once for what went."""
        watched = self.rng.random() < 0.5
        if watched:
            self.roll()
            self.look_on()
        self.close_made_again()
        opened = self.opened
        try:
            super().truncate()
        except PenstockError:
            if self.opened is not opened and not self.world.files.power_is_off:
                self.world.open_cursors_again(self.opened)
            raise
        if watched:
            self.look_on()

    def close(self) -> None:
        self.act(lambda session: session.opened.close())


_ACTIONS: tuple[tuple[int, Callable[[LogSession], None]], ...] = (
    (20, LogSession.append),
    (12, LogSession.ack),
    (6, LogSession.mark_delete),
    (4, LogSession.ack_each),
    (2, LogSession.clear_backlog),
    (2, LogSession.reset),
    (2, LogSession.read),
    (2, LogSession.look_on),
    (2, LogSession.trim),
    (5, LogSession.come_or_go),
    (4, LogSession.offload),
    (1, LogSession.clear),
    (3, LogSession.truncate),
    (2, LogSession.roll),
    (4, LogSession.append_many),
    (1, LogSession.open_again),
    (4, LogSession.wake_deposed),
    (2, LogSession.pass_time),
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
    world.has_state = not world.trims and rng.random() < 0.6
    world.offloads = rng.random() < 0.5
    _SESSIONS.run(world, rng, faults=faults)
