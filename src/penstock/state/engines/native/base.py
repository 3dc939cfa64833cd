"""The content of a checkpoint of the `native` engine: its runs, read together, below the layers in memory."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import cast

import google_crc32c

from penstock.state.engines.native.format import HASH_FACTOR, U32_MASK, salt_of
from penstock.state.engines.native.pages import PageCache
from penstock.state.engines.native.run import Find, SortedRun
from penstock.state.engines.overlay import MISSING, Get, merged

_KERNELS = "penstock.state.engines.key_kernels"  # in `sys.modules`: numba is loaded already
_COMPILE_AFTER = 100_000  # lookups in Python: fewer are not worth the import of numba


class _Lookups:
    """How keys are found: the caches of the runs, and functions that look into these very caches.

    Replaced as a whole where the caches have become too large: a lookup under way goes on with what it has.
    """

    __slots__ = ("caches", "finders", "getters")

    def __init__(self, caches: Sequence[PageCache]) -> None:
        self.caches = caches  # one for each run, newest first
        self.finders: dict[int, tuple[int, tuple[Find, ...]]] = {}  # by namespace: its salt, and a finder for each run
        self.getters: dict[int, Get] = {}  # by namespace, compiled


class RunsBase:
    """The `Base` (overlay.py) that the runs of a checkpoint make together. `runs`: oldest first, as in the manifest.

    `cache_bytes`: what its caches may hold. A read that finds more there empties them.
    """

    def __init__(self, runs: tuple[SortedRun, ...], cache_bytes: int) -> None:
        self.runs = runs
        self._newest_first = runs[::-1]
        self._cache_bytes = cache_bytes
        self._lookups = _Lookups([run.cache for run in self._newest_first])
        self.getters: dict[int, Get] = self._lookups.getters
        self._size = sum(run.footer.content_bytes for run in runs)
        self._lookups_left = _COMPILE_AFTER

    def get(self, namespace: int, key: bytes) -> bytes | None:
        """In Python; loads the pages that it needs, so that compiled lookups find them."""
        lookups = self._within_limit()
        found = lookups.finders.get(namespace)
        if found is None:
            runs = zip(self._newest_first, lookups.caches, strict=True)
            finders = tuple(f for run, cache in runs if (f := run.finder(namespace, cache)) is not None)
            found = lookups.finders[namespace] = (salt_of(namespace), finders)
        self._lookups_left -= 1
        if namespace not in lookups.getters and (_KERNELS in sys.modules or self._lookups_left < 0):
            from penstock.state.engines.native.lookup import getter  # here, because numba is slow to import

            lookups.getters[namespace] = getter(namespace, self._newest_first, lookups.caches)
        key_hash = (google_crc32c.value(key) ^ found[0]) * HASH_FACTOR & U32_MASK
        for find in found[1]:
            value = find(key, key_hash)
            if value is not MISSING:
                return value
        return None

    def _within_limit(self) -> _Lookups:
        """The lookups, with new caches where the old ones have become too large."""
        lookups = self._lookups
        if sum([cache.bytes for cache in lookups.caches]) > self._cache_bytes:
            runs = zip(self._newest_first, lookups.caches, strict=True)
            self._lookups = lookups = _Lookups([run.renew_cache(cache) for run, cache in runs])
            self.getters = lookups.getters
        return lookups

    def iterate(
        self, namespace: int, start: bytes, end: bytes | None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        self._within_limit()  # iterations load anchors
        runs = [run for run in self._newest_first if namespace in run.sections]
        found = [(run.backwards if reverse else run.between)(namespace, start, end) for run in runs]
        if len(runs) == 1 and not runs[0].sections[namespace].tombstones:
            return cast("Iterator[tuple[bytes, bytes]]", found[0])
        return merged(found, reverse=reverse)

    def namespaces(self) -> Iterable[int]:
        return {namespace for run in self.runs for namespace in run.sections}

    def size(self) -> int:
        return self._size
