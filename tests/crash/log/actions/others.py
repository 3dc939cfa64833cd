"""Other processes: one reads all the time; one becomes the owner, and the old owner goes on as if it had slept."""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Callable

from penstock.errors import BadInput, PenstockError
from penstock.files.memory import PowerCut
from penstock.log import Cursor, LogReader, Pending, Position
from tests.crash.framework.promises import Violation, must
from tests.crash.framework.stepping import STEPS
from tests.crash.log.actions.appends import Appends
from tests.crash.log.actions.cursors import Cursors
from tests.crash.log.facts import LogFacts
from tests.crash.log.world import DIRECTORY, NAMES, PASSING, LogWorld, Opened, numbered, read_all

_LOOK_SHARE = 0.08  # of the moments: before each operation that changes something on the disk or in the store
_LOOK_OFTEN = 0.4  # while a truncation is under way
_FOLLOW_SHARE = 0.05
_TAKE_OVER_SHARE = 0.05
_MAKE_AGAIN_SHARE = 0.5


class Bystander:
    """A process that only reads: the whole log, or what comes, with a cursor in its memory."""

    def __init__(self, world: LogWorld) -> None:
        process = world.process()
        self._reader = LogReader.open(DIRECTORY, process.files, process.metadata)
        self._drowsy = LogReader.open(DIRECTORY, process.files, process.metadata)
        self._cursor = Cursor.in_memory(self._reader, start="earliest")
        self._last = -1
        self._known: dict[int, Position] = {}  # entries that it was shown

    def look(self, facts: LogFacts) -> None:
        """Shown is what is durable, in order and without a hole; whatever is shown stays, unless it is removed."""
        self._ask_for_removed(facts)
        found = read_all(self._reader)
        facts.check_entries(found)
        facts.seen(found)
        self._known = {number: position for number, position, _ in found}
        self._drowsy.ledgers()

    def _ask_for_removed(self, facts: LogFacts) -> None:
        """An entry that is gone is refused, also by a reader that reads the ledger list only when a slot says that it must."""
        for number in sorted(self._known.keys() & facts.refused)[-2:]:
            position = self._known[number]
            with contextlib.suppress(BadInput):
                found = list(self._drowsy.read(position, position))
                must(not found, f"a reader was given entry {number}, which was removed")

    def follow(self, facts: LogFacts) -> None:
        """Every entry comes once, and none is passed over."""
        found = []
        while entries := self._cursor.read(self._cursor_entries(facts)):
            found += map(numbered, entries)
        numbers = [number for number, _, _ in found]
        must(numbers == sorted({*numbers}), f"out of order or twice: {numbers}")
        must(not numbers or numbers[0] > self._last, f"entry {numbers[:1]} came after {self._last}")
        gone = {*numbers} & facts.refused
        must(not gone, f"a reader was given entries that were refused or removed: {gone}")
        begun = self._last
        self._last = numbers[-1] if numbers else self._last
        facts.seen(found)
        missed = [n for n in facts.durable if max(begun + 1, facts.removable) <= n <= self._last and n not in numbers]
        must(not missed, f"a reader that went from {begun} to {self._last} was not given {missed}")
        late = [n for n in facts.durable if n > self._last and n >= facts.removable and n not in facts.truncating]
        must(not late, f"a reader at {self._last} is told that nothing follows, but {late} do")

    @staticmethod
    def _cursor_entries(facts: LogFacts) -> int:
        return 1 + len(facts.payloads) % 7


class Others(Appends, Cursors):
    def __init__(self, world: LogWorld, rng: random.Random, opened: Opened) -> None:
        super().__init__(world, rng, opened)
        self._bystander = Bystander(world) if rng.random() < 0.4 else None
        self._rival_comes = rng.random() < 0.2
        self._deposed: list[Opened] = []
        world.beside = self._beside

    def look_on(self) -> None:
        """From here on another process reads, at any moment."""
        if self._bystander is None:
            self._bystander = Bystander(self.world)
        self._bystander.look(self.facts)
        self._bystander.follow(self.facts)

    def _beside(self) -> None:
        if self.dead:
            return
        chance = self.rng.random()
        on_main_thread = STEPS.current is threading.main_thread()
        if self._deleting is not None and on_main_thread and chance < _MAKE_AGAIN_SHARE:
            if not self._deposed:  # an owner that came without locks has none against a namesake of what it deletes
                self.make_again()
        elif self._rival_comes and on_main_thread and chance < _TAKE_OVER_SHARE:
            if self._deleting is None and not self.world.opening_cursor:  # else nobody could say whose the cursor is
                self.take_over()
        elif self._bystander is not None and chance > 1 - (_LOOK_OFTEN if self.facts.truncating else _LOOK_SHARE):
            self._bystander.look(self.facts)
        elif self._bystander is not None and chance > 1 - _LOOK_SHARE - _FOLLOW_SHARE:
            self._bystander.follow(self.facts)

    def take_over(self) -> None:
        """Locks do not hold, as on a file system that forgets them: another process becomes the owner."""
        self._rival_comes = False
        old = self.opened
        try:
            opened = self.world.open(process=self.world.process(locks=False))
            if PASSING in self.facts.cursors:
                self.world.open_passing(opened)
        except PowerCut:
            raise
        except (PenstockError, OSError) as error:
            if not self.faulty:
                raise Violation(f"another owner cannot open the log: {type(error).__name__}: {error}") from error
            return  # it died; the old owner may be deposed or not
        self.opened = opened
        self._handles.clear()
        self._deposed.append(old)

    def wake_deposed(self) -> None:
        """An owner that was replaced goes on: nothing that it does counts, and nothing is acknowledged to it."""
        if not self._deposed:
            if self.rng.random() < 0.4:
                self.take_over()
            return
        old = self.rng.choice(self._deposed)
        names = [name for name in NAMES if name in old.cursors]
        if not names:  # it was replaced while it opened them
            return
        number, data = self.submit()
        self.facts.in_flight.discard(number)
        self.facts.refused.add(number)
        entries, cursor = list(self.facts.durable.values()), old.cursors[self.rng.choice(names)]
        calls: tuple[Callable[[], object], ...] = (
            lambda: old.append(number, data),
            lambda: old.log.append_many([data, data]),
            lambda: cursor.ack(self.rng.choice(entries)) if entries else None,
            cursor.clear_backlog,
            old.log.roll,
            old.log.trim,
            lambda: old.log.clear() if self.world.trims else None,
            lambda: old.log.truncate(self.rng.choice(entries)) if entries else None,
            lambda: old.log.delete_cursor(PASSING),
            lambda: old.log.offload() if self.world.offloads else None,
            lambda: self.facts.check_entries(read_all(old.reader)),
            old.close,
        )
        try:
            answer = self.rng.choice(calls)()
        except PowerCut:
            raise
        except (PenstockError, OSError):
            return
        if isinstance(answer, Pending):
            answer.add_done_callback(self._answered_deposed)
        self.let_run()

    def _answered_deposed(self, done: Pending[object]) -> None:
        must(self.dead or done.exception() is not None, "an owner that was replaced acknowledged something")
