"""Delivery of one changefeed: runs, staging and publishing before the spool, writers after it.

The order of a publish: (1) everything is checked, nothing is changed; (2) the payloads of extra ranges, for dispatchers that
replay, are in the spool; then for each regular range (3) the keeper has it and its new
dispatchers durably; (4) the payloads are in the spool. A repetition after any of these steps has no further effect.
`_lock` is never held during a call to the keeper: `begin_run` must not wait for a publish that waits for the keeper.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from types import MappingProxyType
from typing import Any

from penstock.clock import Clock
from penstock.delivery.barrier import Barrier, Marks
from penstock.delivery.dispatcher import Dispatcher
from penstock.delivery.keeper_client import DispatcherStart, KeeperApi, LastRow, PauseWish
from penstock.delivery.payload import Payload, PayloadItem, SharedHeaders, StageKey
from penstock.delivery.publishing import (
    PublishStats,
    check_all_go_on,
    check_order,
    check_replay,
    check_together,
    is_away,
    leftover,
    set_barrier,
    statement_of,
)
from penstock.delivery.replays.absences import Absences
from penstock.delivery.replays.outside import ExtraRange
from penstock.delivery.settings import FlushSettings
from penstock.delivery.sink import Sink
from penstock.delivery.spool import Disk, Spool, SpoolItem, SpoolLimits, Wake
from penstock.delivery.staging import Awaited, PublishRange, Staging
from penstock.delivery.writer import Writer
from penstock.errors import BadInput, Closed, PenstockError, StaleRun, Unavailable
from penstock.files import Buffer
from penstock.log.position import Position, Seq
from penstock.observe.metrics import METRICS, Metrics

_LOG = logging.getLogger(__name__)

TICK_SECONDS = 2.0  # between two looks whether the keeper's checkpoint has moved, and whether tables can be replayed


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
        self._pause = PauseWish(False, 0)  # paused: somebody wants no more rows; what was published is still written
        self.stats = PublishStats()
        self.spool = Spool(
            limits,
            disk=disk,
            clock=clock,
            name=name,
            background=writers > 0,
            on_drained=metrics.ddl_drain_seconds.labels(name).observe,
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
        self._extras = Staging("")  # of ranges for dispatchers that replay
        self._absences = Absences(name, self.spool, lambda: self.writer)
        self._loaded = False  # the writer has the dispatchers that the keeper knew when the run began
        self._headers = SharedHeaders()  # of this run
        self._awaited = Awaited()
        self._sink: Sink | None = None
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
                old, self._staging = (self._staging, self._extras), Staging(run)
                self._extras = Staging(run)
                self._absences.begin_run()
                self._loaded = False
                self._headers = SharedHeaders()
                self._awaited = Awaited()
            if self.writer is None:
                self._open()
            assert self.writer is not None
            self.spool.drop([item for one in old if one is not None for item in one.discard()], over)
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

    def set_paused(self, wish: PauseWish) -> None:
        """An older wish than one that was told before comes late, and is over."""
        with self._lock:
            self._pause = max(wish, self._pause, key=lambda one: one.number)

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
            over = key.extra and self._absences.outside.is_over(key, payload)
            replaced = item if over else (self._extras if key.extra else staging).stage(key, item)
        if replaced is not None:
            self.spool.drop([replaced], leftover(self.name))

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
        until = self._awaited.until(self._absences.left_out())
        if until is not None and key.start <= until:
            return True
        return key.start == key.end and self.spool.all_staged

    def publish(
        self,
        run: str,
        incarnation: str,
        named: list[PublishRange],
        extras: Sequence[ExtraRange] = (),
        rejoin: Mapping[str, int] = MappingProxyType({}),
    ) -> int:
        """Returns the number of accepted regular ranges, repetitions included. `rejoin`: dispatchers, with their epochs, whose
        replay ends with `extras` and that the regular ranges have from here on."""
        if incarnation != self._incarnation:
            raise StaleRun(f"{self.name}: incarnation {incarnation} of delivery is gone", hint="begin a new run")
        with self._publishing:
            writer = self._load(run)
            with self._lock:
                staging = self._current(run)
                fresh = staging.check(named)
                items = {each: staging.peek(each) for each in fresh}
                outside = self._absences.outside
                fresh_extras = outside.check(extras, rejoin, staging.published_end)
                replayed = [(each, self._extras.peek(each.named)) for each in fresh_extras]
                returning = outside.returning(rejoin)
                for each in fresh:
                    outside.check_held(each.held, returning)
            check_replay(writer, outside, [item.payload for _, found in replayed for item in found])
            regular = [item.payload for each in fresh for item in items[each]]
            check_order(writer, outside, returning, regular)
            check_together(writer, outside, returning, regular)
            for extra, found in replayed:
                self._publish_extra(writer, run, extra, found)
            with self._lock:
                self._current(run)
                self._absences.rejoin(rejoin)
            for each in fresh:
                self._publish_one(writer, staging, each, items[each])
        return len(named)

    def _publish_extra(self, writer: Writer, run: str, extra: ExtraRange, items: list[PayloadItem]) -> None:
        """The keeper has the regular ranges of these rows, and waits for them there."""
        with self._lock:
            self._current(run)
            counting = [self._absences.outside.takes(i.dispatcher, i.payload.epoch) for i in items]
            leftovers = self._extras.take_extra(extra.named, extra.epochs)
            self._absences.take(extra)
            queues: dict[str, list[SpoolItem]] = {}
            behind: list[PayloadItem] = []
            for item, counts in zip(items, counting, strict=True):
                if counts and self._is_ahead(writer, run, item):
                    item.enqueued_at = self._clock.monotonic()
                    queues.setdefault(item.dispatcher, []).append(item)
                else:
                    behind.append(item)
            for identity, queue in queues.items():
                self.spool.enqueue(identity, queue, wake=Wake(lambda: None))
        self.stats.payloads_replayed += sum(counting)
        self.spool.drop([*leftovers, *behind], leftover(self.name))
        writer.notify()

    def _publish_one(self, writer: Writer, staging: Staging, named: PublishRange, items: list[PayloadItem]) -> None:
        last = {i.dispatcher: LastRow(i.payload.last_seq, i.payload.schema, i.payload.table) for i in items}
        for identity, held in named.held.items():
            if identity not in last or last[identity].seq < held.last.seq:  # a DDL is staged all the same
                last[identity] = held.last
        self._keeper.published(
            self.name, staging.run, start=named.start, end=named.end, commit_ts=named.commit_ts, last=last
        )
        with self._lock:
            self._current(staging.run)  # raises if another run began meanwhile: it has discarded these payloads
            leftovers = staging.take(named)
            behind = self._enqueue(writer, staging.run, items)
            for identity, held in named.held.items():
                writer.dispatchers[identity].held_rows += held.rows
            for identity in self._awaited.passed(named.end, self._absences.outside.is_outside):
                each = writer.dispatchers[identity]
                facts = {"changefeed": self.name, "table": f"{each.schema}.{each.table}", "until": str(each.barrier)}
                _LOG.warning("rows of an open file did not come: is the table filtered now?", extra=facts)
        self.stats.published(len(items), len(behind))
        self.spool.drop([*leftovers, *behind], leftover(self.name))
        writer.notify()

    def _enqueue(self, writer: Writer, run: str, items: list[PayloadItem]) -> list[PayloadItem]:
        """One wake per dispatcher. Leaves out items at or below progress, which are at the sink already, and returns
        them; those of dispatchers that are outside are dropped. Under the lock."""
        now = self._clock.monotonic()
        queues: dict[str, list[SpoolItem]] = {}
        behind: list[PayloadItem] = []
        dropped: list[PayloadItem] = []
        away: list[tuple[Barrier, str]] = []
        outside = self._absences.outside
        for _, group in groupby(items, key=statement_of):
            ahead: list[PayloadItem] = []
            for item in group:
                counts = outside.is_outside(item.dispatcher) or self._is_ahead(writer, run, item)
                (ahead if counts else behind).append(item)
            if ahead and ahead[0].payload.kind == "ddl":
                away += set_barrier(writer, outside, ahead, queues)
            for item in ahead:
                if outside.is_outside(item.dispatcher):
                    writer.dispatchers[item.dispatcher].held_rows += item.payload.rows
                    dropped.append(item)
                    continue
                item.enqueued_at = now
                if item.payload.kind == "ddl":
                    _LOG.debug("a drain began", extra={"changefeed": self.name, "ddl": str(item.payload)})
                queues.setdefault(item.dispatcher, []).append(item)
        for identity, queue in queues.items():
            # Upstream asks `pressure` before it sends more; what it sees is whether a wake is kept back.
            self.spool.enqueue(identity, queue, wake=Wake(lambda: None))
        for item in dropped:  # after everybody has what is theirs: a barrier may fail at them
            self.spool.drop([item], is_away(writer, item.dispatcher))
        for barrier, identity in away:
            barrier.failed(identity, is_away(writer, identity))
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
                self._absences.loaded(dispatcher, each)
                if dispatcher.barrier is not None and dispatcher.left_out is None:
                    self._awaited.wait_for(identity, dispatcher.barrier)
            self._loaded = True
            return self.writer

    # ---- dispatchers that are left out

    def leave_out(self, dispatcher: str, *, out: bool) -> None:
        """Somebody wants the dispatcher left out, or not any more: then it is replayed. The keeper knows so already."""
        with self._lock:
            self._absences.leave_out(dispatcher, out=out)

    def replay(self, run: str, starts: Mapping[str, tuple[Position, DispatcherStart]]) -> None:
        """The replay of these begins, each where its extra ranges start and with the keeper's facts, all of them or none."""
        with self._publishing:
            self._load(run)
            with self._lock:
                self._current(run)
                for again in self._absences.replay(starts):
                    if again.barrier is not None:
                        self._awaited.wait_for(again.id, again.barrier)

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
        that ends there brings in no more than was held before the restart. `room_bytes`: what can be staged before the
        quota refuses more. `left_out`: whose rows need not come; None before they are known. `replay`: those of them that
        can come back, beside the run.
        """
        held_back = self.spool.suppressed
        with self._lock:
            if run is not None:
                self._current(run)
            until = self._awaited.until(self._absences.left_out()) if held_back else None
            away = self._absences.pressure() if self._loaded else {"left_out": None, "replay": []}
        return {
            **away,
            "suppressed": self._pause.paused or (held_back and until is None),
            "spool_bytes": self.spool.bytes,
            "room_bytes": max(0, self.spool.limits.quota_bytes - self.spool.bytes),
            "until": str(until) if until is not None and not self._pause.paused else None,
        }

    def flush(self, timeout_seconds: float | None = None) -> None:
        """Returns once everything that was published is at the sink. Raises what stopped a dispatcher."""
        writer = self.writer
        if writer is None:
            return
        # Not while a publish is under way: the keeper may know of it already, and its payloads are not enqueued yet.
        if not self._publishing.acquire(timeout=-1 if timeout_seconds is None else timeout_seconds):
            raise Unavailable(f"what is being published is not there after {timeout_seconds:g} s")
        try:
            with self._lock:
                marks = Marks.behind(self.spool, {*(d.id for d in writer.holding()), *self.spool.queued_dispatchers()})
        finally:
            self._publishing.release()
        writer.notify()
        marks.wait(timeout_seconds)
        check_all_go_on(writer)
        self._write_checkpoint(at_once=True)

    def status(self, *, every: bool = True) -> dict[str, Any]:
        writer, staging, sink = self.writer, self._staging, self._sink
        with self._lock:
            suppressed = self.spool.suppressed and self._awaited.until(self._absences.left_out()) is None
        dispatchers = {d.id: d for d in tuple(writer.dispatchers.values()) if every or d.in_trouble} if writer else {}
        return {
            "run": staging.run if staging is not None else None,
            "published_end": str(staging.published_end) if staging is not None and staging.published_end else None,
            "suppressed": suppressed,
            "left_out": [f"{each.schema}.{each.table}" for each in (writer.left_out() if writer is not None else [])],
            "replaying": [f"{each.schema}.{each.table}" for each in dispatchers.values() if each.replaying],
            "payloads_replayed": self.stats.payloads_replayed,
            **self.spool.describe(),
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
        with self._beginning, self._lock:  # a run that begins may be about to take the sink, which would stay taken
            self._closing.set()
        if self.writer is not None:
            self.writer.close()
        if self._ticker is not None:
            self._ticker.join()
        with self._lock:
            staged = [*(self._staging.discard() if self._staging is not None else []), *self._extras.discard()]
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
            self._absences.retry.look(self.writer, self._sink, self._clock.monotonic())

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
