"""Delivery of one changefeed: runs, staging and publishing before the spool, writers after it.

The order of a publish: (1) everything is checked, nothing is changed; (2) the keeper has the range and its new
dispatchers durably; (3) the payloads are in the spool. A repetition after any of these steps has no further effect.
`_lock` is never held during a call to the keeper: `begin_run` must not wait for a publish that waits for the keeper.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from penstock.clock import Clock
from penstock.delivery.dispatcher import Dispatcher
from penstock.delivery.keeper_client import KeeperApi, LastRow
from penstock.delivery.payload import Payload, StageKey
from penstock.delivery.settings import FlushSettings
from penstock.delivery.spool import DrainMarker, PayloadItem, Spool, SpoolLimits
from penstock.delivery.staging import PublishRange, Staging
from penstock.delivery.storage.checkpoint import METADATA_SECONDS_MIN, CheckpointFile
from penstock.delivery.target import Target
from penstock.delivery.writer import Writer
from penstock.errors import BadInput, Closed, PenstockError, StaleRun, Terminal, Unavailable, fresh
from penstock.log.position import Seq
from penstock.observe.metrics import METRICS, Metrics


@dataclass(slots=True)
class PublishStats:
    """Counted since the process started."""

    ranges_published: int = 0
    payloads_published: int = 0
    payloads_behind_progress: int = 0


class ChangefeedDelivery:
    """Everything that delivery does for one changefeed. Thread-safe. The first run calls `open_target`, which claims
    the sink's prefix."""

    def __init__(
        self,
        name: str,
        *,
        incarnation: str,
        keeper: KeeperApi,
        open_target: Callable[[], tuple[Target, CheckpointFile]],
        flush: FlushSettings,
        limits: SpoolLimits,
        clock: Clock,
        writers: int,
        metrics: Metrics = METRICS,
    ) -> None:
        self.name = name
        self.stats = PublishStats()
        self.spool = Spool(limits)
        self.writer: Writer | None = None
        metrics.spool_memory_bytes.labels(name).set_function(lambda: self.spool.bytes)
        metrics.spool_suppressed.labels(name).set_function(lambda: float(self.pressure()["suppressed"]))
        self._incarnation = incarnation
        self._keeper = keeper
        self._open_target = open_target
        self._flush = flush
        self._clock = clock
        self._writers = writers
        self._metrics = metrics
        self._lock = threading.Lock()  # protects the run: `_staging` and `_loaded`
        self._publishing = threading.Lock()  # one publish at a time
        self._beginning = threading.Lock()  # one begin_run at a time
        self._staging: Staging | None = None
        self._loaded = False  # the writer has the dispatchers that the keeper knew when the run began
        self._wakes_due = 0  # enqueued wakes that have not run; the spool keeps them back
        self._wake_lock = threading.Lock()  # taken last: the spool may run a wake during a publish
        self._checkpoint: CheckpointFile | None = None
        self._checkpoint_lock = threading.Lock()
        self._checkpoint_ts = 0
        self._checkpoint_error: str | None = None
        self._closing = threading.Event()
        self._ticker: threading.Thread | None = None

    # ---- runs

    def begin_run(self, run: str) -> dict[str, Any]:
        """Refuses older runs from here on. Returns once their writes have ended and the rest of them is discarded."""
        with self._beginning:
            over = StaleRun(f"{self.name}: run {run} began", hint="go back to the resume table")
            with self._lock:
                if self._closing.is_set():
                    raise Closed(f"delivery of {self.name} is closed")
                old, self._staging = self._staging, Staging(run)
                self._loaded = False
            if self.writer is None:
                self._open()
            assert self.writer is not None
            if old is not None:
                self.spool.stage(-old.discard())
            self.writer.reset(over)
            return {"incarnation": self._incarnation, "published_end": None}

    def _open(self) -> None:
        try:
            target, self._checkpoint = self._open_target()
        except PenstockError:
            with self._lock:
                self._staging = None
            raise
        self.writer = Writer(
            self.spool,
            target,
            self._flush,
            self._clock,
            threads=self._writers,
            on_checkpoint=self._offer_checkpoint,
            metrics=self._metrics,
        )
        if self._writers:
            self._ticker = threading.Thread(target=self._tick, name=f"checkpoint-{self.name}", daemon=True)
            self._ticker.start()

    # ---- staging and publishing

    def stage(self, key: StageKey, payload: Payload) -> None:
        with self._lock:
            size = self._current(key.run).stage(key, payload)
        self.spool.stage(size)

    def publish(self, run: str, incarnation: str, named: list[PublishRange]) -> int:
        """Returns the number of accepted ranges, repetitions included."""
        if incarnation != self._incarnation:
            raise StaleRun(f"{self.name}: incarnation {incarnation} of delivery is gone", hint="begin a new run")
        with self._publishing:
            writer = self._load(run)
            with self._lock:
                staging = self._current(run)
                fresh = staging.check(named)
                payloads = {each: staging.peek(each) for each in fresh}
            self._check_order(writer, [p for each in fresh for p in payloads[each]])
            for each in fresh:
                self._publish_one(writer, staging, each, payloads[each])
        return len(named)

    def _publish_one(self, writer: Writer, staging: Staging, named: PublishRange, payloads: list[Payload]) -> None:
        last = {p.dispatcher: LastRow(p.last_seq, p.schema, p.table) for p in payloads}
        self._keeper.published(
            self.name, staging.run, start=named.start, end=named.end, commit_ts=named.commit_ts, last=last
        )
        with self._lock:
            self._current(staging.run)  # raises if another run began meanwhile: it has discarded these payloads
            taken, leftovers = staging.take(named)
            self.spool.unstage(taken)
            behind = self._enqueue(writer, payloads)
        self.stats.ranges_published += 1
        self.stats.payloads_published += len(payloads)
        self.stats.payloads_behind_progress += behind
        self.spool.stage(-leftovers)
        writer.notify()

    def _enqueue(self, writer: Writer, payloads: list[Payload]) -> int:
        """One wake per dispatcher. Leaves out payloads at or below progress, which are at the sink already; their
        number."""
        now = self._clock.monotonic()
        queues: dict[str, list[PayloadItem]] = {}
        behind = 0
        for payload in payloads:
            dispatcher = writer.dispatchers.get(payload.dispatcher)
            if dispatcher is None:
                dispatcher = Dispatcher(payload.dispatcher, payload.epoch, payload.schema, payload.table)
                writer.add(dispatcher)
            if dispatcher.enqueued is not None and payload.last_seq <= dispatcher.enqueued:
                behind += 1
                continue
            dispatcher.enqueued = payload.last_seq
            queues.setdefault(payload.dispatcher, []).append(PayloadItem(payload, now))
        for identity, items in queues.items():
            self._count_wake(1)
            self.spool.enqueue(identity, items, wake=lambda: self._count_wake(-1))
        return behind

    def _count_wake(self, change: int) -> None:
        with self._wake_lock:
            self._wakes_due += change

    def _check_order(self, writer: Writer, payloads: list[Payload]) -> None:
        """Refuses payloads that would break the order or an open intent, before anything is changed."""
        reached: dict[str, Seq] = {}
        for payload in payloads:
            known = writer.dispatchers.get(payload.dispatcher)
            if known is not None:
                self._check_against(known, payload)
            before = reached.get(payload.dispatcher)
            if before is not None and payload.first_seq <= before:
                raise BadInput(f"publish: {payload} comes after {before}", hint="payloads of a range go by seq")
            reached[payload.dispatcher] = payload.last_seq

    @staticmethod
    def _check_against(known: Dispatcher, payload: Payload) -> None:
        if payload.epoch != known.epoch:
            raise StaleRun(f"publish: {payload} is of epoch {payload.epoch}, not {known.epoch}", hint="begin a new run")
        if (payload.schema, payload.table) != (known.schema, known.table):
            raise BadInput(f"publish: {payload} names the dispatcher of {known.schema}.{known.table}")
        for what, edge in (("progress", known.enqueued), ("the open file", known.barrier)):
            if edge is not None and payload.first_seq <= edge < payload.last_seq:
                raise BadInput(
                    f"publish: {payload} straddles {what} at {edge}",
                    hint="nothing was published; a task cuts its payloads at the resume table",
                )

    def _load(self, run: str) -> Writer:
        """Loads the keeper's dispatchers into the writer, once a run: only this run changes them while it lasts."""
        with self._lock:
            self._current(run)
            if self._loaded and self.writer is not None:
                return self.writer
        facts = self._keeper.dispatchers(self.name)
        with self._lock:
            self._current(run)
            assert self.writer is not None
            for identity, each in facts.items():
                self.writer.add(Dispatcher.from_start(identity, each))
            self._loaded = True
            return self.writer

    def _current(self, run: str) -> Staging:
        if self._staging is None:
            raise StaleRun(f"{self.name}: no run has begun with this delivery process", hint="begin a new run")
        if self._staging.run != run:
            raise StaleRun(f"{self.name}: run {run} is over, {self._staging.run} is current", hint="begin a new run")
        return self._staging

    # ---- pressure, flush, status

    def pressure(self) -> dict[str, Any]:
        """`suppressed` while a wake is kept back: upstream sends nothing more until that wake has run."""
        return {"suppressed": self.spool.suppressed or self._wakes_due > 0, "spool_bytes": self.spool.bytes}

    def flush(self, timeout_seconds: float | None = None) -> None:
        """Returns once everything that was published is at the sink. Raises what stopped a dispatcher."""
        writer = self.writer
        if writer is None:
            return
        with self._lock:  # so no publish enqueues between finding the dispatchers and marking them
            waiting = {d.id for d in writer.holding()} | set(self.spool.queued_dispatchers())
            marks = _Marks(len(waiting))
            for identity in waiting:
                self.spool.enqueue(identity, [DrainMarker("flush", marks.one_finished)])
        writer.notify()
        marks.wait(timeout_seconds)
        for dispatcher in writer.stopped():
            raise Terminal(f"{self.name}: {dispatcher.schema}.{dispatcher.table} stopped: {dispatcher.stopped}")
        self._write_checkpoint(at_once=True)

    def status(self) -> dict[str, Any]:
        writer, staging = self.writer, self._staging
        dispatchers = dict(writer.dispatchers) if writer is not None else {}
        return {
            "run": staging.run if staging is not None else None,
            "published_end": str(staging.published_end) if staging is not None and staging.published_end else None,
            "suppressed": self.pressure()["suppressed"],
            "spool_bytes": self.spool.bytes,
            "staged_bytes": self.spool.staged_bytes,
            "wakes": self.spool.stats.wakes,
            "wakes_suppressed": self.spool.stats.wakes_suppressed,
            "ranges_published": self.stats.ranges_published,
            "payloads_published": self.stats.payloads_published,
            "leftovers_dropped": staging.leftovers_dropped if staging is not None else 0,
            "rows": writer.stats.rows_written if writer is not None else 0,
            "bytes": writer.stats.bytes_written if writer is not None else 0,
            "flushes": dict(writer.stats.flushes) if writer is not None else {},
            "retries": writer.stats.retries if writer is not None else 0,
            "checkpoint_ts": self._checkpoint_ts,
            "checkpoint_error": self._checkpoint_error,
            "dispatchers": {identity: each.describe() for identity, each in dispatchers.items()},
        }

    def close(self, drain_seconds: float) -> bool:
        """Drains for at most `drain_seconds`, then ends. False where something was left; it comes again in the next
        run."""
        drained = True
        try:
            if drain_seconds > 0:
                self.flush(drain_seconds)
        except PenstockError:
            drained = False
        with self._lock:
            self._closing.set()
        if self.writer is not None:
            self.writer.close()
        if self._ticker is not None:
            self._ticker.join()
        self.spool.close()
        return drained

    # ---- checkpoint

    def _offer_checkpoint(self, checkpoint_ts: int) -> None:
        self._checkpoint_ts = max(self._checkpoint_ts, checkpoint_ts)

    def _tick(self) -> None:
        """Asks the keeper too: ranges without rows for this changefeed move the checkpoint without any write."""
        while not self._closing.wait(METADATA_SECONDS_MIN):
            self._write_checkpoint(at_once=False)

    def _write_checkpoint(self, *, at_once: bool) -> None:
        checkpoint = self._checkpoint
        if checkpoint is None:
            return
        try:
            self._offer_checkpoint(self._keeper.checkpoint(self.name))
            with self._checkpoint_lock:
                checkpoint.write(self._checkpoint_ts, at_once=at_once)
            self._checkpoint_error = None
        except PenstockError as error:  # shown by status, tried again at the next tick; rows do not depend on it
            self._checkpoint_error = str(error)


class _Marks:
    """Counts finished drain markers."""

    def __init__(self, expected: int) -> None:
        self._left = expected
        self._error: PenstockError | None = None
        self._condition = threading.Condition()

    def one_finished(self, error: PenstockError | None) -> None:
        with self._condition:
            self._left -= 1
            self._error = self._error or error
            self._condition.notify_all()

    def wait(self, timeout_seconds: float | None) -> None:
        with self._condition:
            if not self._condition.wait_for(lambda: self._left == 0 or self._error is not None, timeout_seconds):
                raise Unavailable(f"{self._left} tables are not at the sink after {timeout_seconds:g} s")
            if self._error is not None:
                raise fresh(self._error)
