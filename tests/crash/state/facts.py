"""What the processes that use a state were told, and so what must be found again after any crash.

Every commit is an entry with its number as data and among its changes, and the state after it is remembered under that
number. So a reopened state must be exactly that of the log's last entry, and this entry must be the last acknowledged one
or a later one that was in flight: a prefix of the commits, with every acknowledged one in it.

A drop of a store has a number too, which is in none of its frames: it is known by the keys that are gone.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from penstock.log import Position

Content = dict[Any, Any]


@dataclass
class StateFacts:
    """`chain`: numbers of the entries that may be in the log, in order. Those up to index `durable` must be there."""

    states: dict[int, Content] = field(default_factory=lambda: {-1: {}})  # only ever grows: copies share it
    positions: dict[int, Position] = field(default_factory=dict)
    chain: list[int] = field(default_factory=lambda: [-1])
    durable: int = 0
    truncating: int | None = None  # a truncation to this number was begun: a crash may leave it done or not
    next_number: int = 0
    drops: bool = False  # a store was dropped, or may have been

    def copy(self) -> StateFacts:
        return StateFacts(
            self.states,
            dict(self.positions),
            self.chain[:],
            self.durable,
            self.truncating,
            self.next_number,
            self.drops,
        )

    @property
    def newest(self) -> Content:
        return self.states[self.chain[-1]]

    def commit(self, content: Content) -> int:
        number = self.next_number
        self.next_number += 1
        self.states[number] = content
        self.chain.append(number)
        return number

    def acknowledge(self, number: int, position: Position) -> None:
        if number in self.chain:
            self.durable = max(self.durable, self.chain.index(number))
            self.positions[number] = position

    def allowed(self) -> list[int]:
        cut = [] if self.truncating is None else [self.truncating]
        return [*self.chain[self.durable :], *cut]

    def truncated(self, number: int) -> None:
        del self.chain[self.chain.index(number) + 1 :]
        self.durable = len(self.chain) - 1
        self.truncating = None

    def found(self, number: int) -> None:
        """From here on, what a reopen found is what must be found again."""
        self.truncated(number)
