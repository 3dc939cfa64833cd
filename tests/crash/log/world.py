"""A machine in memory with a log on it: how the log is opened, and what is checked at each opening."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock.errors import PenstockError
from penstock.log import Cursor, Entry, Log, LogReader, LogSettings, Pending, Position
from penstock.log.check.offloaded import examine_offloaded
from penstock.log.cursors import acks as cursor_acks
from penstock.log.frames.end_file import EndFile
from penstock.log.ledgers.info import LedgerList
from penstock.log.offload import format as offload_format
from penstock.log.offload.format import object_names
from penstock.objects import open_objects
from penstock.state import BucketState, StateDescriptor, StateSettings, TypedStore
from penstock.state.types import codecs
from tests.crash.framework.process import Process
from tests.crash.framework.promises import must
from tests.crash.framework.world import CrashWorld
from tests.crash.log.cursor_facts import CursorFacts
from tests.crash.log.facts import CURSORS_MIN, Found, LogFacts

DIRECTORY = Path("/s/log")
CURSORS = Path("/s/cursors")
NAMES = ("a", "b")
assert len(NAMES) == CURSORS_MIN
REPLAYED = StateSettings(
    checkpoint_bytes=None, checkpoint_at_roll=False
)  # checkpoints have an explorer of their own, tests/crash/state
PASSING = "passing"  # a cursor that comes and goes
SETTINGS = LogSettings(ledger_entries_max=4, preallocate_bytes=2048)
TRIMMED_SETTINGS = dataclasses.replace(SETTINGS, retention_seconds=0.0)
OBJECTS = "file:///objects"
OFFLOADS: dict[str, Any] = {"offload_url": OBJECTS, "offload_part_bytes": 1024, "offload_deletion_lag_seconds": 1.0}
COUNTER: StateDescriptor[str, int] = StateDescriptor("counter", "test", codecs.text, codecs.u64)


@dataclass
class Opened:
    """The handles of one process."""

    log: Log
    reader: LogReader
    cursors: dict[str, Cursor]
    state: BucketState | None
    store: TypedStore[str, int] | None

    def append(self, number: int, data: bytes) -> Pending[Position]:
        """Appends; where there is state, commits the number to it with the entry."""
        if self.state is None or self.store is None:
            return self.log.append(data)
        change = self.state.begin()
        self.store.put(change, "n", number)
        return self.state.commit(change, data)

    def close(self) -> None:
        for cursor in self.cursors.values():
            cursor.close()
        self.reader.close()
        self.log.close()


@dataclass(kw_only=True)
class LogWorld(CrashWorld[LogFacts]):
    """A machine with one log on it."""

    facts: LogFacts = field(default_factory=LogFacts)
    trims: bool = False  # entries go once every cursor has passed them; then there is no state to replay
    has_state: bool = True
    offloads: bool = False  # sealed ledgers are copied to an object store by themselves, and moved a second later
    opening_cursor: bool = False  # whoever opens a cursor last owns it: no rival comes until that is clear

    def open(self, names: Sequence[str] = NAMES, *, with_state: bool = True, process: Process | None = None) -> Opened:
        """Opens the log as its owner, these cursors and the state, and checks all of them against the facts.

        `process`: the one that opens it, where it is not the only one.
        """
        fenced = self._fence_epoch()
        files, metadata = (process.files, process.metadata) if process is not None else (self.files, self.metadata)
        log = Log.open(DIRECTORY, self.settings, files, self.clock, metadata)
        must(log.epoch > max(self.facts.epoch, fenced), f"epoch {log.epoch} was used before")
        reader = LogReader.open(DIRECTORY, files, metadata)
        found = read_all(reader)
        self.facts.check_entries(found)
        if self.offloads:
            self._check_objects(log)
        must(not found or log.end() == found[-1][1] == reader.end(), f"{log.end()} and {reader.end()} are not the end")
        state = store = None
        if with_state and self.has_state:
            state = BucketState.open(log, REPLAYED)
            store = state.store(COUNTER)
            must(store.get("n") == (found[-1][0] if found else None), "state is not that of the last entry")
        opened = Opened(log, reader, {}, state, store)
        self.facts.reopened(found, self._open_cursors(opened, names, found))
        self.facts.epoch = log.epoch
        return opened

    @property
    def settings(self) -> LogSettings:
        settings = TRIMMED_SETTINGS if self.trims else SETTINGS
        return dataclasses.replace(settings, **OFFLOADS, offload_threshold_bytes=1500) if self.offloads else settings

    def _open_cursors(self, opened: Opened, names: Sequence[str], found: Found) -> dict[str, set[int] | None]:
        """Opens and checks the cursors; what each one that is there has acked, None where it was not opened."""
        acked: dict[str, set[int] | None] = dict.fromkeys(self.facts.cursors)
        numbers = {number for number, _, _ in found}
        registered = {info.name: info.mark_delete for info in opened.log.cursors()}
        passing = self.facts.cursors.get(PASSING, CursorFacts([None]))
        passing.check_there(PASSING, PASSING in registered)
        if PASSING not in registered:
            acked.pop(PASSING, None)
        for name in names:
            if name == PASSING:
                cursor = opened.log.open_cursor(PASSING)
            else:
                cursor = Cursor.open(opened.reader, CURSORS, name, files=opened.reader.files)
            opened.cursors[name] = cursor
            is_acked = {number for number, position, _ in found if cursor.is_acked(position)}
            if name in acked:
                self.facts.cursors[name].check_acked(name, is_acked, numbers)
            else:
                must(not is_acked, f"the new cursor {name} has acks of a predecessor: {is_acked}")
            must(cursor.backlog() == len(found) - len(is_acked), f"the backlog of cursor {name} is not exact")
            place = cursor.mark_delete_position
            beyond = opened.reader.count(place, registered.get(name, place))
            must(
                beyond <= 0,
                f"cursor {name} is registered {beyond} entries beyond its place {place}: trim believes that",
            )
            acked[name] = is_acked
        return acked

    def open_cursors_again(self, opened: Opened) -> None:
        """After a truncation whose owner was replaced on the way. It may have opened cursors to move them, which takes them
        from the new owner; it moves none."""
        found = read_all(opened.reader)
        there = {number for number, _, _ in found}
        for name in [name for name in NAMES if name in opened.cursors]:
            with contextlib.suppress(PenstockError):
                opened.cursors.pop(name).close()
            with self.opens_cursor():
                cursor = opened.cursors[name] = Cursor.open(opened.reader, CURSORS, name, files=opened.reader.files)
            acked = {number for number, position, _ in found if cursor.is_acked(position)}
            self.facts.cursors[name].check_acked(name, acked, there)
        if PASSING in opened.cursors:
            with contextlib.suppress(PenstockError):
                opened.cursors.pop(PASSING).close()
            self.open_passing(opened)

    def open_passing(self, opened: Opened) -> None:
        """Opens and checks the cursor that comes and goes, which is there."""
        facts = self.facts.cursors[PASSING]
        with self.opens_cursor():
            cursor = opened.cursors[PASSING] = opened.log.open_cursor(PASSING)
        found = read_all(opened.reader)
        there = {number for number, _, _ in found}
        acked = {number for number, position, _ in found if cursor.is_acked(position)}
        facts.check_acked(PASSING, acked, there)
        self.facts.cursors[PASSING] = facts.found(acked, there)

    @contextlib.contextmanager
    def opens_cursor(self) -> Iterator[None]:
        self.opening_cursor = True
        try:
            yield
        finally:
            self.opening_cursor = False

    def _check_objects(self, log: Log) -> None:
        """Every offloaded copy in the ledger list is whole, and the list names every object, if only as a tombstone."""
        raw = self.metadata.get(f"log/{DIRECTORY.name}")
        assert raw is not None
        listed = LedgerList.decode(raw.value)
        objects = open_objects(OBJECTS, self.files)
        named: set[str] = set()
        for info in listed.ledgers:
            if info.offload is not None:
                named.update(object_names(log.uuid, info.id, info.offload.attempt, info.offload.parts))
            if info.is_offloaded:
                faults = examine_offloaded(objects, log.uuid, info, None).damage
                must(not faults, f"the offloaded copy of ledger {info.id} is not whole: {faults}")
        for one in listed.discarded:
            named.update(object_names(log.uuid, one.ledger, one.attempt, one.parts))
        strays = set(objects.list(str(log.uuid))) - named
        must(not strays, f"objects that nobody will ever delete: {strays}")

    def _fence_epoch(self) -> int:
        path = DIRECTORY / "end"
        if not self.files.exists(path):
            return 0
        end_file = EndFile.open(self.files, path)
        try:
            return end_file.fence_epoch()
        finally:
            end_file.close()


def read_all(reader: LogReader) -> Found:
    """Every entry."""
    return list(map(numbered, reader.read(reader.first, reader.end())))


def numbered(entry: Entry) -> tuple[int, Position, bytes]:
    """The entry with its number, which its data begins with; -1 where it does not."""
    data = bytes(entry.data)
    number = data.split(b"|", 1)[0]
    return int(number) if number.isdigit() else -1, entry.position, data


@contextlib.contextmanager
def small_limits() -> Iterator[None]:
    """Cursors compact after a few records; a ledger of a few entries has several blocks and parts."""
    limits = {"_COMPACT_BYTES_MIN": 400, "_COMPACT_FACTOR": 2, "_COMPACT_AT_CLOSE_BYTES": 300}
    before = {name: getattr(cursor_acks, name) for name in limits}
    block_bytes, offload_format.BLOCK_BYTES = offload_format.BLOCK_BYTES, 512
    for name, value in limits.items():
        setattr(cursor_acks, name, value)
    try:
        yield
    finally:
        offload_format.BLOCK_BYTES = block_bytes
        for name, value in before.items():
            setattr(cursor_acks, name, value)
