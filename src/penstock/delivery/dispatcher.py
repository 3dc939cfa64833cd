"""One dispatcher during a run: the batch that grows into a file, and the file that is being written.

At most one writer thread works on a dispatcher at a time. Only that thread touches the fields here, except for `phase`
and `again`, which the writer's lock protects, and `enqueued`, which the lock of `ChangefeedDelivery` protects.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from penstock.delivery.keeper_client import DispatcherStart, Intent
from penstock.delivery.spool import DrainMarker, PayloadItem, SpoolItem
from penstock.delivery.storage.commit import Commit
from penstock.delivery.storage.layout import directory_of, file_number
from penstock.errors import PenstockError, Terminal
from penstock.files import Buffer
from penstock.log.position import Seq


class FlushReason(Enum):
    """Why a batch became a file; the values are those of the metric `flush_total`."""

    SIZE = "size"
    INTERVAL = "interval"  # `flush.every` after its oldest payload came
    DIRECTORY = "directory"  # the next payload belongs to another version or date
    DDL = "ddl"
    CLOSE = "close"  # a flush request, or the end of the process
    INTENT = "intent"  # the last row of a file that was begun before a restart


class Phase(Enum):
    """IDLE: waits for items or for its batch to be old enough. BUSY: a writer thread works on it. RETRYING: waits after
    a transient error. STOPPED: after a terminal error; nothing more of it is written in this run."""

    IDLE = "idle"
    BUSY = "busy"
    RETRYING = "retrying"
    STOPPED = "stopped"


@dataclass(slots=True)
class Batch:
    """Payloads of one data directory, in seq order, that will become one file."""

    version: int
    date: str
    items: list[PayloadItem] = field(default_factory=list)
    markers: list[DrainMarker] = field(default_factory=list)  # drain markers that came while an older intent was open
    bytes: int = 0
    rows: int = 0
    timed: bool = False  # a timer for its age is set
    begun_at: float | None = None  # when its file was begun, monotonic seconds

    def append(self, item: PayloadItem) -> None:
        self.items.append(item)
        self.bytes += item.size
        self.rows += item.payload.rows

    def fits(self, item: PayloadItem) -> bool:
        return (self.version, self.date) == (item.payload.version, item.payload.date)

    @property
    def oldest_at(self) -> float:
        return self.items[0].enqueued_at

    @property
    def first_seq(self) -> Seq:
        return self.items[0].payload.first_seq

    @property
    def last_seq(self) -> Seq:
        return self.items[-1].payload.last_seq

    @property
    def bodies(self) -> list[Buffer]:
        return [item.payload.body for item in self.items]


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
    """One dispatcher in one run. `intent` is the open intent that an earlier owner left, until its file is done."""

    id: str
    epoch: int
    schema: str
    table: str
    progress: Seq | None = None
    last_path: str | None = None
    intent: Intent | None = None
    enqueued: Seq | None = None  # the last seq that was published; starts at progress
    barrier: Seq | None = None  # last seq of the open intent when the run began: payloads must end there
    phase: Phase = Phase.IDLE
    again: bool = False  # items came while it was BUSY
    stopped: PenstockError | None = None  # why nothing more of it is written in this run
    head: SpoolItem | None = None
    batch: Batch | None = None
    commit: Commit | None = None
    schema_version: int | None = None  # the schema file of this version is known to be at the sink
    stats: DispatcherStats = field(default_factory=DispatcherStats)

    @classmethod
    def from_start(cls, dispatcher: str, start: DispatcherStart) -> Dispatcher:
        return cls(
            dispatcher,
            start.epoch,
            start.schema,
            start.table,
            progress=start.progress,
            last_path=start.last_path,
            intent=start.intent,
            enqueued=start.progress,
            barrier=start.intent.last_seq if start.intent is not None else None,
        )

    def next_number(self, directory: str) -> int:
        """The next file's number: one more in the directory of the last file, 1 in any other directory."""
        if self.last_path is not None and directory_of(self.last_path) == directory:
            return file_number(self.last_path) + 1
        return 1

    def flush_reason(self, now: float, size: int, every: float) -> FlushReason | None:
        """Why the batch must become a file before `head` is taken; None while the batch may grow."""
        batch, head = self.batch, self.head
        if self.intent is not None:
            return self._intent_reason(self.intent)
        if batch is None:
            return None
        if batch.bytes >= size:
            return FlushReason.SIZE
        if isinstance(head, DrainMarker):
            return FlushReason.CLOSE
        if head is not None and head.payload.kind == "ddl":
            return FlushReason.DDL
        if head is not None and not batch.fits(head):
            return FlushReason.DIRECTORY
        if now - batch.oldest_at >= every:
            return FlushReason.INTERVAL
        return None

    def _intent_reason(self, intent: Intent) -> FlushReason | None:
        """While the file of an older intent is open, only its own rows may be written: exactly up to its last seq."""
        if self.batch is not None and self.batch.last_seq == intent.last_seq:
            return FlushReason.INTENT
        if isinstance(self.head, PayloadItem):
            beyond = self.head.payload.last_seq > intent.last_seq
            if beyond or (self.batch is not None and not self.batch.fits(self.head)):
                raise Terminal(
                    f"{intent.path} is open up to {intent.last_seq}, but {self.head.payload} came before its last row",
                    hint="rows of an open file are missing from the log or were filtered: restore the old source.tables and sinks.NAME.only",
                )
        return None

    def held(self) -> list[SpoolItem]:
        """Takes out every item that was dequeued and is not finished, in order."""
        items: list[SpoolItem] = []
        if self.batch is not None:
            items += [*self.batch.items, *self.batch.markers]
        if self.head is not None:
            items.append(self.head)
        self.batch = self.head = self.commit = None
        return items

    def describe(self) -> dict[str, Any]:
        """For `status`."""
        return {
            "schema": self.schema,
            "table": self.table,
            "epoch": self.epoch,
            "state": self.phase.value,
            "progress": str(self.progress) if self.progress is not None else None,
            "rows": self.stats.rows,
            "bytes": self.stats.bytes,
            "files": self.stats.files,
            "ddls": self.stats.ddls,
            "last_path": self.last_path,
            "last_write_ms": self.stats.last_write_ms,
            "last_error": self.stats.last_error,
            "attempts": self.stats.attempts,
        }
