"""Stores of a state: bytes (`RawStore`), and typed ones over them (`TypedStore`). Reads see what was committed; writes go
into a `Change`, or are a commit of their own (`write`).

An iteration shows the state as of its call while writes go on. It is a context manager; one that is exhausted, closed or
forgotten lets go of what it pins. Reads take no lock.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any, Generic, Protocol, Self, TypeVar
from weakref import WeakSet

from penstock.errors import Corruption, Unavailable
from penstock.log import Pending
from penstock.observe.metrics import METRICS
from penstock.state.changes import Change
from penstock.state.engines.engine import StateEngine, StateSnapshot
from penstock.state.types.descriptor import Namespace, StateDescriptor
from penstock.state.types.registry import Registry

K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")

_TIMED_MASK = (1 << 10) - 1  # of so many reads one is timed: the others pay one addition


class Holder(Protocol):
    """What a store asks of the state that holds it."""

    engine: StateEngine
    registry: Registry

    def heal(self, error: Corruption) -> None:
        """A checkpoint proved to be damaged: `engine` is another one when this returns. Raises where that cannot be."""
        ...

    def commit(self, change: Change) -> Pending[Any]: ...


class StateIterator(Iterator[T], Generic[T]):
    """Pairs of a store as of one moment. A context manager."""

    def __init__(
        self, open_at: Callable[[], tuple[StateSnapshot, Iterator[T]]], heal: Callable[[Corruption], None]
    ) -> None:
        self._open = open_at
        self._heal = heal
        self._given = 0
        self.since = time.monotonic()
        ITERATIONS.add(self)
        self._snapshot: StateSnapshot | None
        self._snapshot, self._pairs = open_at()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T:
        while True:
            if self._snapshot is None:
                raise StopIteration
            try:
                pair = next(self._pairs)
            except StopIteration:
                self.close()
                raise
            except Corruption as error:
                self._begin_again(error)
                continue
            self._given += 1
            return pair

    def close(self) -> None:
        """Lets go of the state of that moment. Twice is fine."""
        snapshot, self._snapshot = self._snapshot, None
        if snapshot is not None:
            ITERATIONS.discard(self)
            snapshot.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _begin_again(self, error: Corruption) -> None:
        """The state is rebuilt. What was given already belongs to a moment that is gone."""
        self.close()
        self._heal(error)
        if self._given:
            raise Unavailable(
                f"a checkpoint was damaged, and the state was rebuilt: {error.message}", hint="iterate again"
            ) from error
        self._snapshot, self._pairs = self._open()
        ITERATIONS.add(self)


ITERATIONS: WeakSet[StateIterator[Any]] = WeakSet()  # that are open in this process, for metrics


class RawStore:
    """Bytes → bytes, sorted by key. One object a store: its identity is the store's."""

    __slots__ = ("_get", "_holder", "namespace", "number", "reads")

    def __init__(self, holder: Holder, namespace: Namespace, number: int | None) -> None:
        self._holder = holder
        self.namespace = namespace
        self.reads = 0
        self.bind(number)

    def bind(self, number: int | None) -> None:
        """The store has this number in the holder's engine; None: nobody registered it yet."""
        self.number = number
        self._get: Callable[[Any, bytes], bytes | None] = (
            self._get_unregistered if number is None else self._holder.engine.get
        )

    def get(self, key: bytes) -> bytes | None:
        self.reads = reads = self.reads + 1
        try:
            if reads & _TIMED_MASK:
                return self._get(self.number, key)
            started = time.perf_counter()
            value = self._get(self.number, key)
        except Corruption as error:
            self._holder.heal(error)
            return self._get(self.number, key)
        METRICS.state_read_seconds.observe(time.perf_counter() - started)
        return value

    def _get_unregistered(self, _: None, key: bytes) -> bytes | None:
        number = self.find_number()
        return None if number is None else self._get(number, key)

    def contains(self, key: bytes) -> bool:
        return self.get(key) is not None

    __contains__ = contains

    def put(self, change: Change, key: bytes, value: bytes) -> None:
        """Goes into the change; visible and on its way to the disk with its commit."""
        if change.mark is not None:
            change.set(self, key, value)
            return
        try:
            change.edits[self][key] = value
        except KeyError:
            change.edits[self] = {key: value}

    def put_many(self, change: Change, items: Mapping[bytes, bytes] | Iterable[tuple[bytes, bytes]]) -> None:
        """As `put` for each of them, faster."""
        if change.mark is not None:
            for key, value in items.items() if isinstance(items, Mapping) else items:
                change.set(self, key, value)
            return
        change.edits.setdefault(self, {}).update(items)

    def delete(self, change: Change, key: bytes) -> None:
        """Fine where the key is not there."""
        change.set(self, key, None)

    def write(self, items: Mapping[bytes, bytes | None]) -> Pending[Any]:
        """A commit of its own: puts, and deletes where the value is None, all or none. Done once durable."""
        change = Change()
        change.edits[self] = dict(items)
        return self._holder.commit(change)

    def iterate(
        self, *, prefix: bytes = b"", start: bytes | None = None, end: bytes | None = None
    ) -> StateIterator[tuple[bytes, bytes]]:
        """Pairs in byte order: of keys that begin with `prefix`, from `start` (included) to `end` (excluded)."""
        first = max(prefix, start or b"")
        last = _after_prefix(prefix)
        if end is not None and (last is None or end < last):
            last = end
        return StateIterator(lambda: self._pairs(first, last), self._holder.heal)

    def _pairs(self, first: bytes, last: bytes | None) -> tuple[StateSnapshot, Iterator[tuple[bytes, bytes]]]:
        snapshot = self._holder.engine.create_snapshot()
        number = self.find_number()
        if number is None or (last is not None and first >= last):
            return snapshot, iter(())
        return snapshot, snapshot.iterate(number, first, last)

    def find_number(self) -> int | None:
        """Its number in the registry; None while nobody registered it."""
        if self.number is None:
            found = self._holder.registry.find(self.namespace)
            if found is not None:
                self.bind(found.number)
        return self.number


