"""Entries come: one by one and in batches, through one handle on the log or several."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import partial

from penstock.errors import Closed
from penstock.log import Log, Pending, Position, Span
from tests.crash.framework.program import Session
from tests.crash.framework.promises import must
from tests.crash.log.world import DIRECTORY, LogWorld, Opened

SIZES = (0, 10, 400, 700, 1500)


class Appends(Session[LogWorld, Opened]):
    def __init__(self, world: LogWorld, rng: random.Random, opened: Opened) -> None:
        super().__init__(world, rng, opened)
        self._handles: list[Log] = []  # of other openers in the same process

    def append(self) -> None:
        """A group of one to four."""
        for _ in range(self.rng.choice((1, 1, 2, 4))):
            number, data = self.submit()
            self._append(number, data).add_done_callback(partial(self._appended, number))
        self.let_run()

    def submit(self) -> tuple[int, bytes]:
        number = len(self.facts.payloads)
        data = b"%d|" % number + bytes([number % 251]) * self.rng.choice(SIZES)
        self.facts.submit(data)
        return number, data

    def _append(self, number: int, data: bytes) -> Pending[Position]:
        """With the state, if there is one; else through any handle."""
        if self._handles and self.opened.state is None:
            return self.rng.choice([self.opened.log, *self._handles]).append(data)
        return self.opened.append(number, data)

    def append_many(self) -> None:
        """A batch with one answer. Batches carry no state, so this is done only where the log has none."""
        if self.opened.state is not None:
            return
        numbers = range(len(self.facts.payloads), len(self.facts.payloads) + self.rng.choice((1, 3, 30)))
        batch = [b"%d|" % number + bytes([number % 251]) * self.rng.choice(SIZES[:3]) for number in numbers]
        for data in batch:
            self.facts.submit(data)
        self.opened.log.append_many(batch).add_done_callback(partial(self._appended_many, numbers))
        self.let_run()

    def _appended_many(self, numbers: Sequence[int], done: Pending[Span]) -> None:
        if self.dead:
            return
        error = done.exception()
        first = None if error is not None else done.result().first
        for at, number in enumerate(numbers):
            if first is None:
                self.facts.fail(number, error)
            else:
                self.facts.acknowledge(number, Position(first.ledger_id, first.entry_id + at))

    def _appended(self, number: int, done: Pending[Position]) -> None:
        if self.dead:
            return
        error = done.exception()
        if error is None:
            self.facts.acknowledge(number, done.result())
        else:
            self.facts.fail(number, error)

    def open_again(self) -> None:
        """One more opener in the same process, or one of them closes its handle: the log goes on for the others."""
        log = self.opened.log
        if not self._handles or self.rng.random() < 0.5:
            settings = self.rng.choice((None, self.world.settings))
            again = Log.open(DIRECTORY, settings, log.files, log.clock, log.metadata)
            must(again.epoch == log.epoch or self.faulty, f"a second opener got epoch {again.epoch}, not {log.epoch}")
            self._handles.append(again)
            return
        closed = self._handles.pop(self.rng.randrange(len(self._handles)))
        closed.close()
        try:
            closed.append(b"")
        except Closed:
            return
        must(False, "a closed handle took an append")
