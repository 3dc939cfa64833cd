"""A machine in memory with a log and its state on it: how they are opened, and what is checked at each opening."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from penstock.log import Log, LogReader, LogSettings, Pending, Position
from penstock.state import BucketState, StateDescriptor, StateReader, StateSettings, TypedStore
from penstock.state.types import codecs
from tests.crash.framework.promises import must
from tests.crash.framework.world import CrashWorld
from tests.crash.state.facts import Content, StateFacts

DIRECTORY = Path("/s/log")
LOG = LogSettings(ledger_entries_max=3, preallocate_bytes=2048)
TRIMMED_LOG = LogSettings(ledger_entries_max=3, preallocate_bytes=2048, retention_seconds=0.0)
STATE = StateSettings(checkpoint_bytes=None, merge_runs_max=1, merge_ratio=10.0, scrub_interval_seconds=None)
KEYS: StateDescriptor[int, bytes] = StateDescriptor("keys", "test", codecs.u64, codecs.raw)
OTHER: StateDescriptor[str, int] = StateDescriptor("other", "test", codecs.text, codecs.u64)


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


@dataclass(kw_only=True)
class StateWorld(CrashWorld[StateFacts]):
    """A machine with one log and its state on it."""

    facts: StateFacts = field(default_factory=StateFacts)
    trims: bool = False

    def open(self, *, follower: bool = False, read_entry: bool = True) -> Opened:
        """Opens log and state as their owner, and checks both against the facts."""
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
        if end.entry_id >= 0:  # an end without an entry: everything was trimmed
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
