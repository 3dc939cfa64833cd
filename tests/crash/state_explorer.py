"""Cuts the power at the operations of seeded random programs over state, and holds what a reopen finds against what was known.

    python -m tests.crash.state_explorer --states 1000000 --seed 1

As explorer.py for the log, whose states, stepping and budget it shares.
"""

from __future__ import annotations

import argparse
import gc
import os
import random
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context

from penstock.errors import PenstockError
from tests.crash.explorer import Outcome, no_garbage_collection, quiet
from tests.crash.facts import Violation
from tests.crash.state_program import run_program
from tests.crash.state_world import StateWorld
from tests.crash.stepping import STEPS, stepping

_MOMENTS = 0.35  # how many of a program's operations are cut
_AGAIN = 0.2  # how many recoveries are cut as well
_DEPTH_MAX = 2
_SEED_STEP = 1_000_000  # between processes
_GO_ON = 0.06  # how many states are changed, checkpointed, closed and opened once more


def explore(
    seed: int, *, seconds: float | None = None, states: int | None = None, faults: float = 0.3, at_least: int = 0
) -> Outcome:
    """Runs programs `seed`, `seed` + 1, … until either budget is used up, and `at_least` so many states were seen."""
    outcome = Outcome(seed)
    started = time.process_time()
    with stepping(), no_garbage_collection(), quiet():  # checkpoints that fail are what is looked for
        while True:
            if outcome.programs % 8 == 0:
                gc.collect()
            number = seed + outcome.programs
            try:
                _explore_program(number, outcome, faults)
            except BaseException as error:
                error.add_note(f"again with: python -m tests.crash.state_explorer --seed {number} --states 1")
                raise
            outcome.programs += 1
            outcome.seconds = time.process_time() - started
            used_up = (states is not None and outcome.states >= states) or (
                seconds is not None and outcome.seconds >= seconds
            )
            if used_up and outcome.states >= at_least:
                return outcome


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
        world.files.cut()
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


def explore_in_processes(seed: int, states: int, jobs: int) -> Outcome:
    """As `explore`, shared by processes, each with seeds of its own; says how far it is."""
    step = min(-(-states // jobs), 10_000)  # a process is told this many at a time: its memory is given back
    total = Outcome(seed)
    with ProcessPoolExecutor(jobs, max_tasks_per_child=1, mp_context=get_context("spawn")) as pool:
        waiting = [
            pool.submit(explore, seed + number * _SEED_STEP, states=step) for number in range(-(-states // step))
        ]
        for done in as_completed(waiting):
            outcome = done.result()
            total.programs += outcome.programs
            total.states += outcome.states
            total.again += outcome.again
            total.seconds += outcome.seconds
            print(f"{total.states} of {states} states, {total.seconds:.0f} s of CPU", flush=True)
    return total


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--states", type=int, default=None)
    parser.add_argument("--seconds", type=float, default=None, help="of CPU")
    parser.add_argument("--jobs", type=int, default=1, help="processes that share --states")
    parser.add_argument("--no-faults", action="store_true", help="no file operation fails before the power does")
    parser.add_argument(
        "--seed", type=int, default=int(os.environ.get("PENSTOCK_CRASH_SEED") or random.randrange(1 << 40))
    )
    arguments = parser.parse_args()
    states = arguments.states or (None if arguments.seconds else 20_000)
    print(f"seed {arguments.seed}", flush=True)
    if arguments.jobs > 1 and states is not None:
        print(explore_in_processes(arguments.seed, states, arguments.jobs))
        return 0
    faults = 0.0 if arguments.no_faults else 0.3
    print(explore(arguments.seed, seconds=arguments.seconds, states=states, faults=faults))
    return 0


if __name__ == "__main__":
    sys.exit(main())
