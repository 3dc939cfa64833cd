"""What is in the queues: `DataItem`, an encoded payload, and `DrainMarkerItem`, a place in a dispatcher's order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from penstock.delivery.spool.segment_format import PAYLOAD_BYTES_MAX, RECORD_HEADER_BYTES
from penstock.errors import PenstockError
from penstock.files import Buffer

if TYPE_CHECKING:
    from penstock.delivery.spool.segment import Segment

# What an item takes in memory beside its body: the item, its header, its places in queues and in a segment's table.
# Measured with tracemalloc; a test holds it to what is really held.
ITEM_BYTES = 1300

H = TypeVar("H")
PostFlush = Callable[[], None]
Dropped = Callable[[PenstockError], None]
Ack = Callable[[PenstockError | None], None]  # None: everything before the marker is at the sink


class Place(Enum):
    """Where an item's body is. NEW: not in the spool yet. SPILLING: in memory, and being written to a segment. GONE: the
    spool has let go of it, and its callbacks have run."""

    NEW = "new"
    MEMORY = "memory"
    SPILLING = "spilling"
    DISK = "disk"
    GONE = "gone"


class DiskPointer(NamedTuple):
    """A whole record of a segment; `length` is that of the payload."""

    segment: Segment
    offset: int
    length: int

    @property
    def record_bytes(self) -> int:
        return RECORD_HEADER_BYTES + self.length


@dataclass(slots=True, eq=False)
class DataItem(Generic[H]):
    """A payload in its dispatcher's order. `payload` is what its writer has to know beside the bytes: the spool never
    looks at it, and it stays in memory.

    `post_flush` run once, only after the item is at the sink. `on_drop` runs once if it is dropped instead.
    """

    dispatcher: str
    payload: H
    body: Buffer | None  # None once it is on disk, and once it is gone
    first_commit_ts: int
    max_commit_ts: int
    enqueued_at: float  # monotonic seconds; a batch's age counts from its oldest item
    post_flush: tuple[PostFlush, ...] = ()
    on_drop: Dropped | None = None
    pinned: bool = False  # never spilled: a DDL, which is small and needed whole
    overhead: int = ITEM_BYTES  # held in memory wherever the body is
    size: int = field(init=False)
    place: Place = field(default=Place.NEW, init=False)
    staged: bool = field(default=False, init=False)  # in no queue yet: its range is not published
    pointer: DiskPointer | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.size = 0 if self.body is None else len(self.body)
        self.pinned = self.pinned or self.size > PAYLOAD_BYTES_MAX


@dataclass(slots=True, eq=False)
class DrainMarkerItem:
    """Everything before it in its dispatcher's queue is at the sink once `ack` runs without an error; rows before it
    have a commit_ts below `ddl_commit_ts`. It is tiny, never spilled, and carries no `post_flush`."""

    dispatcher: str
    ack: Ack | None = None
    ddl_commit_ts: int | None = None  # None: a flush on request
    marker_id: str = ""
    enqueued_at: float = 0.0


SpoolItem = DataItem[Any] | DrainMarkerItem


def acknowledge(marker: DrainMarkerItem, error: PenstockError | None) -> None:
    """Runs the marker's ack, once."""
    ack, marker.ack = marker.ack, None
    if ack is not None:
        ack(error)
