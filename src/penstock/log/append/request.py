"""One append on its way to the disk, and what its caller gets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.errors import Terminal
from penstock.log.frames.format import Changes
from penstock.log.pending import Pending
from penstock.log.position import Position, Span


class Terminated(Terminal):
    """The log was terminated: nothing is appended any more."""


class AppendRequest(Pending[Any]):
    """A waiting append and its answer in one object: the hot path makes no other.

    The attributes that every new request starts with are set on the class, so that making one stores four values, not
    twelve. A request that was answered holds its answer and nothing else: whoever keeps it keeps neither the entry nor,
    through `after`, all appends before it.
    """

    _done = False
    _value = None
    _error = None
    _callbacks = None
    _waiters = None
    task: Callable[[], object] | None = None  # called on the writer thread in place of an append
    ledger_id: int | None = None  # of the entry whose number is `_value`
    after: Pending[Any] | None = None  # where that append failed, this one fails too

    def __init__(self, data: Any, changes: Changes, size: int, count: int) -> None:
        self.data = data
        self.changes = changes
        self.size = size
        # 0: one entry, answered by its position; above 0: so many entries, answered by their span; below 0: one entry that
        # stands for -count messages, answered by its position.
        self.count = count

    def result(self, timeout: float | None = None) -> Any:
        """The answer. A position is made when it is asked for: most are looked at once, if at all."""
        value = super().result(timeout)
        return value if self.ledger_id is None else Position(self.ledger_id, value)

    def complete(self, value: Any) -> None:
        self.task = None
        super().complete(value)

    def fail(self, error: BaseException) -> None:
        self.task = self.data = self.after = None
        self.changes = ()
        super().fail(error)


__all__ = ["AppendRequest", "Span", "Terminated"]
