"""One dispatcher during a run: the batch that grows, and the batch that is on its way to the sink.

At most one writer thread works on a dispatcher at a time. Only that thread touches the fields here, except for `phase`
and `again`, which the writer's lock protects, and `enqueued`, which the lock of `ChangefeedDelivery` protects.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from penstock.delivery.barrier import Barrier
from penstock.delivery.flushes import FlushHistory, FlushReason
from penstock.delivery.keeper_client import DispatcherStart
from penstock.delivery.payload import PayloadItem
from penstock.delivery.settings import FlushSettings
from penstock.delivery.sink import BatchWrite
from penstock.delivery.spool import DataItem, DrainMarkerItem, Spool, SpoolItem
from penstock.delivery.spool.items import ITEM_BYTES
from penstock.errors import PenstockError, Terminal, Unavailable
from penstock.log.position import Position, Seq
from penstock.schema.quoting import shell_word


class Phase(Enum):
    """IDLE: waits for items or for its batch to be old enough. BUSY: a writer thread works on it. RETRYING: waits after
    a transient error. DRAINING: waits at a DDL until other tables are drained, or the keeper agrees. LEFT_OUT: its
    writes failed for too long, or took too much of the spool meanwhile, or somebody asked for it; it is replayed later, as a
    new one. STOPPED: after a terminal error; nothing more of it is written in this run."""

    IDLE = "idle"
    BUSY = "busy"
    RETRYING = "retrying"
    DRAINING = "draining"
    LEFT_OUT = "left out"
    STOPPED = "stopped"


def asked_out(dispatcher: Dispatcher) -> PenstockError:
    """Why one that somebody wants left out gets nothing."""
    table = f"{dispatcher.schema}.{dispatcher.table}"
    return Unavailable(f"{table} is paused", hint=f"penstock resume SINK --table {shell_word(table)}")


@dataclass(slots=True)
class Batch:
    """Payloads of one key, in seq order, that will be written as one. Only the sink knows what a key is made of."""

    key: Hashable
    items: list[PayloadItem] = field(default_factory=list)
    markers: list[DrainMarkerItem] = field(
        default_factory=list
    )  # drain markers that came while an older intent was open
    bytes: int = 0
    rows: int = 0
    timed: bool = False  # a timer for its age is set
    begun_at: float | None = None  # when its write was begun, monotonic seconds

    def append(self, item: PayloadItem) -> None:
        self.items.append(item)
        self.bytes += item.size
        self.rows += item.payload.rows

    @property
    def held_bytes(self) -> int:
        """What the spool holds of it, items included."""
        return self.bytes + ITEM_BYTES * len(self.items)

    @property
    def oldest_at(self) -> float:
        return self.items[0].enqueued_at

    @property
    def first_seq(self) -> Seq:
        return self.items[0].payload.first_seq

    @property
    def last_seq(self) -> Seq:
        return self.items[-1].payload.last_seq


@dataclass(slots=True)
class DispatcherStats:
    """Counted since the run began. `last_error` is the newest error after which nothing was written yet."""

    rows: int = 0
    bytes: int = 0
    files: int = 0
    ddls: int = 0
    last_write_ms: int | None = None
    last_error: str | None = None
    attempts: int = 0


@dataclass(slots=True, eq=False)
class Dispatcher:
    """One dispatcher in one run, by whose id the keeper knows its owner. `open_until` is the last row of a batch that an
    earlier owner began and did not finish; None once that is done. `at_sink` is what the sink remembers of it."""

    id: str
    epoch: int
    schema: str
    table: str
    run: str
    progress: Seq | None = None
    at_sink: Any = None
    open_until: Seq | None = None
    enqueued: Seq | None = None  # the last seq that was published; starts at progress
    barrier: Seq | None = None  # `open_until` when the run began: payloads must end there
    phase: Phase = Phase.IDLE
    again: bool = False  # items came while it was BUSY
    stopped: PenstockError | None = None  # why nothing more of it is written in this run
    left_out: PenstockError | None = None  # the same, until it is replayed
    asked_out: bool = False  # somebody wants it left out
    comes_back: bool = False  # it is left out, and is to be replayed
    replaying: bool = False  # and did not rejoin yet
    replayed_to: Position | None = None  # where its next extra range starts
    held_rows: int = 0  # that were published while it was left out, or replayed
    failing_since: float | None = None  # monotonic seconds of the first failure after the last write
    inbox: deque[SpoolItem] = field(default_factory=deque)  # popped and not looked at yet
    head: SpoolItem | None = None
    head_key: Hashable = None  # of `head`, where that is rows
    max_commit_ts: int = 0  # of the rows that were taken from the spool
    batch: Batch | None = None
    write: BatchWrite | None = None  # of `batch`
    forced: bool = False  # `batch` is to be written before its time: the spool is full
    barriers: dict[str, Barrier] = field(default_factory=dict)  # by the seq of their DDL, as text
    passing: Barrier | None = None  # it has arrived and done its part; it goes on when the others have, too
    stats: DispatcherStats = field(default_factory=DispatcherStats)
    flushes: FlushHistory = field(default_factory=FlushHistory)

    @classmethod
    def from_start(cls, dispatcher: str, run: str, start: DispatcherStart, at_sink: Any) -> Dispatcher:
        until = start.intent.last_seq if start.intent is not None else None
        return cls(
            dispatcher,
            start.epoch,
            start.schema,
            start.table,
            run,
            progress=start.progress,
            at_sink=at_sink,
            open_until=until,
            enqueued=start.progress,
            barrier=until,
        )

    def replay(self, start: DispatcherStart, at_sink: Any) -> Dispatcher:
        """The one that takes the place of this one, which is left out: from the keeper's facts on, at a new epoch."""
        again = Dispatcher.from_start(self.id, self.run, start, at_sink)
        again.replaying = True
        again.stats, again.flushes, again.held_rows = self.stats, self.flushes, self.held_rows
        again.stats.attempts, again.stats.last_error = 0, None
        return again

    @property
    def can_be_forced(self) -> bool:
        """Whether its batch only waits to grow. Under the writer's lock."""
        return self.phase is Phase.IDLE and self.batch is not None and self.open_until is None

    def flush_reason(self, now: float, size: int, every: float) -> FlushReason | None:
        """Why the batch must be written before `head` is taken; None while the batch may grow."""
        batch, head = self.batch, self.head
        if self.open_until is not None:
            return self._open_reason(self.open_until)
        if batch is None:
            return None
        if batch.bytes >= size:
            return FlushReason.SIZE
        if isinstance(head, DrainMarkerItem):
            return FlushReason.CLOSE if head.ddl_commit_ts is None else FlushReason.DDL
        if head is not None and head.payload.kind == "ddl":
            return FlushReason.DDL
        if head is not None and self.head_key != batch.key:
            return FlushReason.KEY
        if head is None and now - batch.oldest_at >= every:  # what has piled up goes with it, up to its size
            return FlushReason.INTERVAL
        if head is None and self.forced:
            return FlushReason.QUOTA
        return None

    def _open_reason(self, until: Seq) -> FlushReason | None:
        """While what an earlier owner began is open, only its own rows may be written: exactly up to its last seq."""
        if self.batch is not None and self.batch.last_seq == until:
            return FlushReason.INTENT
        if isinstance(self.head, DataItem):
            beyond = self.head.payload.last_seq > until
            if beyond or (self.batch is not None and self.head_key != self.batch.key):
                raise Terminal(
                    f"{self.schema}.{self.table}: a file is open up to {until}, but {self.head.payload} came before its last row",
                    hint="rows of an open file are missing from the log or were filtered: restore the old source.tables and sinks.NAME.only",
                )
        return None

    def check_marker(self, marker: DrainMarkerItem) -> None:
        """A DDL at T drains rows below T. Rows at or above it in front of its marker would be written before the DDL."""
        if marker.ddl_commit_ts is not None and self.max_commit_ts >= marker.ddl_commit_ts:
            raise Terminal(
                f"{self.schema}.{self.table}: rows at {self.max_commit_ts} came before the DDL at {marker.ddl_commit_ts}"
            )

    def held(self) -> list[SpoolItem]:
        """Takes out every item that was dequeued and is not finished, in order."""
        items: list[SpoolItem] = []
        if self.batch is not None:
            items += [*self.batch.items, *self.batch.markers]
        if self.head is not None:
            items.append(self.head)
        items += self.inbox
        self.inbox.clear()
        self.batch = self.head = self.write = None
        self.forced = False
        return items

    @property
    def state(self) -> str:
        """As people read it."""
        if self.left_out is not None and self.stopped is None:
            return "paused" if self.asked_out else Phase.LEFT_OUT.value
        return "replaying" if self.replaying and self.stopped is None else self.phase.value

    @property
    def in_trouble(self) -> bool:
        """Whether there is something to tell of it but figures: to the run, again and again, thousands that are well are not."""
        return bool(self.stats.last_error or self.stopped or self.left_out or self.asked_out or self.replaying)

    def describe(self) -> dict[str, Any]:
        """For `status`."""
        return {
            "schema": self.schema,
            "table": self.table,
            "epoch": self.epoch,
            "state": self.state,
            "held_rows": self.held_rows,
            "replayed_to": str(self.replayed_to) if self.replaying else None,
            "progress": str(self.progress) if self.progress is not None else None,
            "rows": self.stats.rows,
            "bytes": self.stats.bytes,
            "files": self.stats.files,
            "ddls": self.stats.ddls,
            "last_write_ms": self.stats.last_write_ms,
            "last_error": self.stats.last_error,
            "attempts": self.stats.attempts,
        }

    def describe_closely(self, now: float, flush: FlushSettings, spool: Spool) -> dict[str, Any]:
        """For the point query: also the batch that grows, or is being written, and the flushes before it."""
        batch = self.batch
        items = batch.items[:1] if batch is not None else []
        return {
            "dispatcher": self.id,
            **self.describe(),
            "buffered_bytes": spool.held_bytes(self.id),
            "batch_bytes": batch.bytes if batch is not None else 0,
            "batch_rows": batch.rows if batch is not None else 0,
            "batch_age_seconds": round(now - items[0].enqueued_at, 3) if items else None,
            **self.flushes.describe(now),
            "file_size_target": flush.size,
            "flush_interval_seconds": flush.every,
        }
