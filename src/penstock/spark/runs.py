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
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.errors import BadInput, PenstockError, StaleRun, TooMuch
from penstock.log.position import Position
from penstock.process import Event
from penstock.schema.model import TableSchema
from penstock.spark.batches import IN_FLIGHT_MAX, Batch, Batches, Task, run_partition
from penstock.spark.failure import PipelineFailure, failure_from_text, unexpected_error
from penstock.spark.job import Job
from penstock.spark.jvm.engine import Engine, EngineLost
from penstock.spark.log_follower import LogFollower
from penstock.spark.plan import Growth, Planner
from penstock.spark.range_manifest import RangeManifest
from penstock.spark.replays import ReplayPlanner, Replays
from penstock.wire import Client

if TYPE_CHECKING:
    from penstock.spark.sql.before_batch import SqlBeforeBatches

Emit = Callable[[dict[str, Any]], None]

PAUSE_SECONDS_FIRST = 0.2
PAUSE_SECONDS_MAX = 5.0
UNEXPECTED_IN_A_ROW_MAX = 4  # after so many failed runs without a published batch, an error counts as terminal
_POLL_SECONDS = 0.1  # between two looks at the log, where nothing is new
_CHECK_SECONDS = 1.0  # between two looks whether the JVM is there, where nothing runs
_PROGRESS_SECONDS = 1.0
WAITED_FOR_TASKS, WAITED_FOR_LOG, WAITED_FOR_SINK = "waited for tasks", "waited for the log", "waited for the sink"
_PUBLISH_SECONDS_MAX = 300.0
_BEGIN_SECONDS_MAX = 180.0  # delivery first waits for the writes in flight


