"""Cuts the power at the operations of seeded random programs, and holds what a reopen finds against what was known.

    python -m tests.crash.explorer --states 1000000 --seed 1

A program runs once; on the way, crash states of the moment are taken before its operations (every unsynced write kept, lost
or torn, every unsynced name kept or lost), each with the facts of that moment. Then every state is opened, and some of them
are cut again while they recover, and once more.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import logging
import os
import random
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context

from penstock.errors import PenstockError
from tests.crash.facts import Violation
from tests.crash.program import run_program
from tests.crash.stepping import STEPS, stepping
from tests.crash.world import NAMES, PASSING, World, small_limits

_MOMENTS = 0.35  # how many of a program's operations are cut
_AGAIN = 0.2  # how many recoveries are cut as well
_DEPTH_MAX = 2
_SEED_STEP = 1_000_000  # between processes
_GO_ON = 0.15  # how many states are appended to, closed and, some of them, opened once more
_LOOKS = ((), (), ("a",), ("b",))  # which cursors are looked at: most of the cost is theirs


@dataclass
class Outcome:
    """What was looked at."""

    seed: int
    programs: int = 0
    states: int = 0
    again: int = 0  # of the states: cut during the recovery of another one
    seconds: float = 0.0  # of CPU: other work on the machine does not count

    def __str__(self) -> str:
        return (
            f"crash states: {self.states} ({self.again} of them cut during recovery) from {self.programs} programs, "
            f"seed {self.seed}, {self.seconds:.1f} s, {self.states / max(self.seconds, 1e-9):.0f}/s"
        )


def explore(
    seed: int, *, seconds: float | None = None, states: int | None = None, faults: float = 0.3, at_least: int = 0
) -> Outcome:
    """Runs programs `seed`, `seed` + 1, … until either budget is used up, and `at_least` so many states were seen.

    `faults`: the share of sessions in which a file operation fails. Raises `Violation`.
    """
    outcome = Outcome(seed)
    started = time.process_time()
    with (
        stepping(),
        small_limits(),
        no_garbage_collection(),
        quiet(),
    ):  # work that fails and is tried again is the point
        while True:
            if outcome.programs % 8 == 0:
                gc.collect()
            number = seed + outcome.programs
            try:
                _explore_program(number, outcome, faults)
            except BaseException as error:
                error.add_note(f"again with: python -m tests.crash.explorer --seed {number} --states 1")
                raise
            outcome.programs += 1
            outcome.seconds = time.process_time() - started
            used_up = (states is not None and outcome.states >= states) or (
                seconds is not None and outcome.seconds >= seconds
            )
            if used_up and outcome.states >= at_least:
                return outcome


@contextlib.contextmanager
def no_garbage_collection() -> Iterator[None]:
    """It is done between programs instead."""
    gc.collect()
    gc.freeze()  # what was there before is not looked at again
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.unfreeze()


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Failures that are tried again say nothing, here."""
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)


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
        world.files.cut()
        STEPS.reset()
    for second in again:
        _check(second, rng, outcome, depth + 1)


def explore_in_processes(seed: int, states: int, jobs: int) -> list[Outcome]:
    """As `explore`, shared by processes, each with seeds of its own; says how far it is."""
    share = -(-states // jobs)
    step = min(share, 10_000)  # a process is told this many at a time: its memory is given back
    outcomes: list[Outcome] = []
    with ProcessPoolExecutor(jobs, max_tasks_per_child=1, mp_context=get_context("spawn")) as pool:
        waiting = [
            pool.submit(explore, seed + number * _SEED_STEP, states=step) for number in range(-(-states // step))
        ]
        for done in as_completed(waiting):
            if done.exception() is not None:  # told at once, not after all the others
                pool.shutdown(wait=False, cancel_futures=True)
            outcomes.append(done.result())
            total = sum(outcome.states for outcome in outcomes)
            print(f"{total} of {states} states, {sum(o.seconds for o in outcomes):.0f} s of CPU", flush=True)
    return outcomes


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
        outcomes = explore_in_processes(arguments.seed, states, arguments.jobs)
        total = Outcome(arguments.seed)
        for outcome in outcomes:
            total.programs += outcome.programs
            total.states += outcome.states
            total.again += outcome.again
            total.seconds += outcome.seconds
        print(total)
        return 0
    faults = 0.0 if arguments.no_faults else 0.3
    print(explore(arguments.seed, seconds=arguments.seconds, states=states, faults=faults))
    return 0


if __name__ == "__main__":
    sys.exit(main())
