"""The registry of a state: which number stands for which store, and with which codecs and schemas it was written.

The registry is namespace 0 of the state itself (docs/formats/state.md). So a store's registration is logged before the
store's first change, is part of each checkpoint, and is taken back with a truncation. While it is there, its number
never stands for another store.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.errors import BadInput, Corruption, NotSupported
from penstock.log import StateChange
from penstock.state.types import codecs
from penstock.state.types.codecs import Codec
from penstock.state.types.descriptor import Namespace, StateDescriptor

REGISTRY_NAMESPACE = 0
BYTES = "bytes"  # the codec's name in a store without types, whose keys have no version and whose values no header

REGISTRY: StateDescriptor[Any, Any] = StateDescriptor(
    "registry", "state", codecs.tuple_of(codecs.text, codecs.text), codecs.json
)
_BUCKET_REGISTRY: StateDescriptor[Any, Any] = StateDescriptor(
    "registry", "state", codecs.tuple_of(codecs.text, codecs.u64, codecs.text, codecs.text), codecs.json
)
_DROPPED_REGISTRY: StateDescriptor[Any, Any] = StateDescriptor(
    "registry", "state", codecs.tuple_of(codecs.text, codecs.u64, codecs.text, codecs.text, codecs.u64), codecs.json
)


@dataclass(frozen=True, slots=True)
class Schema:
    """The codec that wrote the values of one schema version; `fields`: their JSON Schema, where the codec knows it."""

    value: str
    fields: dict[str, Any] | None = None

    @classmethod
    def of(cls, codec: Codec[Any]) -> Schema:
        return cls(codec.name, getattr(codec, "schema", None))


@dataclass(frozen=True, slots=True)
class Registration:
    """One store as the registry knows it."""

    number: int
    namespace: Namespace
    key: str
    value: str  # the codec of the schema that the store was registered with
    schemas: dict[int, Schema] = field(default_factory=dict)
    dropped: bool = False  # the store is no more; its number stays taken

    @property
    def typed(self) -> bool:
        return self.key != BYTES

    def reads_as(self, other: Registration) -> bool:
        """Whether who reads this store reads `other`, of the same name, in the same way: keys and values have the same
        codecs."""
        return self.key == other.key and all(
            self.schemas.get(version, schema).value == schema.value for version, schema in other.schemas.items()
        )

    def document(self) -> dict[str, Any]:
        record: dict[str, Any] = {
            "id": self.number,
            "operator": self.namespace.operator,
            "name": self.namespace.state,
            "key": self.key,
            "value": self.value,
        }
        if self.namespace.table or self.namespace.bucket:
            record |= {"table": self.namespace.table, "bucket": self.namespace.bucket}
        if self.dropped:
            record["dropped"] = True
        if self.schemas:
            record["schemas"] = {
                str(version): {"value": schema.value} | ({"fields": schema.fields} if schema.fields else {})
                for version, schema in sorted(self.schemas.items())
            }
        return record

    @classmethod
    def from_document(cls, record: Any) -> Registration:
        try:
            namespace = Namespace(record.get("table", ""), record.get("bucket", 0), record["operator"], record["name"])
            schemas = {} if record["key"] == BYTES else record["schemas"]
            return cls(
                int(record["id"]),
                namespace,
                record["key"],
                record["value"],
                {int(version): Schema(one["value"], one.get("fields")) for version, one in schemas.items()},
                record.get("dropped", False),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise Corruption(f"the registry of state has a record that cannot be read: {record!r}") from error

    def change(self) -> StateChange:
        """The change that writes this registration into the log."""
        table, bucket, operator, state = self.namespace
        if table or bucket:
            key = _BUCKET_REGISTRY.encode_key((table, bucket, operator, state))
        else:
            key = REGISTRY.encode_key((operator, state))
        return StateChange(REGISTRY_NAMESPACE, key, REGISTRY.encode_value(self.document()))

    def dropping(self) -> list[StateChange]:
        """The changes that write down that the store was dropped: in place of its registration, and under a key that no
        later store of its name takes."""
        table, bucket, operator, state = self.namespace
        key = _DROPPED_REGISTRY.encode_key((table, bucket, operator, state, self.number))
        return [self.change(), StateChange(REGISTRY_NAMESPACE, key, REGISTRY.encode_value(self.document()))]


class Registry:
    """Stores by number and by name. Its holder locks while it changes the registry; readers need no lock."""

    def __init__(self, records: Iterable[tuple[bytes, bytes]] = ()) -> None:
        self._by_name: dict[Namespace, Registration] = {}
        self._by_number: dict[int, Registration] = {}
        for _, value in records:
            self.load(value)

    def copy(self) -> Registry:
        """The registry as of now."""
        copied = Registry()
        copied._by_name, copied._by_number = dict(self._by_name), dict(self._by_number)
        return copied

    def __len__(self) -> int:
        """How many stores there are or were: with one that was dropped, the log has changes too."""
        return len(self._by_number)

    def __contains__(self, number: int) -> bool:
        return number in self._by_number

    def load(self, value: bytes | None) -> None:
        """Takes the value of a change of namespace 0. Raises `Corruption` where it contradicts an earlier one."""
        if value is None:
            raise Corruption("the registry of state lost a store")
        new = Registration.from_document(REGISTRY.decode_value(value))
        known = self._by_number.get(new.number)
        if known is not None and known.namespace != new.namespace:
            raise Corruption(f"the registry gives number {new.number} to {known.namespace} and to {new.namespace}")
        self._by_number[new.number] = new
        if not new.dropped:
            self._by_name[new.namespace] = new
        elif self._by_name.get(new.namespace, new).number == new.number:
            self._by_name.pop(new.namespace, None)

    def registrations(self) -> list[Registration]:
        """All stores, by number, without those that were dropped."""
        return [one for _, one in sorted(self._by_number.items()) if not one.dropped]

    def dropped(self) -> list[Registration]:
        """The stores that were dropped."""
        return [one for one in self._by_number.values() if one.dropped]

    def live(self) -> set[int]:
        """The numbers of the stores that are there."""
        return {one.number for one in self._by_name.values()}

    def drop(self, namespace: Namespace) -> Registration:
        """The store is no more. Its number is never given again."""
        dropped = replace(self._by_name.pop(namespace), dropped=True)
        self._by_number[dropped.number] = dropped
        return dropped

    def find(self, namespace: Namespace) -> Registration | None:
        return self._by_name.get(namespace)

    def number_of(self, namespace: Namespace) -> int:
        """The number of a store. Raises `BadInput` where it was never registered."""
        found = self._by_name.get(namespace)
        if found is None:
            names = ", ".join(str(name) for name in self._by_name) or "none"
            raise BadInput(f"there is no store {namespace}", hint=f"there are: {names}")
        return found.number

    def registration_of(self, number: int) -> Registration | None:
        """The store that a number stands for, also one that was dropped."""
        return self._by_number.get(number)

    def namespace_of(self, number: int) -> Namespace:
        """The store that a number stands for. Raises `Corruption` if there is none: numbers come from the log alone."""
        found = self._by_number.get(number)
        if found is None:
            raise unregistered(number)
        return found.namespace

    def check(self, numbers: Iterable[int]) -> None:
        """Raises `Corruption` where one of the numbers was never registered."""
        for number in numbers:
            if number != REGISTRY_NAMESPACE and number not in self._by_number:
                raise unregistered(number)

    def register(self, descriptor: StateDescriptor[Any, Any]) -> Registration:
        """Registers a new store, with the next number."""
        schema = Schema.of(descriptor.value)
        return self._add(descriptor.namespace, descriptor.key.name, {descriptor.schema_version: schema})

    def register_bytes(self, namespace: Namespace) -> Registration:
        """Registers a new store of bytes without types."""
        return self._add(namespace, BYTES, {})

    def add_schema(self, descriptor: StateDescriptor[Any, Any]) -> Registration | None:
        """Adds the descriptor's schema version to its store; None where the registry has that version already."""
        known = self._by_name[descriptor.namespace]
        if descriptor.schema_version in known.schemas:
            return None
        schemas = {**known.schemas, descriptor.schema_version: Schema.of(descriptor.value)}
        new = replace(known, schemas=schemas)
        self._by_number[new.number] = self._by_name[new.namespace] = new
        return new

    def _add(self, namespace: Namespace, key: str, schemas: dict[int, Schema]) -> Registration:
        number = max(self._by_number, default=REGISTRY_NAMESPACE) + 1
        if number >= 1 << 64:
            raise NotSupported("there are no more namespace numbers")
        value = next(iter(schemas.values())).value if schemas else BYTES
        new = Registration(number, namespace, key, value, schemas)
        self._by_number[number] = self._by_name[namespace] = new
        return new


def unregistered(number: int) -> Corruption:
    return Corruption(
        f"state changes name namespace {number}, which no earlier frame registered",
        hint="the log was not read from its start",
    )
