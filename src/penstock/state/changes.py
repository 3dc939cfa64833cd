"""The pending change that a commit takes, and its encoding: puts and deletes of several stores that will be one frame.

A change knows its stores only by what it needs of them (`ChangedStore`, `TypedChanges`); store.py has the stores.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from itertools import chain, repeat
from typing import Any, Final, NamedTuple, Protocol

from penstock.arguments import check_count, check_type, shown
from penstock.errors import BadInput
from penstock.log import StateChange
from penstock.log.frames.format import BODY_BYTES_MAX, CHANGE, OP_PUT, OP_TOMBSTONE, encode_changes
from penstock.state.types.descriptor import Namespace, StateDescriptor
from penstock.state.types.registry import Registry

Table = dict[bytes, bytes | None]
_KEYS = frozenset((bytes,))
_VALUES = frozenset((bytes, type(None)))  # None: the key is deleted


class Deletion(Enum):
    """The type of `DELETE`."""

    DELETE = "delete"


DELETE: Final = Deletion.DELETE  # as a value of `write`: the key is deleted. None is a value, where the codec has one


class ChangedStore(Protocol):
    """A store of bytes, as a change and its commit see it."""

    number: int | None  # in the registry; None: nobody registered the store yet

    @property
    def dropped(self) -> bool:
        """True: it takes no more changes."""
        ...

    @property
    def namespace(self) -> Namespace: ...

    @property
    def holder(self) -> object:
        """The state that the store belongs to."""
        ...

    def bind(self, number: int) -> None:
        """The store was registered under this number."""
        ...


class TypedChanges(Protocol):
    """A typed store with changes: their commit enters its schema version into the registry, where it is new."""

    known_to: Registry | None

    @property
    def raw(self) -> ChangedStore: ...

    @property
    def descriptor(self) -> StateDescriptor[Any, Any]: ...


class Mark(NamedTuple):
    """Which record of the entry makes a change, and when it was made (None: at the commit)."""

    delta: int
    timestamp: int | None


class Change:
    """Puts and deletes that will be one frame; of several for one key the last counts. For one thread at a time."""

    __slots__ = ("edits", "mark", "marks", "typed")

    def __init__(self) -> None:
        self.edits: dict[ChangedStore, Table] = {}
        self.mark: Mark | None = None
        self.marks: dict[tuple[ChangedStore, bytes], Mark] = {}
        self.typed: set[TypedChanges] = set()  # stores whose schema version the registry may not know yet

    def __bool__(self) -> bool:
        return bool(self.edits)

    def at(self, delta: int, timestamp: int | None = None) -> Change:
        """The puts and deletes after this call are made by the record with this ordinal in the entry, at this time in
        milliseconds."""
        if type(delta) is not int or not 0 <= delta < 1 << 32:
            raise BadInput(f"a change cannot belong to record {shown(delta)}", hint="an ordinal of 32 bits")
        check_count("timestamp", timestamp, optional=True)
        self.mark = Mark(delta, timestamp)
        return self

    def set(self, store: ChangedStore, key: bytes, value: bytes | None) -> None:
        """For stores, which know that they are one. What is no key or value is refused by the commit at the latest."""
        try:
            self.edits[store][key] = value
        except KeyError:
            self.edits[store] = {key: value}
        if self.mark is not None:
            self.marks[store, key] = self.mark


def check_change(value: object) -> None:
    """Raises `BadInput` unless it is a change, as `begin` gives one."""
    check_type("change", value, Change)


def check_key(value: object) -> None:
    """Raises `BadInput` unless it can be the key of a store of bytes."""
    if type(value) is not bytes and not isinstance(value, bytes):
        raise BadInput(f"a key is {shown(value)}", hint="bytes")


def encode(change: Change, registered: Sequence[StateChange], wall_ms: int) -> bytes:
    """The changes as they stand in a frame (docs/formats/frame.md), registrations first.

    Raises `BadInput` where they are too large for one.
    """
    parts: list[bytes] = []
    if registered:
        parts.append(encode_changes(registered, wall_ms))
    for store, table in change.edits.items():
        assert store.number is not None
        if not set(map(type, table)) <= _KEYS or not set(map(type, table.values())) <= _VALUES:
            raise BadInput(f"store {store.namespace}: keys and values are bytes")
        if change.marks:
            _encode_marked(parts, change, store, store.number, wall_ms)
        else:
            _encode_table(parts, store.number, table, wall_ms)
    try:
        encoded = b"".join(parts)
    except (TypeError, MemoryError, OverflowError) as error:
        raise BadInput(f"state changes cannot be encoded: {error}", hint="keys and values are bytes") from error
    if len(encoded) > BODY_BYTES_MAX:
        raise BadInput(f"state changes of {len(encoded)} bytes are too large", hint=f"at most {BODY_BYTES_MAX} bytes")
    return encoded


def _encode_table(parts: list[bytes], number: int, table: Table, wall_ms: int) -> None:
    values: Any = table.values()
    try:
        key_sizes, value_sizes = set(map(len, table)), set(map(len, values))
    except TypeError:  # a tombstone has no length
        key_sizes = value_sizes = set()
    if len(key_sizes) == 1 == len(value_sizes):  # the usual batch: one header fits all
        key_len, value_len = _checked(key_sizes.pop()), _checked(value_sizes.pop())
        header = CHANGE.pack(number, OP_PUT, 0, 0, 0, wall_ms, key_len, value_len)
        parts.extend(chain.from_iterable(zip(repeat(header), table, values)))
        return
    headers: dict[tuple[int, int], bytes] = {}
    for key, value in table.items():
        sizes = (len(key), -1 if value is None else len(value))
        header_or_none = headers.get(sizes)
        if header_or_none is None:
            operation = OP_TOMBSTONE if value is None else OP_PUT
            key_len, value_len = _checked(sizes[0]), _checked(max(sizes[1], 0))
            header_or_none = headers[sizes] = CHANGE.pack(number, operation, 0, 0, 0, wall_ms, key_len, value_len)
        parts += (header_or_none, key) if value is None else (header_or_none, key, value)


def _encode_marked(parts: list[bytes], change: Change, store: ChangedStore, number: int, wall_ms: int) -> None:
    for key, value in change.edits[store].items():
        delta, timestamp = change.marks.get((store, key), (0, None))
        _checked(len(key))
        _checked(len(value or b""))
        parts.append(encode_changes((StateChange(number, key, value, delta, timestamp),), wall_ms))


def _checked(size: int) -> int:
    if size > BODY_BYTES_MAX:
        raise BadInput(f"a key or value of {size} bytes is too large", hint=f"at most {BODY_BYTES_MAX} bytes")
    return size
