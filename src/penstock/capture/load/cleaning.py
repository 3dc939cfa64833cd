"""Takes out of a chunk the rows that the stream gives too.

A chunk shows at least what the log had at *low*. Whatever the log got since may be older than the chunk or newer; but
a row that is touched by none of it is the same before and after, so it may be appended here. Of a touched row the log
has the newest image, and the chunk's is left out.

Keys are compared by their exact values, whatever the collation. That is right: if an event comes after the SELECT, its
before image is the row as the SELECT saw it; if it comes before, its after image is. Either has the chunk's own bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.entries.decode import decode_entries
from penstock.entries.format import Kind, parse_entry
from penstock.log import Entry
from penstock.log.position import Position
from penstock.schema.changes import ChangeBatch
from penstock.schema.model import TableSchema
from penstock.schema.view import SchemaView


def without_changed(
    columns: list[pa.Array[Any]], table: TableSchema, key: Sequence[str], entries: Iterable[Entry]
) -> tuple[list[pa.Array[Any]], int]:
    """The chunk's rows whose keys occur in no change of `entries`, and how many were left out. `key`: the names of the key's
    columns. `entries` are those after low, in which the table has the one version `table`."""
    names = {name.lower() for name in key}
    ordinals = [i for i, column in enumerate(table.columns) if column.name.lower() in names]
    view = SchemaView([(Position(0, 0), table)])
    left_out = 0

    def wanted(schema: str, name: str) -> bool:
        return (schema, name) == (table.schema, table.table)

    for change in decode_entries(_without_chunks(entries), view, wanted):
        if isinstance(change, ChangeBatch) and len(columns[0]):
            mine = [columns[i] for i in ordinals]
            touched = _among(mine, [pa.concat_arrays([change.before[i], change.after[i]]) for i in ordinals])
            if touched.any():
                left_out += int(touched.sum())
                kept = pa.array(~touched)
                columns = [column.filter(kept) for column in columns]
    return columns, left_out


def _without_chunks(entries: Iterable[Entry]) -> Iterator[Entry]:
    for entry in entries:
        if len(entry.data) and Kind.CHUNK not in parse_entry(entry.data).transactions["kind"]:
            yield entry


def _among(mine: list[pa.Array[Any]], others: list[pa.Array[Any]]) -> npt.NDArray[np.bool_]:
    """For each row of `mine`, whether a row of `others` has the same values."""
    count = len(mine[0])
    codes = np.zeros(count + len(others[0]), np.int64)
    for a, b in zip(mine, others, strict=True):
        encoded: Any = pa.concat_arrays([a, b]).dictionary_encode()
        numbers = encoded.indices.fill_null(len(encoded.dictionary)).to_numpy(zero_copy_only=False)
        pairs = codes * (len(encoded.dictionary) + 1) + numbers
        codes = np.unique(pairs, return_inverse=True)[1]  # numbered anew, so that the next product fits
    return np.isin(codes[:count], codes[count:])
