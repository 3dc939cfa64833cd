"""The writers of one changefeed: a bounded pool of threads that turns spool items into files at the sink.

- At most one thread works on a dispatcher, and its files are written strictly one after another.
- A batch becomes a file at `flush.size` bytes, `flush.every` seconds after its oldest payload came (each batch has a
  timer of its own; nothing sweeps over all tables), when version or date directory change, at a drain marker or a DDL,
  and at the last row of a file that an earlier owner began.
- A DDL is applied in this order: everything before it is at the sink; the keeper agrees (`drained`); the schema file is
  written; `done` moves progress to the DDL's seq.
- After a transient error the dispatcher keeps its file and its bytes and the thread is free for others; after a pause
  the dispatcher continues at the same step. A terminal error stops the dispatcher: the items it holds are dropped
  (progress did not move, so the log still has them), `status` says why, and nothing more of it is written in this run.
  The other dispatchers continue.
- `reset` separates runs: it waits for the writes in flight and discards everything else.
"""

from __future__ import annotations

import heapq
import logging
import random
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import count

from penstock.clock import Clock
from penstock.delivery.dispatcher import Batch, Dispatcher, FlushReason, Phase
from penstock.delivery.settings import FlushSettings
from penstock.delivery.spool import DrainMarker, PayloadItem, Spool, finish
from penstock.delivery.target import Target
from penstock.errors import Closed, PenstockError, Terminal
from penstock.observe.metrics import METRICS, Metrics

_LOG = logging.getLogger(__name__)

RETRY_FIRST_SECONDS = 0.1
RETRY_SECONDS_MAX = 15.0


@dataclass(slots=True)
class WriterStats:
    """Counted since the process started."""

    flushes: dict[str, int] = field(default_factory=lambda: {reason.value: 0 for reason in FlushReason})
    bytes_written: int = 0
    rows_written: int = 0
    retries: int = 0
    dispatchers_stopped: int = 0


