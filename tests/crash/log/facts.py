"""What the processes that use a log were told, and so what must be found again after any crash."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

from penstock.errors import Fenced, OutcomeUnknown
from penstock.log import Position
from tests.crash.framework.promises import Violation, must

CURSORS_MIN = 2  # every program has at least that many


@dataclass
class CursorFacts:
    """`versions`: the set of acked entries after each operation that was sent, in order. Those up to index `durable` were
    acknowledged; a crash may leave any version from there on."""

    versions: list[frozenset[int]] = field(default_factory=lambda: [frozenset()])
    durable: int = 0

    @property
    def newest(self) -> frozenset[int]:
        return self.versions[-1]

    def copy(self) -> CursorFacts:
        return CursorFacts(self.versions[self.durable :])

    def send(self, acked: frozenset[int]) -> int:
        self.versions.append(acked)
        return len(self.versions) - 1

    def confirm(self, version: int) -> None:
        self.durable = max(self.durable, version)


@dataclass
class LogFacts:
    """Entries are named by the order in which they were submitted: 0, 1, …"""

    payloads: list[bytes] = field(default_factory=list)  # only ever grows: copies share it
    durable: dict[int, Position] = field(default_factory=dict)
    in_flight: set[int] = field(default_factory=set)
    failed: set[int] = field(default_factory=set)  # their owner got an error: they may be there or not
    refused: set[int] = field(default_factory=set)  # their owner got an error that says: they never appear
    cursors: dict[str, CursorFacts] = field(default_factory=dict)
    removable: int = 0  # entries below this number may be gone
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
            self.epoch,
            self.newest,
        )

    def submit(self, payload: bytes) -> int:
        self.payloads.append(payload)
        self.in_flight.add(len(self.payloads) - 1)
        return len(self.payloads) - 1

    def acknowledge(self, number: int, position: Position) -> None:
        self.in_flight.discard(number)
        self.durable[number] = position
        must(position > self.newest, f"entry {number} got position {position}, after {self.newest} was given")
        self.newest = position

    def confirm(self, cursor: CursorFacts, version: int) -> None:
        """An ack was acknowledged. What every cursor has passed may be trimmed from here on."""
        cursor.confirm(version)
        self._update_removable()

    def _update_removable(self) -> None:
        if len(self.cursors) < CURSORS_MIN:
            return  # a cursor that is not made yet may need everything
        passed = [self._passed(other.versions[other.durable]) for other in self.cursors.values()]
        self.removable = max(self.removable, min(passed))

    def _passed(self, acked: frozenset[int]) -> int:
        for number in self.durable:
            if number not in acked:
                return number
        return max(self.durable, default=-1) + 1

    def fail(self, number: int, error: BaseException | None) -> None:
        self.in_flight.discard(number)
        unknown = isinstance(error, OutcomeUnknown | Fenced)
        (self.failed if unknown else self.refused).add(number)

    def check_entries(self, found: list[tuple[int, Position, bytes]]) -> None:
        """`found`: what a reopened log holds, as (number, position, data)."""
        numbers = [number for number, _, _ in found]
        for number, _, data in found:
            must(
                0 <= number < len(self.payloads) and data == self.payloads[number],
                f"entry {number} is not what was appended",
            )
        must(all(a < b for a, b in itertools.pairwise(numbers)), f"out of order or twice: {numbers}")
        must(all(a[1] < b[1] for a, b in itertools.pairwise(found)), "positions do not ascend")
        there = set(numbers)
        must(not there & self.refused, f"refused entries came back: {sorted(there & self.refused)}")
        first = numbers[0] if numbers else len(self.payloads)
        for number, position in self.durable.items():
            if number not in there:
                must(number < self.removable, f"acknowledged entry {number} at {position} is lost; found {numbers}")
                must(number < first, f"a hole at entry {number}: found {numbers}")
        for number, position, _ in found:
            must(self.durable.get(number, position) == position, f"entry {number} moved to {position}")
        last = numbers[-1] if numbers else -1
        holes = [n for n in self.in_flight - there if self.removable <= n < last]
        must(not holes, f"a hole at {holes}, which were in flight, but {last} is there")

    def check_cursor(self, name: str, acked: set[int], there: set[int]) -> None:
        facts = self.cursors.setdefault(name, CursorFacts())
        allowed = [version & there for version in facts.versions[facts.durable :]]
        if acked not in allowed:
            lost = sorted(allowed[0] - acked)
            raise Violation(
                f"cursor {name}: acks of {lost} are lost" if lost else
                f"cursor {name} has {sorted(acked)} acked, allowed are {[sorted(version) for version in allowed]}"
            )  # fmt: skip

    def reopened(self, found: list[tuple[int, Position, bytes]], acked: dict[str, set[int]]) -> None:
        """From here on, what was found is what must be found again."""
        self.durable = {number: position for number, position, _ in found}
        self.in_flight.clear()
        self.failed.clear()
        self.newest = max([self.newest, *self.durable.values()])
        for name, numbers in acked.items():
            kept = self.cursors[name].newest if name in self.cursors else frozenset()
            gone = frozenset(n for n in kept if n not in self.durable)
            self.cursors[name] = CursorFacts([frozenset(numbers) | gone])
        self._update_removable()  # acks that were in flight may have become durable
