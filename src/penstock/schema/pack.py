"""The schemas that a task may need, on their way to it: nearly all of them are the same from batch to batch.

A `SchemaPack` is every table in force at some position, packed once and then the same bytes for every range, until enough
tables have changed since. With it goes what changed since, and what changes inside the range. A worker keeps the packs that
it has unpacked, and reads a table's schema only when rows of it come: however many tables there are, a task pays for
those in its range.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache

from penstock.log.position import Position
from penstock.schema.model import TableSchema
from penstock.schema.view import SchemaAt, SchemaView, slot_of

CHANGED_MAX = 64  # tables; with more of them a new pack is made
_PACKS_KEPT = 4  # by a worker: those of the changefeeds that it serves

Name = tuple[str, str]
Slot = tuple[str, str, bool]


class SchemaPacker:
    """The tables in force as frames go by, for the planner."""

    def __init__(self, in_force: Iterable[SchemaAt] = ()) -> None:
        self._now: dict[Slot, SchemaAt] = {slot_of(one.table): one for one in in_force}
        self._texts: dict[Slot, tuple[SchemaAt, str]] = {}
        self._changed: dict[Slot, SchemaAt] = {}
        self._packed: bytes | None = None

    def take(self, schema: SchemaAt) -> None:
        """`schema` is in force from here on."""
        slot = slot_of(schema.table)
        self._now[slot] = self._changed[slot] = schema

    def pack(self) -> tuple[bytes, tuple[SchemaAt, ...]]:
        """The pack, and what has changed since it was made."""
        if self._packed is None or len(self._changed) > CHANGED_MAX:
            self._packed = zlib.compress(json.dumps([*map(self._text, self._now.items())]).encode(), 1)
            self._changed = {}
        return self._packed, tuple(self._changed.values())

    def _text(self, item: tuple[Slot, SchemaAt]) -> tuple[str, str, str, str]:
        slot, schema = item
        known = self._texts.get(slot)
        if known is None or known[0] is not schema:
            known = self._texts[slot] = (schema, schema.table.to_json())
        return slot[0], slot[1], str(schema.position), known[1]


class PackedSchemas(SchemaView):
    """The view of a task: versions of a range over those of a pack, which are read when they are asked for."""

    def __init__(self, packed: bytes, since: Iterable[SchemaAt]) -> None:
        super().__init__()
        self._pack = _unpacked(packed)
        for schema in since:
            self.add(*schema)

    def add(self, position: Position, table: TableSchema) -> None:
        self._load((table.schema, table.table))
        super().add(position, table)

    def _latest(self, schema: str, table: str, position: Position) -> tuple[Position, TableSchema] | None:
        self._load((schema, table))
        return super()._latest(schema, table, position)

    def _latest_drop(self, schema: str, position: Position) -> SchemaAt | None:
        self._load((schema, ""))
        return super()._latest_drop(schema, position)

    def _load(self, name: Name) -> None:
        if name not in self._positions:
            for known in self._pack.get(name, ()):
                super().add(*known)

    def names(self) -> list[Name]:
        return list({**dict.fromkeys(self._pack), **dict.fromkeys(self._positions)})

    def items(self) -> Iterator[tuple[Position, TableSchema]]:
        for name in self._pack:
            self._load(name)
        return super().items()


class _Pack(Mapping[Name, tuple[SchemaAt, ...]]):
    """What is known by each name, read once."""

    def __init__(self, packed: bytes) -> None:
        self._texts: dict[Name, list[tuple[str, str]]] = {}
        for schema, table, at, text in json.loads(zlib.decompress(packed)):
            self._texts.setdefault((schema, table), []).append((at, text))
        self._read: dict[Name, tuple[SchemaAt, ...]] = {}

    def __getitem__(self, name: Name) -> tuple[SchemaAt, ...]:
        if name not in self._read:
            texts = self._texts[name]
            self._read[name] = tuple(SchemaAt(Position.parse(at), TableSchema.from_json(text)) for at, text in texts)
        return self._read[name]

    def __iter__(self) -> Iterator[Name]:
        return iter(self._texts)

    def __len__(self) -> int:
        return len(self._texts)


@lru_cache(maxsize=_PACKS_KEPT)
def _unpacked(packed: bytes) -> _Pack:
    return _Pack(packed)
