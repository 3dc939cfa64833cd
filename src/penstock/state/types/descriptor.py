"""Descriptors: what a store is called, and how its keys and values are turned into bytes (docs/formats/state.md)."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from penstock.arguments import check_component, check_text, check_type, shown
from penstock.errors import BadInput, Corruption, NotSupported
from penstock.log.frames.format import BODY_BYTES_MAX
from penstock.state.types.codecs import Codec

K = TypeVar("K")
V = TypeVar("V")

KEY_VERSION = b"\x01"
VALUE_VERSION = 1
VALUE_HEADER = struct.Struct("<BHI")  # version, schema id, payload length
HEADER_BYTES = VALUE_HEADER.size
SCHEMA_MAX = (1 << 16) - 1
BUCKET_MAX = (1 << 32) - 1


class Namespace(NamedTuple):
    """The full name of a store. In a log that is not a bucket of a table, `table` is empty and `bucket` 0."""

    table: str
    bucket: int
    operator: str
    state: str

    def __str__(self) -> str:
        bucket = f"{self.table}/{self.bucket}/" if self.table or self.bucket else ""
        return f"{bucket}{self.operator}/{self.state}"


def refused(value: object, error: TypeError) -> BadInput:
    """The error for a key or value that a codec cannot encode."""
    return BadInput(f"a store cannot hold {shown(value)}: {error}", hint="what the store's codecs take")


def check_namespace(value: Namespace) -> None:
    """Raises `BadInput` where this cannot be the name of a store."""
    check_text("the name of a store", value.state, empty=False)
    check_text("the operator of a store", value.operator, empty=False)
    check_text("the table of a store", value.table)
    if type(value.bucket) is not int or not 0 <= value.bucket <= BUCKET_MAX:
        raise BadInput(f"store {value.state}: bucket must be between 0 and {BUCKET_MAX}")


@dataclass(frozen=True, slots=True)
class Migration:
    """Turns a value of schema `version` into one of `version` + 1. `value` is the codec that wrote the old one."""

    version: int
    value: Codec[Any]
    upgrade: Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class StateDescriptor(Generic[K, V]):
    """Names a store and says how its keys and values are written.

    `migrations` lead from older schema versions to this one, one step for each version. A value is migrated whenever it
    is read; on the disk it stays as it is until it is put again.
    """

    name: str
    operator: str
    key: Codec[K]
    value: Codec[V]
    schema_version: int = 1
    migrations: tuple[Migration, ...] = ()
    table: str = ""
    bucket: int = 0

    def __post_init__(self) -> None:
        check_namespace(self.namespace)
        if type(self.schema_version) is not int or not 0 <= self.schema_version <= SCHEMA_MAX:
            raise BadInput(f"store {self.name}: schema_version must be between 0 and {SCHEMA_MAX}")
        check_component("key", self.key, "decode_part")
        check_component("value", self.value, "decode_part")
        check_type("migrations", self.migrations, tuple)
        for step in self.migrations:
            check_type("a migration", step, Migration)
        steps = [step.version for step in self.migrations]
        if len(set(steps)) != len(steps) or any(not 0 <= step < self.schema_version for step in steps):
            raise BadInput(
                f"store {self.name}: migrations from {steps} do not lead to schema {self.schema_version}",
                hint="one for each older version at most",
            )

    @property
    def namespace(self) -> Namespace:
        return Namespace(self.table, self.bucket, self.operator, self.name)

    def encode_key(self, key: K) -> bytes:
        try:
            return KEY_VERSION + self.key.encode(key)
        except TypeError as error:
            raise refused(key, error) from error

    def decode_key(self, raw: bytes) -> K:
        if raw[:1] != KEY_VERSION:
            raise NotSupported(
                f"store {self.name}: key version {raw[:1].hex()} is not known",
                hint="a newer Penstock wrote it: upgrade",
            )
        return self.key.decode(raw[1:])

    def encode_prefix(self, prefix: K) -> bytes:
        try:
            return KEY_VERSION + self.key.prefix(prefix)
        except TypeError as error:
            raise refused(prefix, error) from error

    def encode_value(self, value: V) -> bytes:
        payload = self.value.encode(value)
        return self.value_header(len(payload)) + payload

    def value_header(self, size: int) -> bytes:
        """What stands before a payload of this size."""
        if size > BODY_BYTES_MAX:
            raise BadInput(
                f"store {self.name}: a value of {size} bytes is too large", hint=f"at most {BODY_BYTES_MAX} bytes"
            )
        return VALUE_HEADER.pack(VALUE_VERSION, self.schema_version, size)

    def decode_value(self, raw: bytes) -> V:
        schema, payload = split_value(self.name, raw)
        if schema == self.schema_version:
            return self.value.decode(payload)
        return self._migrated(schema, payload)

    def _migrated(self, schema: int, payload: bytes) -> V:
        steps = {step.version: step for step in self.migrations}
        if schema not in steps:
            raise self.no_way_from(schema)
        value = steps[schema].value.decode(payload)
        while schema != self.schema_version:
            if schema not in steps:
                raise self.no_way_from(schema)
            value = steps[schema].upgrade(value)
            schema += 1
        return value  # type: ignore[no-any-return]

    def no_way_from(self, schema: int) -> NotSupported:
        if schema > self.schema_version:
            return NotSupported(
                f"store {self.namespace}: a value has schema {schema}; this program knows it up to {self.schema_version}",
                hint="a newer program wrote it: use that one",
            )
        return NotSupported(
            f"store {self.namespace}: a value has schema {schema}, and no migration leads from it to"
            f" {self.schema_version}",
            hint=f"register the migration of schema {schema}",
        )


def split_value(store: str, raw: bytes) -> tuple[int, bytes]:
    """(schema id, payload) of a stored value. Raises `Corruption` or, for a newer version, `NotSupported`."""
    if len(raw) < VALUE_HEADER.size:
        raise Corruption(f"store {store}: a value of {len(raw)} bytes is too short")
    version, schema, size = VALUE_HEADER.unpack_from(raw)
    if version != VALUE_VERSION:
        raise NotSupported(
            f"store {store}: a value has version {version}; this reader knows version {VALUE_VERSION}",
            hint="a newer Penstock wrote it: upgrade",
        )
    if len(raw) != VALUE_HEADER.size + size:
        raise Corruption(f"store {store}: a value says {size} bytes and has {len(raw) - VALUE_HEADER.size}")
    return schema, raw[VALUE_HEADER.size :]
