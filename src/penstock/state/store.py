"""Typed views over raw stores, the registry that numbers them, and the pending change that a commit takes."""

from __future__ import annotations

import bisect
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from penstock.errors import BadInput, Corruption, NotSupported
from penstock.log import StateChange
from penstock.state import codecs
from penstock.state.codecs import Codec

K = TypeVar("K")
V = TypeVar("V")

REGISTRY_NAMESPACE = 0
_KEY_VERSION = b"\x01"
_VALUE = struct.Struct("<BHI")
_VALUE_VERSION = 1
_SCHEMA_MAX = (1 << 16) - 1


@dataclass(frozen=True, slots=True)
class StateDescriptor(Generic[K, V]):
    """Names a store and says how its keys and values are written."""

    name: str
    operator: str
    key: Codec[K]
    value: Codec[V]
    schema_version: int = 1

    def __post_init__(self) -> None:
        if not 0 <= self.schema_version <= _SCHEMA_MAX:
            raise BadInput(f"store {self.name}: schema_version must be between 0 and {_SCHEMA_MAX}")

    def encode_key(self, key: K) -> bytes:
        return _KEY_VERSION + self.key.encode(key)

    def decode_key(self, raw: bytes) -> K:
        if raw[:1] != _KEY_VERSION:
            raise NotSupported(
                f"store {self.name}: key version {raw[:1].hex()} is not known",
                hint="a newer Penstock wrote it: upgrade",
            )
        return self.key.decode(raw[1:])

    def encode_prefix(self, prefix: K) -> bytes:
        return _KEY_VERSION + self.key.prefix(prefix)

    def encode_value(self, value: V) -> bytes:
        payload = self.value.encode(value)
        return _VALUE.pack(_VALUE_VERSION, self.schema_version, len(payload)) + payload

    def decode_value(self, raw: bytes) -> V:
        if len(raw) < _VALUE.size:
            raise Corruption(f"store {self.name}: a value of {len(raw)} bytes is too short")
        version, schema, size = _VALUE.unpack_from(raw)
        if version != _VALUE_VERSION or schema != self.schema_version:
            raise NotSupported(
                f"store {self.name}: a value has version {version}, schema {schema};"
                f" this reader knows version {_VALUE_VERSION}, schema {self.schema_version}",
                hint="another Penstock wrote it: use that version",
            )
        if len(raw) != _VALUE.size + size:
            raise Corruption(f"store {self.name}: a value says {size} bytes and has {len(raw) - _VALUE.size}")
        return self.value.decode(raw[_VALUE.size :])


REGISTRY: StateDescriptor[tuple[Any, ...], Any] = StateDescriptor(
    "registry", "state", codecs.tuple_of(codecs.text, codecs.text), codecs.json
)


class RawStore:
    """Sorted bytes → bytes, in memory. The order of the keys is made when somebody asks for it."""

    __slots__ = ("_sorted", "data")

    def __init__(self) -> None:
        self.data: dict[bytes, bytes] = {}
        self._sorted: list[bytes] | None = None

    def apply(self, key: bytes, value: bytes | None) -> None:
        if value is None:
            if self.data.pop(key, None) is not None:
                self._sorted = None
            return
        if key not in self.data:
            self._sorted = None
        self.data[key] = value

    def scan(self, prefix: bytes) -> list[tuple[bytes, bytes]]:
        """What starts with `prefix`, in order of the keys, as of now."""
        if self._sorted is None:
            self._sorted = sorted(self.data)
        found = []
        for at in range(bisect.bisect_left(self._sorted, prefix), len(self._sorted)):
            key = self._sorted[at]
            if not key.startswith(prefix):
                break
            found.append((key, self.data[key]))
        return found


