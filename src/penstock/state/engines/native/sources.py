"""The records of one namespace of a run, as a merge reads them: a window of checked pages after the other.

So a merge needs the memory of a few windows, however large its runs are.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from penstock.state.engines.key_kernels import Bytes, Ints
from penstock.state.engines.native import kernels
from penstock.state.engines.native.format import PAGE_MASK, PAGE_SHIFT, Section
from penstock.state.engines.native.run import SortedRun

_WINDOW_PAGES = 256


class _Source:
    """One run's records of the namespace. `window` holds whole records up to the offset `end` of the file."""

    def __init__(self, run: SortedRun, section: Section) -> None:
        self._pages = run.pages
        self._section = section
        self.window: Bytes = np.empty(0, np.uint8)
        self.base = self.end = section.start

    @property
    def more(self) -> bool:
        """Whether the file has records after the window."""
        return self.end < self._section.end

    def advance(self) -> None:
        """The window of the records after this one. It has at least one record, however large."""
        at, count = self.end, _WINDOW_PAGES
        while self.end == at:
            self.base = at & ~PAGE_MASK
            self.window = np.frombuffer(self._pages.read(self.base >> PAGE_SHIFT, count), np.uint8)
            address = int(self.window.ctypes.data) - self.base
            limit = min(self.base + len(self.window), self._section.end)
            self.end = int(kernels.whole_records(address + at, address + limit)) - address
            count *= 4

    def addresses(self, at: int) -> tuple[int, int]:
        """Where the record at offset `at`, and the end of the window, lie in memory."""
        address = int(self.window.ctypes.data) - self.base
        return address + at, address + self.end


class MergeSources:
    """The sources of a merge, newest first. `at` and `end`: the addresses of each one's next record and of the end of
    its window; `more`: whether its file goes on after that."""

    def __init__(self, runs: Sequence[SortedRun], namespace: int) -> None:
        self._sources = [_Source(run, run.sections[namespace]) for run in runs]
        self.at: Ints = np.zeros(len(runs), np.int64)
        self.end: Ints = np.zeros(len(runs), np.int64)
        self.more: npt.NDArray[np.uint8] = np.ones(len(runs), np.uint8)
        self.refill()

    def refill(self) -> None:
        """Advances the sources whose window is used up."""
        for number, source in enumerate(self._sources):
            if self.at[number] >= self.end[number] and source.more:
                start = source.end
                source.advance()
                self.at[number], self.end[number] = source.addresses(start)
            self.more[number] = source.more