@dataclass
class Counters:
    """Counted since the driver started. `stage_seconds` is the sum over all tasks: on two cores it grows up to twice as
    fast as the clock. What the driver itself waits for is under `WAITED_FOR_…`: together with `publish` it is the clock."""

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
        self._again = threading.Event()  # the run is to end, and the next one to begin
        self._threads = ThreadPoolExecutor(IN_FLIGHT_MAX, thread_name_prefix=f"job-{job.changefeed}")
        self._progress_due = 0.0
        self._check_due = 0.0
        self._batch_bytes = job.batch_bytes_max
        self._growth = Growth()
        self.counters = Counters()

    @property
    def changefeed(self) -> str:
        return self._job.changefeed

    def begin_again(self) -> None:
        """Ends the run that is under way; the next one tries again what stopped in it. From any thread."""
        self._again.set()

    def run(self) -> None:
        try:
            self._run()
        finally:
            self._threads.shutdown(wait=False)
            self._control.close()
            self._delivery.close()

    def _run(self) -> None:
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
        self._again.clear()
        try:
            begun = self._control.call("begin_run", changefeed=self._job.changefeed)
        except PenstockError as error:
            raise PipelineFailure(error, "sink") from error
        job = replace(
            self._job,
            run=str(begun["run"]),
            start=begun["start"],
            resume=begun["resume"],
            settings=tuple(begun.get("settings", ())),
        )
        run = _Run(replace(job, batch_bytes_max=max(1, self._batch_bytes // IN_FLIGHT_MAX)), begun["incarnation"])
        self.counters.runs += 1
        with closing(self._follower(run.job)) as follower:
            sql = self._sql_of(run.job, follower)
            begins_batch = sql.touches if sql is not None else _never
            planner = Planner(follower.more, run.job.plan_settings, follower.in_force(), begins_batch)
            # After a refusal one batch at a time: a second one could be refused for the room that the first takes, and the
            # run that follows would lose both.
            most = IN_FLIGHT_MAX if self._batch_bytes == self._job.batch_bytes_max else 1
            batches = Batches(
                self._engine,
                self._threads,
                run.job,
                planner,
                replays=Replays.of(run.job.resume),
                replay_planner=ReplayPlanner(partial(self._follower, run.job), run.job.plan_settings, begins_batch),
                in_flight_max=most,
                task=self._task,
                sql=sql,
            )
            with closing(batches):
                while not self._stop.is_set():
                    if self._again.is_set():
                        again = StaleRun("it was asked to begin again", hint="go back to the resume table")
                        raise PipelineFailure(again, "sink")
                    self._turn(run, batches)
        self._emit_progress(time.monotonic())

    def _sql_of(self, job: Job, follower: LogFollower) -> SqlBeforeBatches | None:
        """None where no rule needs Spark SQL. A statement that Spark does not understand ends the changefeed here, before a row
        moves."""
        if not job.has_sql:
            return None
        from penstock.spark.sql.before_batch import SqlBeforeBatches

        try:
            sql = SqlBeforeBatches(self._engine, job)
            sql.check(follower.in_force())
        except PenstockError as error:
            raise PipelineFailure(error, "config") from error
        return sql

    def _follower(self, job: Job, start: Position | None = None) -> LogFollower:
        job.configure_cache()
        try:
            start = start or job.start_position
            return LogFollower.open(job.log_directory, start, read_attempts_max=job.read_attempts_max)
        except PenstockError as error:
            raise PipelineFailure(error, "source") from error

    def _turn(self, run: _Run, batches: Batches) -> None:
        """Starts the jobs that may start, and publishes a batch that is over."""
        started = batches.has_room and self._start_next(run, batches)
        begun = time.perf_counter()
        if batches.in_flight:
            batch = batches.next(0.0 if started and batches.has_room else _POLL_SECONDS)
            self.counters.add_seconds({WAITED_FOR_TASKS: time.perf_counter() - begun})
            if batch is not None:
                self._publish(run, batch)
            return
        now = time.monotonic()
        if not (started or run.suppressed or run.was_idle):
            run.was_idle = True  # what an earlier run failed at is over, though no batch says so
            self._emit_progress(now, at_once=True)
        if now >= self._check_due:
            self._check_due = now + _CHECK_SECONDS
            self._engine.check()
        self._stop.wait(_POLL_SECONDS)
        waited = WAITED_FOR_SINK if run.suppressed else WAITED_FOR_LOG
        self.counters.add_seconds({waited: time.perf_counter() - begun})

    def _start_next(self, run: _Run, batches: Batches) -> bool:
        """False while delivery is suppressed, or nothing new is complete. A full delivery may still ask for the rows that an
        open file waits for: the batch then ends with them."""
        try:
            pressure = self._delivery.call("pressure", changefeed=run.job.changefeed, run=run.job.run)
        except PenstockError as error:
            raise PipelineFailure(error, "sink") from error
        run.suppressed = bool(pressure["suppressed"])
        if run.suppressed:
            return False
        batches.replays.note(pressure["left_out"])
        self._begin_replays(run, batches, [each for each in pressure["replay"] if not batches.replays.replays(each)])
        until, room = pressure["until"], pressure["room_bytes"] // IN_FLIGHT_MAX
        try:
            if until is not None:  # rows that delivery takes whatever room it has
                return batches.start_next(Position.parse(until))
            return batches.start_next(bytes_max=self._growth.raw_bytes(room))
        except PenstockError as error:
            raise PipelineFailure(error, "source") from error

    def _begin_replays(self, run: _Run, batches: Batches, dispatchers: list[str]) -> None:
        """Dispatchers that were left out are read again beside the run. Order: (1) their new epochs are durable at the keeper; (2)
        delivery takes what comes of them with these, and nothing else; (3) they are planned. Whatever fails ends the run."""
        if not dispatchers:
            return
        job = run.job
        try:
            answer = self._control.call("begin_replay", changefeed=job.changefeed, run=job.run, dispatchers=dispatchers)
            found = answer["dispatchers"]
            self._delivery.call("replay", changefeed=job.changefeed, run=job.run, dispatchers=found)
        except PenstockError as error:
            raise PipelineFailure(error, "sink", begin_again=isinstance(error, BadInput)) from error
        for dispatcher, value in found.items():
            facts, intent = value["facts"], value["facts"]["intent"]
            resume = {
                "epoch": facts["epoch"],
                "progress": facts["progress"],
                "intent_last_seq": intent["last_seq"] if intent else None,
            }
            batches.replays.begin(dispatcher, Position.parse(value["start"]), resume)

    def _publish(self, run: _Run, batch: Batch) -> None:
        """Names the attempts that count to delivery, where a repetition has no effect."""
        begun = time.perf_counter()
        manifests = [*batch.manifests, *batch.extras]
        self._growth.note(manifests)
        for manifest in manifests:
            if manifest.error:
                raise failure_from_text(manifest.error)
        self._call_publish(run, batch)
        counters = self.counters
        counters.batches += 1
        if batch.manifests:
            counters.published_end = str(batch.manifests[-1].end)
        for manifest in manifests:
            counters.rows += manifest.rows
            counters.bytes += manifest.bytes
            counters.read_bytes += manifest.read_bytes
            counters.add_seconds(manifest.seconds)
        counters.add_seconds({"batch": batch.seconds, "publish": time.perf_counter() - begun})
        self._emit_progress(time.monotonic())

    def _call_publish(self, run: _Run, batch: Batch) -> None:
        ranges = []
        for manifest in batch.manifests:
            run.commit_ts = max(run.commit_ts, manifest.commit_ts)
            ranges.append({**_named(manifest), "commit_ts": run.commit_ts, "held": manifest.held})
        extras = [{**_named(manifest), "commit_ts": 0, "dispatchers": batch.replayed} for manifest in batch.extras]
        try:
            self._delivery.call(
                "publish",
                changefeed=run.job.changefeed,
                run=run.job.run,
                incarnation=run.incarnation,
                ranges=ranges,
                extras=extras,
                rejoin=batch.rejoin,
            )
        except PenstockError as error:
            # Delivery refused the batch as a whole. A new run may split it into other ranges and payloads; how often
            # that is tried is limited by UNEXPECTED_IN_A_ROW_MAX.
            raise PipelineFailure(error, "sink", begin_again=isinstance(error, BadInput)) from error

    def _emit_progress(self, now: float, *, at_once: bool = False) -> None:
        if at_once or now >= self._progress_due or self._stop.is_set():
            self._progress_due = now + _PROGRESS_SECONDS
            self._emit({"event": Event.PROGRESS, "changefeed": self._job.changefeed, **self.counters.to_json()})


def _never(_table: TableSchema) -> bool:
    return False


def _named(manifest: RangeManifest) -> dict[str, Any]:
    return {
        "start": str(manifest.start),
        "end": str(manifest.end),
        "attempt": manifest.attempt,
        "payloads": manifest.payloads,
    }


@dataclass
class _Run:
    job: Job
    incarnation: Any
    commit_ts: int = 0  # of the last whole transaction published in this run
    suppressed: bool = False  # delivery asked for nothing more, when it was asked last
    was_idle: bool = False  # it once had nothing to do
