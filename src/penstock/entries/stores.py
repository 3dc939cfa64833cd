"""The stores whose changes ride in capture's frames. Capture writes them; the driver, `status` and `verify` read them.

| store | key | value |
|---|---|---|
| `source.position` | `SOURCE` | `SourcePosition`: where a restart reads on |
| `source.open` | `SOURCE` | `OpenTransaction`; absent if the log ends with a complete transaction |
| `source.held` | XA id | `HeldGroup`: an XA group that is prepared, and neither committed nor rolled back |
| `source.missed` | XA id | where an XA group committed that was prepared before the log's start |
| `source.void` | commit_ts | why the parts with this commit_ts never happened |
| `schema.history` | (schema, table, n) | `TableSchema`; n grows by one for each change of that table |
| `schema.resumed` | (schema, table, version) | `TableSchema`: what stands for that version, which is parked in the history |
| `load.table` | (schema, table) | `TableLoad`: how far the load of a table is; absent for tables that were never loaded |
| `load.scope` | `SOURCE` | `LoadScope`: which tables were to be loaded by themselves at the last start |

`store.prefix((schema, table))` gives all versions of a table in order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

from penstock.errors import BadInput
from penstock.schema.model import TableSchema
from penstock.sources.load import TableLoad
from penstock.sources.position import HeldGroup, OpenTransaction, SourcePosition
from penstock.sources.settings import LoadScope
from penstock.state import StateDescriptor
from penstock.state.types import codecs

OPERATOR = "capture"
SOURCE = "source"  # the only key of source.position and source.open: a log has one source

SchemaKey = tuple[Any, ...]  # (schema, table, n); of schema.resumed (schema, table, version)


class _Json(Protocol):
    def to_json(self) -> str: ...


T = TypeVar("T", bound=_Json)


class _JsonObject(Generic[T]):
    """The codec of a value that converts itself to JSON and back."""

    def __init__(self, name: str, from_json: Callable[[bytes], T]) -> None:
        self.name = name
        self._from_json = from_json

    def encode(self, value: T) -> bytes:
        return value.to_json().encode()

    def decode(self, raw: bytes) -> T:
        return self._from_json(raw)

    def encode_part(self, value: T) -> bytes:
        return codecs.raw.encode_part(self.encode(value))

    def decode_part(self, raw: bytes, at: int) -> tuple[T, int]:
        value, after = codecs.raw.decode_part(raw, at)
        return self.decode(value), after

    def prefix(self, value: T) -> bytes:
        raise BadInput(f"{self.name} is a value, not a key: it has no prefix")


SOURCE_POSITION: StateDescriptor[str, SourcePosition] = StateDescriptor(
    "source.position", OPERATOR, codecs.text, _JsonObject("source-position", SourcePosition.from_json)
)
SOURCE_OPEN: StateDescriptor[str, OpenTransaction] = StateDescriptor(
    "source.open", OPERATOR, codecs.text, _JsonObject("open-transaction", OpenTransaction.from_json)
)
SOURCE_HELD: StateDescriptor[str, HeldGroup] = StateDescriptor(
    "source.held", OPERATOR, codecs.text, _JsonObject("held-group", HeldGroup.from_json)
)
SOURCE_MISSED: StateDescriptor[str, str] = StateDescriptor("source.missed", OPERATOR, codecs.text, codecs.text)
SOURCE_VOID: StateDescriptor[int, str] = StateDescriptor("source.void", OPERATOR, codecs.u64, codecs.text)
SCHEMA_HISTORY: StateDescriptor[SchemaKey, TableSchema] = StateDescriptor(
    "schema.history",
    OPERATOR,
    codecs.tuple_of(codecs.text, codecs.text, codecs.u64),
    _JsonObject("table-schema", TableSchema.from_json),
)
SCHEMA_RESUMED: StateDescriptor[SchemaKey, TableSchema] = StateDescriptor(
    "schema.resumed",
    OPERATOR,
    codecs.tuple_of(codecs.text, codecs.text, codecs.u64),
    _JsonObject("table-schema", TableSchema.from_json),
)
LOAD_TABLE: StateDescriptor[SchemaKey, TableLoad] = StateDescriptor(
    "load.table",
    OPERATOR,
    codecs.tuple_of(codecs.text, codecs.text),
    _JsonObject("table-load", TableLoad.from_json),
)
LOAD_SCOPE: StateDescriptor[str, LoadScope] = StateDescriptor(
    "load.scope", OPERATOR, codecs.text, _JsonObject("load-scope", LoadScope.from_json)
)
