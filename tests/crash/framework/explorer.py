"""What every explorer of crash states shares: budgets, seeds, processes and the command line."""

from __future__ import annotations

import argparse
import contextlib
import gc
import logging
import os
import random
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Protocol

from tests.crash.framework.stepping import stepping

_SEED_STEP = 1_000_000  # between processes
_PROCESS_STATES = 10_000  # a process is told this many at a time: its memory is given back


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


class Explore(Protocol):
    """Runs programs `seed`, `seed` + 1, … until either budget is used up, and `at_least` so many states were seen.

    `faults`: the share of sessions in which a file operation fails. Raises `Violation`.
    """

    def __call__(
        self,
        seed: int,
        *,
        seconds: float | None = None,
        states: int | None = None,
        faults: float = 0.3,
        at_least: int = 0,
    ) -> Outcome: ...


def explore_programs(
    module: str,
    explore_program: Callable[[int, Outcome, float], None],
    seed: int,
    *,
    seconds: float | None = None,
    states: int | None = None,
    faults: float = 0.3,
    at_least: int = 0,
) -> Outcome:
    """As `Explore`, of the programs that `explore_program(seed, outcome, faults)` runs and checks."""
    outcome = Outcome(seed)
    started = time.process_time()
    with stepping(), _no_garbage_collection(), _quiet():
        while True:
            if outcome.programs % 8 == 0:
                gc.collect()
            number = seed + outcome.programs
            try:
                explore_program(number, outcome, faults)
            except BaseException as error:
                error.add_note(f"again with: python -m {module} --seed {number} --states 1")
                raise
            outcome.programs += 1
            outcome.seconds = time.process_time() - started
            used_up = (states is not None and outcome.states >= states) or (
                seconds is not None and outcome.seconds >= seconds
            )
            if used_up and outcome.states >= at_least:
                return outcome


@contextlib.contextmanager
def _no_garbage_collection() -> Iterator[None]:
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
def _quiet() -> Iterator[None]:
    """Failures that are tried again say nothing, here."""
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)


def explore_in_processes(explore: Explore, seed: int, states: int, jobs: int) -> Outcome:
    """As `explore`, shared by processes, each with seeds of its own; says how far it is."""
    step = min(-(-states // jobs), _PROCESS_STATES)
    total = Outcome(seed)
    with ProcessPoolExecutor(jobs, max_tasks_per_child=1, mp_context=get_context("spawn")) as pool:
        waiting = [
            pool.submit(explore, seed + number * _SEED_STEP, states=step) for number in range(-(-states // step))
        ]
        for done in as_completed(waiting):
            if done.exception() is not None:  # told at once, not after all the others
                pool.shutdown(wait=False, cancel_futures=True)
            outcome = done.result()
            total.programs += outcome.programs
            total.states += outcome.states
            total.again += outcome.again
            total.seconds += outcome.seconds
            print(f"{total.states} of {states} states, {total.seconds:.0f} s of CPU", flush=True)
    return total


def main(description: str, explore: Explore) -> int:
    parser = argparse.ArgumentParser(description=description)
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
        print(explore_in_processes(explore, arguments.seed, states, arguments.jobs))
    else:
        faults = 0.0 if arguments.no_faults else 0.3
        print(explore(arguments.seed, seconds=arguments.seconds, states=states, faults=faults))
    return 0
