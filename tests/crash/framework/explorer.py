"""Takes crash states while seeded random programs run, opens each of them, and holds what is found against the facts.

A program runs once. Before some of its operations a crash state of that moment is taken (every unsynced write kept, lost
or torn; every unsynced name kept or lost), with the facts of that moment. Afterwards each state is opened and checked;
some of these recoveries are cut as well, and some of the recoveries from those once more.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import logging
import random
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any, Generic

from penstock.errors import PenstockError
from tests.crash.framework.program import DEFAULT_FAULTS, WorldT
from tests.crash.framework.promises import BROKEN, Violation, raise_broken
from tests.crash.framework.stepping import STEPS

_CUT_SHARE = 0.35  # of a program's operations
_CUT_AGAIN_SHARE = 0.2  # of the recoveries
_DEPTH_MAX = 2
_SEED_STEP = 1_000_000  # between processes
_PROCESS_STATES = 10_000  # a new process takes over after that many: its predecessor's memory is given back


@dataclass
class Outcome:
    """What was looked at."""

    seed: int
    programs: int = 0
    states: int = 0
    again: int = 0  # of the states: those cut during the recovery from another state
    seconds: float = 0.0  # of CPU: other work on the machine does not count

    def __str__(self) -> str:
        return (
            f"crash states: {self.states} ({self.again} of them cut during recovery) from {self.programs} programs, "
            f"seed {self.seed}, {self.seconds:.1f} s, {self.states / max(self.seconds, 1e-9):.0f}/s"
        )


@dataclass(frozen=True)
class Explorer(Generic[WorldT]):
    """An explorer of one thing, made of module-level functions, so that it can be sent to other processes."""

    name: str  # on the command line, `python -m tests.crash NAME`
    what: str  # as errors call it
    make_world: Callable[[], WorldT]
    run_program: Callable[..., None]  # (world, rng, faults=share)
    recover: Callable[[WorldT, random.Random], None]  # opens a crashed world, checks it, and sometimes goes on with it
    surroundings: Callable[[], contextlib.AbstractContextManager[object]]  # held while it explores

    def explore(
        self,
        seed: int,
        *,
        seconds: float | None = None,
        states: int | None = None,
        faults: float = DEFAULT_FAULTS,
    ) -> Outcome:
        """Runs programs `seed`, `seed` + 1, … until so many states were seen or so many seconds of CPU used.

        `faults`: the share of sessions in which an operation fails. Raises `Violation`.
        """
        outcome = Outcome(seed)
        started = time.process_time()
        with self.surroundings(), _no_garbage_collection(), _quiet():
            while True:
                if outcome.programs % 8 == 0:
                    gc.collect()
                number = seed + outcome.programs
                try:
                    self._explore_program(number, outcome, faults)
                except BaseException as error:
                    error.add_note(f"again with: python -m tests.crash {self.name} --seed {number} --states 1")
                    raise
                outcome.programs += 1
                outcome.seconds = time.process_time() - started
                if (states is not None and outcome.states >= states) or (
                    seconds is not None and outcome.seconds >= seconds
                ):
                    return outcome

    def _explore_program(self, seed: int, outcome: Outcome, faults: float) -> None:
        rng, fates = random.Random(seed), random.Random(f"fates {seed}")
        crashed: list[WorldT] = []

        def moment(world: WorldT) -> None:
            if fates.random() < _CUT_SHARE:
                crashed.append(world.crash(fates))

        BROKEN.clear()
        world = self.make_world()
        world.on_moment = moment
        try:
            self.run_program(world, rng, faults=faults)
        except (PenstockError, OSError) as error:
            raise_broken()
            raise self._stopped(error) from error
        raise_broken()
        for world in crashed:
            self._check(world, fates, outcome, 0)

    def _check(self, world: WorldT, rng: random.Random, outcome: Outcome, depth: int) -> None:
        outcome.states += 1
        outcome.again += depth > 0
        again: list[WorldT] = []
        if depth < _DEPTH_MAX and rng.random() < _CUT_AGAIN_SHARE:
            wanted = {rng.randrange(40), rng.randrange(40)}
            counted = 0

            def moment(world: WorldT) -> None:
                nonlocal counted
                if counted in wanted:
                    again.append(world.crash(rng))
                counted += 1

            world.on_moment = moment
        try:
            self.recover(world, rng)
        except Violation:
            raise
        except Exception as error:
            raise_broken()
            raise self._stopped(error) from error
        finally:
            world.on_moment = None
            world.files.cut_power()
            STEPS.reset()
        raise_broken()
        for second in again:
            self._check(second, rng, outcome, depth + 1)

    def _stopped(self, error: Exception) -> Violation:
        return Violation(f"{self.what} does not open or go on: {type(error).__name__}: {error}")

    def explore_in_processes(self, seed: int, states: int, jobs: int) -> Outcome:
        """As `explore`, shared by processes, each with seeds of its own; prints how far it is."""
        step = min(-(-states // jobs), _PROCESS_STATES)
        total = Outcome(seed)
        with ProcessPoolExecutor(jobs, max_tasks_per_child=1, mp_context=get_context("spawn")) as pool:
            waiting = [
                pool.submit(self.explore, seed + number * _SEED_STEP, states=step)
                for number in range(-(-states // step))
            ]
            for done in as_completed(waiting):
                if done.exception() is not None:  # the failure is shown now, not after all the others have finished
                    pool.shutdown(wait=False, cancel_futures=True)
                outcome = done.result()
                total.programs += outcome.programs
                total.states += outcome.states
                total.again += outcome.again
                total.seconds += outcome.seconds
                print(f"{total.states} of {states} states, {total.seconds:.0f} s of CPU", flush=True)
        return total


@contextlib.contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Collecting garbage costs a third of the time; `explore` collects between programs instead."""
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.unfreeze()


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Penstock warns of each failure that it tries again; here most failures are made on purpose."""
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)


def main(explorers: Mapping[str, Explorer[Any]]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.crash", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("explorer", choices=sorted(explorers))
    parser.add_argument("--states", type=int, default=None)
    parser.add_argument("--seconds", type=float, default=None, help="of CPU")
    parser.add_argument("--jobs", type=int, default=1, help="processes that share --states")
    parser.add_argument("--no-faults", action="store_true", help="no operation fails before the power does")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 40))
    arguments = parser.parse_args()
    explorer = explorers[arguments.explorer]
    states = arguments.states or (None if arguments.seconds else 20_000)
    print(f"{explorer.name}: seed {arguments.seed}", flush=True)
    if states is not None and (arguments.jobs > 1 or states > _PROCESS_STATES):
        print(explorer.explore_in_processes(arguments.seed, states, arguments.jobs))
    else:
        faults = 0.0 if arguments.no_faults else DEFAULT_FAULTS
        print(explorer.explore(arguments.seed, seconds=arguments.seconds, states=states, faults=faults))
    return 0
