"""Which image of a row a file shows, and how an update becomes a delete and an insert.

All formats show the same image of a row: the row after an insert or update, the row before a delete. What becomes of
columns that the server did not log (`binlog_row_image`) is for each format to say.

An update that changes the row's key is a delete of the old row and an insert of the new one in every format whose
readers find rows by key alone: otherwise the old row would stay in their table for ever. A table without a primary key is
known by all its columns.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import BadInput
from penstock.schema.changes import OP_DELETE, OP_INSERT, OP_UPDATE, ChangeBatch, Presence

Mask = npt.NDArray[np.bool_]

_OPS = np.array([OP_INSERT, OP_UPDATE, OP_DELETE], np.uint8)


def check_ops(op: npt.NDArray[np.uint8]) -> None:
    """Raises `BadInput` for an operation that no format knows."""
    unknown = ~np.isin(op, _OPS)
    if unknown.any():
        raise BadInput(f"unknown operations {sorted(set(op[unknown].tolist()))} in a batch of changes")


class Shown(NamedTuple):
    """The image of each row that a file shows: an array for each column, and whether each row has it."""

    columns: list[pa.Array[Any]]
    present: list[npt.NDArray[np.bool_]] | None  # None: all rows have all columns


def shown_images(batch: ChangeBatch) -> Shown:
    """The images to show. A column that an update left out of its after image has the value of the before image, if
    that has it: the update did not change it. Copies only if deletes and other changes are mixed, or columns are absent.
    """
    deletes = batch.op == OP_DELETE
    if batch.present_before is not None or batch.present_after is not None:
        return _completed(batch)
    if not deletes.any():
        return Shown(batch.after, None)
    if deletes.all():
        return Shown(batch.before, None)
    mask = pa.array(deletes)
    return Shown(
        [pc.if_else(mask, before, after) for before, after in zip(batch.before, batch.after, strict=True)], None
    )


def _completed(batch: ChangeBatch) -> Shown:
    columns, present = [], []
    for ordinal, (before, after) in enumerate(zip(batch.before, batch.after, strict=True)):
        in_before, in_after = images_with(batch, ordinal)
        values = pc.if_else(pa.array(in_before & ~in_after), before, after)
        here = in_before | in_after
        columns.append(values if here.all() else pc.if_else(pa.array(here), values, pa.scalar(None, values.type)))
        present.append(here)
    return Shown(columns, present)


def images_with(batch: ChangeBatch, ordinal: int) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Which rows have this column in their before image, and which in their after image."""
    in_before, in_after = batch.op != OP_INSERT, batch.op != OP_DELETE
    if batch.present_before is not None:
        in_before &= batch.present_before.column(ordinal)
    if batch.present_after is not None:
        in_after &= batch.present_after.column(ordinal)
    return in_before, in_after


def differs(before: pa.Array[Any], after: pa.Array[Any]) -> npt.NDArray[np.bool_]:
    """Where two images of a column differ. Missing differs from every value; floats are equal only if all bits are."""
    if pa.types.is_floating(before.type):
        bits = pa.int32() if pa.types.is_float32(before.type) else pa.int64()
        before, after = before.view(bits), after.view(bits)
    unequal: Any = pc.not_equal(before, after).fill_null(False)
    if before.null_count or after.null_count:
        unequal = pc.or_(unequal, pc.xor(before.is_null(), after.is_null()))
    return np.asarray(unequal.to_numpy(zero_copy_only=False), dtype=np.bool_)


def changed(batch: ChangeBatch, ordinal: int) -> Mask:
    """Updates that changed this column. A column that either image lacks is not known to have changed."""
    both: Mask = batch.op == OP_UPDATE
    if batch.present_before is not None or batch.present_after is not None:
        in_before, in_after = images_with(batch, ordinal)
        both = both & in_before & in_after
    if not both.any():
        return both
    both &= differs(batch.before[ordinal], batch.after[ordinal])
    return both


def key_changes(batch: ChangeBatch) -> Mask:
    """Updates after which the row has another key; of a table without one, after which it differs at all."""
    found = np.zeros(len(batch), np.bool_)
    if (batch.op == OP_UPDATE).any():
        for ordinal in batch.table.primary_key or range(len(batch.table.columns)):
            found |= changed(batch, ordinal)
    return found


class Split(NamedTuple):
    """A batch in which some updates are two rows, a delete and an insert, and where each of its rows came from."""

    batch: ChangeBatch
    origin: npt.NDArray[np.int64] | None  # None: nothing was split


def split_updates(batch: ChangeBatch, which: Mask) -> Split:
    """The updates `which` as a delete of the row before and an insert of the row after, side by side, with one seq.

    The insert shows what the update left out of its after image: that did not change."""
    if not which.any():
        return Split(batch, None)
    origin = np.repeat(np.arange(len(batch)), np.where(which, 2, 1))
    halves = which[origin]
    second = np.zeros(len(origin), np.bool_)
    second[1:] = halves[1:] & (origin[1:] == origin[:-1])
    op = batch.op[origin]
    op[halves] = OP_DELETE
    op[second] = OP_INSERT
    after, present_after = batch.after, batch.present_after
    if batch.present_before is not None or batch.present_after is not None:
        after, present_after = _filled(batch)
    rows: Any = pa.array(origin)
    made = ChangeBatch(
        batch.table,
        op,
        batch.seq[origin],
        batch.commit_ts[origin],
        [column.take(rows) for column in batch.before],
        [column.take(rows) for column in after],
        batch.present_before and batch.present_before.take(origin),
        present_after and present_after.take(origin),
    )
    return Split(made, origin)


def _filled(batch: ChangeBatch) -> tuple[list[pa.Array[Any]], Presence]:
    """After images with what only the before images have, and which columns they have then."""
    shown = _completed(batch)
    assert shown.present is not None
    bits = np.packbits(np.array(shown.present).T, axis=1, bitorder="little")
    return shown.columns, Presence(bits, np.arange(len(batch)))
