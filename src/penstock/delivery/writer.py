"""The writers of one changefeed: a bounded pool of threads that hands spool items to the sink, in batches.

- At most one thread works on a dispatcher, and its batches are written strictly one after another.
- A batch is written at `flush.size` bytes, `flush.every` seconds after its oldest payload came (each batch has a timer of
  its own; nothing sweeps over all tables), when the next payload has another key, at a drain marker or a DDL, at the
  last row of what an earlier owner began, and before its time where the spool is full (`flushes.RoomMaker`).
- A thread takes in turn a dispatcher whose time has come, or that has more to do, and one with something new: a table with
  a long queue does not keep out the others.
- A DDL is applied in this order: everything before it is at the sink, of all tables that it concerns (`barrier.py`); the
  keeper agrees (`drained`); the sink has it; `done` moves progress to the DDL's seq. Until then the dispatcher is DRAINING:
  as many as there are may be that at once, and none of them has a thread.
- After a transient error the dispatcher keeps its items and the thread is free for others; after a pause the same batch
  goes on at the same step. A terminal error stops the dispatcher: the items it holds are dropped
  (progress did not move, so the log still has them), `status` says why, and nothing more of it is written in this run.
  The other dispatchers continue.
- While others' writes succeed, a dispatcher whose own fail for `LEAVE_OUT_SECONDS`, or that holds more than its share of the
  spool meanwhile, is left out: what it holds is dropped, and the spool is the others'. It is replayed later. In an outage,
  where nobody's writes succeed, nobody is left out, unless somebody asks for it (`leave_out`).
- `reset` separates runs: it waits for the writes in flight and discards everything else.
"""

from __future__ import annotations

import heapq
import logging
import random
import threading
from collections.abc import Callable, Collection
from itertools import count

from penstock.clock import Clock
from penstock.delivery.barrier import Wait
from penstock.delivery.dispatcher import Batch, Dispatcher, Phase, asked_out
from penstock.delivery.flushes import FlushLog, FlushReason, RoomMaker, WriterStats
from penstock.delivery.payload import PayloadItem
from penstock.delivery.settings import FlushSettings
from penstock.delivery.sink import Sink
from penstock.delivery.spool import DataItem, DrainMarkerItem, Spool, SpooledBodies, SpoolItem
from penstock.errors import Closed, PenstockError, Terminal, kept
from penstock.observe.metrics import METRICS, Metrics

_LOG = logging.getLogger(__name__)

RETRY_FIRST_SECONDS = 0.1
RETRY_SECONDS_MAX = 15.0
LEAVE_OUT_SECONDS = 300.0  # of failed tries
DRAIN_LOOK_SECONDS = 0.2  # until the keeper is asked again whether a DDL may pass


