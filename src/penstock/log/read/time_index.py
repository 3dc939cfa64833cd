"""A sparse index of the times at which the entries of an open ledger were written, for searches by time.

A sealed ledger has its time index in the footer. For the open ledger a reader keeps one in memory, 8 bytes for 64 entries;
each search first adds what was appended since the last.
"""

from __future__ import annotations

import bisect
import threading
from array import array
from collections.abc import Iterable

import numpy as np

from penstock.log.read.run import FrameRun

_EVERY = 64


class _Times:
    def __init__(self) -> None:
        self.entries = 0  # how many entries are in the index
        self.highest = 0
        self.marks = array("Q")  # the highest time up to and including entry 0, 64, 128, …


class OpenTimeIndex:
    """The time indexes of the open ledgers that one reader searched. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ledgers: dict[int, _Times] = {}

    def known(self, ledger_id: int) -> int:
        """How many of the ledger's entries are in the index."""
        with self._lock:
            times = self._ledgers.get(ledger_id)
            return times.entries if times is not None else 0

    def add(self, ledger_id: int, runs: Iterable[tuple[FrameRun, int, int]]) -> None:
        """Adds entries that follow those in the index."""
        for run, low, high in runs:
            walls = run.table[low - run.first : high - run.first + 1, 3]
            with self._lock:
                times = self._ledgers.setdefault(ledger_id, _Times())
                if low != times.entries:
                    return  # another thread added these entries first
                highest = np.maximum(np.maximum.accumulate(walls), times.highest)
                times.marks.extend(highest[-low % _EVERY :: _EVERY].tolist())
                times.entries, times.highest = high + 1, int(highest[-1])

    def before(self, ledger_id: int, wall_ms: int) -> int:
        """An entry up to which none is later than `wall_ms`, or 0; at most 64 entries before the first later one."""
        with self._lock:
            times = self._ledgers.get(ledger_id)
            if times is None:
                return 0
            return max(bisect.bisect_right(times.marks, wall_ms) - 1, 0) * _EVERY

    def keep_only(self, ledger_ids: Iterable[int]) -> None:
        """Forgets all other ledgers: they were sealed, and have their times in the footer."""
        kept = set(ledger_ids)
        with self._lock:
            self._ledgers = {number: times for number, times in self._ledgers.items() if number in kept}
