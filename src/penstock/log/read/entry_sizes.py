"""How many bytes of data each entry of a log has, so that the backlog of a cursor is exact in bytes.

Found by one pass over a ledger's headers, and shared by all cursors of a reader: four bytes an entry for the ledgers that
were used last, and the total of every other sealed ledger. The first n entries of a ledger never change, so what is known
of a ledger of more entries holds for one that was truncated since; totals are of so many entries.
"""

from __future__ import annotations

import threading
from array import array
from collections import OrderedDict
from weakref import WeakKeyDictionary

import numpy as np
from pyroaring import BitMap

from penstock.log.position import Position
from penstock.log.read.positions import LedgerView
from penstock.log.read.reader import LogReader

_LEDGERS_MAX = 8
_SMALL_BYTES = 4096  # below this mean size, reading everything is faster than going from header to header

_guard = threading.Lock()


class EntrySizes:
    """The sizes of the entries that one reader sees. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sizes: OrderedDict[int, array[int]] = OrderedDict()
        self._totals: dict[tuple[int, int], int] = {}  # of sealed ledgers, with their number of entries

    def total(self, reader: LogReader, view: LedgerView) -> int:
        """Bytes of all entries of a ledger."""
        key = (view.info.id, view.entries)
        with self._lock:
            known = self._totals.get(key) if view.info.sealed else None
            if known is None:
                known = int(self._of(reader, view)[: view.entries].sum())
                if view.info.sealed:
                    self._totals[key] = known
            return known

    def some(self, reader: LogReader, view: LedgerView, entries: BitMap) -> int:
        """Bytes of these entries of a ledger."""
        with self._lock:
            return int(self._of(reader, view)[np.asarray(entries.to_array())].sum())

    def _of(self, reader: LogReader, view: LedgerView) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
        number = view.info.id
        sizes = self._sizes.pop(number, None) or array("I")
        if len(sizes) < view.entries and view.info.skipped:
            sizes = array("I", bytes(4 * view.entries))  # nothing where an entry was skipped
            for run, low, high in reader.runs(Position(number, 0), Position(number, view.entries - 1)):
                for entry in range(low, high + 1):
                    sizes[entry] = int(run.table[entry - run.first, 1])
        if len(sizes) < view.entries:
            first, last = Position(number, len(sizes)), Position(number, view.entries - 1)
            if view.frames_end < _SMALL_BYTES * view.entries:
                for run, low, high in reader.runs(first, last):
                    sizes.extend(run.table[low - run.first : high - run.first + 1, 1].tolist())
            else:
                sizes.extend(info.data_bytes for info in reader.scan(first, last))
        self._sizes[number] = sizes
        while len(self._sizes) > _LEDGERS_MAX:
            self._sizes.popitem(last=False)
        return np.array(sizes, np.uint64)


_of_readers: WeakKeyDictionary[LogReader, EntrySizes] = WeakKeyDictionary()


def entry_sizes(reader: LogReader) -> EntrySizes:
    """The sizes that all cursors over this reader share."""
    with _guard:
        found = _of_readers.get(reader)
        if found is None:
            found = _of_readers[reader] = EntrySizes()
        return found
