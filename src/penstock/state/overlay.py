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
import threading
import time
import weakref
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from types import EllipsisType
from typing import NamedTuple, Protocol

from penstock.errors import Closed, Corruption, NotSupported
from penstock.files import Buffer
from penstock.log import StateChange
from penstock.log.frame import CHANGE, OP_PUT, OP_TOMBSTONE
from penstock.log.position import Position
from penstock.state.engine import CheckpointInfo, Edits, Finding, Frozen, StateEngine, StateSnapshot

Table = dict[bytes, bytes | None]
Pair = tuple[bytes, bytes | None]

_MISSING = b"missing"  # by identity
_LAYERS_MAX = 6  # sealed by snapshots: beyond it those that nobody pins are folded into one
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
    from penstock.state.native.sorting import sorted_keys  # here, because numba is slow to import

    return sorted_keys(table)


class _ClosedLayer(Layer):
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
            if table is not None and (value := table.get(key, _MISSING)) is not _MISSING:
                return value
        return base.get(namespace, key)

    def iterate(self, namespace: int, start: bytes = b"", end: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        base = self._opened()
        sources: list[Iterator[Pair]] = [
            layer.between(namespace, start, end) for layer in self._layers if namespace in layer.tables
        ]
        found = merged([*sources, base.iterate(namespace, start, end)])
        return self._while_open(found)

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


class FrozenLayers(Frozen):
    """`layers` as they were, newest first; `generation`: of the state that they belong to."""

    def __init__(self, layers: tuple[Layer, ...], generation: int) -> None:
        self.layers = layers
        self.generation = generation


class LayeredEngine(StateEngine):
    """Everything of an engine but its checkpoints."""

    def __init__(self, empty: Base) -> None:
        """`empty`: a base with nothing in it."""
        self._empty = empty
        self._closed = False
        self._lock = threading.RLock()  # a finalizer may come while this thread has it
        self._retired = Retired()
        self._generation = 0  # counts what makes older frozen layers void
        self._stack = Stack((Layer(self._retired),), empty)

    @property
    def changed_bytes(self) -> int:
        return sum(layer.bytes for layer in self._stack.layers)

    def apply(self, changes: Sequence[StateChange]) -> None:
        edits: dict[int, Table] = {}
        size = 0
        for namespace, key, value, _, _ in changes:
            table = edits.get(namespace)
            if table is None:
                table = edits[namespace] = {}
            table[key] = value
            size += len(key) + (len(value) if value is not None else 0)
        self.apply_edits(edits, size)

    def apply_edits(self, edits: Edits, size: int | None = None) -> None:
        if size is None:
            size = sum(
                sum(map(len, table)) + sum(len(v) for v in table.values() if v is not None) for table in edits.values()
            )
        with self._lock:
            layers, base = self._stack
            bottom = len(layers) == 1 and base.size() == 0
            layer = layers[0]
            for namespace, table in edits.items():
                layer.put(namespace, table, bottom=bottom)  # type: ignore[arg-type]
            layer.bytes += size

    def apply_encoded(self, changes: Buffer) -> int:
        raw = bytes(changes)
        edits: dict[int, Table] = {}
        at, end, count, size = 0, len(raw), 0, 0
        unpack, head = CHANGE.unpack_from, CHANGE.size
        namespace, table = -1, {}
        while at < end:
            if at + head > end:
                raise Corruption("state changes end in the middle")
            number, operation, _, _, _, _, key_len, value_len = unpack(raw, at)
            if number != namespace:
                namespace, table = number, edits.setdefault(number, {})
            key_at = at + head
            value_at = key_at + key_len
            at = value_at + value_len
            if at > end:
                raise Corruption("state changes end in the middle")
            if operation == OP_PUT:
                table[raw[key_at:value_at]] = raw[value_at:at]
            elif operation == OP_TOMBSTONE and value_len == 0:
                table[raw[key_at:value_at]] = None
            else:
                raise NotSupported(
                    f"state operation {operation} is not known", hint="a newer Penstock wrote it: upgrade"
                )
            count += 1
            size += key_len + value_len
        self.apply_edits(edits, size)
        return count

    def get(self, namespace: int, key: bytes) -> bytes | None:
        layers, base = self._stack
        for layer in layers:
            table = layer.tables.get(namespace)
            if table is not None and (value := table.get(key, _MISSING)) is not _MISSING:
                return value
        getter = base.getters.get(namespace)
        if getter is not None and (found := getter(key)) is not ...:
            return found
        return base.get(namespace, key)

    def create_snapshot(self) -> StateSnapshot:
        with self._lock:
            self._seal()
            if len(self._stack.layers) > _LAYERS_MAX:
                self._fold()
            layers = self._stack.layers[1:]
            for layer in layers:
                layer.pins += 1
            return LayeredSnapshot(layers, self._stack.base, self._lock)

    def restore_from_snapshot(self, snapshot: StateSnapshot) -> None:
        layer = Layer(self._retired)
        for namespace in snapshot.namespaces():
            table: Table = dict(snapshot.iterate(namespace))
            if table:
                layer.tables[namespace] = table
                layer.bytes += sum(map(len, table)) + sum(len(value or b"") for value in table.values())
        with self._lock:
            self._begin_anew(Stack((layer,), self._empty))

    def freeze(self) -> Frozen:
        with self._lock:
            self._seal()
            layers = self._stack.layers[1:]
            for layer in layers:
                layer.frozen = True
            return FrozenLayers(layers, self._generation)

    def estimate_size(self) -> int:
        layers, base = self._stack
        return base.size() + sum(layer.bytes for layer in layers)

    def _begin_anew(self, stack: Stack) -> None:
        """The state is another one from here on. Lock held."""
        if self._closed:
            raise closed()
        self._generation += 1
        self._stack = stack

    def _close_stack(self) -> None:
        """Reads raise `Closed` from here on: an empty state in silence would be a lie."""
        with self._lock:
            self._closed = True
            self._stack = Stack((_ClosedLayer(self._retired),), self._empty)

    def _seal(self) -> None:
        layers, base = self._stack
        if layers[0].tables:
            self._stack = Stack((Layer(self._retired), *layers), base)

    def _fold(self) -> None:
        """Neighbours that no snapshot tells apart, and no checkpoint waits for, become one. Lock held."""
        layers, base = self._stack
        kept: list[Layer] = []
        for older in layers[1:]:
            if kept and not (kept[-1].frozen or older.frozen or older.pins or kept[-1].pins):
                older.fold(kept.pop(), bottom=older is layers[-1] and base.size() == 0)
            kept.append(older)
        self._stack = Stack((layers[0], *kept), base)

    @abstractmethod
    def close(self) -> None: ...


class MemoryEngine(LayeredEngine):
    """The overlay alone: a state whose log is rewritten instead, or is replayed whole. No checkpoints."""

    name = "memory"

    def __init__(self) -> None:
        super().__init__(NO_BASE)

    @property
    def position(self) -> Position | None:
        return None

    @property
    def damaged(self) -> Sequence[Finding]:
        return ()

    def freeze(self) -> Frozen:
        return Frozen()  # nobody could write it: nothing is sealed

    def write(self, frozen: Frozen, position: Position) -> CheckpointInfo:
        raise NotSupported("a state without a directory has no checkpoints", hint="open it with a directory")

    def checkpoints(self) -> list[CheckpointInfo]:
        return []

    def drop_after(self, position: Position) -> Position | None:
        with self._lock:
            self._begin_anew(Stack((Layer(self._retired),), NO_BASE))
        return None

    def verify(self) -> Iterator[Finding]:
        return iter(())

    def flush(self) -> None:
        pass

    def compact(self) -> None:
        with self._lock:
            self._seal()
            self._fold()
        self._retired.drain()

    def close(self) -> None:
        self._close_stack()
        self._retired.drain()
