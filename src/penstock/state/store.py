"""Stores of a state: of bytes (`RawStore`), and typed ones over them (`TypedStore`).

Reads see what was committed, and take no lock. Writes go into a `Change`, or are a commit of their own (`write`). An
iteration shows the state as of its call while writes go on, and is a context manager: it releases what it pins when it
is exhausted, closed or garbage-collected.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Generic, NoReturn, Protocol, Self, TypeVar

from penstock.arguments import check_type
from penstock.errors import BadInput, Corruption, NotSupported, Unavailable
from penstock.log import Pending
from penstock.observe.metrics import METRICS
from penstock.state.changes import DELETE, Change, Deletion, check_change, check_key
from penstock.state.engines.engine import StateSnapshot
from penstock.state.metrics import ITERATIONS
from penstock.state.types.descriptor import HEADER_BYTES, KEY_VERSION, Namespace, StateDescriptor, refused
from penstock.state.types.registry import Registration, Registry

K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")

_KEYS = frozenset((bytes,))
_VALUES = frozenset((bytes, Deletion))
_SIZES_MAX = 1 << 12  # headers are remembered for payloads below this many bytes
_TIMED_MASK = (1 << 10) - 1  # one read in 1024 is timed; the others pay one addition


class Content(Protocol):
    """Where the bytes of a store come from: an engine, or a snapshot of one."""

    def get(self, namespace: int, key: bytes) -> bytes | None: ...

    def get_many(self, namespace: int, keys: Sequence[bytes]) -> list[bytes | None]: ...

    def create_snapshot(self) -> StateSnapshot: ...


class Holder(Protocol):
    """What a store needs from the state that it belongs to."""

    registry: Registry

    @property
    def engine(self) -> Content: ...

    def heal(self, error: Corruption) -> None:
        """Called when a read met a damaged checkpoint. Replaces `engine` by a sound one, or raises."""
        ...

    def commit(self, change: Change) -> Pending[Any]: ...


class StateIterator(Iterator[T], Generic[T]):
    """Pairs of a store as of one moment. A context manager."""

    def __init__(
        self, open_at: Callable[[], tuple[StateSnapshot, Iterator[T]]], heal: Callable[[Corruption], None]
    ) -> None:
        self._open = open_at
        self._heal = heal
        self._returned = 0
        self._healed = False
        self._snapshot: StateSnapshot | None
        self._snapshot, self._pairs = open_at()
        ITERATIONS[id(self)] = time.monotonic()

    def __del__(self) -> None:
        ITERATIONS.pop(id(self), None)

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
            self._returned += 1
            return pair

    def close(self) -> None:
        """Releases the state of that moment. Closing twice is fine."""
        snapshot, self._snapshot = self._snapshot, None
        if snapshot is not None:
            ITERATIONS.pop(id(self), None)
            snapshot.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _begin_again(self, error: Corruption) -> None:
        """Rebuilds the state after damage, and starts over. Raises where pairs were returned already: they belong to a
        moment that is gone; and where the rebuilt state has it too: it is a value that cannot be decoded."""
        self.close()
        if self._healed:
            raise error
        self._healed = True
        self._heal(error)
        if self._returned:
            raise Unavailable(
                f"a checkpoint was damaged, and the state was rebuilt: {error.message}", hint="iterate again"
            ) from error
        self._snapshot, self._pairs = self._open()
        ITERATIONS[id(self)] = time.monotonic()


class RawStore:
    """Bytes → bytes, sorted by key. A state has one object for each store, so that identity tells stores apart.

    Once its owner dropped the store, it is empty and takes no changes for ever: a later store of that name is another.
    """

    __slots__ = ("_get", "dropped", "holder", "lost", "namespace", "number", "reads")

    def __init__(self, holder: Holder, namespace: Namespace, number: int | None) -> None:
        self.holder = holder
        self.namespace = namespace
        self.reads = 0
        self.dropped = False
        # What its handles were opened for, where that is gone: a reader's store was dropped, or a truncation took the
        # registration back.
        self.lost: Registration | None = None
        self.bind(number)

    def bind(self, number: int | None) -> None:
        """The store has this number in the holder's engine; None: nobody registered the store yet."""
        self.number = number
        self._get: Callable[[Any, bytes], bytes | None] = (
            self._get_unregistered if number is None else self.holder.engine.get
        )

    def drop(self) -> None:
        """The owner dropped the store."""
        self.dropped = True
        self.bind(None)

    def refuse(self, refuse: Callable[[Any, bytes], NoReturn]) -> None:
        """The state was closed: reads call `refuse`, which raises."""
        self._get = refuse

    def get(self, key: bytes) -> bytes | None:
        self.reads = reads = self.reads + 1
        try:
            if reads & _TIMED_MASK:
                value = self._get(self.number, key)
                if value is None:
                    check_key(key)  # no store has what is no key; a hit needs no look at it
                return value
            started = time.perf_counter()
            value = self._get(self.number, key)
        except Corruption as error:
            self.holder.heal(error)
            return self._get(self.number, key)
        except (TypeError, ValueError, AttributeError):
            check_key(key)
            raise
        check_key(key)
        METRICS.state_read_seconds.observe(time.perf_counter() - started)
        return value

    def _get_unregistered(self, _: None, key: bytes) -> bytes | None:
        number = self.find_number()
        return None if number is None else self._get(number, key)

    def contains(self, key: bytes) -> bool:
        return self.get(key) is not None

    __contains__ = contains

    def put(self, change: Change, key: bytes, value: bytes) -> None:
        """Adds the pair to the change; it becomes visible, and durable, with the change's commit."""
        if value is None:
            raise BadInput("None is no value of a store of bytes", hint="delete deletes a key")
        try:
            if change.mark is None:
                change.edits[self][key] = value
            else:
                change.set(self, key, value)
        except KeyError:
            check_key(key)
            change.edits[self] = {key: value}
        except (AttributeError, TypeError):
            check_change(change)
            check_key(key)
            raise

    def put_many(self, change: Change, items: Mapping[bytes, bytes] | Iterable[tuple[bytes, bytes]]) -> None:
        """As `put` for each pair, faster."""
        check_change(change)
        try:
            table: dict[bytes, bytes | None] = dict(items)
        except (TypeError, ValueError) as error:
            raise BadInput(f"these are no pairs of a key and a value: {error}", hint="a mapping of bytes") from error
        if None in table.values():
            raise BadInput("None is no value of a store of bytes", hint="delete deletes a key")
        if change.mark is not None:
            for key, value in table.items():
                change.set(self, key, value)
            return
        before = change.edits.get(self)
        if before is None:
            change.edits[self] = table
        else:
            before.update(table)

    def delete(self, change: Change, key: bytes) -> None:
        """Adds the deletion to the change. The key need not be there."""
        check_change(change)
        check_key(key)
        change.set(self, key, None)

    def write(self, items: Mapping[bytes, bytes | Deletion]) -> Pending[Any]:
        """Commits puts, and deletes where the value is `DELETE`: all or none. The result is there once they are
        durable."""
        check_type("items", items, Mapping)
        change = Change()
        kinds = set(map(type, items.values()))
        if not kinds <= _VALUES:
            raise BadInput(
                f"store {self.namespace} cannot hold a value of type {(kinds - _VALUES).pop().__name__}",
                hint="values are bytes; DELETE deletes a key",
            )
        if Deletion in kinds:
            change.edits[self] = {key: None if value is DELETE else value for key, value in items.items()}
        else:
            change.edits[self] = dict(items)  # type: ignore[arg-type]
        return self.holder.commit(change)

    def get_many(self, keys: Iterable[bytes]) -> dict[bytes, bytes]:
        """The pairs of those keys that are there, all as of one moment."""
        check_type("keys", keys, Iterable)
        wanted = list(keys)
        if not set(map(type, wanted)) <= _KEYS:
            raise BadInput("keys of a store are bytes")
        self.reads += len(wanted)
        number = self.find_number()
        if number is None:
            return {}
        try:
            values = self.holder.engine.get_many(number, wanted)
        except Corruption as error:
            self.holder.heal(error)
            values = self.holder.engine.get_many(number, wanted)
        return {key: value for key, value in zip(wanted, values, strict=True) if value is not None}

    def get_in(self, change: Change, key: bytes) -> bytes | None:
        """As `get`, with what the change, which is not committed yet, does to this store."""
        check_change(change)
        check_key(key)
        table = change.edits.get(self)
        return table[key] if table is not None and key in table else self.get(key)

    def contains_in(self, change: Change, key: bytes) -> bool:
        """As `contains`, with what the change, which is not committed yet, does to this store."""
        return self.get_in(change, key) is not None

    def iterate(
        self, *, prefix: bytes = b"", start: bytes | None = None, end: bytes | None = None, reverse: bool = False
    ) -> StateIterator[tuple[bytes, bytes]]:
        """Pairs whose keys begin with `prefix`, from `start` (included) to `end` (excluded), in byte order; `reverse`:
        from the last to the first."""
        check_key(prefix)
        for bound in (start, end):
            if bound is not None:
                check_key(bound)
        first = max(prefix, start or b"")
        last = _after_prefix(prefix)
        if end is not None and (last is None or end < last):
            last = end
        return StateIterator(lambda: self._pairs(first, last, reverse), self.holder.heal)

    def _pairs(
        self, first: bytes, last: bytes | None, reverse: bool
    ) -> tuple[StateSnapshot, Iterator[tuple[bytes, bytes]]]:
        snapshot = self.holder.engine.create_snapshot()
        number = self.find_number()
        if number is None or (last is not None and first >= last):
            return snapshot, iter(())
        return snapshot, snapshot.iterate(number, first, last, reverse=reverse)

    def follows(self, found: Registration) -> bool:
        """Whether the handles of a store that is gone may read `found`, which has its name now."""
        return self.lost is None or self.lost.reads_as(found)

    def find_number(self) -> int | None:
        """The store's number in the registry; None while nobody registered the store."""
        if self.number is None and not self.dropped:
            found = self.holder.registry.find(self.namespace)
            if found is not None:
                if not self.follows(found):
                    raise NotSupported(
                        f"store {self.namespace} is gone, and another one that has its name is written as"
                        f" {found.key} → {found.value}",
                        hint="open it again",
                    )
                self.bind(found.number)
        return self.number


