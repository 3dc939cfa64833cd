"""What the processes that use a log were told, and so what must be found again after any crash."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.errors import Fenced, OutcomeUnknown
from penstock.log import Position
from tests.crash.framework.promises import must
from tests.crash.log.cursor_facts import CursorFacts

CURSORS_MIN = 2  # every program has at least that many

Found = list[tuple[int, Position, bytes]]  # what a log holds, as (number, position, data)


@dataclass
class LogFacts:
    """Entries are named by the order in which they were submitted: 0, 1, …"""

    payloads: list[bytes] = field(default_factory=list)  # only ever grows: copies share it
    durable: dict[int, Position] = field(default_factory=dict)  # acknowledged, or seen by a reader
    in_flight: set[int] = field(default_factory=set)
    failed: set[int] = field(default_factory=set)  # their owner got an error: they may be there or not
    refused: set[int] = field(default_factory=set)  # nobody may ever find them (again)
    cursors: dict[str, CursorFacts] = field(default_factory=dict)
    removable: int = 0  # entries below this number may be gone
    truncating: range = range(0)  # entries that go all together, or none of them
    epoch: int = 0  # the highest that an owner got
    newest: Position = field(default_factory=lambda: Position(0, -1))

    def copy(self) -> LogFacts:
        return LogFacts(
            self.payloads,
            dict(self.durable),
            set(self.in_flight),
            set(self.failed),
            set(self.refused),
            {name: cursor.copy() for name, cursor in self.cursors.items()},
            self.removable,
            self.truncating,
            self.epoch,
            self.newest,
        )

    # -- appends -------------------------------------------------------------------------------------------------

    def submit(self, payload: bytes) -> int:
        self.payloads.append(payload)
        self.in_flight.add(len(self.payloads) - 1)
        return len(self.payloads) - 1

    def acknowledge(self, number: int, position: Position) -> None:
        must(number not in self.refused, f"entry {number} is acknowledged, but the log does not have it")
        self.in_flight.discard(number)
        if number in self.durable:  # seen by a reader, or found by another owner
            must(self.durable[number] == position, f"entry {number} is at {self.durable[number]}, not at {position}")
        else:
            must(position > self.newest, f"entry {number} got position {position}, after {self.newest} was given")
        self.durable[number] = position
        self.newest = max(self.newest, position)

    def fail(self, number: int, error: BaseException | None) -> None:
        self.in_flight.discard(number)
        if isinstance(error, OutcomeUnknown | Fenced):
            self.failed.add(number)
            return
        must(number not in self.durable, f"entry {number} was refused ({error!r}), but somebody read it")
        self.refused.add(number)

    # -- cursors, and what may go --------------------------------------------------------------------------------

    def confirm(self, cursor: CursorFacts, version: int) -> None:
        """An ack was acknowledged. What every cursor has passed may be trimmed from here on."""
        cursor.confirm(version)
        self.update_removable()

    def update_removable(self) -> None:
        if len(self.cursors) < CURSORS_MIN:
            return  # a cursor that is not made yet may need everything
        passed = [self._passed(cursor.versions[cursor.durable] or frozenset())
                  for cursor in self.cursors.values() if cursor.is_there]  # fmt: skip
        self.removable = max(self.removable, min(passed))

    def _passed(self, acked: frozenset[int]) -> int:
        """Entries that may be gone hold nothing: a cursor that is opened after a trim has no acks of what went."""
        for number in self.durable:
            if number >= self.removable and number not in acked:
                return number
        return max(self.durable, default=-1) + 1

    def truncate(self, kept: int) -> None:
        """A truncation begins: of the entries submitted so far, those after `kept` may go, all together."""
        self.truncating = range(kept + 1, len(self.payloads))

    def truncated(self, *, made: bool) -> None:
        """It ended."""
        if made:
            self._never_again(set(self.truncating))
        self.truncating = range(0)

    def cleared(self, found: Found) -> None:
        """The log was emptied as far as it could be; `found` is left."""
        there = {number for number, _, _ in found}
        self._never_again({number for number in self.durable if number not in there})

    def _never_again(self, numbers: set[int]) -> None:
        self.refused |= numbers
        self.failed -= numbers
        self.durable = {number: at for number, at in self.durable.items() if number not in numbers}

    # -- what was found ------------------------------------------------------------------------------------------

    def check_entries(self, found: Found) -> None:
        """`found`: all that a log holds, as its owner or a reader sees it."""
        numbers = [number for number, _, _ in found]
        for number, _, data in found:
            must(
                0 <= number < len(self.payloads) and data == self.payloads[number],
                f"entry {number} is not what was appended",
            )
        must(all(a < b for a, b in itertools.pairwise(numbers)), f"out of order or twice: {numbers}")
        must(all(a[1] < b[1] for a, b in itertools.pairwise(found)), "positions do not ascend")
        there = set(numbers)
        must(there.isdisjoint(self.refused), f"entries that were refused or removed came back: {there & self.refused}")
        cut = self.truncating if there.isdisjoint(self.truncating) else range(0)
        first = numbers[0] if numbers else len(self.payloads)
        for number, position in self.durable.items():
            if number not in there and number not in cut:
                must(number < self.removable, f"acknowledged entry {number} at {position} is lost; found {numbers}")
                must(number < first, f"a hole at entry {number}: found {numbers}")
        for number, position, _ in found:
            must(self.durable.get(number, position) == position, f"entry {number} moved to {position}")
        last = numbers[-1] if numbers else -1
        holes = [n for n in self.in_flight - there if self.removable <= n < last]
        must(not holes, f"a hole at {holes}, which were in flight, but {last} is there")

    def seen(self, found: Found) -> None:
        """A reader was shown these entries: from here on they are durable, whatever their owner is told."""
        for number, position, _ in found:
            self.durable.setdefault(number, position)

    def reopened(self, found: Found, acked: Mapping[str, set[int] | None]) -> None:
        """From here on, what was found is what must be found again, and nothing else. `acked`: of every cursor that is
        there; None for one that nobody looked into."""
        there = {number for number, _, _ in found}
        self._never_again({number for number in range(len(self.payloads)) if number not in there})
        self.durable = {number: position for number, position, _ in found}
        self.in_flight.clear()
        self.failed.clear()
        self.truncating = range(0)
        self.newest = max([self.newest, *self.durable.values()])
        self.cursors = {name: self.cursors.get(name, CursorFacts()).found(acked[name], there) for name in acked}
        self.update_removable()  # acks that were in flight may have become durable
