"""The content of a checkpoint of the `native` engine: its runs, read together, below the layers in memory."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import cast

import google_crc32c

from penstock.state.engines.native.format import HASH_FACTOR, U32_MASK, salt_of
from penstock.state.engines.native.run import Find, SortedRun
from penstock.state.engines.overlay import MISSING, Get, merged

_KERNELS = "penstock.state.engines.key_kernels"  # in `sys.modules`: numba is loaded already
_COMPILE_AFTER = 100_000  # lookups in Python: fewer are not worth the import of numba


class RunsBase:
    """The `Base` (overlay.py) that the runs of a checkpoint make together. `runs`: oldest first, as in the manifest."""

    def __init__(self, runs: tuple[SortedRun, ...]) -> None:
        self.runs = runs
        self.getters: dict[int, Get] = {}  # by namespace, compiled
        self._newest_first = runs[::-1]
        self._finders: dict[int, tuple[int, tuple[Find, ...]]] = {}
        self._size = sum(run.footer.content_bytes for run in runs)
        self._lookups_left = _COMPILE_AFTER

    def get(self, namespace: int, key: bytes) -> bytes | None:
        """In Python; checks the pages that it needs, so that compiled lookups find them checked."""
        found = self._finders.get(namespace)
        if found is None:
            finders = tuple(f for run in self._newest_first if (f := run.finder(namespace)) is not None)
            found = self._finders[namespace] = (salt_of(namespace), finders)
        self._lookups_left -= 1
        if namespace not in self.getters and (_KERNELS in sys.modules or self._lookups_left < 0):
            from penstock.state.engines.native.lookup import getter  # here, because numba is slow to import

            self.getters[namespace] = getter(namespace, self._newest_first)
        key_hash = (google_crc32c.value(key) ^ found[0]) * HASH_FACTOR & U32_MASK
        for find in found[1]:
            value = find(key, key_hash)
            if value is not MISSING:
                return value
        return None

    def iterate(self, namespace: int, start: bytes, end: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        runs = [run for run in self._newest_first if namespace in run.sections]
        if len(runs) == 1 and not runs[0].sections[namespace].tombstones:
            return cast("Iterator[tuple[bytes, bytes]]", runs[0].between(namespace, start, end))
        return merged([run.between(namespace, start, end) for run in runs])

    def namespaces(self) -> Iterable[int]:
        return {namespace for run in self.runs for namespace in run.sections}

    def size(self) -> int:
        return self._size
