"""A machine in memory with a log on it: how the log is opened, and what is checked at each opening."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock.log import Cursor, Log, LogReader, LogSettings, Pending, Position
from penstock.log.check.offloaded import examine_offloaded
from penstock.log.cursors import acks as cursor_acks
from penstock.log.frames.end_file import EndFile
from penstock.log.ledgers.info import LedgerList
from penstock.log.offload import format as offload_format
from penstock.log.offload.format import object_names
from penstock.objects import open_objects
from penstock.state import BucketState, StateDescriptor, StateSettings, TypedStore
from penstock.state.types import codecs
from tests.crash.framework.promises import must
from tests.crash.framework.world import CrashWorld
from tests.crash.log.facts import CURSORS_MIN, LogFacts

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
    offloads: bool = False  # sealed ledgers are copied to an object store by themselves, and moved a second later

    def open(self, names: Sequence[str] = NAMES, *, with_state: bool = True) -> Opened:
        """Opens the log as its owner, these cursors and the state, and checks all of them against the facts."""
        fenced = self._fence_epoch()
        settings = TRIMMED_SETTINGS if self.trims else SETTINGS
        if self.offloads:
            settings = dataclasses.replace(settings, **OFFLOADS, offload_threshold_bytes=1500)
        log = Log.open(DIRECTORY, settings, self.files, self.clock, self.metadata)
        must(log.epoch > max(self.facts.epoch, fenced), f"epoch {log.epoch} was used before")
        reader = LogReader.open(DIRECTORY, self.files, self.metadata)
        found = read_all(reader)
        self.facts.check_entries(found)
        if self.offloads:
            self._check_objects(log)
        must(not found or log.end() == found[-1][1] == reader.end(), f"{log.end()} and {reader.end()} are not the end")
        state = store = None
        if with_state and not self.trims:
            state = BucketState.open(log, REPLAYED)
            store = state.store(COUNTER)
            must(store.get("n") == (found[-1][0] if found else None), "state is not that of the last entry")
        numbers = {number for number, _, _ in found}
        cursors, acked = {}, {}
        for name in names:
            cursors[name] = cursor = Cursor.open(reader, CURSORS, name, files=self.files)
            acked[name] = {number for number, position, _ in found if cursor.is_acked(position)}
            self.facts.check_cursor(name, acked[name], numbers)
            must(cursor.backlog() == len(found) - len(acked[name]), f"the backlog of cursor {name} is not exact")
        self.facts.reopened(found, acked)
        self.facts.epoch = log.epoch
        return Opened(log, reader, cursors, state, store)

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


def read_all(reader: LogReader) -> list[tuple[int, Position, bytes]]:
    """(number, position, data) of every entry."""
    found = []
    for entry in reader.read(reader.first, reader.end()):
        data = bytes(entry.data)
        number = data.split(b"|", 1)[0]
        found.append((int(number) if number.isdigit() else -1, entry.position, data))
    return found


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
