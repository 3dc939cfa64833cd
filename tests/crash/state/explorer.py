"""The crash explorer of bucket state: how a crashed state is opened, checked and gone on with."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from unittest import mock

from penstock.state import state as bucket
from tests.crash.framework.explorer import Explorer
from tests.crash.state.program import run_program
from tests.crash.state.world import StateWorld
from tests.crash.stepping import stepping

_GO_ON_SHARE = 0.06  # of the states: changed, checkpointed, closed and, some of them, opened once more


def _recover(world: StateWorld, rng: random.Random) -> None:
    opened = world.open(follower=rng.random() < 0.04, read_entry=rng.random() < 0.2)
    if rng.random() >= _GO_ON_SHARE:
        return
    facts = world.facts
    facts.states = dict(facts.states)  # other worlds share it
    number = facts.next_number
    facts.commit({**facts.newest, 0: b"after", "number": number})
    facts.acknowledge(number, opened.commit(number, {0: b"after"}).result())
    opened.state.checkpoint()
    opened.close()
    if rng.random() < 0.5:
        world.open().close()


@contextlib.contextmanager
def _surroundings() -> Iterator[None]:
    """A dropped store is emptied key by key, so that there are crashes between the frames of that."""
    with stepping(), mock.patch.object(bucket, "_DROPPED_AT_ONCE", 1):
        yield


EXPLORER = Explorer("state", "the state", StateWorld, run_program, _recover, _surroundings)
