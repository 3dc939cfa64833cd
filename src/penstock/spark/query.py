"""One changefeed's streaming query: it runs, publishes, and begins again after errors that may heal.

A run asks the keeper to begin (control.sock), starts a query at the position in the keeper's answer, with a scratch
checkpoint of its own, and publishes each batch's ranges to delivery in order. Whatever ends the query, the next run
starts from the keeper's facts, so nothing here is durable. Transient errors are retried after a growing pause; a
terminal error ends the query and is reported once.

    begin_run ─► running ─► stopped
        ▲           │ transient error, dead worker, stale run
        └── pause ◄─┘ terminal error, or the same unexpected one again and again ─► failed
"""

from __future__ import annotations

import contextlib
import shutil
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.errors import BadInput, PenstockError, TooMuch
from penstock.process import Event
from penstock.spark.failure import PipelineFailure, failure_from_text, find_failure, unexpected_error
from penstock.spark.job import OPTION, Job
from penstock.spark.range_manifest import RangeManifest
from penstock.spark.source import source_of
from penstock.wire import Client

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

Emit = Callable[[dict[str, Any]], None]

PAUSE_SECONDS_FIRST = 0.2
PAUSE_SECONDS_MAX = 5.0
UNEXPECTED_IN_A_ROW_MAX = 4  # after so many failed runs without a published batch, an error counts as terminal
_POLL_SECONDS = 0.25
_PROGRESS_SECONDS = 1.0
_PUBLISH_SECONDS_MAX = 300.0
_BEGIN_SECONDS_MAX = 180.0  # delivery first waits for the writes in flight


class EngineLost(Exception):
    """The JVM has ended; only a new driver process can start another."""


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


class ChangefeedQuery:
    """Runs until `stop` is set or a terminal error comes, which `run` raises as a `PipelineFailure`.

    `job` holds everything but what belongs to a single run: its id, its start and its resume table.
    """

    def __init__(
        self, session: SparkSession, job: Job, *, control: Path, scratch: Path, emit: Emit, stop: threading.Event
    ) -> None:
        self._session = session
        self._job = job
        self._control = Client(control, timeout_seconds=_BEGIN_SECONDS_MAX)
        self._delivery = Client(Path(job.delivery_socket), timeout_seconds=_PUBLISH_SECONDS_MAX)
        self._scratch = scratch / "checkpoints" / job.changefeed
        self._emit = emit
        self._stop = stop
        self._publishing = threading.Lock()
        self._failed: PipelineFailure | None = None
        self._progress_due = 0.0
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
                self._check_engine()
                if not (error.error.transient or error.begin_again):
                    raise
                failure: PenstockError = error.error
                unexpected = 0 if error.error.transient or self.counters.batches > batches else unexpected + 1
                if unexpected >= UNEXPECTED_IN_A_ROW_MAX:
                    raise
            except EngineLost:
                raise
            except Exception as error:  # a bug, a dead worker, or Spark ended the query: a new run may help
                self._check_engine()
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
        """Returns once `stop` is set; raises whatever ends the query before that."""
        try:
            begun = self._control.call("begin_run", changefeed=self._job.changefeed)
        except PenstockError as error:
            raise PipelineFailure(error, "sink") from error
        job = replace(self._job, run=str(begun["run"]), start=begun["start"], resume=begun["resume"])
        job = replace(job, batch_bytes_max=self._batch_bytes)
        run = _Run(job, begun["incarnation"])
        self._failed = None
        self.counters.runs += 1
        checkpoint = self._scratch / f"{job.run}-{time.time_ns()}"
        try:
            query = self._start(run, checkpoint)
            try:
                while not self._stop.is_set():
                    if query.awaitTermination(_POLL_SECONDS):  # type: ignore[arg-type]  # floats are fine
                        raise RuntimeError("the query ended by itself")
            finally:
                with self._publishing:  # lets a publish in progress finish first
                    run.over = True
                with contextlib.suppress(Exception):
                    query.stop()
        except Exception as error:
            if self._failed is not None:
                raise self._failed from None
            if (found := find_failure(str(error))) is not None:
                raise found from None
            raise
        finally:
            shutil.rmtree(checkpoint, ignore_errors=True)
        self._emit_progress(time.monotonic())

    def _start(self, run: _Run, checkpoint: Path) -> StreamingQuery:
        source = source_of(run.job.changefeed)
        self._session.dataSource.register(source)
        rows = self._session.readStream.format(source.name()).option(OPTION, run.job.to_json()).load()
        return (
            rows.writeStream.queryName(f"{run.job.changefeed}-{run.job.run}")
            .foreachBatch(lambda frame, _batch: self._publish(run, frame))
            .option("checkpointLocation", str(checkpoint))
            .start()
        )

    def _publish(self, run: _Run, frame: DataFrame) -> None:
        """Names the attempts that count to delivery, where a repetition has no effect. Spark calls it once a batch, in
        this process."""
        begun = time.perf_counter()
        manifests = sorted((RangeManifest.from_row(row) for row in frame.collect()), key=lambda m: m.start)
        collected = time.perf_counter()
        with self._publishing:
            if run.over or not manifests:
                return
            try:
                for manifest in manifests:
                    if manifest.error:
                        raise failure_from_text(manifest.error)
                self._call_publish(run, manifests)
            except PipelineFailure as error:
                self._failed = error
                raise
        done = time.perf_counter()
        counters = self.counters
        counters.batches += 1
        counters.published_end = str(manifests[-1].end)
        for manifest in manifests:
            counters.rows += manifest.rows
            counters.bytes += manifest.bytes
            counters.read_bytes += manifest.read_bytes
            counters.add_seconds(manifest.seconds)
        counters.add_seconds({"batch": collected - begun, "publish": done - collected})
        self._emit_progress(time.monotonic())

    def _call_publish(self, run: _Run, manifests: list[RangeManifest]) -> None:
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

    def _check_engine(self) -> None:
        """Raises `EngineLost` if the JVM does not answer any more."""
        try:
            self._session.sparkContext._jsc.sc().isStopped()
        except Exception as error:
            raise EngineLost(str(error)) from error


@dataclass
class _Run:
    job: Job
    incarnation: Any
    commit_ts: int = 0  # of the last whole transaction published in this run
    over: bool = False
