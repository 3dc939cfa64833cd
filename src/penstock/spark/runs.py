"""The runs of one changefeed: each plans batches and publishes them; after an error that may heal, the next one begins.

A run asks the keeper to begin (control.sock), follows the log from the position in the keeper's answer, has each batch
of it run as a Spark job (batches.py), and publishes the batches' ranges to delivery in order. Whatever ends a run, the
next one starts from the keeper's facts, so nothing here is durable. Transient errors are retried after a growing pause;
a terminal error ends the changefeed and is reported once.

    begin_run ─► running ─► stopped
        ▲           │ transient error, dead worker, stale run
        └── pause ◄─┘ terminal error, or the same unexpected one again and again ─► failed
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from penstock.errors import BadInput, PenstockError, TooMuch
from penstock.log.position import Position
from penstock.process import Event
from penstock.spark.batches import IN_FLIGHT_MAX, Batch, Batches, Task, run_partition
from penstock.spark.failure import PipelineFailure, failure_from_text, unexpected_error
from penstock.spark.job import Job
from penstock.spark.jvm.engine import Engine, EngineLost
from penstock.spark.log_follower import LogFollower
from penstock.spark.plan import Planner
from penstock.spark.range_manifest import RangeManifest
from penstock.wire import Client

Emit = Callable[[dict[str, Any]], None]

PAUSE_SECONDS_FIRST = 0.2
PAUSE_SECONDS_MAX = 5.0
UNEXPECTED_IN_A_ROW_MAX = 4  # after so many failed runs without a published batch, an error counts as terminal
_POLL_SECONDS = 0.1  # between two looks at the log, where nothing is new
_CHECK_SECONDS = 1.0  # between two looks whether the JVM is there, where nothing runs
_PROGRESS_SECONDS = 1.0
_PUBLISH_SECONDS_MAX = 300.0
_BEGIN_SECONDS_MAX = 180.0  # delivery first waits for the writes in flight


@dataclass
class Counters:
    """Counted since the driver started. `stage_seconds` is the sum over all tasks: on two cores it grows up to twice as
    fast as the clock."""

    rows: int = 0
    bytes: int = 0
    read_bytes: int = 0
    batches: int = 0
    runs: int = 0
    published_end: str | None = None
    stage_seconds: dict[str, float] = field(default_factory=dict)

    def add_seconds(self, seconds: dict[str, float]) -> None:
        for stage, value in seconds.items():
            self.stage_seconds[stage] = self.stage_seconds.get(stage, 0.0) + value

    def to_json(self) -> dict[str, Any]:
        seconds = {stage: round(value, 3) for stage, value in self.stage_seconds.items()}
        return {**self.__dict__, "stage_seconds": seconds}


def next_batch_bytes(batch_bytes: int, failure: PenstockError, most: int) -> int:
    """How large a batch of the next run may be: half of those that delivery had no room for, else what is configured. In the
    end that is one entry, which delivery takes whatever its quota, once nothing else is there."""
    if isinstance(failure, TooMuch):
        return max(1, batch_bytes // 2)
    return most


class ChangefeedRuns:
    """Runs until `stop` is set or a terminal error comes, which `run` raises as a `PipelineFailure`.

    `job` holds everything but what belongs to a single run: its id, its start and its resume table.
    """

    def __init__(
        self, engine: Engine, job: Job, *, control: Path, emit: Emit, stop: threading.Event, task: Task = run_partition
    ) -> None:
        self._engine = engine
        self._job = job
        self._task = task
        self._control = Client(control, timeout_seconds=_BEGIN_SECONDS_MAX)
        self._delivery = Client(Path(job.delivery_socket), timeout_seconds=_PUBLISH_SECONDS_MAX)
        self._emit = emit
        self._stop = stop
        self._threads = ThreadPoolExecutor(IN_FLIGHT_MAX, thread_name_prefix=f"job-{job.changefeed}")
        self._progress_due = 0.0
        self._check_due = 0.0
        self._batch_bytes = job.batch_bytes_max
        self.counters = Counters()

    @property
    def changefeed(self) -> str:
        return self._job.changefeed

    def run(self) -> None:
        pause = PAUSE_SECONDS_FIRST
        unexpected = 0
        while not self._stop.is_set():
            batches = self.counters.batches
            try:
                self._one_run()
            except PipelineFailure as error:
                self._engine.check()
                if not (error.error.transient or error.begin_again):
                    raise
                failure: PenstockError = error.error
                unexpected = 0 if error.error.transient or self.counters.batches > batches else unexpected + 1
                if unexpected >= UNEXPECTED_IN_A_ROW_MAX:
                    raise
            except EngineLost:
                raise
            except Exception as error:  # a bug, a dead worker, or Spark gave the job up: a new run may help
                self._engine.check()
                failure = unexpected_error(str(error))
                unexpected = 0 if failure.transient or self.counters.batches > batches else unexpected + 1
                if unexpected >= UNEXPECTED_IN_A_ROW_MAX:
                    raise PipelineFailure(failure, "source") from error
            if self._stop.is_set():
                return
            self._batch_bytes = next_batch_bytes(self._batch_bytes, failure, self._job.batch_bytes_max)
            self._emit(
                {
                    "event": Event.RESTART,
                    "changefeed": self._job.changefeed,
                    "kind": failure.kind,
                    "message": failure.message,
                }
            )
            pause = PAUSE_SECONDS_FIRST if self.counters.batches > batches else min(2 * pause, PAUSE_SECONDS_MAX)
            self._stop.wait(pause)

    def _one_run(self) -> None:
        """Returns once `stop` is set; raises whatever ends the run before that."""
        try:
            begun = self._control.call("begin_run", changefeed=self._job.changefeed)
        except PenstockError as error:
            raise PipelineFailure(error, "sink") from error
        job = replace(self._job, run=str(begun["run"]), start=begun["start"], resume=begun["resume"])
        run = _Run(replace(job, batch_bytes_max=max(1, self._batch_bytes // IN_FLIGHT_MAX)), begun["incarnation"])
        self.counters.runs += 1
        with closing(self._follower(run.job)) as follower:
            planner = Planner(follower.more, run.job.plan_settings, follower.in_force())
            # After a refusal one batch at a time: a second one could be refused for the room that the first takes, and the
            # run that follows would lose both.
            most = IN_FLIGHT_MAX if self._batch_bytes == self._job.batch_bytes_max else 1
            batches = Batches(self._engine, self._threads, run.job, planner, in_flight_max=most, task=self._task)
            with closing(batches):
                while not self._stop.is_set():
                    self._turn(run, batches)
        self._emit_progress(time.monotonic())

    def _follower(self, job: Job) -> LogFollower:
        job.configure_cache()
        try:
            return LogFollower.open(job.log_directory, job.start_position, read_attempts_max=job.read_attempts_max)
        except PenstockError as error:
            raise PipelineFailure(error, "source") from error

    def _turn(self, run: _Run, batches: Batches) -> None:
        """Starts the jobs that may start, and publishes a batch that is over."""
        started = batches.has_room and self._start_next(run, batches)
        if batches.in_flight:
            batch = batches.next(0.0 if started and batches.has_room else _POLL_SECONDS)
            if batch is not None:
                self._publish(run, batch)
            return
        now = time.monotonic()
        if now >= self._check_due:
            self._check_due = now + _CHECK_SECONDS
            self._engine.check()
        self._stop.wait(_POLL_SECONDS)

    def _start_next(self, run: _Run, batches: Batches) -> bool:
        """False while delivery is suppressed, or nothing new is complete. A full delivery may still ask for the rows that an
        open file waits for: the batch then ends with them."""
        try:
            pressure = self._delivery.call("pressure", changefeed=run.job.changefeed, run=run.job.run)
        except PenstockError as error:
            raise PipelineFailure(error, "sink") from error
        if pressure["suppressed"]:
            return False
        try:
            return batches.start_next(Position.parse(pressure["until"]) if pressure["until"] is not None else None)
        except PenstockError as error:
            raise PipelineFailure(error, "source") from error

    def _publish(self, run: _Run, batch: Batch) -> None:
        """Names the attempts that count to delivery, where a repetition has no effect."""
        begun = time.perf_counter()
        for manifest in batch.manifests:
            if manifest.error:
                raise failure_from_text(manifest.error)
        self._call_publish(run, batch.manifests)
        counters = self.counters
        counters.batches += 1
        counters.published_end = str(batch.manifests[-1].end)
        for manifest in batch.manifests:
            counters.rows += manifest.rows
            counters.bytes += manifest.bytes
            counters.read_bytes += manifest.read_bytes
            counters.add_seconds(manifest.seconds)
        counters.add_seconds({"batch": batch.seconds, "publish": time.perf_counter() - begun})
        self._emit_progress(time.monotonic())

    def _call_publish(self, run: _Run, manifests: Sequence[RangeManifest]) -> None:
        ranges = []
        for manifest in manifests:
            run.commit_ts = max(run.commit_ts, manifest.commit_ts)
            ranges.append(
                {
                    "start": str(manifest.start),
                    "end": str(manifest.end),
                    "attempt": manifest.attempt,
                    "payloads": manifest.payloads,
                    "commit_ts": run.commit_ts,
                }
            )
        try:
            self._delivery.call(
                "publish",
                changefeed=run.job.changefeed,
                run=run.job.run,
                incarnation=run.incarnation,
                ranges=ranges,
            )
        except PenstockError as error:
            # Delivery refused the batch as a whole. A new run may split it into other ranges and payloads; how often
            # that is tried is limited by UNEXPECTED_IN_A_ROW_MAX.
            raise PipelineFailure(error, "sink", begin_again=isinstance(error, BadInput)) from error

    def _emit_progress(self, now: float) -> None:
        if now >= self._progress_due or self._stop.is_set():
            self._progress_due = now + _PROGRESS_SECONDS
            self._emit({"event": Event.PROGRESS, "changefeed": self._job.changefeed, **self.counters.to_json()})


@dataclass
class _Run:
    job: Job
    incarnation: Any
    commit_ts: int = 0  # of the last whole transaction published in this run
