"""Changes that are in no checkpoint yet: layers of dicts in memory, newest first, over a base that never changes.

Only the first layer takes changes. A snapshot or a checkpoint seals that layer: it never changes again, and a new one
is put before it. So a snapshot and the freeze of a checkpoint are O(1) and copy nothing, and readers need no lock: they
take the current stack in one reference. A layer lives as long as a stack, a snapshot or a reader refers to it; its keys
are then freed in small portions (`Retired`).

Long work over many keys is done in portions, here and wherever an engine frees, copies or sorts a whole table. A table
may hold a million keys: one step over all of them would keep the GIL from every other thread of the process, the log's
writer among them, for as long as that takes.

A deleted key is a tombstone, the value None. Where nothing lies below the layer, the key is removed at once instead.
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

Get = Callable[[bytes], bytes | EllipsisType | None]  # key → value, None: not there, `...`: ask `Base.get`
Lock = AbstractContextManager[object]

MISSING = bytes(bytearray(b"missing"))  # compared by identity; made here, so that no constant is the same object
KEYS_AT_ONCE = 1000  # of a portion: 0.1 to 0.2 ms of Python
PAUSE_SECONDS = 50e-6  # slept between portions: long enough that a thread which waits for the GIL gets it
_SORTED_AT_ONCE = 3000  # keys, about 1 ms


class Retired:
    """Tables of layers that nobody refers to any more. `drain` frees them in portions; writers never call it."""

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
                for left in range(len(table), 0, -KEYS_AT_ONCE):
                    deque(itertools.islice(iter(pop, None), min(left, KEYS_AT_ONCE)), maxlen=0)
                    time.sleep(PAUSE_SECONDS)


class Layer:
    """Changes by namespace.

    `pins` counts the snapshots that show the layer; `frozen`: a checkpoint will be written from it. Both change under
    the engine's lock, and a layer with either of them is not folded into another.
    """

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

    def between(self, namespace: int, start: bytes, end: bytes | None, *, reverse: bool = False) -> Iterator[Pair]:
        """Pairs from `start` (included) to `end` (excluded) in byte order, or in the reverse of it, tombstones too. Only
        for a sealed layer."""
        table = self.tables.get(namespace)
        if not table:
            return
        keys = self._ordered.get(namespace)
        if keys is None:
            keys = self._ordered[namespace] = _sorted(table)
        last = len(keys) if end is None else bisect.bisect_left(keys, end)
        places = range(bisect.bisect_left(keys, start), last)
        for at in reversed(places) if reverse else places:
            yield keys[at], table[keys[at]]

    def fold(self, newer: Layer, *, bottom: bool) -> None:
        """Takes over the changes of a newer layer. A reader that has both layers sees the same as before."""
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
    from penstock.state.engines.key_kernels import sorted_keys  # here, because numba is slow to import

    return sorted_keys(table)


class ClosedLayer(Layer):
    """The layer of an engine that was closed: every access raises `Closed`."""

    @property
    def tables(self) -> dict[int, Table]:
        raise closed()

    @tables.setter
    def tables(self, tables: dict[int, Table]) -> None: ...

    def __del__(self) -> None: ...


class Base(Protocol):
    """What lies below the layers: the content of a checkpoint. Immutable.

    `getters` has, for some namespaces, a faster lookup than `get`.
    """

    @property
    def getters(self) -> Mapping[int, Get]: ...

    def get(self, namespace: int, key: bytes) -> bytes | None: ...

    def iterate(
        self, namespace: int, start: bytes, end: bytes | None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]: ...

    def namespaces(self) -> Iterable[int]: ...

    def size(self) -> int:
        """About how many bytes keys and values have. 0 only where there are none at all."""
        ...


class NoBase:
    """The base of a state without a checkpoint: empty."""

    getters: Mapping[int, Get] = {}

    def get(self, namespace: int, key: bytes) -> bytes | None:
        return None

    def iterate(
        self, namespace: int, start: bytes, end: bytes | None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        return iter(())

    def namespaces(self) -> Iterable[int]:
        return ()

    def size(self) -> int:
        return 0


NO_BASE = NoBase()


class Stack(NamedTuple):
    layers: tuple[Layer, ...]  # newest first; the first one takes changes
    base: Base


def merged(sources: Sequence[Iterator[Pair]], *, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
    """Sorted sources, newest first, merged into one: the newest value of each key, without tombstones. `reverse`: the
    sources go from the last key to the first, and so does the result."""
    if len(sources) == 1:
        for key, value in sources[0]:
            if value is not None:
                yield key, value
        return
    ranks = [-rank if reverse else rank for rank in range(len(sources))]
    ranked = [zip(source, itertools.repeat(rank)) for rank, source in zip(ranks, sources, strict=True)]
    last: bytes | None = None
    # Of equal keys the one of the newer source comes first, in either direction.
    for (key, value), _ in heapq.merge(*ranked, key=lambda item: (item[0][0], item[1]), reverse=reverse):
        if key != last:
            last = key
            if value is not None:
                yield key, value


class LayeredSnapshot(StateSnapshot):
    """Sealed layers over a base. The layers are unpinned when it is closed or garbage-collected."""

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

    def iterate(
        self, namespace: int, start: bytes = b"", end: bytes | None = None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        base = self._opened()
        sources: list[Iterator[Pair]] = [
            layer.between(namespace, start, end, reverse=reverse) for layer in self._layers if namespace in layer.tables
        ]
        below = base.iterate(namespace, start, end, reverse=reverse)
        return self._while_open(merged([*sources, below], reverse=reverse) if sources else below)

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
