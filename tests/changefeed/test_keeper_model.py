"""The keeper against a model of dicts and sets, with restarts anywhere."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from penstock.changefeed.keeper import Keeper
from penstock.delivery.keeper_client import Intent
from penstock.errors import Fenced, StaleRun, Terminal
from penstock.log import LogReader
from penstock.log.position import Position, Seq
from tests.support.budget import scaled

from .conftest import fill_log

ENTRIES = 60
NAMES = ["a" * 32, "b" * 32, "c" * 32]


def at(entry: int, row: int = 0) -> Seq:
    return Seq(1, entry, 0, row)


class KeeperModel(RuleBasedStateMachine):
    """`acked` holds the entries that may be acked: all their rows are at the sink by the model's own account."""

    @initialize()
    def open_first(self) -> None:
        self.directory = tempfile.TemporaryDirectory()
        self.state_dir = Path(self.directory.name)
        fill_log(self.state_dir, ENTRIES)
        self.progress: dict[str, Seq] = {}
        self.intents: dict[str, Intent] = {}
        self.epochs: dict[str, int] = {}
        self.acked: set[int] = set()
        self.ranges: list[tuple[int, int, int, dict[str, Seq]]] = []
        self.checkpoint = 0
        self.run = 0
        self.files = 0
        self._open()

    def _open(self) -> None:
        self.reader = LogReader.open(self.state_dir / "log")
        self.keeper = Keeper.open(self.state_dir, "lake", self.reader)
        self._begin()

    def _begin(self) -> None:
        self.run += 1
        self.ranges = []
        start = self.keeper.begin_run(str(self.run))
        assert start == Position(1, self._mark() + 1)
        self.next = start.entry_id

    def _mark(self) -> int:
        mark = -1
        while mark + 1 in self.acked:
            mark += 1
        return mark

    def _settle(self) -> None:
        complete = True
        for first, last, commit_ts, rows in self.ranges:
            done = all(name in self.progress and self.progress[name] >= seq for name, seq in rows.items())
            if done:
                self.acked |= set(range(first, last + 1))
            complete = complete and done
            if complete:
                self.checkpoint = max(self.checkpoint, commit_ts)

    def teardown(self) -> None:
        if hasattr(self, "keeper"):
            self.keeper.close()
            self.reader.close()
            self.directory.cleanup()

    @rule()
    def restart(self) -> None:
        self.keeper.close()
        self.reader.close()
        self._open()

    @rule()
    def begin_run(self) -> None:
        self._begin()

    @precondition(lambda self: self.next < ENTRIES)
    @rule(length=st.integers(1, 5), rows=st.dictionaries(st.sampled_from(NAMES), st.integers(0, 4)))
    def publish(self, length: int, rows: dict[str, int]) -> None:
        end = min(self.next + length, ENTRIES) - 1
        last = {name: at(min(self.next + offset, end), offset) for name, offset in rows.items()}
        self.keeper.create({name: ("shop", name[0]) for name in last})
        for name in last:
            self.epochs.setdefault(name, 1)
        for _ in range(2):
            self.keeper.published(str(self.run), Position(1, self.next), Position(1, end), end + 1, last)
        self.ranges.append((self.next, end, end + 1, last))
        self.next = end + 1
        self._settle()

    @precondition(lambda self: self.next < ENTRIES)
    @rule(off=st.integers(1, 3))
    def publish_wrongly(self, off: int) -> None:
        for run, start, kind in ((str(self.run - 1), self.next, StaleRun), (str(self.run), self.next + off, Terminal)):
            try:
                self.keeper.published(run, Position(1, start), Position(1, max(start, ENTRIES - 1)), 999, {})
            except kind:
                continue
            raise AssertionError(f"{run} {start} was taken")

    @precondition(lambda self: self.epochs)
    @rule(data=st.data(), more=st.integers(1, 6))
    def intend(self, data: st.DataObject, more: int) -> None:
        name = data.draw(st.sampled_from(sorted(self.epochs)))
        after = self.progress.get(name, at(-1 % ENTRIES)) if name in self.progress else None
        first = at(after.entry_id, after.row + 1) if after is not None else at(0)
        self.files += 1
        intent = Intent(f"CDC{self.files}", first, at(first.entry_id + more, 9), more, self.files, rows=more)
        if name in self.intents:
            self.keeper.intent(name, self.epochs[name], self.intents[name])
            try:
                self.keeper.intent(name, self.epochs[name], intent)
            except Terminal:
                return
            raise AssertionError("a second intent was taken")
        self.keeper.intent(name, self.epochs[name], intent)
        self.intents[name] = intent

    @precondition(lambda self: self.intents)
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.intents)))
        intent = self.intents.pop(name)
        try:
            self.keeper.done(name, self.epochs[name] + 1, intent.last_seq, intent.path)
        except Fenced:
            pass
        else:
            raise AssertionError("another epoch was taken")
        answer = self.keeper.done(name, self.epochs[name], intent.last_seq, intent.path)
        self.progress[name] = intent.last_seq
        self._settle()
        assert answer == self.checkpoint
        assert self.keeper.done(name, self.epochs[name], intent.last_seq, intent.path) == self.checkpoint

    @precondition(lambda self: self.epochs)
    @rule(data=st.data())
    def raise_epoch(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.epochs)))
        self.epochs[name] += 1
        self.keeper.raise_epoch(name, self.epochs[name])

    @invariant()
    def same_facts(self) -> None:
        if not hasattr(self, "keeper"):
            return
        facts = self.keeper.facts()
        assert {name: one.epoch for name, one in facts.items()} == self.epochs
        assert {name: one.progress for name, one in facts.items() if one.progress} == self.progress
        assert {name: one.intent for name, one in facts.items() if one.intent} == self.intents
        assert self.keeper.checkpoint_ts == self.checkpoint
        assert self.keeper.mark_delete.entry_id == self._mark()
        assert self.keeper.backlog() == ENTRIES - len(self.acked)


TestKeeperModel = KeeperModel.TestCase
TestKeeperModel.settings = settings(max_examples=scaled(25), stateful_step_count=30)
