"""An append on its way, and what its caller gets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from penstock.errors import Terminal
from penstock.log.frames.format import Changes
from penstock.log.pending import Pending
from penstock.log.position import Position


class Terminated(Terminal):
    """The log was terminated: nothing is appended any more."""


class Span(NamedTuple):
    """Where a batch is: from `first` to `last`, both included, all in one ledger."""

    first: Position
    last: Position


class AppendRequest(Pending[Any]):
    """An append that waits, and its answer in one object: the hot path makes nothing else.

    What a fresh one has in common with the others stands in the class: four stores make one, not ten.
    """

    _done = False
    _value = None
    _error = None
    _callbacks = None
    _waiters = None
    task: Callable[[], object] | None = None
    ledger_id: int | None = None  # of the entry that `_value` numbers
    after: Pending[Any] | None = None  # where that one failed, this one does too

    def __init__(self, data: Any, changes: Changes, size: int, count: int) -> None:
        self.data = data
        self.changes = changes
        self.size = size
        self.count = count  # 0: one entry, answered by its position; else so many, answered by their span

    def result(self, timeout: float | None = None) -> Any:
        """The answer. A position is made when it is asked for: most are looked at once, if at all."""
        value = super().result(timeout)
        return value if self.ledger_id is None else Position(self.ledger_id, value)
