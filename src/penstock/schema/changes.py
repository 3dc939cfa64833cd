"""Decoded changes of one table at one schema version, in columns, lossless.

Each column has the *physical form* of its MySQL type, which rounds and loses nothing; what becomes of it is for an
encoder to decide:

| MySQL type | Arrow form of the column |
|---|---|
| tinyint, smallint, mediumint, int, bigint (unsigned) | int8, int16, int32, int32, int64 (uint8 … uint64) |
| float, double | float32, float64 |
| decimal(p, s) | decimal128(p, s) up to 38 digits, above that string |
| bit(n) | uint64 |
| year | int16 (0 is the zero year) |
| date | int32, packed year << 9 | month << 5 | day (0 is the zero date, partial dates survive) |
| time(fsp) | int64, signed microseconds |
| datetime(fsp) | int64, packed ((year * 13 + month) << 22 | day << 17 | hour << 12 | minute << 6 | second) << 24 | microsecond |
| timestamp(fsp) | int64, microseconds since the Unix epoch (0 is the zero timestamp) |
| enum | uint16, 1-based ordinal (0 is the empty error value) |
| set | uint64, bit mask |
| char, varchar, text | string, UTF-8 whatever the column's charset was |
| binary, varbinary, blob, geometry, vector | binary |
| inet4, inet6, uuid | string, as the server prints it |
| json | string, the JSON text |
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.binlog.rows.presence import Presence
from penstock.binlog.types import OP_DELETE, OP_INSERT, OP_UPDATE
from penstock.schema.ddl.session import Statement
from penstock.schema.model import ChangeKind, TableSchema

__all__ = [
    "OP_DELETE",
    "OP_INSERT",
    "OP_UPDATE",
    "SEQ_DTYPE",
    "ChangeBatch",
    "Presence",
    "SchemaChange",
    "unlogged_columns",
]


@dataclass(frozen=True, slots=True)
class ChangeBatch:
    """Changes of one table in seq order. Arrays have an element per row; `before` and `after`, an array per column.

    Of an insert, the before image is null; of a delete, the after image. A value that is missing in an image that the
    row has is NULL, or absent because the server left the column out (`binlog_row_image` other than FULL):
    `present_before` and `present_after` say which. They are None where no row lacks a column.
    """

    table: TableSchema
    op: npt.NDArray[np.uint8]  # OP_INSERT, OP_UPDATE, OP_DELETE
    seq: npt.NDArray[np.void]  # dtype SEQ_DTYPE, big-endian: .tobytes() sorts as the rows do
    commit_ts: npt.NDArray[np.uint64]
    before: list[pa.Array[Any]]
    after: list[pa.Array[Any]]
    present_before: Presence | None = None
    present_after: Presence | None = None

    def __len__(self) -> int:
        return len(self.op)

    def slice(self, start: int, stop: int) -> ChangeBatch:
        """Rows `start` to `stop`, without copying."""
        return ChangeBatch(
            self.table,
            self.op[start:stop],
            self.seq[start:stop],
            self.commit_ts[start:stop],
            [column.slice(start, stop - start) for column in self.before],
            [column.slice(start, stop - start) for column in self.after],
            self.present_before and self.present_before.slice(start, stop),
            self.present_after and self.present_after.slice(start, stop),
        )


SEQ_DTYPE = np.dtype([("ledger", ">u8"), ("entry", ">u8"), ("event", ">u4"), ("row", ">u4")])
"""A seq as 24 big-endian bytes; the same bytes as `penstock.log.position.Seq.to_bytes`."""


@dataclass(frozen=True, slots=True)
class SchemaChange:
    """A DDL among the rows, in the order of the log, as far as it changes what one name stands for.

    `table` is the version that it makes, also of a name that is gone after it. `before` is the version that the name had
    before. A RENAME is one change for each name in it; `table.other` says where the table came from or went. `together`
    are all versions that the statement makes, this one too; `needed` those that it works on, as they were before.

    Rows of a parked table cannot be read. In their place comes a change of kind UNKNOWN at the first of them, once for
    each group of entries that has any: so whoever counts what was delivered knows that these entries hold something.

    `ready`: the statement of `table` is for the sink's readers as it is; no statement of the source made the change.
    """

    table: TableSchema
    seq: bytes
    commit_ts: int
    before: TableSchema | None = None
    statement: Statement | None = None
    together: tuple[TableSchema, ...] = ()
    needed: tuple[TableSchema, ...] = ()
    ready: bool = False

    @property
    def kind(self) -> ChangeKind:
        return self.table.kind

    @property
    def after(self) -> TableSchema | None:
        """The table under this name after the change; None if there is none, or nobody knows it."""
        return self.table if self.table.columns else None


def unlogged_columns(batch: ChangeBatch) -> frozenset[str]:
    """The columns that neither image of some row has, in lower case. Of a delete only the key counts."""
    if batch.present_before is None and batch.present_after is None:
        return frozenset()
    stays = batch.op != OP_DELETE
    found = set()
    for ordinal, column in enumerate(batch.table.columns):
        there = ~stays
        for present, has_image in ((batch.present_before, batch.op != OP_INSERT), (batch.present_after, stays)):
            there |= has_image & (True if present is None else present.column(ordinal))
        if not np.all(there):
            found.add(column.name.lower())
    return frozenset(found)
