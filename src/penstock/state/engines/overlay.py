"""What was applied and is in no checkpoint yet: layers of dicts in memory, newest first, over a base that never changes.

Only the first layer takes changes. A snapshot or a checkpoint seals it: from then on it stays as it is, and a new one is put
before it. So both are O(1), need no copy, and readers need no lock: they take the stack as it is at that moment, in one
reference. A layer lives as long as a stack, a snapshot or a reader has it; its keys are then freed in small portions
(`Retired`), because freeing a million at once would hold up every thread.

A tombstone is None. Where nothing lies below, a deleted key is removed at once instead.
"""

from __future__ import annotations

import bisect
import heapq
import itertools
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from types import EllipsisType
from typing import NamedTuple, Protocol

from penstock.errors import Closed
from penstock.state.engines.engine import StateSnapshot

Table = dict[bytes, bytes | None]
Pair = tuple[bytes, bytes | None]

MISSING = b"missing"  # by identity
_FREED_AT_ONCE = 1000  # keys, about 0.1 ms
_SORTED_AT_ONCE = 3000  # keys, about 1 ms
_PAUSE_SECONDS = 50e-6  # long enough that a thread which waits for the GIL gets it


Lock = AbstractContextManager[object]


class Retired:
    """Tables of layers that nobody has any more, freed a little at a time by whoever calls `drain` (never a writer)."""

    def __init__(self) -> None:
        self._tables: deque[dict[int, Table]] = deque()

    def add(self, tables: dict[int, Table]) -> None:
        self._tables.append(tables)

    def drain(self) -> None:
        while True:
            try:
                tables = self._tables.popleft()
            except IndexError:  # empty: another thread may drain too
                return
            for table in tables.values():
                pop = table.popitem
                for left in range(len(table), 0, -_FREED_AT_ONCE):
                    deque(itertools.islice(iter(pop, None), min(left, _FREED_AT_ONCE)), maxlen=0)
                    time.sleep(_PAUSE_SECONDS)


class Layer:
    """Changes by namespace. `pins`: snapshots that show it; under the engine's lock."""

    __slots__ = ("_ordered", "_retired", "bytes", "frozen", "pins", "tables")

    def __init__(self, retired: Retired) -> None:
        self.tables: dict[int, Table] = {}
        self.bytes = 0
        self.pins = 0
        self.frozen = False
        self._retired = retired
        self._ordered: dict[int, list[bytes]] = {}

    def __del__(self) -> None:
        if self.tables:
            self._retired.add(self.tables)

    def between(self, namespace: int, start: bytes, end: bytes | None) -> Iterator[Pair]:
        """In byte order, tombstones too. Only of a sealed layer."""
        table = self.tables.get(namespace)
        if not table:
            return
        keys = self._ordered.get(namespace)
        if keys is None:
            keys = self._ordered[namespace] = _sorted(table)
        last = len(keys) if end is None else bisect.bisect_left(keys, end)
        for at in range(bisect.bisect_left(keys, start), last):
            yield keys[at], table[keys[at]]

    def fold(self, newer: Layer, *, bottom: bool) -> None:
        """Takes over what a newer layer holds. Readers that have both see no difference."""
        for namespace, edits in newer.tables.items():
            self.put(namespace, edits, bottom=bottom)
        self.bytes += newer.bytes
        self._ordered.clear()

    def put(self, namespace: int, edits: Table, *, bottom: bool) -> None:
        table = self.tables.get(namespace)
        if table is None:
            table = self.tables[namespace] = {}
        table.update(edits)
        if bottom and None in edits.values():
            for key, value in edits.items():
                if value is None:
                    del table[key]


def _sorted(table: Table) -> list[bytes]:
    if len(table) <= _SORTED_AT_ONCE:
        return sorted(table)
    from penstock.state.engines.sorting import sorted_keys  # here, because numba is slow to import

    return sorted_keys(table)


