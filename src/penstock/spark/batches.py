"""The micro-batches of one run: the driver plans them, and each is one Spark job of tasks over ranges.

At most `in_flight_max` jobs run at a time, and their results are given out in the order of the log. So while the last
tasks of a batch finish, those of the next one have the free cores, and a publish waits for nobody.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future, wait
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from penstock.log.position import Position
from penstock.spark.job import Job
from penstock.spark.plan import PlannedRange, Planner, following
from penstock.spark.range_manifest import RangeManifest

if TYPE_CHECKING:
    from penstock.spark.jvm.engine import Engine

IN_FLIGHT_MAX = 2
_CANCEL_AGAIN_SECONDS = 0.5

Task = Callable[[str, Iterable[PlannedRange]], Iterator[RangeManifest]]


def run_partition(job: str, ranges: Iterable[PlannedRange]) -> Iterator[RangeManifest]:
    """The task of a job, in a worker. The decoder and all it needs are imported there alone."""
    from pyspark import TaskContext

    from penstock.spark.task import job_of, run_range

    context = TaskContext.get()
    attempt = int(context.taskAttemptId()) if context is not None else 0
    for taken in ranges:
        yield run_range(job_of(job), taken, attempt)


def warm(engine: Engine) -> None:
    """Has Spark start the process that its workers are forked from, which takes seconds, while the driver plans."""
    with contextlib.suppress(Exception):  # what is wrong comes again in a job that counts
        engine.run("warm", [None], _nothing)


def _nothing(_items: Iterable[None]) -> Iterator[None]:
    return iter(())


@dataclass(slots=True)
class Batch:
    """A batch whose tasks have all ended. `seconds`: how long its job took."""

    manifests: list[RangeManifest] = field(default_factory=list)
    seconds: float = 0.0


class Batches:
    """Used by one thread. `executor` has a thread for each job in flight; `close` takes back what is in flight."""

    def __init__(
        self,
        engine: Engine,
        executor: Executor,
        job: Job,
        planner: Planner,
        *,
        in_flight_max: int = IN_FLIGHT_MAX,
        task: Task = run_partition,
    ) -> None:
        self._engine = engine
        self._executor = executor
        self._planner = planner
        self._offset = job.start_position  # where the next batch starts
        self._group = f"{job.changefeed}-{job.run}"
        self._task = partial(task, job.to_json())
        self._in_flight_max = in_flight_max
        self._in_flight: deque[Future[Batch]] = deque()

    @property
    def in_flight(self) -> int:
        return len(self._in_flight)

    @property
    def has_room(self) -> bool:
        return len(self._in_flight) < self._in_flight_max

    def start_next(self, until: Position | None = None) -> bool:
        """Plans the next batch and starts its job; False where nothing is new. A batch ends at or before `until`."""
        end = self._planner.end_of_batch(self._offset)
        if until is not None:
            end = max(self._offset, min(end, following(until)))
        if end == self._offset:
            return False
        ranges = self._planner.ranges(self._offset, end)
        self._in_flight.append(self._executor.submit(self._run, ranges))
        self._offset = end
        return True

    def next(self, seconds: float) -> Batch | None:
        """The oldest batch in flight, once it is over; None if it is not within `seconds`. Raises what ended its job."""
        if not self._in_flight or not wait([self._in_flight[0]], seconds).done:
            return None
        return self._in_flight.popleft().result()

    def close(self) -> None:
        """Ends the jobs in flight. What they staged belongs to a run that is over."""
        if not self._in_flight:
            return
        for future in self._in_flight:
            future.cancel()
        self._engine.cancel(self._group)
        while wait(self._in_flight, _CANCEL_AGAIN_SECONDS).not_done:  # a job may begin just after it was to end
            self._engine.cancel(self._group)
        self._in_flight.clear()

    def _run(self, ranges: list[PlannedRange]) -> Batch:
        begun = time.perf_counter()
        manifests = self._engine.run(self._group, ranges, self._task)
        return Batch(sorted(manifests, key=lambda m: m.start), time.perf_counter() - begun)
