"""Cuts the power at the operations of seeded random programs, and holds what a reopen finds against what was known.

    python -m tests.crash.log.explorer --states 1000000 --seed 1

A program runs once; on the way, crash states of the moment are taken before its operations (every unsynced write kept, lost
or torn, every unsynced name kept or lost), each with the facts of that moment. Then every state is opened, and some of them
are cut again while they recover, and once more.
"""

from __future__ import annotations

import random
import sys

from penstock.errors import PenstockError
from tests.crash.framework.explorer import Outcome, explore_programs, main
from tests.crash.framework.stepping import STEPS
from tests.crash.log.facts import Violation
from tests.crash.log.program import run_program
from tests.crash.log.world import NAMES, PASSING, World, small_limits

_MOMENTS = 0.35  # how many of a program's operations are cut
_AGAIN = 0.2  # how many recoveries are cut as well
_DEPTH_MAX = 2
_GO_ON = 0.15  # how many states are appended to, closed and, some of them, opened once more
_LOOKS = ((), (), ("a",), ("b",))  # which cursors are looked at: most of the cost is theirs


def explore(
    seed: int, *, seconds: float | None = None, states: int | None = None, faults: float = 0.3, at_least: int = 0
) -> Outcome:
    """See `framework.explorer.Explore`."""
    with small_limits():
        return explore_programs(
            "tests.crash.log.explorer",
            _explore_program,
            seed,
            seconds=seconds,
            states=states,
            faults=faults,
            at_least=at_least,
        )


def _explore_program(seed: int, outcome: Outcome, faults: float) -> None:
    rng, fates = random.Random(seed), random.Random(f"fates {seed}")
    crashed: list[World] = []

    def moment(world: World) -> None:
        if fates.random() < _MOMENTS:
            crashed.append(world.crash(fates))

    try:
        run_program(World(on_moment=moment), rng, faults=faults)
    except (PenstockError, OSError) as error:
        raise Violation(f"the log does not start or go on: {type(error).__name__}: {error}") from error
    for world in crashed:
        _check(world, fates, outcome, 0)


def _check(world: World, rng: random.Random, outcome: Outcome, depth: int) -> None:
    """Opens the state, goes on with it, closes it and, sometimes, opens it once more."""
    outcome.states += 1
    outcome.again += depth > 0
    again: list[World] = []
    if depth < _DEPTH_MAX and rng.random() < _AGAIN:
        wanted = {rng.randrange(40), rng.randrange(40)}
        counted = 0

        def moment(world: World) -> None:
            nonlocal counted
            if counted in wanted:
                again.append(world.crash(rng))
            counted += 1

        world.on_moment = moment
    facts = world.facts
    facts.payloads = facts.payloads[:]  # other states share it
    try:
        go_on = rng.random() < _GO_ON
        names = NAMES if go_on else rng.choice(_LOOKS)
        opened = world.open(names, with_state=go_on or rng.random() < 0.2)
        if go_on:
            number = facts.submit(b"%d|after" % len(facts.payloads))
            facts.acknowledge(number, position := opened.append(number, facts.payloads[number]).result())
            if bytes(next(iter(opened.reader.read(position, position))).data) != facts.payloads[number]:
                raise Violation("what was appended after the crash is not read back")
            if rng.random() < 0.5:
                opened.log.open_cursor(PASSING).clear_backlog().result()
            opened.close()
            if rng.random() < 0.3:
                world.open(names).close()
    except Violation:
        raise
    except Exception as error:
        raise Violation(f"the log does not start or go on: {type(error).__name__}: {error}") from error
    finally:
        world.on_moment = None
        world.files.cut_power()
        STEPS.reset()
    for second in again:
        _check(second, rng, outcome, depth + 1)


if __name__ == "__main__":
    sys.exit(main((__doc__ or "").splitlines()[0], explore))
