"""Rows that an encoder refuses, apart from those around them: a *poison row* has a value that its format has no place for.

The rows of a refused batch are halved until the refused ones stand alone, so that one of them costs a few encodings of a
small part, and all others are delivered as they are.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa

from penstock.encode.format import FileFormat
from penstock.errors import PenstockError
from penstock.files import Buffer
from penstock.log.position import Seq
from penstock.schema.changes import ChangeBatch

T = TypeVar("T")


class Part(NamedTuple):
    """Consecutive rows: encoded, or one that is refused."""

    rows: ChangeBatch
    body: Buffer | None
    refused: str = ""


def encode_parts(fmt: FileFormat, batch: ChangeBatch) -> Iterator[Part]:
    """The batch in order; one part if nothing is refused."""
    for rows, body, refused in accepted(fmt.encode, batch):
        yield Part(rows, body, refused)


def accepted(encode: Callable[[ChangeBatch], T], batch: ChangeBatch) -> Iterator[tuple[ChangeBatch, T | None, str]]:
    """What `encode` makes of consecutive rows, in order; None and the reason for one that it refuses."""
    try:
        body = encode(batch)
    except (PenstockError, pa.ArrowException, ValueError, OverflowError) as error:
        if isinstance(error, PenstockError) and error.transient:
            raise
        if len(batch) == 1:
            yield batch, None, str(error)
            return
        half = len(batch) // 2
        yield from accepted(encode, batch.slice(0, half))
        yield from accepted(encode, batch.slice(half, len(batch)))
        return
    yield batch, body, ""


def dead_letter(part: Part) -> bytes:
    """A refused row as a JSON line: where it is, why it was refused, and its values as the log has them."""
    rows = part.rows
    value = {
        "seq": str(Seq.from_bytes(rows.seq[0].tobytes())),
        "commit_ts": int(rows.commit_ts[0]),
        "op": chr(int(rows.op[0])),
        "schema": rows.table.schema,
        "table": rows.table.table,
        "version": rows.table.version,
        "error": part.refused,
        "before": _image(rows, rows.before),
        "after": _image(rows, rows.after),
    }
    return json.dumps(value, ensure_ascii=False).encode() + b"\n"


def _image(rows: ChangeBatch, columns: list[pa.Array[Any]]) -> dict[str, Any]:
    names = [column.name for column in rows.table.columns]
    return {name: _plain(column[0].as_py()) for name, column in zip(names, columns, strict=True)}


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return {"hex": value.hex()}
    return value if value is None or isinstance(value, bool | int | str) else str(value)
