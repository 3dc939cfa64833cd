"""Several tables of the source that are one at the sink: its columns are all of theirs, and its rows in the order of the log.

What the whole looks like at a position follows from the tables that are in force there, and from nothing else: whatever
range a task reads, it is the same. Its version is that of the last DDL of any of its parts, or of the settings.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.log.position import Position
from penstock.rules.expressions.columns import physical_type
from penstock.rules.expressions.types import Array
from penstock.rules.images import Images, Mask
from penstock.rules.routes import Name
from penstock.rules.rules import Rules
from penstock.rules.table_rules import RuleMismatch
from penstock.schema.changes import OP_DELETE, OP_INSERT, SEQ_DTYPE
from penstock.schema.model import Column, TableSchema
from penstock.schema.view import SchemaView

_HOLDS_EVERY_TEXT = "utf8mb4"  # of a column that has another charset in each of the tables


def joined(target: Name, parts: Iterable[TableSchema], rules: Rules, version: int = 0) -> TableSchema:
    """The table that these tables of the source are together at the sink: with every column that one of them has, which is NULL
    in the rows of the others. Raises `RuleMismatch` where they do not go together."""
    named = sorted(parts, key=lambda part: (part.schema, part.table))
    seen = [(part, rules.table(part)) for part in named]
    columns: dict[str, Column] = {}
    owner: dict[str, tuple[TableSchema, int]] = {}  # who has it first, and how many have it
    for part, made in seen:
        for column in made.columns:
            name = column.name.lower()
            known = columns.get(name)
            if known is None:
                columns[name], owner[name] = column, (part, 1)
                continue
            first, count = owner[name]
            owner[name] = (first, count + 1)
            if _identity(known) != _identity(column):
                raise _apart(
                    target, f"{column.name} is {_told(known)} in {first.name} and {_told(column)} in {part.name}"
                )
            charset = known.charset if known.charset == column.charset else _HOLDS_EVERY_TEXT
            columns[name] = replace(known, nullable=known.nullable or column.nullable, charset=charset)
    for name, column in columns.items():
        first, count = owner[name]
        if count < len(seen):
            if column.primary_key:
                raise _apart(
                    target, f"{column.name} is in the primary key of {first.name}, and not in every other table"
                )
            columns[name] = replace(column, nullable=True)
    made = seen[0][1]
    return TableSchema(*target, version, tuple(columns.values()), charset=made.charset, comment=made.comment)


def _identity(column: Column) -> tuple[object, ...]:
    return column.plain_type, column.elements, column.primary_key


def _told(column: Column) -> str:
    return column.mysql_type + (", in the primary key" if column.primary_key else "")


def _apart(target: Name, why: str) -> RuleMismatch:
    return RuleMismatch(f"these tables cannot be one, {'.'.join(target)}: {why}")


class Wholes:
    """Those that the rules make, over the tables of a view."""

    def __init__(self, rules: Rules, view: SchemaView) -> None:
        self._rules = rules
        self._view = view
        self._made: dict[tuple[Name, int, tuple[TableSchema, ...]], TableSchema | RuleMismatch] = {}
        self.parts: dict[Name, list[Name]] = {}
        taken = [name for name in view.names() if name[1] and rules.wants(*name)]
        for name in taken:
            if rules.gathers(name):
                self.parts.setdefault(rules.target(*name), []).append(name)
        self._strangers: dict[Name, list[Name]] = {}
        for name in taken:
            if not rules.gathers(name) and (target := rules.target(*name)) in self.parts:
                self._strangers.setdefault(target, []).append(name)

    def at(self, target: Name, position: Position) -> TableSchema | None:
        """The whole; None where none of its parts is there. Raises `RuleMismatch` where it cannot be."""
        names = self.parts.get(target, [])
        there = [part for name in names if (part := self._view.find(*name, position)) is not None]
        found = [part for part in there if not part.is_sequence]
        if not found:
            return None
        for name in self._strangers.get(target, ()):
            if self._view.find(*name, position) is not None:
                raise RuleMismatch(f"{'.'.join(name)} would be a part of {'.'.join(target)}, and has no route to it")
        for part in found:
            if not part.columns:
                raise RuleMismatch(f"{part.name} is parked, and a part of {'.'.join(target)}")
            if (part.schema, part.table) in self._rules.held:
                raise RuleMismatch(self._rules.held[part.schema, part.table])
        version = max(self._rules.table_version, *(self._view.version(*name, position) for name in names))
        key = (target, version, tuple(found))
        if key not in self._made:
            try:
                self._made[key] = joined(target, found, self._rules, version)
            except RuleMismatch as error:
                self._made[key] = error
        made = self._made[key]
        if isinstance(made, RuleMismatch):
            raise RuleMismatch(made.message)
        return made

    def edges(self, target: Name, first: Position, last: Position) -> list[Position]:
        """Where the whole may be another one, after `first` and up to `last`."""
        return sorted({at for name in self.parts[target] for at in self._view.positions(*name) if first < at <= last})


def aligned(images: Images, columns: Sequence[Column], whole: TableSchema) -> Images:
    """The rows of a part with the columns of the whole: NULL in those that it does not have."""
    ordinals = {column.name.lower(): at for at, column in enumerate(columns)}
    places = [ordinals.get(column.name.lower()) for column in whole.columns]
    missing: dict[str, Array] = {}
    for column, at in zip(whole.columns, places, strict=True):
        if at is None:
            kind: Any = physical_type(column)
            missing[column.name] = pa.nulls(len(images), kind)

    def chosen(values: list[Array]) -> list[Array]:
        return [
            missing[column.name] if at is None else values[at] for column, at in zip(whole.columns, places, strict=True)
        ]

    def present(masks: list[Mask] | None, there: Mask) -> list[Mask] | None:
        return None if masks is None else [there if at is None else masks[at] for at in places]

    return replace(
        images,
        before=chosen(images.before),
        after=chosen(images.after),
        in_before=present(images.in_before, images.op != OP_INSERT),
        in_after=present(images.in_after, images.op != OP_DELETE),
    )


def in_log_order(parts: Sequence[Images]) -> Images:
    """The rows of all, which have the same columns, by their seqs."""
    if len(parts) == 1:
        return parts[0]
    # As bytes: numpy joins records in the byte order of the machine, and then their bytes do not sort as the rows do.
    seq = np.concatenate([np.ascontiguousarray(part.seq).view(f"S{SEQ_DTYPE.itemsize}") for part in parts])
    joint = Images(
        np.concatenate([part.op for part in parts]),
        seq.view(SEQ_DTYPE),
        np.concatenate([part.commit_ts for part in parts]),
        [_concatenated([part.before[at] for part in parts]) for at in range(len(parts[0].before))],
        [_concatenated([part.after[at] for part in parts]) for at in range(len(parts[0].after))],
        _presence([(part.in_before, part.op != OP_INSERT) for part in parts]),
        _presence([(part.in_after, part.op != OP_DELETE) for part in parts]),
    )
    order = np.argsort(seq, kind="stable")
    return joint if np.array_equal(order, np.arange(len(order))) else joint.reordered(order)


def _concatenated(arrays: list[Array]) -> Array:
    kind = next((one.type for one in arrays if one.null_count < len(one)), arrays[0].type)
    return pa.concat_arrays([one if one.type == kind else one.cast(kind) for one in arrays])


def _presence(parts: list[tuple[list[Mask] | None, Mask]]) -> list[Mask] | None:
    if all(masks is None for masks, _ in parts):
        return None
    count = next(len(masks) for masks, _ in parts if masks is not None)
    return [np.concatenate([there if masks is None else masks[at] for masks, there in parts]) for at in range(count)]
