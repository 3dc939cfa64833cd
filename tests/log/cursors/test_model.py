"""A cursor against a plain set, under any sequence of operations, kills and power cuts.

Every operation is waited for, so after a crash the state must be exactly that of the model. A failure prints the steps
that lead to it.
"""

from __future__ import annotations

import random
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from penstock.clock import ManualClock
from penstock.errors import BadInput
from penstock.files.memory import MemoryFiles
from penstock.log import Cursor, Log, LogSettings, Position
from penstock.log.cursors import acks as acks_module
from penstock.metadata import MemoryMetadata
from tests.support.budget import CURSOR_MODELS

DIRECTORY = Path("/s/log")
SETTINGS = LogSettings(ledger_entries_max=4, preallocate_bytes=0, retention_seconds=0, maintenance_interval_seconds=0)
INDEX = st.integers(0, 1 << 30)


class CursorModel(RuleBasedStateMachine):
    """`sizes` are the entries that are kept, in order; `acked` those of them that are done."""

    @initialize(seed=st.integers(0, 1 << 30))
    def begin(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.files, self.metadata, self.clock = MemoryFiles(), MemoryMetadata(), ManualClock()
        self.sizes: dict[Position, int] = {}
        self.acked: set[Position] = set()
        self.properties: dict[str, str] = {}
        self.next_read: Position = Position(0, -1)
        self.open()

    def open(self) -> None:
        self.log = Log.open(DIRECTORY, SETTINGS, self.files, self.clock, self.metadata)
        self.open_cursor()

    def open_cursor(self) -> None:
        self.cursor: Cursor = self.log.open_cursor("c")
        self.next_read = self.first_unacked()

    def teardown(self) -> None:
        if hasattr(self, "log"):
            self.log.close()

    # -- the model -----------------------------------------------------------------------------------------------

    def pick(self, index: int) -> Position:
        return list(self.sizes)[index % len(self.sizes)]

    def prefix(self) -> int:
        return next((n for n, position in enumerate(self.sizes) if position not in self.acked), len(self.sizes))

    def first_unacked(self) -> Position:
        return next((p for p in self.sizes if p not in self.acked), Position(1 << 40, 0))

    def unacked(self) -> list[Position]:
        return [position for position in self.sizes if position not in self.acked]

    def to_read(self) -> list[Position]:
        """An end of the log as read position means: whatever comes after it."""
        return [position for position in self.unacked() if position >= self.next_read]

    # -- operations ----------------------------------------------------------------------------------------------

    @rule(count=st.integers(1, 7), size=st.integers(0, 40))
    def append(self, count: int, size: int) -> None:
        at_end = self.next_read > max(self.sizes, default=Position(0, 0))
        first: Position | None = None
        for n in range(count):
            position = self.log.append(b"x" * (size + n)).result()
            self.sizes[position] = size + n
            first = first or position
        if at_end and first is not None:
            self.next_read = first

    @rule(index=INDEX, length=st.integers(0, 9))
    def ack_range(self, index: int, length: int) -> None:
        if not self.sizes:
            return
        positions = list(self.sizes)
        first = index % len(positions)
        last = min(first + length, len(positions) - 1)
        self.cursor.ack(positions[first], positions[last]).result()
        self.acked.update(positions[first : last + 1])

    @rule(indexes=st.lists(INDEX, max_size=8))
    def ack_each(self, indexes: list[int]) -> None:
        if not self.sizes:
            return
        positions = [self.pick(index) for index in indexes]
        self.cursor.ack_each(positions).result()
        self.acked.update(positions)

    @rule(index=INDEX)
    def ack_one(self, index: int) -> None:
        if not self.sizes:
            return
        self.cursor.ack(self.pick(index)).result()
        self.acked.add(self.pick(index))

    @rule(index=INDEX)
    def mark_delete(self, index: int) -> None:
        if not self.sizes:
            return
        number = index % len(self.sizes)
        position = self.pick(index)
        if number < self.prefix() - 1:
            with pytest.raises(BadInput, match="cannot go back"):
                self.cursor.mark_delete(position)
            return
        self.cursor.mark_delete(position).result()
        self.acked.update(list(self.sizes)[: number + 1])

    @rule()
    def beyond_the_end(self) -> None:
        end = self.log.end()
        with pytest.raises(BadInput, match="ends at"):
            self.cursor.ack(Position(end.ledger_id, end.entry_id + 1))
        with pytest.raises(BadInput, match="ends at"):
            # Far ahead: each reopen begins a ledger, and the end of a log without entries stays behind.
            self.cursor.mark_delete(Position(end.ledger_id + 1000, 0))

    @rule(count=st.integers(0, 9))
    def skip(self, count: int) -> None:
        self.cursor.skip(count).result()
        wanted = self.unacked()[:count]
        if wanted:
            self.acked.update(position for position in self.sizes if position <= wanted[-1])
        if self.next_read <= max(self.acked, default=Position(0, -1)):
            self.next_read = max(self.next_read, self.first_unacked())

    @rule()
    def clear_backlog(self) -> None:
        self.cursor.clear_backlog().result()
        self.acked = set(self.sizes)
        self.next_read = Position(1 << 40, 0)

    @rule(index=INDEX)
    def reset(self, index: int) -> None:
        if not self.sizes:
            return
        target = self.pick(index)
        self.cursor.reset(target).result()
        self.acked = {position for position in self.sizes if position < target}
        self.next_read = target

    @rule(index=INDEX)
    def seek(self, index: int) -> None:
        if not self.sizes:
            return
        self.cursor.seek(self.pick(index))
        self.next_read = self.pick(index)

    @rule()
    def rewind(self) -> None:
        self.cursor.rewind()
        self.next_read = self.first_unacked()

    @rule(count=st.integers(1, 9), max_bytes=st.none() | st.integers(1, 100))
    def read(self, count: int, max_bytes: int | None) -> None:
        expected: list[Position] = []
        total = 0
        for position in self.to_read():
            expected.append(position)
            total += self.sizes[position]
            if len(expected) >= count or (max_bytes is not None and total >= max_bytes):
                break
        found = self.cursor.read(count, max_bytes)
        assert [entry.position for entry in found] == expected
        assert [len(entry.data) for entry in found] == [self.sizes[position] for position in expected]
        left = [position for position in self.to_read() if position not in expected]
        if expected or not left:
            self.next_read = left[0] if left else Position(1 << 40, 0)

    @rule(value=st.text(max_size=3))
    def set_properties(self, value: str) -> None:
        self.properties = {"p": value}
        self.cursor.set_properties(self.properties).result()

    @rule()
    def roll(self) -> None:
        self.log.roll()

    @rule()
    def trim(self) -> None:
        self.log.trim()
        first = self.log.reader().first
        gone = [position for position in self.sizes if position < first]
        assert self.acked.issuperset(gone), "an entry that was not acked is gone"
        for position in gone:
            del self.sizes[position]
        self.acked &= set(self.sizes)

    @rule()
    def reopen_cursor(self) -> None:
        self.cursor.close()
        self.open_cursor()

    @rule()
    def reopen(self) -> None:
        self.log.close()
        self.open()

    @rule(how=st.sampled_from(["kill", "power"]))
    def crash(self, how: str) -> None:
        after = self.files.kill() if how == "kill" else self.files.crash(self.rng)
        metadata = self.metadata.copy()
        self.log.close()
        self.files, self.metadata = after, metadata
        self.open()

    # -- what must hold ------------------------------------------------------------------------------------------

    @invariant()
    def agrees(self) -> None:
        if not hasattr(self, "cursor"):
            return
        assert [p for p in self.sizes if self.cursor.is_acked(p)] == [p for p in self.sizes if p in self.acked]
        assert self.cursor.backlog() == len(self.unacked())
        assert self.cursor.backlog_bytes() == sum(self.sizes[position] for position in self.unacked())
        mark = self.cursor.mark_delete_position
        assert sum(position <= mark for position in self.sizes) == self.prefix()
        assert mark <= max(self.log.end(), Position(self.log.reader().first.ledger_id, -1))
        assert self.cursor.has_more() == bool(self.to_read())
        assert self.cursor.properties() == self.properties
        nth = self.cursor.nth(2)
        assert (nth and nth.position) == (self.unacked()[1] if len(self.unacked()) > 1 else None)


def test_a_cursor_agrees_with_a_set_whatever_happens() -> None:
    with mock.patch.object(acks_module, "_COMPACT_BYTES_MIN", 600):
        run_state_machine_as_test(
            CursorModel,
            settings=settings(
                max_examples=CURSOR_MODELS,
                stateful_step_count=50,
                deadline=None,
                print_blob=True,
                phases=[Phase.reuse, Phase.generate],  # no shrinking: a model opens a log, so that takes minutes
                suppress_health_check=list(HealthCheck),
            ),
        )
