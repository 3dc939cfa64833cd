"""A machine in memory that can lose its power: disk, metadata store and clock, with the facts that must survive."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, Protocol, Self, TypeVar

from penstock.clock import ManualClock
from penstock.errors import OutcomeUnknown, Unavailable
from penstock.files.memory import MemoryFiles, PowerCut
from penstock.metadata import MemoryMetadata
from tests.crash.framework.process import Process


class Facts(Protocol):
    """What the processes on the machine were told, and so what must be found again after any crash."""

    def copy(self) -> Self:
        """The facts of this moment, which later events do not change."""
        ...


FactsT = TypeVar("FactsT", bound=Facts)


@dataclass(kw_only=True)
class CrashWorld(Generic[FactsT]):
    """The machine. `on_moment` is called before each operation that changes something, on the disk or in the store.

    So is `beside` after it, where another process is at work too; what it does itself does not call it again.
    """

    facts: FactsT
    files: MemoryFiles = field(default_factory=MemoryFiles)
    metadata: MemoryMetadata = field(default_factory=MemoryMetadata)
    clock: ManualClock = field(default_factory=ManualClock)
    on_moment: Callable[[Any], None] | None = None
    beside: Callable[[], None] | None = None

    def __post_init__(self) -> None:
        self.mend_metadata()
        self._attach()

    def fail_metadata(self, write: int, count: int = 1, *, unknown: bool = False) -> None:
        """The store does not answer `count` writes from the given one on (1: the next). With `unknown` the commit fails:
        a crash may leave its change or not."""
        self._writes_until_down, self._down_for, self._is_unknown = write, count, unknown

    def mend_metadata(self) -> None:
        """The store answers again."""
        self.fail_metadata(0, 0)

    def _attach(self) -> None:
        self.files.on_operation = lambda _number, _name, _path: self._moment()
        self.metadata.before_write = partial(self._before_metadata_write, self.files)
        self.metadata.after_write = self._after_metadata_write

    def _moment(self) -> None:
        if self.on_moment is not None:
            self.on_moment(self)
        if self.beside is not None:
            beside, self.beside = self.beside, None
            try:
                beside()
            finally:
                if self.beside is None:
                    self.beside = beside

    def _before_metadata_write(self, files: MemoryFiles) -> None:
        if files.power_is_off:  # `files` are those of the process that writes, which may be dead by now
            raise PowerCut("the power is off")
        self._moment()
        self._writes_until_down -= 1
        if self._is_down() and not self._is_unknown:
            raise Unavailable("the metadata store does not answer")

    def _after_metadata_write(self) -> None:
        if self._is_down() and self._is_unknown:
            raise OutcomeUnknown("nobody knows whether a change is on the disk")

    def _is_down(self) -> bool:
        return -self._down_for < self._writes_until_down <= 0

    def crash(self, rng: random.Random) -> Self:
        """A state that the machine may be in after a power cut now."""
        return dataclasses.replace(
            self,
            files=self.files.crash(rng),
            metadata=self.metadata.crashed(rng),
            facts=self.facts.copy(),
            on_moment=None,
            beside=None,
        )

    def process(self, *, locks: bool = True) -> Process:
        """One more process on the machine."""
        return Process(self.files, self.metadata, locks=locks)

    def kill(self, rng: random.Random | None = None) -> None:
        """kill -9 of the process: what it wrote is there, what it still does reaches nothing. `rng` chooses what shows of
        a change whose outcome is unknown."""
        dead, self.files = self.files, self.files.kill()
        dead.on_operation = self.beside = None
        dead.cut_power()
        self.metadata = self.metadata.killed(rng or random.Random(0))
        self._attach()
