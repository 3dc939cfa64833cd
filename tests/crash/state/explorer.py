"""Cuts the power at the operations of seeded random programs over state, and holds what a reopen finds against what was known.

    python -m tests.crash.state.explorer --states 1000000 --seed 1

As explorer.py for the log.
"""

from __future__ import annotations

import random
import sys

from penstock.errors import PenstockError
from tests.crash.framework.explorer import Outcome, explore_programs, main
from tests.crash.framework.stepping import STEPS
from tests.crash.log.facts import Violation
from tests.crash.state.program import run_program
from tests.crash.state.world import StateWorld

_MOMENTS = 0.35  # how many of a program's operations are cut
_AGAIN = 0.2  # how many recoveries are cut as well
_DEPTH_MAX = 2
_GO_ON = 0.06  # how many states are changed, checkpointed, closed and opened once more


def explore(
    seed: int, *, seconds: float | None = None, states: int | None = None, faults: float = 0.3, at_least: int = 0
) -> Outcome:
    """See `framework.explorer.Explore`."""
    return explore_programs(
        "tests.crash.state.explorer",
        _explore_program,
        seed,
        seconds=seconds,
        states=states,
        faults=faults,
        at_least=at_least,
    )


def _explore_program(seed: int, outcome: Outcome, faults: float) -> None:
    rng, fates = random.Random(seed), random.Random(f"fates {seed}")
    crashed: list[StateWorld] = []

    def moment(world: StateWorld) -> None:
        if fates.random() < _MOMENTS:
            crashed.append(world.crash(fates))

    try:
        run_program(StateWorld(on_moment=moment), rng, faults=faults)
    except (PenstockError, OSError) as error:
        raise Violation(f"the state does not open or go on: {type(error).__name__}: {error}") from error
    for world in crashed:
        _check(world, fates, outcome, 0)


def _check(world: StateWorld, rng: random.Random, outcome: Outcome, depth: int) -> None:
    """Opens the state, and goes on with some of them."""
    outcome.states += 1
    outcome.again += depth > 0
    again: list[StateWorld] = []
    if depth < _DEPTH_MAX and rng.random() < _AGAIN:
        wanted = {rng.randrange(40), rng.randrange(40)}
        counted = 0

        def moment(world: StateWorld) -> None:
            nonlocal counted
            if counted in wanted:
                again.append(world.crash(rng))
            counted += 1

        world.on_moment = moment
    try:
        _open_and_go_on(world, rng)
    except Violation:
        raise
    except Exception as error:
        raise Violation(f"the state does not open or go on: {type(error).__name__}: {error}") from error
    finally:
        world.on_moment = None
        world.files.cut_power()
        STEPS.reset()
    for second in again:
        _check(second, rng, outcome, depth + 1)


def _open_and_go_on(world: StateWorld, rng: random.Random) -> None:
    opened = world.open(follower=rng.random() < 0.04, read_entry=rng.random() < 0.2)
    if rng.random() >= _GO_ON:
        return
    facts = world.facts
    facts.states = dict(facts.states)  # other states share it
    number = facts.next_number
    facts.commit({**facts.newest, 0: b"after", "number": number})
    facts.acknowledge(number, opened.commit(number, {0: b"after"}).result())
    opened.state.checkpoint()
    opened.close()
    if rng.random() < 0.5:
        world.open().close()


if __name__ == "__main__":
    sys.exit(main((__doc__ or "").splitlines()[0], explore))
