"""Delivery of one changefeed: runs, staging and publishing before the spool, writers after it.

The order of a publish: (1) everything is checked, nothing is changed; (2) the keeper has the range and its new
dispatchers durably; (3) the payloads are in the spool. A repetition after any of these steps has no further effect.
`_lock` is never held during a call to the keeper: `begin_run` must not wait for a publish that waits for the keeper.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Any

from penstock.clock import Clock
from penstock.delivery.barrier import Barrier, Marks, Scope, scope_of
from penstock.delivery.dispatcher import Dispatcher
from penstock.delivery.keeper_client import KeeperApi, LastRow
from penstock.delivery.payload import Payload, PayloadItem, SharedHeaders, StageKey, dispatcher_id
from penstock.delivery.replay import Replay
from penstock.delivery.settings import FlushSettings
from penstock.delivery.sink import Sink
from penstock.delivery.spool import Disk, DrainMarkerItem, Spool, SpoolItem, SpoolLimits, Wake
from penstock.delivery.staging import Awaited, PublishRange, Staging
from penstock.delivery.writer import Writer
from penstock.errors import BadInput, Closed, PenstockError, StaleRun, Terminal, Unavailable
from penstock.files import Buffer
from penstock.log.position import Seq
from penstock.observe.metrics import METRICS, Metrics

_LOG = logging.getLogger(__name__)

TICK_SECONDS = 2.0  # between two looks whether the keeper's checkpoint has moved, and whether tables can be replayed


@dataclass(slots=True)
class PublishStats:
    """Counted since the process started."""

    ranges_published: int = 0
    payloads_published: int = 0
    payloads_behind_progress: int = 0
    dead_letters: int = 0


class ChangefeedDelivery:
    """Everything that delivery does for one changefeed. Thread-safe. The first run calls `open_sink`, which takes
    the sink for this process."""

    def __init__(
        self,
        name: str,
        *,
        incarnation: str,
        keeper: KeeperApi,
        open_sink: Callable[[], Sink],
        flush: FlushSettings,
        limits: SpoolLimits,
        clock: Clock,
        writers: int,
        disk: Disk | None = None,
        metrics: Metrics = METRICS,
    ) -> None:
        self.name = name
        self.paused = False  # somebody asked for no more rows; what was published is still written
        self.stats = PublishStats()
        drained = metrics.ddl_drain_seconds.labels(name)
        self.spool = Spool(
            limits,
            disk=disk,
            clock=clock,
            name=name,
            background=writers > 0,
            on_drained=drained.observe,
            on_suppressed=self._notify_writer,
        )
        self.writer: Writer | None = None
        metrics.watch_spool(name, self.spool.totals)
        self._incarnation = incarnation
        self._keeper = keeper
        self._open_sink = open_sink
        self._flush = flush
        self._clock = clock
        self._writers = writers
        self._metrics = metrics
        self._lock = threading.Lock()  # protects the run: `_staging` and `_loaded`
        self._publishing = threading.Lock()  # one publish at a time
        self._beginning = threading.Lock()  # one begin_run at a time
        self._staging: Staging | None = None
        self._loaded = False  # the writer has the dispatchers that the keeper knew when the run began
        self._headers = SharedHeaders()  # of this run
        self._awaited = Awaited()
        self._sink: Sink | None = None
        self._checkpoint_lock = threading.Lock()
        self._checkpoint_ts = 0
        self._checkpoint_error: str | None = None
        self._replay = Replay()
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
                self._headers = SharedHeaders()
                self._awaited = Awaited()
                self._replay.begin_run()
            if self.writer is None:
                self._open()
            assert self.writer is not None
            if old is not None:
                self.spool.drop(old.discard(), over)
            self.writer.reset(over)
            return {"incarnation": self._incarnation, "published_end": None}

    def _open(self) -> None:
        try:
            sink = self._sink = self._open_sink()
        except PenstockError:
            with self._lock:
                self._staging = None
            raise
        self.writer = Writer(
            self.spool,
            sink,
            self._flush,
            self._clock,
            threads=self._writers,
            on_checkpoint=self._offer_checkpoint,
            metrics=self._metrics,
        )
        if self._writers:
            self._ticker = threading.Thread(target=self._tick, name=f"checkpoint-{self.name}", daemon=True)
            self._ticker.start()

    def _notify_writer(self) -> None:
        if self.writer is not None:
            self.writer.notify()

    # ---- staging and publishing

    def stage(self, key: StageKey, payload: Payload) -> None:
        """Raises `TooMuch` above the spool's hard quota: the batch comes again, smaller."""
        with self._lock:
            self._current(key.run)
            pass_by = self._passes_the_quota(key)
        self.spool.admit(always=pass_by)
        with self._lock:
            staging = self._current(key.run)
            item = self._headers.item(payload, self._clock.monotonic())
            self.spool.stage(item)
            leftover = staging.stage(key, item)
        if leftover is not None:
            self.spool.drop([leftover], _leftover(self.name))

    def dead_letter(self, run: str, schema: str, table: str, seq: str, data: Buffer) -> None:
        """A row that its format refused is at the sink, among the dead letters, when this returns."""
        with self._lock:
            self._current(run)
            sink = self._sink
        if sink is None or not table:
            raise BadInput(f"{self.name}: a dead letter without a sink or a table")
        sink.put_dead_letter(schema, table, Seq.parse(seq), bytes(data))
        self.stats.dead_letters += 1
        self._metrics.dead_letters.labels(self.name).inc()

    def _passes_the_quota(self, key: StageKey) -> bool:
        """Rows that an open file waits for, and an entry that cannot be cut while nothing else is held: to refuse them
        would be to wait for ever. Under the lock."""
        until = self._awaited.until
        if until is not None and key.start <= until:
            return True
        return key.start == key.end and self.spool.all_staged

    def publish(self, run: str, incarnation: str, named: list[PublishRange]) -> int:
        """Returns the number of accepted ranges, repetitions included."""
        if incarnation != self._incarnation:
            raise StaleRun(f"{self.name}: incarnation {incarnation} of delivery is gone", hint="begin a new run")
        with self._publishing:
            writer = self._load(run)
            with self._lock:
                staging = self._current(run)
                fresh = staging.check(named)
                items = {each: staging.peek(each) for each in fresh}
            self._check_order(writer, [item.payload for each in fresh for item in items[each]])
            for each in fresh:
                self._publish_one(writer, staging, each, items[each])
        return len(named)

    def _publish_one(self, writer: Writer, staging: Staging, named: PublishRange, items: list[PayloadItem]) -> None:
        last = {i.dispatcher: LastRow(i.payload.last_seq, i.payload.schema, i.payload.table) for i in items}
        self._keeper.published(
            self.name, staging.run, start=named.start, end=named.end, commit_ts=named.commit_ts, last=last
        )
        with self._lock:
            self._current(staging.run)  # raises if another run began meanwhile: it has discarded these payloads
            leftovers = staging.take(named)
            behind = self._enqueue(writer, staging.run, items)
            for identity in self._awaited.passed(named.end):
                each = writer.dispatchers[identity]
                facts = {"changefeed": self.name, "table": f"{each.schema}.{each.table}", "until": str(each.barrier)}
                _LOG.warning("rows of an open file did not come: is the table filtered now?", extra=facts)
        self.stats.ranges_published += 1
        self.stats.payloads_published += len(items)
        self.stats.payloads_behind_progress += len(behind)
        self.spool.drop([*leftovers, *behind], _leftover(self.name))
        writer.notify()

    def _enqueue(self, writer: Writer, run: str, items: list[PayloadItem]) -> list[PayloadItem]:
        """One wake per dispatcher. Leaves out items at or below progress, which are at the sink already, and returns
        them. Under the lock."""
        now = self._clock.monotonic()
        queues: dict[str, list[SpoolItem]] = {}
        behind: list[PayloadItem] = []
        for _, statement in groupby(items, key=_statement_of):
            ahead: list[PayloadItem] = []
            for item in statement:
                (ahead if self._is_ahead(writer, run, item) else behind).append(item)
            if ahead and ahead[0].payload.kind == "ddl":
                self._set_barrier(writer, ahead, queues)
            for item in ahead:
                item.enqueued_at = now
                if item.payload.kind == "ddl":
                    _LOG.debug("a drain began", extra={"changefeed": self.name, "ddl": str(item.payload)})
                queues.setdefault(item.dispatcher, []).append(item)
        for identity, queue in queues.items():
            # Upstream asks `pressure` before it sends more; what it sees is whether a wake is kept back.
            self.spool.enqueue(identity, queue, wake=Wake(lambda: None))
        return behind

    def _is_ahead(self, writer: Writer, run: str, item: PayloadItem) -> bool:
        """Whether the item is beyond what its dispatcher has; if so, it counts as enqueued."""
        payload = item.payload
        dispatcher = writer.dispatchers.get(payload.dispatcher)
        if dispatcher is None:
            dispatcher = Dispatcher(
                payload.dispatcher, payload.epoch, payload.schema, payload.table, run, at_sink=writer.sink.recall(None)
            )
            writer.add(dispatcher)
        if dispatcher.enqueued is not None and payload.last_seq <= dispatcher.enqueued:
            return False
        dispatcher.enqueued = payload.last_seq
        self._awaited.came(payload.dispatcher, payload.last_seq)
        return True

    @staticmethod
    def _set_barrier(writer: Writer, statement: list[PayloadItem], queues: dict[str, list[SpoolItem]]) -> None:
        """Ties together the dispatchers that the statement concerns; those that it does not name get a marker."""
        scope = scope_of(item.payload for item in statement)
        if scope is None:
            return
        delivers = {item.dispatcher for item in statement}
        drains = {each.id for each in _concerned(writer, scope)} - delivers
        if len(drains) + len(delivers) < 2:
            return
        barrier = Barrier(scope.name, drains=drains, delivers=delivers, strict=scope.strict, wake=writer.wake)
        seq, commit_ts = str(statement[0].payload.last_seq), statement[0].payload.last_commit_ts
        for identity in delivers | drains:
            writer.dispatchers[identity].barriers[seq] = barrier
        for item in statement:
            item.on_drop = partial(barrier.failed, item.dispatcher)
        for identity in sorted(drains):
            marker = DrainMarkerItem(identity, partial(barrier.acked, identity), commit_ts, seq)
            queues.setdefault(identity, []).append(marker)

    def _check_order(self, writer: Writer, payloads: list[Payload]) -> None:
        """Refuses payloads that would break the order or an open intent, before anything is changed."""
        reached: dict[str, Seq] = {}
        latest = 0
        for payload in payloads:
            known = writer.dispatchers.get(payload.dispatcher)
            if known is not None:
                self._check_against(known, payload)
            before = reached.get(payload.dispatcher)
            if before is not None and payload.first_seq <= before:
                raise BadInput(f"publish: {payload} comes after {before}", hint="payloads of a range go by seq")
            reached[payload.dispatcher] = payload.last_seq
            if (
                payload.kind == "ddl"
                and (scope := scope_of([payload])) is not None
                and latest >= payload.last_commit_ts
            ):
                raise BadInput(
                    f"publish: rows at {latest} come before {scope.name!r} at {payload.last_commit_ts}, which would drain them",
                    hint="nothing was published; a task ends every payload at a DDL",
                )
            latest = max(latest, payload.last_commit_ts if payload.kind == "data" else 0)

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
                dispatcher = Dispatcher.from_start(identity, run, each, self.writer.sink.recall(each))
                self.writer.add(dispatcher)
                if dispatcher.barrier is not None:
                    self._awaited.wait_for(identity, dispatcher.barrier)
            self._loaded = True
            return self.writer

    def _current(self, run: str) -> Staging:
        if self._staging is None:
            raise StaleRun(f"{self.name}: no run has begun with this delivery process", hint="begin a new run")
        if self._staging.run != run:
            raise StaleRun(f"{self.name}: run {run} is over, {self._staging.run} is current", hint="begin a new run")
        return self._staging

    # ---- pressure, flush, status

    def pressure(self, run: str | None = None) -> dict[str, Any]:
        """`suppressed` while a wake is kept back, or the changefeed is paused: upstream sends nothing more until then.
        `StaleRun` where `run` is not the current one: a new process of delivery has nothing of what an older one was
        given.

        A file that was begun before a restart can only be finished with exactly its rows. As long as some of them did not
        come, nothing is suppressed: what is held could never leave. `until` is then where their last one is; a batch
        that ends there brings in no more than was held before the restart.
        """
        if self._replay.due:
            raise StaleRun(f"{self.name}: tables that were left out can be written again", hint="begin a new run")
        held_back = self.spool.suppressed
        with self._lock:
            if run is not None:
                self._current(run)
            until = self._awaited.until if held_back else None
        return {
            "suppressed": self.paused or (held_back and until is None),
            "spool_bytes": self.spool.bytes,
            "until": str(until) if until is not None and not self.paused else None,
        }

    def _suppressed(self) -> bool:
        with self._lock:
            return self.spool.suppressed and self._awaited.until is None

    def flush(self, timeout_seconds: float | None = None) -> None:
        """Returns once everything that was published is at the sink. Raises what stopped a dispatcher."""
        writer = self.writer
        if writer is None:
            return
        with self._lock:  # so no publish enqueues between finding the dispatchers and marking them
            waiting = {d.id for d in writer.holding()} | set(self.spool.queued_dispatchers())
            marks = Marks(len(waiting))
            for identity in waiting:
                self.spool.enqueue(identity, [DrainMarkerItem(identity, marks.one_finished)])
        writer.notify()
        marks.wait(timeout_seconds)
        for dispatcher in writer.stopped():
            raise Terminal(f"{self.name}: {dispatcher.schema}.{dispatcher.table} stopped: {dispatcher.stopped}")
        for dispatcher in writer.left_out():
            raise Unavailable(f"{self.name}: {dispatcher.schema}.{dispatcher.table} is left out: {dispatcher.left_out}")
        self._write_checkpoint(at_once=True)

    def status(self) -> dict[str, Any]:
        writer, staging, sink = self.writer, self._staging, self._sink
        dispatchers = dict(writer.dispatchers) if writer is not None else {}
        return {
            "run": staging.run if staging is not None else None,
            "published_end": str(staging.published_end) if staging is not None and staging.published_end else None,
            "suppressed": self._suppressed(),
            "left_out": [f"{each.schema}.{each.table}" for each in (writer.left_out() if writer is not None else [])],
            "spool_bytes": self.spool.bytes,
            "spool_memory_bytes": self.spool.memory_bytes,
            "spool_disk_bytes": self.spool.disk_bytes,
            "spool_alarm": self.spool.alarm,
            "staged_bytes": self.spool.staged_bytes,
            "wakes": self.spool.totals().wake_calls,
            "wakes_suppressed": self.spool.totals().wake_suppressed,
            "ranges_published": self.stats.ranges_published,
            "payloads_published": self.stats.payloads_published,
            "dead_letters": self.stats.dead_letters,
            "leftovers_dropped": staging.leftovers_dropped if staging is not None else 0,
            "rows": writer.stats.rows_written if writer is not None else 0,
            "bytes": writer.stats.bytes_written if writer is not None else 0,
            "flushes": dict(writer.stats.flushes) if writer is not None else {},
            "retries": writer.stats.retries if writer is not None else 0,
            "checkpoint_ts": self._checkpoint_ts,
            "checkpoint_error": self._checkpoint_error,
            "dispatchers": {
                identity: {**each.describe(), **(sink.describe(each) if sink is not None else {})}
                for identity, each in dispatchers.items()
            },
        }

    def table(self, schema: str, table: str) -> list[dict[str, Any]]:
        """The state of each dispatcher of one table, for who asks about that table. Empty where this run knows none."""
        writer, now = self.writer, self._clock.monotonic()
        if writer is None:
            return []
        common = {"changefeed": self.name, "suppressed": self.spool.suppressed}
        return [
            {**common, **each.describe_closely(now, self._flush, self.spool), **writer.sink.describe(each)}
            for each in tuple(writer.dispatchers.values())
            if (each.schema, each.table) == (schema, table)
        ]

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
        with self._lock:
            staged = self._staging.discard() if self._staging is not None else []
        self.spool.drop(staged, Closed(f"delivery of {self.name} is closed"))
        self.spool.close()
        if self._sink is not None:
            self._sink.close()
        self._metrics.forget_spool(self.name)
        return drained

    # ---- checkpoint

    def _offer_checkpoint(self, checkpoint_ts: int) -> None:
        self._checkpoint_ts = max(self._checkpoint_ts, checkpoint_ts)

    def _tick(self) -> None:
        """Asks the keeper too: ranges without rows for this changefeed move the checkpoint without any write."""
        while not self._closing.wait(TICK_SECONDS):
            self._write_checkpoint(at_once=False)
            self.look_for_replay()

    def look_for_replay(self) -> None:
        if self.writer is not None and self._sink is not None:
            self._replay.look(self.writer, self._sink, self._clock.monotonic())

    def _write_checkpoint(self, *, at_once: bool) -> None:
        sink = self._sink
        if sink is None:
            return
        try:
            self._offer_checkpoint(self._keeper.checkpoint(self.name))
            with self._checkpoint_lock:
                sink.write_checkpoint(self._checkpoint_ts, at_once=at_once)
            self._checkpoint_error = None
        except PenstockError as error:  # shown by status, tried again at the next tick; rows do not depend on it
            self._checkpoint_error = str(error)


def _leftover(changefeed: str) -> StaleRun:
    return StaleRun(f"{changefeed}: the payload is at the sink already, or of an attempt that does not count")


def _concerned(writer: Writer, scope: Scope) -> Iterator[Dispatcher]:
    """The dispatchers that a statement concerns, whether or not it changes them. A database that has nothing on its way is
    left out: every CREATE TABLE would wait for it."""
    if scope.schema is not None:
        yield from (each for each in writer.dispatchers.values() if each.schema == scope.schema)
    for schema, table in scope.also:
        each = writer.dispatchers.get(dispatcher_id(writer.sink.changefeed, schema, table))
        if each is not None and (table or each.progress != each.enqueued):
            yield each


def _statement_of(item: PayloadItem) -> tuple[str, Any]:
    """Neighbours with equal results are the DDL payloads of one statement, or rows."""
    return ("ddl", item.payload.last_seq) if item.payload.kind == "ddl" else ("data", None)
