"""The contract of a file format: tasks encode batches into payloads, delivery assembles payloads into files.

All formats show the same image of a row: the row after an insert or update, the row before a delete.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.files import Buffer
from penstock.schema.changes import OP_DELETE, OP_INSERT, OP_UPDATE, ChangeBatch
from penstock.schema.model import TableSchema

OPS = frozenset({OP_INSERT, OP_UPDATE, OP_DELETE})


class FileFormat(Protocol):
    """Stateless, so safe to share between threads. The same rows give the same file, whatever payloads they came in."""

    @property
    def name(self) -> str: ...

    @property
    def extension(self) -> str:
        """With its dot: `.json`."""
        ...

    def row_bytes_min(self, table: TableSchema) -> int:
        """What a row takes in a payload however short its values are: so no payload grows far over its rows."""
        ...

    def encode(self, batch: ChangeBatch) -> Buffer:
        """A payload from rows of one table version that go to one date directory."""
        ...

    def assemble(self, payloads: Sequence[Buffer]) -> Buffer:
        """A file from one or more payloads of one table version, in the order given."""
        ...

    def rows(self, file: Buffer) -> pa.Table:
        """A file read back, for verify and tests: `_seq` (24 bytes), `_op` (I, U, D), `_commit_ts`, then the columns."""
        ...


def shown_images(batch: ChangeBatch) -> list[pa.Array[Any]]:
    """One array per column. Copies only if deletes and other changes are mixed."""
    deletes = batch.op == OP_DELETE
    if not deletes.any():
        return batch.after
    if deletes.all():
        return batch.before
    mask = pa.array(deletes)
    return [pc.if_else(mask, before, after) for before, after in zip(batch.before, batch.after, strict=True)]


def differs(before: pa.Array[Any], after: pa.Array[Any]) -> npt.NDArray[np.bool_]:
    """Where two images of a column differ. Missing differs from every value; floats are equal only if all bits are."""
    if pa.types.is_floating(before.type):
        bits = pa.int32() if pa.types.is_float32(before.type) else pa.int64()
        before, after = before.view(bits), after.view(bits)
    unequal: Any = pc.not_equal(before, after).fill_null(False)
    if before.null_count or after.null_count:
        unequal = pc.or_(unequal, pc.xor(before.is_null(), after.is_null()))
    return np.asarray(unequal.to_numpy(zero_copy_only=False), dtype=np.bool_)