class Stores:
    """Every raw store of one state, with the registry that numbers them. Not thread-safe: its holder locks."""

    def __init__(self) -> None:
        self._stores: dict[int, RawStore] = {REGISTRY_NAMESPACE: RawStore()}
        self._numbers: dict[tuple[str, str], int] = {}
        self._codecs: dict[int, tuple[str, str]] = {}

    def apply(self, changes: tuple[StateChange, ...] | list[StateChange]) -> None:
        for namespace, key, value, *_ in changes:
            if namespace == REGISTRY_NAMESPACE:
                if value is None:
                    raise Corruption("the registry of state lost a store")
                self._register(REGISTRY.decode_value(value))
            store = self._stores.get(namespace)
            if store is None:
                raise Corruption(
                    f"state changes name namespace {namespace}, which no earlier frame registered",
                    hint="the log was not read from its start",
                )
            store.apply(key, value)

    def find(self, descriptor: StateDescriptor[Any, Any]) -> int | None:
        """The number of a store, or None while nobody has written to it. Refuses another key or value codec."""
        number = self._numbers.get((descriptor.operator, descriptor.name))
        if number is not None:
            key, value = self._codecs[number]
            if key != descriptor.key.name or value != descriptor.value.name:
                raise NotSupported(
                    f"store {descriptor.operator}/{descriptor.name} was written as {key} → {value},"
                    f" not as {descriptor.key.name} → {descriptor.value.name}",
                    hint="keys must stay byte-stable; give the new store another name",
                )
        return number

    def registration(self, descriptor: StateDescriptor[Any, Any]) -> StateChange:
        """The change that registers a new store under the next number."""
        record = {
            "id": max(self._stores) + 1,
            "operator": descriptor.operator,
            "name": descriptor.name,
            "key": descriptor.key.name,
            "value": descriptor.value.name,
        }
        key = REGISTRY.encode_key((descriptor.operator, descriptor.name))
        return StateChange(REGISTRY_NAMESPACE, key, REGISTRY.encode_value(record))

    def raw(self, number: int) -> RawStore:
        return self._stores[number]

    def snapshot(self) -> list[StateChange]:
        """Changes that make this state out of nothing, registry first."""
        return [
            StateChange(number, key, value)
            for number in sorted(self._stores)
            for key, value in self._stores[number].data.items()
        ]

    def _register(self, record: dict[str, Any]) -> None:
        number = record["id"]
        self._numbers[record["operator"], record["name"]] = number
        self._codecs[number] = (record["key"], record["value"])
        self._stores.setdefault(number, RawStore())


class Change:
    """Puts and deletes that will be one frame. The last one of a key counts."""

    __slots__ = ("edits",)

    def __init__(self) -> None:
        self.edits: dict[StateDescriptor[Any, Any], dict[bytes, bytes | None]] = {}

    def __bool__(self) -> bool:
        return bool(self.edits)


class TypedStore(Generic[K, V]):
    """One store of a state. Reads see what was committed; writes go into a `Change`."""

    def __init__(self, holder: StateView, descriptor: StateDescriptor[K, V]) -> None:
        self._holder = holder
        self.descriptor = descriptor

    def get(self, key: K) -> V | None:
        raw = self._holder.raw_get(self.descriptor, self.descriptor.encode_key(key))
        return None if raw is None else self.descriptor.decode_value(raw)

    def items(self) -> Iterator[tuple[K, V]]:
        """Everything, in order of the encoded keys, as of the call."""
        return self._decode(self._holder.raw_scan(self.descriptor, b""))

    def prefix(self, prefix: K) -> Iterator[tuple[K, V]]:
        """The items whose key starts with `prefix`: of a tuple its first parts, of a text its first characters."""
        return self._decode(self._holder.raw_scan(self.descriptor, self.descriptor.encode_prefix(prefix)))

    def put(self, change: Change, key: K, value: V) -> None:
        edits = change.edits.setdefault(self.descriptor, {})
        edits[self.descriptor.encode_key(key)] = self.descriptor.encode_value(value)

    def delete(self, change: Change, key: K) -> None:
        change.edits.setdefault(self.descriptor, {})[self.descriptor.encode_key(key)] = None

    def _decode(self, found: list[tuple[bytes, bytes]]) -> Iterator[tuple[K, V]]:
        decode_key, decode_value = self.descriptor.decode_key, self.descriptor.decode_value
        return ((decode_key(key), decode_value(value)) for key, value in found)


class StateView:
    """What a typed store asks of the state that holds it."""

    def raw_get(self, descriptor: StateDescriptor[Any, Any], key: bytes) -> bytes | None:
        raise NotImplementedError

    def raw_scan(self, descriptor: StateDescriptor[Any, Any], prefix: bytes) -> list[tuple[bytes, bytes]]:
        raise NotImplementedError
