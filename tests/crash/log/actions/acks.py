"""Cursors ack, move and are set back."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from penstock.log import Pending
from tests.crash.framework.program import Session
from tests.crash.framework.promises import must
from tests.crash.log.cursor_facts import CursorFacts
from tests.crash.log.world import LogWorld, Opened


class Acks(Session[LogWorld, Opened]):
    def ack(self) -> None:
        """One entry, or a few in a row."""
        entries = list(self.facts.durable.items())
        if not entries:
            return
        first = self.rng.randrange(len(entries))
        last = min(first + self.rng.choice((0, 0, 0, 1, 5)), len(entries) - 1)
        self._send(self._any_cursor(), {number for number, _ in entries[first : last + 1]},
                   lambda cursor: cursor.ack(entries[first][1], entries[last][1]))  # fmt: skip

    def mark_delete(self) -> None:
        name = self._any_cursor()
        cursor = self.opened.cursors[name]
        entries = [(n, p) for n, p in self.facts.durable.items() if p > cursor.mark_delete_position]
        unacked = [(n, p) for n, p in entries if not cursor.is_acked(p)]
        if not unacked:
            return
        number, position = unacked[self.rng.randrange(min(3, len(unacked)))]
        self._send(name, {n for n in self.facts.durable if n <= number}, lambda cursor: cursor.mark_delete(position))

    def ack_each(self) -> None:
        """Some entries, with gaps."""
        entries = [(n, p) for n, p in self.facts.durable.items() if self.rng.random() < 0.4]
        if entries:
            positions = [position for _, position in entries]
            self._send(self._any_cursor(), {n for n, _ in entries}, lambda cursor: cursor.ack_each(positions))

    def clear_backlog(self) -> None:
        self._send(self._any_cursor(), set(self.facts.durable), lambda cursor: cursor.clear_backlog())

    def reset(self) -> None:
        """Back or forward to an entry that cannot have been trimmed."""
        entries = [(n, p) for n, p in self.facts.durable.items() if n >= self.facts.removable]
        if entries:
            number, position = self.rng.choice(entries)
            self._send(self._any_cursor(), {n for n in self.facts.durable if n < number},
                       lambda cursor: cursor.reset(position), forget=True)  # fmt: skip

    def _any_cursor(self) -> str:
        return self.rng.choice(sorted(self.opened.cursors))

    def _send(self, name: str, numbers: set[int], send: Callable[..., Pending[None]], *, forget: bool = False) -> None:
        facts = self.facts.cursors[name]
        assert facts.newest is not None
        version = facts.send(frozenset(numbers) if forget else facts.newest | numbers)
        send(self.opened.cursors[name]).add_done_callback(partial(self._acked, name, facts, version))
        self.let_run()

    def _acked(self, name: str, facts: CursorFacts, version: int, done: Pending[None]) -> None:
        if self.dead or done.exception() is not None:
            return
        # Where another owner came meanwhile, it must have found what is acknowledged now.
        lost = (facts.versions[version] or frozenset()) & facts.unacked_since
        must(not lost, f"cursor {name}: its old owner acknowledged acks of {lost}, which the new one did not find")
        self.facts.confirm(facts, version)
