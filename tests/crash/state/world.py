"""A machine in memory with a log and its state on it: how they are opened, and what is checked at each opening."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from penstock.log import Log, LogReader, LogSettings, Pending, Position
from penstock.state import BucketState, StateDescriptor, StateReader, StateSettings, TypedStore
from penstock.state.types import codecs
from tests.crash.framework.promises import Violation, must
from tests.crash.framework.world import CrashWorld
from tests.crash.state.facts import Content, StateFacts

DIRECTORY = Path("/s/log")
LOG = LogSettings(ledger_entries_max=3, preallocate_bytes=2048)
TRIMMED_LOG = LogSettings(ledger_entries_max=3, preallocate_bytes=2048, retention_seconds=0.0)
STATE = StateSettings(checkpoint_bytes=None, merge_runs_max=1, merge_ratio=10.0, scrub_interval_seconds=None)
KEYS: StateDescriptor[int, bytes] = StateDescriptor("keys", "test", codecs.u64, codecs.raw)
SCRATCH: StateDescriptor[int, bytes] = StateDescriptor("scratch", "test", codecs.u64, codecs.raw)  # dropped at times
SCRATCH_KEY = 100  # keys from here on are in that store
OTHER: StateDescriptor[str, int] = StateDescriptor("other", "test", codecs.text, codecs.u64)


@dataclass
class Opened:
    """The handles of one process."""

    log: Log
    state: BucketState
    keys: TypedStore[int, bytes]
    scratch: TypedStore[int, bytes]
    other: TypedStore[str, int]

    def content(self) -> Content:
        return content_of(self.state)

    def commit(self, number: int, edits: dict[int, bytes | None]) -> Pending[Position]:
        change = self.state.begin()
        for key, value in edits.items():
            store = self.scratch if key >= SCRATCH_KEY else self.keys
            if value is None:
                store.delete(change, key)
            else:
                store.put(change, key, value)
        self.other.put(change, "number", number)
        return self.state.commit(change, b"%d" % number)

    def drop_scratch(self) -> Pending[Position]:
        """Drops the scratch store, and opens a new one of its name."""
        pending = self.state.drop_store(self.scratch)
        self.open_scratch()
        return pending

    def open_scratch(self) -> None:
        """After a drop, or a truncation to before one: the handle that there was stays with the store that went."""
        self.scratch = self.state.store(SCRATCH)

    def close(self) -> None:
        self.state.close()
        self.log.close()


def content_of(view: BucketState | StateReader) -> Content:
    with view.snapshot() as stores:
        return {
            **dict(stores.store(KEYS).items()),
            **dict(stores.store(SCRATCH).items()),
            **dict(stores.store(OTHER).items()),
        }


class Follower:
    """A process that reads the state while others write it."""

    def __init__(self, world: StateWorld) -> None:
        self._log = LogReader.open(DIRECTORY, world.files, world.metadata)
        self._reader = StateReader.open(self._log, settings=STATE)
        self._keys, self._other = self._reader.store(KEYS), self._reader.store(OTHER)

    def content(self) -> Content:
        """As of the durable end, through handles that were opened with the follower; of the store that is dropped at times,
        through one that is opened now."""
        self._reader.advance()
        scratch = self._reader.store(SCRATCH)
        return {**dict(self._keys.items()), **dict(scratch.items()), **dict(self._other.items())}

    def close(self) -> None:
        self._reader.close()
        self._log.close()


@dataclass(kw_only=True)
class StateWorld(CrashWorld[StateFacts]):
    """A machine with one log and its state on it."""

    facts: StateFacts = field(default_factory=StateFacts)
    trims: bool = False

    def open(self, *, follower: bool = False, read_entry: bool = True) -> Opened:
        """Opens log and state as their owner, and checks both against the facts."""
        log = Log.open(DIRECTORY, TRIMMED_LOG if self.trims else LOG, self.files, self.clock, self.metadata)
        state = BucketState.open(log, STATE)
        opened = Opened(log, state, state.store(KEYS), state.store(SCRATCH), state.store(OTHER))
        found = opened.content()
        if self.facts.drops:
            self._check_drops(state)
        self._check(found, log.reader(), log.end(), read_entry=read_entry)
        if follower:
            self._check_follower(found)
        return opened

    def _check(self, found: Content, reader: LogReader, end: Position, *, read_entry: bool) -> None:
        facts = self.facts
        allowed = facts.allowed()
        number = next((one for one in allowed if facts.states[one] == found), None)
        if number is None:
            last = found.get("number", -1)
            must(last in allowed, f"the state is that of entry {last}, allowed are {allowed}")
            expected = facts.states[last]
            differs = [key for key in {*found, *expected} if found.get(key) != expected.get(key)]
            raise Violation(f"the state after entry {last} is not what was committed: keys {differs}")
        facts.found(number)
        if end.entry_id >= 0:  # an end without an entry: everything was trimmed
            facts.positions[number] = end
            if read_entry:
                (entry,) = reader.read(end, end)
                data = bytes(entry.data)
                drops = facts.drops and data == b""  # a frame of a drop, or of one that this opening has finished
                must(data == b"%d" % number or drops, f"entry {number} and its state are not one: {data!r}")

    def _check_drops(self, state: BucketState) -> None:
        """Nothing is left of stores that were dropped."""
        with state.engine.create_snapshot() as snapshot:
            for dropped in state.registry.dropped():
                must(not list(snapshot.iterate(dropped.number)), f"keys of the dropped store {dropped.number} are left")

    def _check_follower(self, found: Content) -> None:
        follower = Follower(self)
        must(follower.content() == found, "a follower sees another state than the owner")
        follower.close()