class Writer:
    """The pool of one changefeed. With `threads=0` nothing happens by itself: a test calls `step`."""

    def __init__(
        self,
        spool: Spool,
        target: Target,
        flush: FlushSettings,
        clock: Clock,
        *,
        threads: int,
        on_checkpoint: Callable[[int], None] = lambda _ts: None,
        jitter: Callable[[], float] = random.random,
        metrics: Metrics = METRICS,
    ) -> None:
        self.stats = WriterStats()
        self.dispatchers: dict[str, Dispatcher] = {}
        self._spool = spool
        self._target = target
        self._flush = flush
        self._clock = clock
        self._on_checkpoint = on_checkpoint
        self._jitter = jitter
        self._metrics = metrics
        self._counting = threading.Lock()
        self._condition = threading.Condition()
        self._timers: list[tuple[float, int, Dispatcher]] = []
        self._order = count()
        self._paused = False
        self._closed = False
        self._busy = 0
        self._threads = [
            threading.Thread(target=self._work, name=f"writer-{target.changefeed}-{i}", daemon=True)
            for i in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    # ---- called by the changefeed

    def add(self, dispatcher: Dispatcher) -> None:
        with self._condition:
            self.dispatchers[dispatcher.id] = dispatcher

    def notify(self) -> None:
        """Wakes the threads: something was enqueued, or a test moved the clock."""
        with self._condition:
            self._condition.notify_all()

    def reset(self, error: PenstockError) -> None:
        """Returns once no write is in flight and everything that was not written is discarded. Forgets all
        dispatchers."""
        with self._condition:
            self._paused = True
            while self._busy:
                self._condition.wait()
            dropped = [item for dispatcher in self.dispatchers.values() for item in dispatcher.held()]
            self.dispatchers.clear()
            self._timers.clear()
        self._spool.drop(dropped, error)
        self._spool.discard_all(error)
        with self._condition:
            self._paused = False

    def holding(self) -> list[Dispatcher]:
        """Dispatchers that hold rows outside the spool's queues."""
        with self._condition:
            return [d for d in self.dispatchers.values() if d.batch or d.head or d.commit or d.phase is Phase.BUSY]

    def stopped(self) -> list[Dispatcher]:
        with self._condition:
            return [d for d in self.dispatchers.values() if d.stopped is not None]

    def close(self) -> None:
        """Ends the threads after the writes in flight; everything else is discarded."""
        self.reset(Closed(f"delivery of {self._target.changefeed} is closed"))
        with self._condition:
            self._closed = True
            self._condition.notify_all()
        for thread in self._threads:
            thread.join()

    # ---- the threads

    def step(self) -> bool:
        """One unit of work on the caller's thread, if any is due. False where there is none."""
        with self._condition:
            dispatcher = self._next()
        if dispatcher is None:
            return False
        self._run(dispatcher)
        return True

    def _work(self) -> None:
        while True:
            with self._condition:
                dispatcher = None
                while not self._closed and (dispatcher := self._next()) is None:
                    self._condition.wait(self._until_next_timer())
                if dispatcher is None:
                    return
            self._run(dispatcher)

    def _next(self) -> Dispatcher | None:
        """A dispatcher that has work to do, marked BUSY. Under the lock; costs O(log of the active dispatchers)."""
        if self._paused:
            return None
        now = self._clock.monotonic()
        while self._timers and self._timers[0][0] <= now:
            dispatcher = heapq.heappop(self._timers)[2]
            if self.dispatchers.get(dispatcher.id) is dispatcher and self._claim(dispatcher, timer=True):
                return dispatcher
        while (picked := self._spool.pick()) is not None:
            known = self.dispatchers.get(picked)
            if known is not None and self._claim(known, timer=False):
                return known
        return None

    def _claim(self, dispatcher: Dispatcher, *, timer: bool) -> bool:
        if dispatcher.phase is Phase.BUSY:
            dispatcher.again = True
            return False
        if dispatcher.phase is Phase.RETRYING and not timer:
            return False  # its timer brings it back, and it then takes everything in its queue
        dispatcher.phase = Phase.BUSY
        dispatcher.again = False
        self._busy += 1
        return True

    def _until_next_timer(self) -> float | None:
        if self._paused or not self._timers:
            return None
        return max(0.0, self._timers[0][0] - self._clock.monotonic())

    def _run(self, dispatcher: Dispatcher) -> None:
        retry_in = None
        try:
            self._advance(dispatcher)
        except PenstockError as error:
            if error.transient:
                retry_in = self._pause_after(dispatcher, error)
            else:
                self._stop(dispatcher, error)
        except Exception as error:  # a thread must not end in silence: the dispatcher stops, and status says why
            self._stop(dispatcher, Terminal(f"{type(error).__name__}: {error}"))
        finally:
            with self._condition:
                if dispatcher.stopped is not None:
                    dispatcher.phase = Phase.STOPPED
                else:
                    dispatcher.phase = Phase.IDLE if retry_in is None else Phase.RETRYING
                self._busy -= 1
                self._schedule(dispatcher, retry_in)
                self._condition.notify_all()

    def _schedule(self, dispatcher: Dispatcher, retry_in: float | None) -> None:
        """Sets when the dispatcher gets its next turn, if that is not the next enqueue. Under the lock."""
        now = self._clock.monotonic()
        batch = dispatcher.batch
        if retry_in is not None:
            self._set_timer(dispatcher, now + retry_in)
        elif dispatcher.again or dispatcher.head is not None:
            self._set_timer(dispatcher, now)
        else:
            self._spool.activate(dispatcher.id)
            if batch is not None and not batch.timed:  # one timer a batch bounds the heap by batches, not payloads
                batch.timed = True
                self._set_timer(dispatcher, batch.oldest_at + self._flush.every)

    def _set_timer(self, dispatcher: Dispatcher, at: float) -> None:
        heapq.heappush(self._timers, (at, next(self._order), dispatcher))

    def _pause_after(self, dispatcher: Dispatcher, error: PenstockError) -> float:
        dispatcher.stats.attempts += 1
        dispatcher.stats.last_error = str(error)
        with self._counting:
            self.stats.retries += 1
        if dispatcher.stats.attempts == 1:
            _LOG.warning("a write is tried again", extra=self._facts(dispatcher, error))
        longest = min(RETRY_SECONDS_MAX, RETRY_FIRST_SECONDS * 2 ** min(dispatcher.stats.attempts - 1, 16))
        return float(longest * (0.5 + self._jitter() / 2))

    def _stop(self, dispatcher: Dispatcher, error: PenstockError) -> None:
        with self._counting:
            self.stats.dispatchers_stopped += 1
        dispatcher.stopped = error
        dispatcher.stats.last_error = str(error)
        _LOG.error("a table stopped", extra=self._facts(dispatcher, error))
        self._spool.drop(dispatcher.held(), error)
        self._spool.discard(dispatcher.id, error)

    def _facts(self, dispatcher: Dispatcher, error: PenstockError) -> dict[str, str]:
        table = f"{dispatcher.schema}.{dispatcher.table}"
        return {"changefeed": self._target.changefeed, "table": table, "reason": str(error)}

    # ---- one dispatcher; only the thread that marked it BUSY is here

    def _advance(self, dispatcher: Dispatcher) -> None:
        """Works until the queue is empty, one file was written, or `reset` pauses the writers."""
        if dispatcher.stopped is not None:
            self._spool.discard(dispatcher.id, dispatcher.stopped)
            return
        while not self._paused:
            if dispatcher.commit is not None:
                self._finish_commit(dispatcher)
                return  # other dispatchers come first now; _run schedules this one behind them
            if dispatcher.head is None:
                dispatcher.head = self._spool.dequeue(dispatcher.id)
            reason = dispatcher.flush_reason(self._clock.monotonic(), self._flush.size, self._flush.every)
            if reason is not None:
                self._begin_commit(dispatcher, reason)
            elif dispatcher.head is None:
                return
            else:
                self._take_head(dispatcher)

    def _take_head(self, dispatcher: Dispatcher) -> None:
        head = dispatcher.head
        if isinstance(head, DrainMarker):
            dispatcher.head = None
            if dispatcher.batch is not None:  # the rows of an open intent's file: the marker waits until it is written
                dispatcher.batch.markers.append(head)
            else:
                finish(head, None)
        elif isinstance(head, PayloadItem) and head.payload.kind == "ddl":
            self._apply_ddl(dispatcher, head)
        elif isinstance(head, PayloadItem):
            dispatcher.head = None
            if dispatcher.batch is None:
                dispatcher.batch = Batch(head.payload.version, head.payload.date)
            dispatcher.batch.append(head)

    def _begin_commit(self, dispatcher: Dispatcher, reason: FlushReason) -> None:
        batch = dispatcher.batch
        assert batch is not None
        if batch.begun_at is None:
            batch.begun_at = self._clock.monotonic()
        self._target.ensure_schema(dispatcher, batch)
        dispatcher.commit = self._target.commit(
            dispatcher, batch, release=lambda: self._release(dispatcher, batch, reason)
        )

    def _finish_commit(self, dispatcher: Dispatcher) -> None:
        commit = dispatcher.commit
        assert commit is not None
        commit.advance()
        self._on_checkpoint(commit.checkpoint_ts)

    def _release(self, dispatcher: Dispatcher, batch: Batch, reason: FlushReason) -> None:
        """Step 6 of the commit order: callbacks run and the spool's bytes are free."""
        commit = dispatcher.commit
        assert commit is not None
        dispatcher.progress = commit.intent.last_seq
        dispatcher.last_path = commit.intent.path
        dispatcher.intent = dispatcher.batch = dispatcher.commit = None
        dispatcher.stats.files += 1
        self._wrote(dispatcher, rows=batch.rows, size=commit.intent.length)
        self._observe(batch, reason, commit.intent.length)
        self._finish_all((*batch.items, *batch.markers), batch.bytes)

    def _observe(self, batch: Batch, reason: FlushReason, size: int) -> None:
        changefeed, metrics = self._target.changefeed, self._metrics
        seconds = self._clock.monotonic() - (batch.begun_at or 0.0)
        with self._counting:
            self.stats.flushes[reason.value] += 1
        metrics.flush_total.labels(changefeed, reason.value).inc()
        metrics.flush_bytes.labels(changefeed, reason.value).observe(size)
        metrics.flush_seconds.labels(changefeed).observe(seconds)
        metrics.rows.labels(changefeed).inc(batch.rows)
        if reason is FlushReason.DDL:
            metrics.ddl_flush_seconds.labels(changefeed).observe(seconds)

    def _apply_ddl(self, dispatcher: Dispatcher, item: PayloadItem) -> None:
        """Order: (1) everything before it is at the sink; (2) barrier; (3) schema file; (4) progress; (5) release."""
        checkpoint_ts = self._target.apply_ddl(dispatcher, item.payload)
        dispatcher.progress = item.payload.last_seq
        dispatcher.head = None
        dispatcher.stats.ddls += 1
        self._wrote(dispatcher, rows=0, size=0)
        self._finish_all((item,), item.size)
        self._on_checkpoint(checkpoint_ts)

    def _wrote(self, dispatcher: Dispatcher, *, rows: int, size: int) -> None:
        stats = dispatcher.stats
        stats.rows += rows
        stats.bytes += size
        stats.last_write_ms = self._clock.wall_ms()
        stats.last_error = None
        stats.attempts = 0
        with self._counting:
            self.stats.rows_written += rows
            self.stats.bytes_written += size

    def _finish_all(self, items: Iterable[PayloadItem | DrainMarker], size: int) -> None:
        self._spool.release(size)
        for item in items:
            finish(item, None)
