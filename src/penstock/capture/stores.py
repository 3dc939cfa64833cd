"""The stores that ride in capture's frames: shared by capture (writes), the planner and status (read).

| store | key | value |
|---|---|---|
| `source.position` | `SOURCE` | `SourcePosition`: where a restart reads on |
| `source.open` | `SOURCE` | `OpenTransaction`; absent: the log ends with a whole transaction |
| `schema.history` | (schema, table, n) | `TableSchema`; n grows by one for each change of that table |
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from penstock.capture.position import OpenTransaction, SourcePosition
from penstock.errors import Corruption
from penstock.schema.model import TableSchema
from penstock.state import StateDescriptor

OPERATOR = "capture"
SOURCE = "source"  # the only key of source.position and source.open: a log has one source

_N = struct.Struct(">I")


class SchemaKey(NamedTuple):
    """A table's n-th schema."""

    schema: str
    table: str
    n: int


class TextCodec:
    def encode(self, value: str) -> bytes:
        return value.encode()

    def decode(self, raw: bytes) -> str:
        return raw.decode()


class SchemaKeyCodec:
    """`schema NUL table NUL n` with n big-endian: the versions of a table are neighbours, in order."""

    def encode(self, value: SchemaKey) -> bytes:
        return self.prefix(value.schema, value.table) + _N.pack(value.n)

    def decode(self, raw: bytes) -> SchemaKey:
        schema, middle, rest = raw.partition(b"\0")
        table, _, n = rest.partition(b"\0")
        if not middle or len(n) != _N.size:
            raise Corruption(f"{raw!r} is not a key of schema.history")
        return SchemaKey(schema.decode(), table.decode(), _N.unpack(n)[0])

    @staticmethod
    def prefix(schema: str, table: str) -> bytes:
        """What the keys of all versions of a table start with."""
        return f"{schema}\0{table}\0".encode()


class PositionCodec:
    def encode(self, value: SourcePosition) -> bytes:
        return value.to_json().encode()

    def decode(self, raw: bytes) -> SourcePosition:
        return SourcePosition.from_json(raw)


class OpenTransactionCodec:
    def encode(self, value: OpenTransaction) -> bytes:
        return value.to_json().encode()

    def decode(self, raw: bytes) -> OpenTransaction:
        return OpenTransaction.from_json(raw)


class TableSchemaCodec:
    def encode(self, value: TableSchema) -> bytes:
        return value.to_json().encode()

    def decode(self, raw: bytes) -> TableSchema:
        return TableSchema.from_json(raw)


SOURCE_POSITION: StateDescriptor[str, SourcePosition] = StateDescriptor(
    "source.position", OPERATOR, TextCodec(), PositionCodec()
)
SOURCE_OPEN: StateDescriptor[str, OpenTransaction] = StateDescriptor(
    "source.open", OPERATOR, TextCodec(), OpenTransactionCodec()
)
SCHEMA_HISTORY: StateDescriptor[SchemaKey, TableSchema] = StateDescriptor(
    "schema.history", OPERATOR, SchemaKeyCodec(), TableSchemaCodec()
)