class Writer:
    """The pool of one changefeed. With `threads=0` nothing happens by itself: a test calls `step`."""

    def __init__(
        self,
        spool: Spool,
        sink: Sink,
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
        self._out: dict[str, Dispatcher] = {}  # those that are left out, so that nobody has to look at all
        self._spool = spool
        self.sink = sink
        self._flush = flush
        self._clock = clock
        self._on_checkpoint = on_checkpoint
        self._jitter = jitter
        self._metrics = metrics
        self._flush_log = FlushLog(sink.changefeed, flush, clock)
        self._counting = threading.Lock()
        self._condition = threading.Condition()
        self._timers: list[tuple[float, int, Dispatcher]] = []
        self._order = count()
        self._timers_first = False  # in the next look for work
        self._room = RoomMaker(spool, at_once=max(1, threads))
        self._paused = False
        self._closed = False
        self._busy = 0
        self._wrote_at = float("-inf")  # monotonic seconds of the last write that succeeded
        self._threads = [
            threading.Thread(target=self._work, name=f"writer-{sink.changefeed}-{i}", daemon=True)
            for i in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    # ---- called by the changefeed

    def add(self, dispatcher: Dispatcher) -> None:
        """One that is new, or takes the place of one that is left out."""
        with self._condition:
            self.dispatchers[dispatcher.id] = dispatcher
            self._out.pop(dispatcher.id, None)

    def notify(self) -> None:
        """Wakes the threads: something was enqueued, or a test moved the clock."""
        with self._condition:
            self._condition.notify_all()

    def wake(self, dispatchers: Collection[str]) -> None:
        """A barrier that these wait at has changed."""
        with self._condition:
            now = self._clock.monotonic()
            for identity in dispatchers:
                dispatcher = self.dispatchers.get(identity)
                if dispatcher is None:
                    continue
                if dispatcher.phase is Phase.BUSY:
                    dispatcher.again = True
                elif dispatcher.phase is Phase.DRAINING:
                    self._set_timer(dispatcher, now)
            self._condition.notify_all()

    def leave_out(self, dispatcher: Dispatcher) -> None:
        """Somebody asks for it. What it is writing now is over first."""
        with self._condition:
            dispatcher.asked_out, dispatcher.comes_back = True, False
            if dispatcher.left_out is None:
                self._set_timer(dispatcher, self._clock.monotonic())
                self._condition.notify_all()

    def reset(self, error: PenstockError) -> None:
        """Returns once no write is in flight and everything that was not written is discarded. Forgets all
        dispatchers."""
        with self._condition:
            self._paused = True
            while self._busy:
                self._condition.wait()
            dropped = [item for dispatcher in self.dispatchers.values() for item in self._take_back(dispatcher)]
            self.dispatchers.clear()
            self._out.clear()
            self._timers.clear()
        self._spool.drop(dropped, error)
        self._spool.discard_all(error)
        with self._condition:
            self._paused = False

    def holding(self) -> list[Dispatcher]:
        """Dispatchers that hold rows outside the spool's queues."""
        with self._condition:
            return [d for d in self.dispatchers.values() if d.batch or d.head or d.inbox or d.phase is Phase.BUSY]

    def stopped(self) -> list[Dispatcher]:
        with self._condition:
            return [d for d in self.dispatchers.values() if d.stopped is not None]

    def left_out(self) -> list[Dispatcher]:
        with self._condition:
            return list(self._out.values())

    def note_left_out(self, dispatcher: Dispatcher, error: PenstockError) -> None:
        """What it gets from here on ends with the error."""
        with self._condition:
            dispatcher.left_out = kept(error)  # or the frames would hold payloads, and a share of what may be read back
            self._out[dispatcher.id] = dispatcher
        self._spool.fail(dispatcher.id, error)

    def failing(self) -> bool:
        """Whether the last try of any dispatcher failed."""
        with self._condition:
            return any(d.failing_since is not None for d in self.dispatchers.values())

    def close(self) -> None:
        """Ends the threads after the writes in flight; everything else is discarded."""
        self.reset(Closed(f"delivery of {self.sink.changefeed} is closed"))
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
        self._timers_first = not self._timers_first
        if self._timers_first:
            found = self._next_timed(now) or self._next_picked()
        else:
            found = self._next_picked() or self._next_timed(now)
        if found is None and (found := self._room.next(self.dispatchers, now, self._wrote_at)) is not None:
            self._claim(found, timer=False)
            found.forced = True
        return found

    def _next_timed(self, now: float) -> Dispatcher | None:
        while self._timers and self._timers[0][0] <= now:
            dispatcher = heapq.heappop(self._timers)[2]
            if self.dispatchers.get(dispatcher.id) is dispatcher and self._claim(dispatcher, timer=True):
                return dispatcher
        return None

    def _next_picked(self) -> Dispatcher | None:
        while (picked := self._spool.pick()) is not None:
            known = self.dispatchers.get(picked)
            if known is not None and self._claim(known, timer=False):
                return known
        return None

    def _claim(self, dispatcher: Dispatcher, *, timer: bool) -> bool:
        if dispatcher.phase is Phase.BUSY:
            dispatcher.again = True
            return False
        if dispatcher.phase is Phase.LEFT_OUT:
            return False
        if dispatcher.phase in (Phase.RETRYING, Phase.DRAINING) and not timer:
            return False  # its timer brings it back, and it then takes everything in its queue
        dispatcher.phase = Phase.BUSY
        dispatcher.again = False
        self._busy += 1
        return True

    def _until_next_timer(self) -> float | None:
        if self._paused:
            return None
        times = [self._timers[0][0]] if self._timers else []
        if (look_at := self._room.look_at) is not None:
            times.append(look_at)
        return max(0.0, min(times) - self._clock.monotonic()) if times else None

    def _run(self, dispatcher: Dispatcher) -> None:
        retry_in = None
        wait = Wait.NOTHING
        try:
            wait = self._advance(dispatcher)
        except PenstockError as error:
            if error.transient and self._is_to_leave_out(dispatcher):
                self._leave_out(dispatcher, error)
            elif error.transient:
                retry_in = self._pause_after(dispatcher, error)
            else:
                self._stop(dispatcher, error)
        except Exception as error:  # a thread must not end in silence: the dispatcher stops, and status says why
            self._stop(dispatcher, Terminal(f"{type(error).__name__}: {error}"))
        finally:
            with self._condition:
                if dispatcher.stopped is not None:
                    dispatcher.phase = Phase.STOPPED
                elif dispatcher.left_out is not None:
                    dispatcher.phase = Phase.LEFT_OUT
                elif wait is not Wait.NOTHING:
                    dispatcher.phase = Phase.DRAINING
                    retry_in = DRAIN_LOOK_SECONDS if wait is Wait.KEEPER else None
                else:
                    dispatcher.phase = Phase.IDLE if retry_in is None else Phase.RETRYING
                self._busy -= 1
                self._schedule(dispatcher, retry_in)
                self._condition.notify_all()

    def _schedule(self, dispatcher: Dispatcher, retry_in: float | None) -> None:
        """Sets when the dispatcher gets its next turn, if that is not the next enqueue. Under the lock."""
        now = self._clock.monotonic()
        batch = dispatcher.batch
        if dispatcher.phase is Phase.LEFT_OUT:
            return
        if retry_in is not None:
            self._set_timer(dispatcher, now + retry_in)
        elif dispatcher.phase is Phase.DRAINING and not dispatcher.again:
            return
        elif dispatcher.again or dispatcher.head is not None or dispatcher.inbox:
            self._set_timer(dispatcher, now)
        else:
            self._spool.activate(dispatcher.id)
            if batch is not None and not batch.timed:  # one timer a batch bounds the heap by batches, not payloads
                batch.timed = True
                self._set_timer(dispatcher, batch.oldest_at + self._flush.every)

    def _set_timer(self, dispatcher: Dispatcher, at: float) -> None:
        heapq.heappush(self._timers, (at, next(self._order), dispatcher))

    def _pause_after(self, dispatcher: Dispatcher, error: PenstockError) -> float:
        """How long until the next try. Meanwhile the dispatcher keeps its items, which may be spilled, and nothing that
        the sink has put together of them."""
        if dispatcher.write is not None:
            dispatcher.write.pause()
            self._note_flush(dispatcher, dispatcher.batch, FlushReason.ERROR, 0)
        dispatcher.stats.attempts += 1
        dispatcher.stats.last_error = str(error)
        with self._counting:
            self.stats.retries += 1
        if dispatcher.stats.attempts == 1:
            _LOG.warning("a write is tried again", extra=self._facts(dispatcher, error))
        longest = min(RETRY_SECONDS_MAX, RETRY_FIRST_SECONDS * 2 ** min(dispatcher.stats.attempts - 1, 16))
        return float(longest * (0.5 + self._jitter() / 2))

    def _is_to_leave_out(self, dispatcher: Dispatcher) -> bool:
        """After a failed try: whether it hinders others, whose writes succeed."""
        now = self._clock.monotonic()
        if dispatcher.failing_since is None:
            dispatcher.failing_since = now
        if self._wrote_at <= dispatcher.failing_since:
            return False
        long = now - dispatcher.failing_since >= LEAVE_OUT_SECONDS
        return long or self._spool.held_bytes(dispatcher.id) > self._spool.limits.share_bytes

    def _leave_out(self, dispatcher: Dispatcher, error: PenstockError) -> None:
        with self._counting:
            self.stats.dispatchers_left_out += 1
        if not dispatcher.asked_out:
            dispatcher.stats.last_error = str(error)
            _LOG.error("a table is left out until its writes can succeed", extra=self._facts(dispatcher, error))
        self.note_left_out(dispatcher, error)
        self._spool.drop(self._take_back(dispatcher), error)

    def _stop(self, dispatcher: Dispatcher, error: PenstockError) -> None:
        with self._counting:
            self.stats.dispatchers_stopped += 1
        if dispatcher.write is not None:
            self._note_flush(dispatcher, dispatcher.batch, FlushReason.ERROR, 0)
        dispatcher.stopped = kept(error)
        dispatcher.stats.last_error = str(error)
        _LOG.error("a table stopped", extra=self._facts(dispatcher, error))
        self._spool.fail(dispatcher.id, error)
        self._spool.drop(self._take_back(dispatcher), error)

    def _take_back(self, dispatcher: Dispatcher) -> list[SpoolItem]:
        """Everything that the dispatcher holds outside the queues."""
        if dispatcher.write is not None:
            dispatcher.write.pause()
        return dispatcher.held()

    def _facts(self, dispatcher: Dispatcher, error: PenstockError) -> dict[str, str]:
        table = f"{dispatcher.schema}.{dispatcher.table}"
        return {"changefeed": self.sink.changefeed, "table": table, "reason": str(error)}

    # ---- one dispatcher; only the thread that marked it BUSY is here

    def _advance(self, dispatcher: Dispatcher) -> Wait:
        """Works until the queue is empty, one batch was written, it has to wait at a DDL, or `reset` pauses the writers."""
        if dispatcher.asked_out and dispatcher.stopped is None and dispatcher.left_out is None:
            self._leave_out(dispatcher, asked_out(dispatcher))
        if dispatcher.stopped is not None or dispatcher.left_out is not None:
            return Wait.NOTHING
        while not self._paused:
            if dispatcher.passing is not None:
                if not dispatcher.passing.over:
                    return Wait.BARRIER
                dispatcher.passing = None
            if dispatcher.write is not None:
                write = dispatcher.write
                write.advance()
                self._on_checkpoint(write.checkpoint_ts)
                return Wait.NOTHING  # other dispatchers come first now; _run schedules this one behind them
            if dispatcher.head is None:
                dispatcher.head = self._next_item(dispatcher)
                if isinstance(dispatcher.head, DataItem) and dispatcher.head.payload.kind == "data":
                    dispatcher.head_key = self.sink.key_of(dispatcher.head.payload)
            reason = dispatcher.flush_reason(self._clock.monotonic(), self._flush.size, self._flush.every)
            if reason is not None:
                self._begin_write(dispatcher, reason)
            elif dispatcher.head is None:
                return Wait.NOTHING
            elif (wait := self._take_head(dispatcher)) is not Wait.NOTHING:
                return wait
        return Wait.NOTHING

    def _next_item(self, dispatcher: Dispatcher) -> SpoolItem | None:
        if not dispatcher.inbox:
            dispatcher.inbox.extend(self._spool.pop(dispatcher.id))
        if not dispatcher.inbox:
            return None
        if isinstance(dispatcher.inbox[0], DrainMarkerItem):
            dispatcher.check_marker(dispatcher.inbox[0])  # while it is held: if this raises, its ack gets the error
        return dispatcher.inbox.popleft()

    def _take_head(self, dispatcher: Dispatcher) -> Wait:
        """What it waits for, where `head` is a DDL that may not pass yet."""
        head = dispatcher.head
        if isinstance(head, DrainMarkerItem):
            dispatcher.head = None
            if dispatcher.batch is not None:  # the rows of an open intent's file: the marker waits until it is written
                dispatcher.batch.markers.append(head)
                return Wait.NOTHING
            self._spool.flushed((), (head,))
            dispatcher.passing = dispatcher.barriers.pop(head.marker_id, None)
        elif isinstance(head, DataItem) and head.payload.kind == "ddl":
            return self._apply_ddl(dispatcher, head)
        elif isinstance(head, DataItem):
            dispatcher.head = None
            dispatcher.max_commit_ts = head.max_commit_ts
            if dispatcher.batch is None:
                dispatcher.batch = Batch(dispatcher.head_key)
            dispatcher.batch.append(head)
        return Wait.NOTHING

    def _begin_write(self, dispatcher: Dispatcher, reason: FlushReason) -> None:
        batch = dispatcher.batch
        assert batch is not None
        if batch.begun_at is None:
            batch.begun_at = self._clock.monotonic()
        dispatcher.write = self.sink.begin(
            dispatcher,
            batch,
            SpooledBodies(self._spool, batch.items),
            lambda: self._release(dispatcher, batch, reason),
        )

    def _release(self, dispatcher: Dispatcher, batch: Batch, reason: FlushReason) -> None:
        """The last step of a write: callbacks run and the spool's bytes are free."""
        write = dispatcher.write
        assert write is not None
        dispatcher.progress = write.last_seq
        dispatcher.open_until = dispatcher.batch = dispatcher.write = None
        dispatcher.forced = False
        dispatcher.stats.files += 1
        self._wrote(dispatcher, rows=batch.rows, size=write.size)
        self._observe(batch, reason, write.size)
        self._note_flush(dispatcher, batch, reason, write.size)
        self._spool.flushed(batch.items, batch.markers)

    def _note_flush(self, dispatcher: Dispatcher, batch: Batch | None, reason: FlushReason, size: int) -> None:
        """Counts a flush, or a try that failed, and says so in the log, unless that would be too many lines."""
        with self._counting:
            self.stats.flushes[reason.value] += 1
        self._metrics.flush_total.labels(self.sink.changefeed, reason.value).inc()
        held = batch.bytes if batch is not None else 0
        self._flush_log.note(dispatcher, reason, size, batch_bytes=held, spool_bytes=self._spool.bytes)

    def _observe(self, batch: Batch, reason: FlushReason, size: int) -> None:
        changefeed, metrics = self.sink.changefeed, self._metrics
        seconds = self._clock.monotonic() - (batch.begun_at or 0.0)
        metrics.flush_bytes.labels(changefeed, reason.value).observe(size)
        metrics.flush_seconds.labels(changefeed).observe(seconds)
        with self._counting:
            self.stats.write_seconds += seconds
        metrics.rows.labels(changefeed).inc(batch.rows)
        if reason is FlushReason.DDL:
            metrics.ddl_flush_seconds.labels(changefeed).observe(seconds)

    def _apply_ddl(self, dispatcher: Dispatcher, item: PayloadItem) -> Wait:
        """Order: (1) everything before it is at the sink; (2) barrier; (3) the sink has it; (4) progress; (5) release."""
        seq = str(item.payload.last_seq)
        barrier = dispatcher.barriers.get(seq)
        if barrier is not None:
            barrier.arrive(dispatcher.id)
            if not barrier.complete:
                return Wait.BARRIER
        checkpoint_ts = self.sink.apply_ddl(dispatcher, item.payload)
        if checkpoint_ts is None:
            return Wait.KEEPER
        drained = self._clock.monotonic() - item.enqueued_at
        self._metrics.ddl_drain_seconds.labels(self.sink.changefeed).observe(drained)
        _LOG.debug(
            "a DDL is drained", extra={"changefeed": self.sink.changefeed, "ddl": str(item.payload), "seconds": drained}
        )
        dispatcher.progress = item.payload.last_seq
        dispatcher.head = None
        dispatcher.passing = dispatcher.barriers.pop(seq, None)
        dispatcher.stats.ddls += 1
        self._wrote(dispatcher, rows=0, size=0)
        self._spool.flushed((item,))
        if barrier is not None:
            barrier.delivered(dispatcher.id)
        self._on_checkpoint(checkpoint_ts)
        return Wait.NOTHING

    def _wrote(self, dispatcher: Dispatcher, *, rows: int, size: int) -> None:
        stats = dispatcher.stats
        stats.rows += rows
        stats.bytes += size
        stats.last_write_ms = self._clock.wall_ms()
        stats.last_error = None
        stats.attempts = 0
        dispatcher.failing_since = None
        self._wrote_at = self._clock.monotonic()
        with self._counting:
            self.stats.rows_written += rows
            self.stats.bytes_written += size
