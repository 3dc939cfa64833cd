"""A table with a column of each kind that expressions know, rows of it, and batches ↔ rows."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from penstock.log.position import Seq
from penstock.schema.changes import SEQ_DTYPE, ChangeBatch, Presence
from penstock.schema.model import Column, TableSchema
from tests.rules.reference import Image, Row

_OPS = {"I": ord("I"), "U": ord("U"), "D": ord("D")}
ELEMENTS = ("new", "paid", "ßÄ")
COLUMNS: tuple[tuple[Column, pa.DataType], ...] = (
    (Column("id", "bigint", False, True), pa.int64()),
    (Column("n", "int"), pa.int32()),
    (Column("flag", "tinyint(1)"), pa.int8()),
    (Column("d", "decimal(6,2)"), pa.decimal128(6, 2)),
    (Column("f", "double"), pa.float64()),
    (Column("s", "varchar(20)", charset="utf8mb4"), pa.string()),
    (Column("e", "enum('new','paid','ßÄ')", elements=ELEMENTS), pa.uint16()),
    (Column("b", "blob"), pa.binary()),
)
TABLE = TableSchema("shop", "orders", 7, tuple(column for column, _ in COLUMNS))
NAMES = tuple(column.name for column, _ in COLUMNS)

_TEXTS = st.sampled_from(["", "a", "A", "paid", " x ", "50%", "a_b", "ä", "x\ny"]) | st.text("ab %_Ä", max_size=4)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "id": st.integers(0, 5),
    "n": st.none() | st.integers(-9, 9) | st.sampled_from([-(1 << 31), (1 << 31) - 1]),
    "flag": st.none() | st.integers(0, 1),
    "d": st.none() | st.integers(-99999, 99999).map(lambda unscaled: Decimal(unscaled).scaleb(-2)),
    "f": st.none() | st.integers(-8, 8).map(lambda eighths: eighths / 8) | st.sampled_from([1e300, -0.0, 1e-7]),
    "s": st.none() | _TEXTS,
    "e": st.none() | st.sampled_from(ELEMENTS),
    "b": st.none() | st.binary(max_size=3),
}


@st.composite
def images(draw: st.DrawFn, absent: bool) -> Image:
    left_out = draw(st.sets(st.sampled_from(NAMES[1:]), max_size=3)) if absent else set()
    return {name: draw(VALUES[name]) for name in NAMES if name not in left_out}


@st.composite
def rows(draw: st.DrawFn, absent: bool = False) -> Row:
    op = draw(st.sampled_from("IUUD"))
    before = draw(images(absent)) if op != "I" else None
    return Row(op, before, draw(images(absent)) if op != "D" else None)


def batch_of(given: list[Row]) -> ChangeBatch:
    count = len(given)
    seq = np.frombuffer(b"".join(Seq(1, n, 0, 0).to_bytes() for n in range(count)), SEQ_DTYPE)
    made = []
    presences = []
    for images_ in ([row.before for row in given], [row.after for row in given]):
        made.append([_array(images_, column, kind) for column, kind in COLUMNS])
        bits = np.array([[image is None or name in image for name in NAMES] for image in images_], np.bool_)
        bits = bits.reshape(count, len(NAMES))
        packed = np.packbits(bits, axis=1, bitorder="little")
        presences.append(None if bits.all() else Presence(packed, np.arange(count)))
    op = np.array([_OPS[row.op] for row in given], np.uint8)
    return ChangeBatch(TABLE, op, seq, np.arange(count, dtype=np.uint64), *made, *presences)


def _array(given: list[Image | None], column: Column, kind: pa.DataType) -> pa.Array[Any]:
    values = [None if image is None else image.get(column.name) for image in given]
    if column.elements:
        values = [None if value is None else column.elements.index(value) + 1 for value in values]
    return pa.array(values, kind)


def rows_of(batch: ChangeBatch) -> list[Row]:
    """The rows of a batch, with what each image has."""
    found = []
    for at in range(len(batch)):
        op = chr(int(batch.op[at]))
        before = _image(batch, batch.before, batch.present_before, at) if op != "I" else None
        after = _image(batch, batch.after, batch.present_after, at) if op != "D" else None
        found.append(Row(op, before, after))
        if op == "I":
            assert all(column[at].as_py() is None for column in batch.before), "of an insert the image before is null"
        if op == "D":
            assert all(column[at].as_py() is None for column in batch.after), "of a delete the image after is null"
    return found


def _image(batch: ChangeBatch, columns: list[pa.Array[Any]], presence: Presence | None, at: int) -> Image:
    image = {}
    for ordinal, (column, values) in enumerate(zip(batch.table.columns, columns, strict=True)):
        value = values[at].as_py()
        if presence is not None and not presence.column(ordinal)[at]:
            assert value is None, "what is absent has no value"
            continue
        image[column.name] = column.elements[value - 1] if column.elements and value is not None else value
    return image
