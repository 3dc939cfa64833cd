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
from penstock.spark.replays import ReplayPlanner, Replays

if TYPE_CHECKING:
    from penstock.spark.jvm.engine import Engine
    from penstock.spark.sql.before_batch import SqlBeforeBatches

IN_FLIGHT_MAX = 2
REPLAY_SHARE = 4  # dispatchers that replay get at most one part in so many of a batch
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
    """A batch whose tasks have all ended. `seconds`: how long its job took. `extras`: of ranges for the dispatchers in
    `replayed` alone; `rejoin`: those that its regular ranges have again. Both by id with their epochs."""

    manifests: list[RangeManifest] = field(default_factory=list)
    seconds: float = 0.0
    extras: list[RangeManifest] = field(default_factory=list)
    replayed: dict[str, int] = field(default_factory=dict)
    rejoin: dict[str, int] = field(default_factory=dict)


class Batches:
    """Used by one thread. `executor` has a thread for each job in flight; `close` takes back what is in flight. `sql`: what
    comes before the tasks, where rules need Spark SQL."""

    def __init__(
        self,
        engine: Engine,
        executor: Executor,
        job: Job,
        planner: Planner,
        *,
        replays: Replays | None = None,
        replay_planner: ReplayPlanner | None = None,
        in_flight_max: int = IN_FLIGHT_MAX,
        task: Task = run_partition,
        sql: SqlBeforeBatches | None = None,
    ) -> None:
        self.replays = replays if replays is not None else Replays()
        self._replay_planner = replay_planner
        self._replay_bytes_max = max(1, job.batch_bytes_max // REPLAY_SHARE)
        self._engine = engine
        self._executor = executor
        self._planner = planner
        self._offset = job.start_position  # where the next batch starts
        self._boundaries = job.boundaries
        self._group = f"{job.changefeed}-{job.run}"
        self._task = partial(task, job.to_json())
        self._sql = sql
        self._in_flight_max = in_flight_max
        self._in_flight: deque[Future[Batch]] = deque()

    @property
    def in_flight(self) -> int:
        return len(self._in_flight)

    @property
    def has_room(self) -> bool:
        return len(self._in_flight) < self._in_flight_max

    def start_next(self, until: Position | None = None, bytes_max: int | None = None) -> bool:
        """Plans the next batch and starts its job; False where nothing is new. A batch ends at or before `until`, where a
        version of the settings does, and takes at most `bytes_max` of the log."""
        start = self._offset
        end = self._planner.end_of_batch(start, bytes_max)
        end = min([end, *(boundary for boundary in self._boundaries if boundary > start)])
        if until is not None:
            end = max(start, min(end, following(until)))
        extras, replayed = self._extra_ranges(bytes_max)
        rejoin = self.replays.rejoin(start)
        if end == start and not extras and not rejoin:
            return False
        if not self.replays and self._replay_planner is not None:
            self._replay_planner.close()
        # Asked each time: the executors of a cluster come and go.
        ranges = self._planner.ranges(start, end, self._engine.parallelism, self.replays.routing)
        self._in_flight.append(self._executor.submit(self._run, [*ranges, *extras], replayed, rejoin))
        self._offset = end
        return True

    def _extra_ranges(self, bytes_max: int | None) -> tuple[list[PlannedRange], dict[str, int]]:
        """What the batch carries for dispatchers that replay: a part of what it may take, so that the others do not wait for it."""
        stretch = self.replays.next(self._offset)
        if stretch is None or self._replay_planner is None:
            return [], {}
        planner = self._replay_planner.at(stretch.start)
        most = self._replay_bytes_max if bytes_max is None else max(1, min(self._replay_bytes_max, bytes_max))
        end = planner.end_of_batch(stretch.start, most)
        if end == stretch.start:
            end = stretch.limit  # no whole transaction lies between them
        end = min([end, stretch.limit, *(boundary for boundary in self._boundaries if boundary > stretch.start)])
        tasks = max(1, self._engine.parallelism // 2)
        self.replays.advance(stretch, end)
        return planner.ranges(stretch.start, end, tasks, stretch.routing), stretch.epochs

    def next(self, seconds: float) -> Batch | None:
        """The oldest batch in flight, once it is over; None if it is not within `seconds`. Raises what ended its job."""
        if not self._in_flight or not wait([self._in_flight[0]], seconds).done:
            return None
        return self._in_flight.popleft().result()

    def close(self) -> None:
        """Ends the jobs in flight. What they staged belongs to a run that is over."""
        if self._replay_planner is not None:
            self._replay_planner.close()
        if not self._in_flight:
            return
        for future in self._in_flight:
            future.cancel()
        self._engine.cancel(self._group)
        while wait(self._in_flight, _CANCEL_AGAIN_SECONDS).not_done:  # a job may begin just after it was to end
            self._engine.cancel(self._group)
        self._in_flight.clear()

    def _run(self, ranges: list[PlannedRange], replayed: dict[str, int], rejoin: dict[str, int]) -> Batch:
        begun = time.perf_counter()
        found = sorted(self._manifests(ranges), key=lambda m: m.start) if ranges else []
        return Batch(
            [manifest for manifest in found if not manifest.extra],
            time.perf_counter() - begun,
            [manifest for manifest in found if manifest.extra],
            replayed,
            rejoin,
        )

    def _manifests(self, ranges: list[PlannedRange]) -> list[RangeManifest]:
        if self._sql is None:
            return self._engine.run(self._group, ranges, self._task)
        seconds = 0.0
        with contextlib.ExitStack() as stack:
            prepared: list[PlannedRange] = []
            # Replays lie elsewhere in the log, where tables may have other versions.
            for extra in (False, True):
                part = [one for one in ranges if one.is_extra is extra]
                if part:
                    made, took = stack.enter_context(self._sql.of(self._group, part))
                    prepared += made
                    seconds += took
            manifests = self._engine.run(self._group, prepared, self._task)
        manifests[0].seconds["sql"] = seconds
        return manifests
