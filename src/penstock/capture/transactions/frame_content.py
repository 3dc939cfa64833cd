"""What goes into one frame of the log: an entry, or none, and the state that belongs to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from penstock.binlog.bodies import Query
from penstock.files import Buffer
from penstock.schema.model import TableSchema
from penstock.sources.load import TableLoad
from penstock.sources.position import HeldGroup, OpenTransaction, SourcePosition
from penstock.sources.settings import LoadScope


class Ending(StrEnum):
    """How a transaction ended that leaves nothing, or less than its rows, in the log."""

    ROLLBACK = "rollback"
    ABANDONED = "abandoned"
    UNFINISHED = "unfinished"
    STATEMENT = "statement"  # it was a statement that makes no schema
    XA_PREPARE = "xa-prepare"
    XA_COMMIT = "xa-commit"
    XA_ROLLBACK = "xa-rollback"


@dataclass(frozen=True, slots=True)
class Told:
    """What happened to a transaction, for those who look at a stream (`TransactionCutter(tells=True)`)."""

    ending: Ending
    file: str
    start_pos: int
    gtid: str
    timestamp: int  # of the event that ended it; 0 where none did
    xid: str = ""
    query: Query | None = None


@dataclass(frozen=True, slots=True)
class FrameContent:
    """An entry's buffers (none: state only) and the state after it. `open`: the transaction that is open after it."""

    data: list[Buffer]
    position: SourcePosition
    open: OpenTransaction | None = None
    schemas: tuple[TableSchema, ...] = ()
    transactions: int = 0
    events: int = 0
    held: HeldGroup | None = None  # an XA group that is prepared with this frame
    released: str = ""  # id of an XA group that was committed or rolled back
    missed: str = ""  # id of an XA group that committed, and was prepared before the log's start
    void: int = 0  # commit_ts of the parts that never happened
    void_reason: str = ""
    loads: Mapping[tuple[str, str], TableLoad] = field(default_factory=dict)  # how far the load of these tables is now
    scope: LoadScope | None = None  # which tables are to be loaded by themselves from here on
    told: Told | None = None  # state only: nothing of it goes into the log