class ClosedLayer(Layer):
    """Of an engine that was closed."""

    @property
    def tables(self) -> dict[int, Table]:
        raise closed()

    @tables.setter
    def tables(self, tables: dict[int, Table]) -> None: ...

    def __del__(self) -> None: ...


class Base(Protocol):
    """What lies below the layers: the checkpoint's own content. Immutable.

    `getters`: by namespace a faster way than `get`, where there is one; it gives `...` where `get` is to be asked.
    """

    @property
    def getters(self) -> Mapping[int, Callable[[bytes], bytes | EllipsisType | None]]: ...

    def get(self, namespace: int, key: bytes) -> bytes | None: ...

    def iterate(self, namespace: int, start: bytes, end: bytes | None) -> Iterator[tuple[bytes, bytes]]: ...

    def namespaces(self) -> Iterable[int]: ...

    def size(self) -> int:
        """Bytes of keys and values, about. 0: there is nothing at all."""
        ...


class NoBase:
    """Nothing."""

    getters: Mapping[int, Callable[[bytes], bytes | EllipsisType | None]] = {}

    def get(self, namespace: int, key: bytes) -> bytes | None:
        return None

    def iterate(self, namespace: int, start: bytes, end: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        return iter(())

    def namespaces(self) -> Iterable[int]:
        return ()

    def size(self) -> int:
        return 0


NO_BASE = NoBase()


class Stack(NamedTuple):
    layers: tuple[Layer, ...]  # newest first; the first one takes changes
    base: Base


def merged(sources: Sequence[Iterator[Pair]]) -> Iterator[tuple[bytes, bytes]]:
    """Sorted sources, newest first, as one: the newest value of each key counts, tombstones are left out."""
    if len(sources) == 1:
        for key, value in sources[0]:
            if value is not None:
                yield key, value
        return
    ranked = [zip(source, itertools.repeat(rank)) for rank, source in enumerate(sources)]
    last: bytes | None = None
    # Of equal keys the lower rank, the newer one, comes first.
    for (key, value), _ in heapq.merge(*ranked, key=lambda item: (item[0][0], item[1])):
        if key != last:
            last = key
            if value is not None:
                yield key, value


class LayeredSnapshot(StateSnapshot):
    def __init__(self, layers: tuple[Layer, ...], base: Base, lock: Lock) -> None:
        self._layers = layers
        self._base: Base | None = base
        self._release = weakref.finalize(self, _unpin, layers, lock)
        self._release.atexit = False

    def get(self, namespace: int, key: bytes) -> bytes | None:
        base = self._opened()
        for layer in self._layers:
            table = layer.tables.get(namespace)
            if table is not None and (value := table.get(key, MISSING)) is not MISSING:
                return value
        return base.get(namespace, key)

    def iterate(self, namespace: int, start: bytes = b"", end: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        base = self._opened()
        sources: list[Iterator[Pair]] = [
            layer.between(namespace, start, end) for layer in self._layers if namespace in layer.tables
        ]
        below = base.iterate(namespace, start, end)
        return self._while_open(merged([*sources, below]) if sources else below)

    def _while_open(self, found: Iterator[tuple[bytes, bytes]]) -> Iterator[tuple[bytes, bytes]]:
        for pair in found:
            if self._base is None:
                raise _closed()
            yield pair

    def namespaces(self) -> list[int]:
        return sorted({n for layer in self._layers for n in layer.tables} | set(self._opened().namespaces()))

    def close(self) -> None:
        self._base = None
        self._layers = ()
        self._release()

    def _opened(self) -> Base:
        if self._base is None:
            raise _closed()
        return self._base


def _unpin(layers: tuple[Layer, ...], lock: Lock) -> None:
    with lock:
        for layer in layers:
            layer.pins -= 1


def _closed() -> Closed:
    return Closed("the snapshot was closed", hint="iterate before it is")


def closed() -> Closed:
    return Closed("the state engine was closed")
