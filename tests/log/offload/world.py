"""A log in memory whose ledgers are offloaded, and what tests do to it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.log import (
    LogReader,
    LogSettings,
)
from penstock.log.ledgers.info import LedgerInfo, LedgerList
from penstock.log.offload import format as offload_format
from penstock.objects import DirectoryObjects, open_objects
from tests.support.files import OtherProcessFiles
from tests.support.worlds import DIRECTORY, LogInMemory

URL = "file:///objects"
SETTINGS = LogSettings(
    ledger_entries_max=3,
    preallocate_bytes=1024,
    maintenance_interval_seconds=0,
    offload_url=URL,
    offload_deletion_lag_seconds=100,
    offload_part_bytes=512,
)
ENTRIES = 10


def payload(number: int) -> bytes:
    return b"%d|" % number + bytes([number % 251]) * (150 + 40 * (number % 5))


class OffloadWorld(LogInMemory):
    """Three sealed ledgers with three entries each, and an open one with one entry. A sealed ledger has two or three parts."""

    def __init__(self, settings: LogSettings = SETTINGS, entries: int = ENTRIES) -> None:
        super().__init__(settings, entries, payload)

    def listed(self) -> LedgerList:
        found = self.metadata.get("log/log")
        assert found is not None
        return LedgerList.decode(found.value)

    def info(self, ledger_id: int) -> LedgerInfo:
        return next(info for info in self.listed().ledgers if info.id == ledger_id)

    def states(self) -> dict[int, str]:
        return {info.id: info.offload.state if info.offload else "" for info in self.listed().ledgers if info.sealed}

    def objects(self) -> list[str]:
        return open_objects(URL, self.files).list(str(self.log.uuid))

    def attempts(self) -> set[str]:
        return {name.rpartition("/")[2].split("-")[1].split(".")[0] for name in self.objects()}

    def check(self, first: int = 0, entries: int = ENTRIES) -> None:
        """The owner and a process that only reads find every entry, and the store holds only objects that the list names."""
        for reader in (self.log.reader(), LogReader.open(DIRECTORY, OtherProcessFiles(self.files), self.metadata)):
            found = [bytes(entry.data) for entry in reader.read(reader.first, reader.end())]
            assert found == [payload(number) for number in range(first, entries)]
            sizes = [info.data_bytes for info in reader.scan(reader.first, reader.end())]
            assert sizes == [len(payload(number)) for number in range(first, entries)]
        reader.close()
        named = {info.offload.attempt for info in self.listed().ledgers if info.offload}
        assert self.attempts() == named, "objects that nobody names"


def move(world: OffloadWorld) -> None:
    """Moves every sealed ledger to the object store: no local file is left."""
    world.log.offload()
    world.clock.advance(101)
    world.log.offload()
    assert set(world.states().values()) == {"moved"}


def harm(world: OffloadWorld, number: int, *, local: bool = False, part: int = 0, offset: int | None = None) -> None:
    """Flips a bit of a ledger's local file, or of a part of its copy (-1: the index). Without an offset, removes it."""
    path = DIRECTORY / f"ledger-{number:016d}.log"
    if not local:
        offload = world.info(number).offload
        assert offload is not None
        names = offload_format.object_names(world.log.uuid, number, offload.attempt, offload.parts)
        path = Path("/objects") / names[part + 1]
    if offset is None:
        world.files.remove(path)
    else:
        node = world.files._names[path]
        node.content[offset] ^= 4
        node.durable[:] = node.content


def drop_cache(world: OffloadWorld) -> None:
    world.log.reader().cache.drop(world.log.reader().cache_key)


class Puts:
    """Calls `before` with the number of each put from now on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, before: Callable[[int], None]) -> None:
        self.names: list[str] = []
        put = DirectoryObjects.put

        def counted(store: DirectoryObjects, name: str, data: bytes) -> None:
            self.names.append(name)
            before(len(self.names))
            put(store, name, data)

        monkeypatch.setattr(DirectoryObjects, "put", counted)
