"""A log in memory that a test opens, fills, kills and opens again."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from pathlib import Path

from penstock.clock import ManualClock
from penstock.errors import PenstockError
from penstock.files.memory import MemoryFiles
from penstock.log import Log, LogSettings
from penstock.metadata import MemoryMetadata

DIRECTORY = Path("/s/log")


class LogInMemory:
    """A disk, a metadata store and a clock in memory, and an open log on them with some entries."""

    def __init__(self, settings: LogSettings, entries: int, payload: Callable[[int], bytes] = b"%d".__mod__) -> None:
        self.files, self.metadata, self.clock = MemoryFiles(), MemoryMetadata(), ManualClock()
        self.settings = settings
        self.log = self.open()
        for number in range(entries):
            self.log.append(payload(number)).result()

    def open(self) -> Log:
        return Log.open(DIRECTORY, self.settings, self.files, self.clock, self.metadata)

    def reopen(self) -> None:
        self.log.close()
        self.log = self.open()

    def kill(self, rng: random.Random | None = None) -> None:
        """kill -9 of the owner, and a new owner. `rng` chooses what shows of a change whose outcome is unknown."""
        dead, self.files = self.files, self.files.kill()
        dead.cut_power()
        self.metadata = self.metadata.killed(rng or random.Random(0))
        with contextlib.suppress(PenstockError):
            self.log.close()
        self.log = self.open()

    def ledgers(self) -> list[int]:
        """The ledgers that the log lists."""
        return [view.info.id for view in self.log.reader().ledgers()]

    def ledger_files(self) -> list[int]:
        """The ledgers that have a file on the disk."""
        return [int(name[7:23]) for name in self.files.list(DIRECTORY) if name.startswith("ledger-")]