class TypedStore(Generic[K, V]):
    """One store of a state, with the types of its descriptor."""

    def __init__(self, raw: RawStore, descriptor: StateDescriptor[K, V]) -> None:
        self.raw = raw
        self.descriptor = descriptor
        self._encode_key = descriptor.encode_key
        self._encode_value = descriptor.encode_value
        self._decode_value = descriptor.decode_value
        self.known_to: Registry | None = None  # the registry that has this schema version for sure

    def get(self, key: K) -> V | None:
        raw = self.raw.get(self._encode_key(key))
        return None if raw is None else self._decode_value(raw)

    def contains(self, key: K) -> bool:
        return self.raw.get(self._encode_key(key)) is not None

    __contains__ = contains

    def items(self) -> StateIterator[tuple[K, V]]:
        """Everything, in order of the encoded keys, as of the call."""
        return self.iterate()

    def prefix(self, prefix: K) -> StateIterator[tuple[K, V]]:
        """The items whose key starts with `prefix`: of a tuple its first parts, of a text its first characters."""
        return self.iterate(prefix=prefix)

    def range(self, start: K | None = None, end: K | None = None) -> StateIterator[tuple[K, V]]:
        """The items from `start` (included) to `end` (excluded); of tuples their first parts are enough."""
        return self.iterate(start=start, end=end)

    def iterate(
        self, *, prefix: K | None = None, start: K | None = None, end: K | None = None
    ) -> StateIterator[tuple[K, V]]:
        """The items in order of the encoded keys, as of the call, while writes go on."""
        encode = self.descriptor.encode_prefix
        raw_prefix = b"" if prefix is None else encode(prefix)
        first = raw_prefix if start is None else max(raw_prefix, encode(start))
        last = _after_prefix(raw_prefix)
        if end is not None and (last is None or encode(end) < last):
            last = encode(end)

        def pairs() -> tuple[StateSnapshot, Iterator[tuple[K, V]]]:
            snapshot, found = self.raw._pairs(first, last)
            return snapshot, self._decode(found)

        return StateIterator(pairs, self.raw._holder.heal)

    def put(self, change: Change, key: K, value: V) -> None:
        """Goes into the change; visible and on its way to the disk with its commit."""
        if self.known_to is not self.raw._holder.registry:
            change.typed.add(self)
        self.raw.put(change, self._encode_key(key), self._encode_value(value))

    def put_many(self, change: Change, items: Mapping[K, V]) -> None:
        for key, value in items.items():
            self.put(change, key, value)

    def delete(self, change: Change, key: K) -> None:
        """Fine where the key is not there."""
        if self.known_to is not self.raw._holder.registry:
            change.typed.add(self)
        self.raw.delete(change, self._encode_key(key))

    def write(self, items: Mapping[K, V | None]) -> Pending[Any]:
        """A commit of its own: puts, and deletes where the value is None, all or none. Done once durable."""
        change = Change()
        for key, value in items.items():
            if value is None:
                self.delete(change, key)
            else:
                self.put(change, key, value)
        return self.raw._holder.commit(change)

    def _decode(self, found: Iterator[tuple[bytes, bytes]]) -> Iterator[tuple[K, V]]:
        decode_key, decode_value = self.descriptor.decode_key, self.descriptor.decode_value
        for key, value in found:
            yield decode_key(key), decode_value(value)


def _after_prefix(prefix: bytes) -> bytes | None:
    """The first key after all that begin with it; None where there is no such key."""
    stripped = prefix.rstrip(b"\xff")
    return stripped[:-1] + bytes([stripped[-1] + 1]) if stripped else None
