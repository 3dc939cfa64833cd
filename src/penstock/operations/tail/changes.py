"""Decoded changes as texts, one object a row, for people and programs to read.

The values' texts are made column by column (`encode/change_lines`); only putting a row's own together is per row, as its
printing is. Their form is that of `penstock binlog decode` (docs/formats/decode-jsonl.md).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.commit_ts import milliseconds_of
from penstock.encode.change_lines.values import is_quoted, value_texts
from penstock.encode.images import images_with
from penstock.log.position import Seq
from penstock.schema.changes import OP_DELETE, OP_INSERT, OP_UPDATE, ChangeBatch, SchemaChange
from penstock.schema.model import Column

OPS = {OP_INSERT: "insert", OP_UPDATE: "update", OP_DELETE: "delete"}
Image = dict[str, str]
"""Column → its value as JSON; a column that the server did not log is not in it."""


@dataclass(frozen=True, slots=True)
class TailedChange:
    """`op`: insert, update, delete; `ddl` with `statement`; `parked` with why rows of the table are not shown from here on."""

    seq: bytes
    commit_ts: int
    op: str
    schema: str
    table: str
    key: tuple[str, ...] = ()
    before: Image | None = None
    after: Image | None = None
    kind: str = ""
    statement: str = ""
    reason: str = ""

    @property
    def is_row(self) -> bool:
        return self.op in OPS.values()

    @property
    def milliseconds(self) -> int:
        return milliseconds_of(self.commit_ts)

    def to_json(self) -> str:
        """One line, without its end (docs/cli.md, *Tail*)."""
        head: dict[str, Any] = {
            "op": self.op,
            "schema": self.schema,
            "table": self.table,
            "seq": str(Seq.from_bytes(self.seq)),
            "commit_ts": self.commit_ts,
        }
        if self.op == "ddl":
            head |= {"kind": self.kind, "sql": self.statement or None}
        if self.op == "parked":
            head |= {"reason": self.reason}
        text = json.dumps(head, ensure_ascii=False, separators=(",", ":"))
        if not self.is_row:
            return text
        return f'{text[:-1]},"before":{_object(self.before)},"after":{_object(self.after)}}}'


def rows_of(batch: ChangeBatch) -> Iterator[TailedChange]:
    """Each row of the batch."""
    table = batch.table
    columns = table.columns
    key = tuple(columns[ordinal].name for ordinal in table.primary_key)
    before = [_texts(column, values) for column, values in zip(columns, batch.before, strict=True)]
    after = [_texts(column, values) for column, values in zip(columns, batch.after, strict=True)]
    present = [images_with(batch, ordinal) for ordinal in range(len(columns))]
    names = [column.name for column in columns]
    for row, op in enumerate(batch.op.tolist()):
        yield TailedChange(
            seq=batch.seq[row].tobytes(),
            commit_ts=int(batch.commit_ts[row]),
            op=OPS[op],
            schema=table.schema,
            table=table.table,
            key=key,
            before=None if op == OP_INSERT else _image(names, before, [one[0] for one in present], row),
            after=None if op == OP_DELETE else _image(names, after, [one[1] for one in present], row),
        )


def schema_change_of(change: SchemaChange) -> TailedChange:
    table = change.table
    if table.parked:
        return TailedChange(change.seq, change.commit_ts, "parked", table.schema, table.table, reason=table.reason)
    kind = table.kind.name.lower().replace("_", "-")
    return TailedChange(
        change.seq, change.commit_ts, "ddl", table.schema, table.table, kind=kind, statement=table.query
    )


def _image(names: list[str], texts: list[list[str]], present: list[npt.NDArray[np.bool_]], row: int) -> Image:
    return {name: texts[ordinal][row] for ordinal, name in enumerate(names) if present[ordinal][row]}


def _texts(column: Column, values: pa.Array[Any]) -> list[str]:
    found = value_texts(column, values)
    data, starts, quote = found.data.tobytes(), found.starts.tolist(), '"' if is_quoted(column) else ""
    missing = ~found.valid if len(found.valid) else np.zeros(len(values), np.bool_)
    return [
        "null" if gone else f"{quote}{data[start:end].decode()}{quote}"
        for gone, start, end in zip(missing.tolist(), starts, starts[1:], strict=False)
    ]


def _object(image: Image | None) -> str:
    if image is None:
        return "null"
    inside = ",".join(f"{json.dumps(name, ensure_ascii=False)}:{text}" for name, text in image.items())
    return f"{{{inside}}}"