class TypedStore(Generic[K, V]):
    """One store of a state, with keys and values as its descriptor says."""

    def __init__(self, raw: RawStore, descriptor: StateDescriptor[K, V]) -> None:
        self.raw = raw
        self.descriptor = descriptor
        self._encode_key = descriptor.encode_key
        # For `put` and `get`, which run a million times: what is the same for all values of one size is made once.
        self._key_bytes = descriptor.key.encode
        self._payload = descriptor.value.encode
        self._value_of = descriptor.value.decode
        self._headers: dict[int, bytes] = {}  # by the size of the payload
        self._sizes: dict[bytes, int] = {}  # by the header: the size of the whole value
        self.known_to: Registry | None = None  # a registry that is known to have this schema version

    def get(self, key: K) -> V | None:
        """The value. None where there is none; where None is a value that is stored, `contains` tells them apart."""
        try:
            encoded = KEY_VERSION + self._key_bytes(key)
        except TypeError as error:
            raise refused(key, error) from error
        raw = self.raw.get(encoded)
        return None if raw is None else self._decode_value(raw)

    def _decode_value(self, raw: bytes) -> V:
        if self._sizes.get(raw[:HEADER_BYTES]) == len(raw):  # of this version and schema, and whole
            return self._value_of(raw[HEADER_BYTES:])
        value = self.descriptor.decode_value(raw)
        self._header(len(raw) - HEADER_BYTES)
        return value

    def _header(self, size: int) -> bytes:
        """What stands before a payload of this size, remembered where such a size may come often."""
        header = self.descriptor.value_header(size)
        if size < _SIZES_MAX:
            self._headers[size] = header
            self._sizes[header] = HEADER_BYTES + size
        return header

    def get_many(self, keys: Iterable[K]) -> dict[K, V]:
        """The pairs of those keys that are there, all as of one moment."""
        check_type("keys", keys, Iterable)
        encoded = {self._encode_key(key): key for key in keys}
        return {encoded[raw]: self._decode_value(value) for raw, value in self.raw.get_many(encoded).items()}

    def get_in(self, change: Change, key: K) -> V | None:
        """As `get`, with what the change, which is not committed yet, does to this store. `contains_in` tells None that
        is stored from a key that is not there."""
        raw = self.raw.get_in(change, self._encode_key(key))
        return None if raw is None else self._decode_value(raw)

    def contains_in(self, change: Change, key: K) -> bool:
        """As `contains`, with what the change, which is not committed yet, does to this store."""
        return self.raw.contains_in(change, self._encode_key(key))

    def contains(self, key: K) -> bool:
        return self.raw.get(self._encode_key(key)) is not None

    __contains__ = contains

    def items(self, *, reverse: bool = False) -> StateIterator[tuple[K, V]]:
        """Everything, in order of the encoded keys, as of the call; `reverse`: from the last to the first."""
        return self.iterate(reverse=reverse)

    def prefix(self, prefix: K, *, reverse: bool = False) -> StateIterator[tuple[K, V]]:
        """The items whose key starts with `prefix`: the first parts of a tuple, or the first characters of a text."""
        return self.iterate(prefix=prefix, reverse=reverse)

    def range(
        self, start: K | None = None, end: K | None = None, *, reverse: bool = False
    ) -> StateIterator[tuple[K, V]]:
        """The items from `start` (included) to `end` (excluded). The first parts of a tuple are enough for either."""
        return self.iterate(start=start, end=end, reverse=reverse)

    def iterate(
        self, *, prefix: K | None = None, start: K | None = None, end: K | None = None, reverse: bool = False
    ) -> StateIterator[tuple[K, V]]:
        """The items in order of the encoded keys, as of the call, while writes go on; `reverse`: from the last to the
        first."""
        encode = self.descriptor.encode_prefix
        raw_prefix = b"" if prefix is None else encode(prefix)
        first = raw_prefix if start is None else max(raw_prefix, encode(start))
        last = _after_prefix(raw_prefix)
        if end is not None and (last is None or encode(end) < last):
            last = encode(end)

        def pairs() -> tuple[StateSnapshot, Iterator[tuple[K, V]]]:
            snapshot, found = self.raw._pairs(first, last, reverse)
            return snapshot, self._decode(found)

        return StateIterator(pairs, self.raw.holder.heal)

    def put(self, change: Change, key: K, value: V) -> None:
        """Adds the pair to the change; it becomes visible, and durable, with the change's commit."""
        raw = self.raw
        if self.known_to is not raw.holder.registry:
            check_change(change)
            change.typed.add(self)
        try:
            encoded, payload = KEY_VERSION + self._key_bytes(key), self._payload(value)
        except TypeError as error:
            raise refused((key, value), error) from error
        size = len(payload)
        stored = (self._headers.get(size) or self._header(size)) + payload
        try:
            if change.mark is None:
                change.edits[raw][encoded] = stored
            else:
                change.set(raw, encoded, stored)
        except KeyError:
            change.edits[raw] = {encoded: stored}
        except (AttributeError, TypeError):
            check_change(change)
            raise

    def put_many(self, change: Change, items: Mapping[K, V]) -> None:
        """As `put` for each pair."""
        check_change(change)
        check_type("items", items, Mapping)
        for key, value in items.items():
            self.put(change, key, value)

    def delete(self, change: Change, key: K) -> None:
        """Adds the deletion to the change. The key need not be there."""
        check_change(change)
        if self.known_to is not self.raw.holder.registry:
            change.typed.add(self)
        self.raw.delete(change, self._encode_key(key))

    def write(self, items: Mapping[K, V | Deletion]) -> Pending[Any]:
        """Commits puts, and deletes where the value is `DELETE`: all or none. The result is there once they are durable.

        None is a value like others: a codec that has none for it, as `json` has null, refuses it.
        """
        check_type("items", items, Mapping)
        change = Change()
        for key, value in items.items():
            if value is DELETE:
                self.delete(change, key)
            else:
                self.put(change, key, value)
        return self.raw.holder.commit(change)

    def _decode(self, found: Iterator[tuple[bytes, bytes]]) -> Iterator[tuple[K, V]]:
        decode_key, decode_value = self.descriptor.decode_key, self._decode_value
        for key, value in found:
            yield decode_key(key), decode_value(value)


def _after_prefix(prefix: bytes) -> bytes | None:
    """The first key after all keys that begin with `prefix`; None where there is no such key."""
    stripped = prefix.rstrip(b"\xff")
    return stripped[:-1] + bytes([stripped[-1] + 1]) if stripped else None
