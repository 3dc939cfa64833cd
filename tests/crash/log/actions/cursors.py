"""A cursor is made, used, deleted, and made again under the same name, by this process or by another one."""

from __future__ import annotations

import random

from penstock.errors import Unavailable
from penstock.log import Cursor, LogReader, Position
from penstock.log.cursors.registry import find
from tests.crash.framework.program import Session
from tests.crash.framework.promises import must
from tests.crash.framework.stepping import STEPS
from tests.crash.log.cursor_facts import CursorFacts
from tests.crash.log.world import DIRECTORY, PASSING, LogWorld, Opened, read_all


class Cursors(Session[LogWorld, Opened]):
    def __init__(self, world: LogWorld, rng: random.Random, opened: Opened) -> None:
        super().__init__(world, rng, opened)
        self._deleting: CursorFacts | None = None  # it is being deleted
        self._made_again: Cursor | None = None  # by another process, while we deleted its predecessor

    def come_or_go(self) -> None:
        STEPS.pump()
        if self.facts.in_flight:
            return
        facts = self.facts.cursors.get(PASSING)
        if facts is None:
            self._come()
        elif PASSING not in self.opened.cursors:
            self.world.open_passing(self.opened)
        elif self.rng.random() < 0.6:
            self._go(facts)
        else:  # closed, and opened again
            self.opened.cursors.pop(PASSING).close()
            self.world.open_passing(self.opened)

    def _come(self) -> None:
        opened, durable = self.opened, self.facts.durable
        there = read_all(opened.reader)
        start: str | Position = self.rng.choice(("earliest", "latest"))
        passed = {number for number, _, _ in there} if start == "latest" else set()
        if there and self.rng.random() < 0.4:
            last, start, _ = self.rng.choice(there)
            passed = {number for number, _, _ in there if number <= last}
        facts = self.facts.cursors[PASSING] = CursorFacts([None])
        version = facts.send(frozenset(passed))
        with self.world.opens_cursor():
            cursor = opened.log.open_cursor(PASSING, start)  # type: ignore[arg-type]
        self.facts.confirm(facts, version)
        kept = {number for number, _, _ in read_all(opened.reader)}  # what was trimmed meanwhile counts as acked
        acked = {number for number, position, _ in there if number in kept and cursor.is_acked(position)}
        must(acked == passed & kept, f"a new cursor at {start} has {acked} acked, not {passed}; {durable}")
        opened.cursors[PASSING] = cursor

    def _go(self, facts: CursorFacts) -> None:
        opened = self.opened
        self.close_made_again()
        version = facts.send(None)
        self.facts.update_removable()
        self._deleting, self._made_again = facts, None
        try:
            opened.log.delete_cursor(PASSING)
        finally:
            self._deleting = None
        opened.cursors.pop(PASSING, None)
        facts.confirm(version)
        if self._made_again is None:
            del self.facts.cursors[PASSING]
        else:
            names = [info.name for info in opened.log.cursors()]
            must(PASSING in names, "the deletion of a cursor took its successor, which was made meanwhile")
            opened.cursors[PASSING] = self._made_again
            self.facts.update_removable()

    def close_made_again(self) -> None:
        """The other process closes the cursor that it made: while it has it open, the log can neither delete nor move it."""
        if self._made_again is not None and self.opened.cursors.get(PASSING) is self._made_again:
            self.opened.cursors.pop(PASSING).close()

    def make_again(self) -> None:
        """Another process makes the cursor again in the moment in which its deletion ends."""
        facts = self._deleting
        known = find(self.world.metadata, DIRECTORY.name, PASSING)
        if facts is None or self._made_again is not None or (known is not None and not known.deleting):
            return
        process = self.world.process()
        reader = LogReader.open(DIRECTORY, process.files, process.metadata)
        version = facts.send(frozenset())
        try:
            cursor = Cursor.open(reader, DIRECTORY / "cursors", PASSING, files=process.files)
        except Unavailable:  # we still hold the lock
            facts.versions.pop()
            return
        found = read_all(reader)
        acked = {number for number, position, _ in found if cursor.is_acked(position)}
        must(not acked, f"the new cursor {PASSING} has acks of its predecessor: {acked}")
        if found and self.rng.random() < 0.5:
            passed = facts.send(frozenset({found[0][0]}))
            cursor.ack(found[0][1]).result()
            version = passed
        if self.rng.random() < 0.5:
            cursor.close()
            cursor = Cursor.open(reader, DIRECTORY / "cursors", PASSING, files=process.files)
        facts.confirm(version)
        self._made_again = cursor
