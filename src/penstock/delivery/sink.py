"""What delivery asks of a sink, whatever its kind: files in storage now, a message broker later.

Dispatchers and writers know rows, their order and their size. How a sink names, splits and finishes what it writes is its
own: a batch's key and what a sink remembers of a dispatcher are opaque to them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from typing import TYPE_CHECKING, Any, Protocol

from penstock.delivery.payload import Payload
from penstock.files import Buffer
from penstock.log.position import Seq

if TYPE_CHECKING:  # they hold what a sink made
    from penstock.delivery.dispatcher import Batch, Dispatcher
    from penstock.delivery.keeper_client import DispatcherStart


class Bodies(Protocol):
    """The payloads of one batch, in order."""

    def __iter__(self) -> Iterator[Buffer]:
        """From the first one, at each call: a sink may read them twice."""
        ...

    def hold(self, size: int) -> None:
        """Counts bytes that the sink keeps in memory beside them; negative when it has let go of them."""
        ...


class BatchWrite(Protocol):
    """One batch on its way to the sink: a state machine whose steps survive a transient error."""

    @property
    def last_seq(self) -> Seq: ...

    @property
    def size(self) -> int:
        """Bytes at the sink."""
        ...

    @property
    def checkpoint_ts(self) -> int:
        """The keeper's answer to the last step; 0 before."""
        ...

    def advance(self) -> None:
        """Does the steps that are left; the last one is `release`. After a transient error it is called again, later."""
        ...

    def pause(self) -> None:
        """The next try may be far away: lets go of memory."""
        ...


class Sink(Protocol):
    """The sink of one changefeed. Thread-safe; one thread at a time speaks of one dispatcher. Every method may be called
    again after a transient error."""

    changefeed: str

    def recall(self, start: DispatcherStart | None) -> Any:
        """What the sink has to remember of a dispatcher, from the keeper's facts; None: it is new. Only the sink looks
        into it (`Dispatcher.at_sink`)."""
        ...

    def key_of(self, payload: Payload) -> Hashable:
        """Payloads of different keys never share a batch."""
        ...

    def begin(self, dispatcher: Dispatcher, batch: Batch, bodies: Bodies, release: Callable[[], None]) -> BatchWrite:
        """The batch, ready to be written. It continues what an earlier owner began, where there is something open."""
        ...

    def apply_ddl(self, dispatcher: Dispatcher, payload: Payload) -> int | None:
        """Called once everything before the DDL is at the sink. Returns the checkpoint_ts, or None where the keeper does not
        let it pass yet.

        A statement that this sink cannot deliver, or that nobody understood, raises `NotSupported`: the table stops
        there, with everything before it at the sink and everything after it in the log.
        """
        ...

    def put_dead_letter(self, schema: str, table: str, seq: Seq, data: Buffer) -> None:
        """Keeps a row that the format refused, apart from the others; there when it returns."""
        ...

    def describe(self, dispatcher: Dispatcher) -> dict[str, Any]:
        """What `status` shows of a dispatcher beside rows and bytes."""
        ...

    def probe(self) -> None:
        """Raises where the sink does not answer."""
        ...

    def write_checkpoint(self, checkpoint_ts: int, *, at_once: bool) -> None:
        """Tells readers how far the sink is. May be called often; `at_once` at the end of a drain."""
        ...

    def close(self) -> None: ...
