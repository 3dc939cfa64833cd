"""The demo as a source: binlog files `demo-bin.000001` and following, each made in memory when it is read."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.sources.demo.plan import Plan
from penstock.sources.demo.stream import ChunkFile, chunk_file, chunk_of, file_name
from penstock.sources.position import SourcePosition
from penstock.sources.settings import DemoSettings
from penstock.sources.source import IDLE, Beginning, Chunk, SourceError

_TICK_SECONDS = 0.05


class DemoSource:
    """The demo's stream at `rate` row changes a second; at rate 0 as fast as it can be made."""

    def __init__(self, settings: DemoSettings, clock: Clock = SYSTEM_CLOCK) -> None:
        self._plan = Plan(settings.seed, settings.changes)
        self._rate = settings.rate
        self._clock = clock
        self._closed = False
        self.lower_case_table_names = 0
        self.name = f"demo:{settings.seed}:{settings.changes}"

    def begin(self, version: int) -> Beginning:
        """The first event. There are no schemas yet: the stream itself creates the shop's tables."""
        del version
        return Beginning(SourcePosition(file_name(0), 4, source=self.name))

    def end(self) -> SourcePosition:
        last = self._plan.chunks - 1
        return SourcePosition(file_name(last), len(chunk_file(self._plan, last).data), source=self.name)

    def close(self) -> None:
        self._closed = True

    def resume(self, position: SourcePosition) -> SourcePosition:
        return position

    def open(self, position: SourcePosition) -> Iterator[Chunk]:
        first = self._check(position)
        start = position.pos
        started = self._clock.monotonic()
        budget_used = 0
        for number in range(first, self._plan.chunks):
            file = chunk_file(self._plan, number)
            self._check_offset(file, start)
            size = int.from_bytes(file.data[13:17].tobytes(), "little")
            yield Chunk(file.data[4 : 4 + size], file.name, 4)
            start = max(start, 4 + size)
            done = int(np.searchsorted(file.ends, start, side="right"))  # transactions before the start
            while self._rate and done < len(file.ends) and not self._closed:
                allowed = int((self._clock.monotonic() - started) * self._rate) - budget_used
                before = int(file.rows[done - 1]) if done else 0
                until = int(np.searchsorted(file.rows, before + allowed, side="right"))
                if until <= done:
                    yield IDLE
                    self._clock.sleep(_TICK_SECONDS)
                    continue
                stop = int(file.ends[until - 1])
                yield Chunk(file.data[start:stop], file.name, start)
                budget_used += int(file.rows[until - 1]) - before
                start, done = stop, until
            if self._closed:
                return
            if start < len(file.data):
                yield Chunk(file.data[start:], file.name, start)
            start = 4
        while not self._closed:
            yield IDLE
            self._clock.sleep(_TICK_SECONDS)

    def _check(self, position: SourcePosition) -> int:
        chunk = chunk_of(position.file)
        if not 0 <= chunk < self._plan.chunks or position.source != self.name:
            raise SourceError(
                f"the log was filled from {position.source or 'another source'} up to {position}, which is not {self.name}",
                hint="use the same seed and changes as before, or a new state_dir",
            )
        return chunk

    @staticmethod
    def _check_offset(file: ChunkFile, start: int) -> None:
        before = int(np.searchsorted(file.ends, start, side="right"))
        inside = before > 0 and start not in (int(file.ends[before - 1]), len(file.data))
        if inside or start > len(file.data):
            raise SourceError(f"{file.name}:{start} is not the start of a transaction", hint="use a new state_dir")
