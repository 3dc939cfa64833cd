"""What the log keeps: ledgers roll, are trimmed and offloaded, entries are truncated, the log is cleared."""

from __future__ import annotations

import contextlib

from penstock.errors import BadInput, Fenced, OutcomeUnknown, PenstockError
from penstock.log import Cursor, OffloadInProgress, Position
from tests.crash.framework.program import Session
from tests.crash.framework.promises import must
from tests.crash.framework.stepping import STEPS
from tests.crash.log.world import CURSORS, NAMES, PASSING, LogWorld, Opened, read_all


class Keeping(Session[LogWorld, Opened]):
    def roll(self) -> None:
        self.opened.log.roll()

    def trim(self) -> None:
        if self.world.trims:
            self.opened.log.trim()

    def offload(self) -> None:
        """Copies all sealed ledgers, whatever the threshold; local files go once the deletion lag is over."""
        if self.world.offloads:
            with contextlib.suppress(OffloadInProgress):
                self.opened.log.offload()

    def pass_time(self) -> None:
        self.world.clock.advance(self.rng.choice((0.001, 1.0, 700.0)))

    def read(self) -> None:
        """A reader that was open before sees what is durable, and nothing else."""
        found = read_all(self.opened.reader)
        self.facts.check_entries(found)
        must(all(n in self.facts.durable for n, _, _ in found), "a reader sees what is not durable")

    def clear(self) -> None:
        """Every entry goes, though cursors may not have passed it: they are moved on."""
        if not self.world.trims:
            return
        self.facts.removable = len(self.facts.payloads)
        opened = self.opened
        opened.log.clear()
        if self.opened is opened:
            found = read_all(opened.reader)
            must(not found, f"{[number for number, _, _ in found]} are left in a log that was cleared")
            self.facts.cleared(found)

    def truncate(self) -> None:
        """Everything after an entry goes, with force if cursors stand beyond it; they are moved to the new end."""
        STEPS.pump()
        entries = [(n, p) for n, p in self.facts.durable.items() if n >= self.facts.removable]
        if not entries or self.facts.in_flight:
            return
        if PASSING in self.facts.cursors and PASSING not in self.opened.cursors:
            self.world.open_passing(self.opened)
        opened, force = self.opened, self.rng.random() < 0.5

        def beyond_of(position: Position) -> list[str]:
            return [name for name, cursor in opened.cursors.items()
                    if opened.reader.count(position, cursor.mark_delete_position) > 0]  # fmt: skip

        late = entries[-8:]
        passed = [(number, position) for number, position in late if beyond_of(position)]
        kept, position = self.rng.choice(passed if passed and self.rng.random() < 0.5 else late)
        beyond = beyond_of(position)
        acked = frozenset(number for number in self.facts.durable if number <= kept)
        moved: dict[str, int] = {}
        perhaps: dict[str, int] = {}
        if force and beyond:
            for name in NAMES:  # these are not the log's own: it can move them only while nobody has them open
                opened.cursors.pop(name).close()
            if self.opened is not opened:
                return  # another owner came meanwhile, and has them: `wake_deposed` tries what the old one can do
            moved = {name: self.facts.cursors[name].send(acked) for name in beyond}
            # An ack that nobody was told of, such as one whose sync failed, may count once the truncation looks.
            passed = acked | {min((n for n in self.facts.durable if n > kept), default=kept)}
            perhaps = {name: facts.send(acked) for name, facts in self.facts.cursors.items()
                       if name not in beyond and facts.may_have(passed)}  # fmt: skip
        self.facts.truncate(kept)
        try:
            self._truncate(opened, position, force=force)
        except BadInput:
            must(self.opened is not opened or (bool(beyond) and not force), f"truncating to {position} is refused")
            self.facts.truncated(made=False)
            return
        except (OutcomeUnknown, Fenced):
            raise
        except PenstockError:  # it may have been made all the same: the files of what went are removed after it
            if self.facts.failed:  # no reader is shown those, whether they go or come back
                raise
            self.facts.truncated(made=not {n for n, _, _ in read_all(opened.reader)} & {*self.facts.truncating})
            raise
        must(self.opened is opened, "the log was truncated by an owner that another one had replaced")
        must(force or not beyond, f"the log was truncated to {position}, but {beyond} stood beyond it")
        self.facts.truncated(made=True)
        for name, version in moved.items():
            self.facts.confirm(self.facts.cursors[name], version)
        for name in NAMES:
            if name not in opened.cursors:
                with self.world.opens_cursor():
                    opened.cursors[name] = Cursor.open(opened.reader, CURSORS, name, files=opened.reader.files)
        found = read_all(opened.reader)
        self.facts.check_entries(found)
        there = {number for number, _, _ in found}
        for name, cursor in opened.cursors.items():
            acked_now = {number for number, at, _ in found if cursor.is_acked(at)}
            self.facts.cursors[name].check_acked(name, acked_now, there)
            if name in perhaps and acked_now != acked & there:
                self.facts.cursors[name].take_back(perhaps[name])

    def _truncate(self, opened: Opened, position: Position, *, force: bool) -> None:
        """State takes its log with it."""
        if opened.state is None:
            opened.log.truncate(position, force=force)
        else:
            opened.state.truncate(position, force=force)
            assert opened.store is not None
            (entry,) = opened.reader.read(position, position)
            number = int(bytes(entry.data).split(b"|")[0])
            must(opened.store.get("n") == number, f"after a truncation the state is not that of entry {number}")
