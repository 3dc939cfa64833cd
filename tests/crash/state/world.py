"""A disk and a metadata store in memory, a log with state on them, and what must be found again after any crash.

Every commit is an entry with its number as data and among its changes, and the state after it is remembered under that
number. So a reopened state must be exactly that of the log's last entry, and that one must be the last acknowledged or
one that was on its way: a prefix of the acknowledged batches, and never less.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from penstock.clock import ManualClock
from penstock.errors import Unavailable
from penstock.files.memory import MemoryFiles, PowerCut
from penstock.log import Log, LogReader, LogSettings, Pending, Position
from penstock.metadata import MemoryMetadata
from penstock.state import BucketState, StateDescriptor, StateReader, StateSettings, TypedStore
from penstock.state.types import codecs
from tests.crash.log.facts import must

DIRECTORY = Path("/s/log")
LOG = LogSettings(ledger_entries_max=3, preallocate_bytes=2048)
TRIMMED_LOG = LogSettings(ledger_entries_max=3, preallocate_bytes=2048, retention_seconds=0.0)
STATE = StateSettings(checkpoint_bytes=None, merge_runs_max=1, merge_ratio=10.0)
KEYS: StateDescriptor[int, bytes] = StateDescriptor("keys", "test", codecs.u64, codecs.raw)
OTHER: StateDescriptor[str, int] = StateDescriptor("other", "test", codecs.text, codecs.u64)

Content = dict[Any, Any]


@dataclass
class StateFacts:
    """`chain`: numbers of the entries that may be in the log, in order; those up to `durable` (an index) are for certain."""

    states: dict[int, Content] = field(default_factory=lambda: {-1: {}})  # only ever grows: copies share it
    positions: dict[int, Position] = field(default_factory=dict)
    chain: list[int] = field(default_factory=lambda: [-1])
    durable: int = 0
    truncating: int | None = None  # to this number: it may have happened
    next_number: int = 0

    def copy(self) -> StateFacts:
        return StateFacts(
            self.states, dict(self.positions), self.chain[:], self.durable, self.truncating, self.next_number
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
        """What a reopen found is what is known from here on."""
        self.truncated(number)


@dataclass
class Opened:
    """The handles of one process."""

    log: Log
    state: BucketState
    keys: TypedStore[int, bytes]
    other: TypedStore[str, int]

    def content(self) -> Content:
        return content_of(self.state)

    def commit(self, number: int, edits: dict[int, bytes | None]) -> Pending[Position]:
        change = self.state.begin()
        for key, value in edits.items():
            if value is None:
                self.keys.delete(change, key)
            else:
                self.keys.put(change, key, value)
        self.other.put(change, "number", number)
        return self.state.commit(change, b"%d" % number)

    def close(self) -> None:
        self.state.close()
        self.log.close()


def content_of(view: BucketState | StateReader) -> Content:
    with view.store(KEYS).items() as keys, view.store(OTHER).items() as other:
        return {**dict(keys), **dict(other)}


@dataclass
class StateWorld:
    """The machine. `on_moment` is called before each operation that changes something, on the disk or in the store."""

    files: MemoryFiles = field(default_factory=MemoryFiles)
    metadata: MemoryMetadata = field(default_factory=MemoryMetadata)
    facts: StateFacts = field(default_factory=StateFacts)
    clock: ManualClock = field(default_factory=ManualClock)
    trims: bool = False
    on_moment: Callable[[StateWorld], None] | None = None

    def __post_init__(self) -> None:
        self._down = 0
        self._attach()

    def fail_metadata(self, write: int) -> None:
        """The store does not answer at the given write, once; 0: it does."""
        self._down = write

    def _attach(self) -> None:
        self.files.on_operation = lambda _number, _name, _path: self._moment()
        self.metadata.before_write = partial(self._metadata_moment, self.files)

    def _moment(self) -> None:
        if self.on_moment is not None:
            self.on_moment(self)

    def _metadata_moment(self, files: MemoryFiles) -> None:
        if files.power_is_off:  # of the process that asks: it may be dead already
            raise PowerCut("the power is off")
        self._moment()
        self._down -= 1
        if self._down == 0:
            raise Unavailable("the metadata store does not answer")

    def crash(self, rng: random.Random) -> StateWorld:
        """A state that the machine may be in after a power cut now."""
        return StateWorld(self.files.crash(rng), self.metadata.copy(), self.facts.copy(), self.clock, self.trims)

    def kill(self) -> None:
        """kill -9 of the process."""
        dead, self.files = self.files, self.files.kill()
        dead.on_operation = None
        dead.cut_power()
        self.metadata = self.metadata.copy()
        self._attach()

    def open(self, *, follower: bool = False, read_entry: bool = True) -> Opened:
        """Opens log and state as their owner, and holds what is there against what is known."""
        log = Log.open(DIRECTORY, TRIMMED_LOG if self.trims else LOG, self.files, self.clock, self.metadata)
        state = BucketState.open(log, STATE)
        opened = Opened(log, state, state.store(KEYS), state.store(OTHER))
        found = opened.content()
        self._check(found, log.reader(), log.end(), read_entry=read_entry)
        if follower:
            self._check_follower(found)
        return opened

    def _check(self, found: Content, reader: LogReader, end: Position, *, read_entry: bool) -> None:
        facts = self.facts
        allowed = facts.allowed()
        number = found.get("number", -1)
        must(number in allowed, f"the state is that of entry {number}, allowed are {allowed}")
        expected = facts.states[number]
        differs = [key for key in {*found, *expected} if found.get(key) != expected.get(key)]
        must(not differs, f"the state after entry {number} is not what was committed: keys {differs}")
        facts.found(number)
        if end.entry_id >= 0:  # or else everything was trimmed
            facts.positions[number] = end
            if read_entry:
                (entry,) = reader.read(end, end)
                must(bytes(entry.data) == b"%d" % number, f"entry {number} and its state are not one: {entry.data!r}")

    def _check_follower(self, found: Content) -> None:
        reader = LogReader.open(DIRECTORY, self.files, self.metadata)
        follower = StateReader.open(reader, settings=STATE)
        must(content_of(follower) == found, "a follower sees another state than the owner")
        follower.close()
        reader.close()
