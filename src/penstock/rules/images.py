"""The rows of a batch while rules are applied to them: both images, column by column, and which columns each has.

A column that an update left out of its after image did not change, so there it has the value of the before image; what
neither has stays absent, which is not NULL.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.encode.images import images_with
from penstock.rules.expressions.types import Array
from penstock.schema.changes import OP_DELETE, OP_INSERT, OP_UPDATE, ChangeBatch, Presence
from penstock.schema.model import TableSchema

Mask = npt.NDArray[np.bool_]
Column = Callable[[Sequence[Array]], Array]


@dataclass(frozen=True, slots=True)
class Images:
    """`in_before` and `in_after` have a mask for each column: which rows have it in the image. None: all that have the
    image."""

    op: npt.NDArray[np.uint8]
    seq: npt.NDArray[np.void]
    commit_ts: npt.NDArray[np.uint64]
    before: list[Array]
    after: list[Array]
    in_before: list[Mask] | None = None
    in_after: list[Mask] | None = None

    @classmethod
    def of(cls, batch: ChangeBatch) -> Images:
        if batch.present_before is None and batch.present_after is None:
            return cls(batch.op, batch.seq, batch.commit_ts, list(batch.before), list(batch.after))
        after, in_before, in_after = [], [], []
        updates = batch.op == OP_UPDATE
        for ordinal, (old, new) in enumerate(zip(batch.before, batch.after, strict=True)):
            had, has = images_with(batch, ordinal)
            unchanged = updates & had & ~has
            after.append(pc.if_else(pa.array(unchanged), old, new) if unchanged.any() else new)
            in_before.append(had)
            in_after.append(has | unchanged)
        return cls(batch.op, batch.seq, batch.commit_ts, list(batch.before), after, in_before, in_after)

    def __len__(self) -> int:
        return len(self.op)

    def batch(self, table: TableSchema) -> ChangeBatch:
        return ChangeBatch(
            table,
            self.op,
            self.seq,
            self.commit_ts,
            self.before,
            self.after,
            _presence(self.in_before, self.op != OP_INSERT),
            _presence(self.in_after, self.op != OP_DELETE),
        )

    def select(self, ordinals: Sequence[int]) -> Images:
        """These columns alone, in this order."""
        return replace(
            self,
            before=[self.before[i] for i in ordinals],
            after=[self.after[i] for i in ordinals],
            in_before=None if self.in_before is None else [self.in_before[i] for i in ordinals],
            in_after=None if self.in_after is None else [self.in_after[i] for i in ordinals],
        )

    def with_columns(self, made: Sequence[tuple[Column, Sequence[int]]]) -> Images:
        """Further columns, each with those that it is made of. It is absent where one of them is."""
        return replace(
            self,
            before=self.before + [make(self.before) for make, _ in made],
            after=self.after + [make(self.after) for make, _ in made],
            in_before=self._with_presence(self.in_before, self.op != OP_INSERT, made),
            in_after=self._with_presence(self.in_after, self.op != OP_DELETE, made),
        ).without_what_is_absent(len(self.before))

    def _with_presence(
        self, present: list[Mask] | None, there: Mask, made: Sequence[tuple[Column, Sequence[int]]]
    ) -> list[Mask] | None:
        if present is None:
            return None
        return present + [np.logical_and.reduce([there, *(present[i] for i in uses)]) for _, uses in made]

    def without_what_is_absent(self, first: int) -> Images:
        """The columns from `first` on are NULL where a row does not have them: a constant is of no image that is not there."""
        before, after = list(self.before), list(self.after)
        for at in range(first, len(before)):
            had = self.op != OP_INSERT if self.in_before is None else self.in_before[at]
            has = self.op != OP_DELETE if self.in_after is None else self.in_after[at]
            before[at], after[at] = only(before[at], had), only(after[at], has)
        return replace(self, before=before, after=after)

    def take(self, rows: npt.NDArray[np.int64]) -> Images:
        """These rows, in this order, which is that of the log."""
        return self if len(rows) == len(self) else self.reordered(rows)

    def reordered(self, rows: npt.NDArray[np.int64]) -> Images:
        """These rows, in whatever order."""
        chosen: Any = pa.array(rows)
        return Images(
            self.op[rows],
            self.seq[rows],
            self.commit_ts[rows],
            [column.take(chosen) for column in self.before],
            [column.take(chosen) for column in self.after],
            None if self.in_before is None else [mask[rows] for mask in self.in_before],
            None if self.in_after is None else [mask[rows] for mask in self.in_after],
        )

    def slice(self, stop: int) -> Images:
        """The rows before `stop`."""
        return self.take(np.arange(stop))

    def as_inserts_and_deletes(self, inserts: Mask, deletes: Mask) -> Images:
        """Updates that are inserts or deletes for whoever sees some of the rows alone."""
        if not (inserts.any() or deletes.any()):
            return self
        op = self.op.copy()
        op[inserts], op[deletes] = OP_INSERT, OP_DELETE
        return replace(
            self,
            op=op,
            before=[only(column, ~inserts) for column in self.before],
            after=[only(column, ~deletes) for column in self.after],
            in_before=None if self.in_before is None else [mask & ~inserts for mask in self.in_before],
            in_after=None if self.in_after is None else [mask & ~deletes for mask in self.in_after],
        )


def only(values: Array, rows: Mask) -> Array:
    """The values of these rows; NULL in all others."""
    if rows.all() or values.null_count == len(values):
        return values
    made: Array = pc.if_else(pa.array(rows), values, pa.scalar(None, values.type))
    return made


def _presence(columns: list[Mask] | None, there: Mask) -> Presence | None:
    """None where every row that has the image has all columns of it."""
    if columns is None or all(bool((mask | ~there).all()) for mask in columns):
        return None
    bits = np.packbits(np.array(columns).T, axis=1, bitorder="little")
    return Presence(bits, np.arange(len(there)))
