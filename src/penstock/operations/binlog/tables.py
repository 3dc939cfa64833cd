"""Groups of transactions → columns of each table, for Parquet and Arrow files (docs/formats/decode-jsonl.md)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.binlog.errors import BadEvent
from penstock.binlog.rows import DecodedRows
from penstock.binlog.rows.presence import Presence
from penstock.binlog.types import OP_DELETE, OP_INSERT
from penstock.encode.change_lines.encoder import OPS
from penstock.encode.change_lines.origins import Origins
from penstock.encode.parquet.columns import parquet_type, parquet_values
from penstock.entries.decode import EntryGroup, GroupRows
from penstock.files import Buffer
from penstock.operations.binlog.group_origins import GroupOrigins, distinct, events_before, in_file
from penstock.operations.binlog.jsonl import group_statements
from penstock.operations.binlog.reading import Seen
from penstock.operations.binlog.table_files import TableFiles
from penstock.operations.binlog.told_lines import incomplete_line, told_line
from penstock.schema.model import TableSchema

BATCH_BYTES = 32 << 20  # of columns
_HELD_BYTES_MAX = 256 << 20  # of one group, before any of it is written

_WORDS = pa.array(list(OPS.values()), pa.string())
_WORD_OF = np.zeros(256, np.int32)
for _place, _op in enumerate(OPS):
    _WORD_OF[_op] = _place


class Tables:
    """Writes the rows of each table to its files, and all else as lines to `write_line`."""

    def __init__(
        self,
        files: TableFiles,
        write_line: Callable[[Buffer], object],
        wanted: Callable[[str, str], bool] | None = None,
    ) -> None:
        self._files = files
        self._write_line = write_line
        self._wanted = wanted
        self._events = 0  # in the groups so far

    def tell(self, seen: Seen) -> None:
        self._write_line(told_line(seen, self._wanted))

    def end_early(self, why: str) -> None:
        self._write_line(incomplete_line(why))

    def close(self) -> None:
        self._files.close()

    def write(self, group: EntryGroup) -> None:
        """All rows of the group. Where an event cannot be decoded, those of the transactions before its own."""
        try:
            self._write(group, None)
        except BadEvent as error:
            before = events_before(group, error)
            if before:
                self._write(group, before)
            raise in_file(error) from None

    def _write(self, group: EntryGroup, events_max: int | None) -> None:
        rows = group.rows(events_max)
        if rows is None:
            return
        held: list[tuple[TableSchema, pa.RecordBatch]] = []
        held_bytes = 0
        for table, batch in self._batches(group, rows):
            held.append((table, batch))
            held_bytes += batch.nbytes
            if held_bytes > _HELD_BYTES_MAX:
                self._give(held)
                held_bytes = 0
        self._give(held)
        if self._wanted is None:
            statements = group_statements(group, rows)
            if statements is not None:
                self._write_line(statements.data.data)
        self._events += len(rows.events)

    def _give(self, held: list[tuple[TableSchema, pa.RecordBatch]]) -> None:
        for table, batch in held:
            self._files.write(table, batch)
        held.clear()

    def _batches(self, group: EntryGroup, rows: GroupRows) -> Iterator[tuple[TableSchema, pa.RecordBatch]]:
        origins = GroupOrigins(group, rows)
        for one in rows.tables:
            schema = table_schema(one.table)
            for part in rows.decode(one, BATCH_BYTES):
                events, which = distinct(part.event)
                yield one.table, _batch(one.table, schema, part, origins.of(events), which, self._events)


def table_schema(table: TableSchema) -> pa.Schema:
    """The columns of the files of a table."""
    image: Any = pa.struct([pa.field(column.name, parquet_type(column)) for column in table.columns])
    fields: list[Any] = [
        pa.field("op", pa.string(), nullable=False),
        pa.field("event", pa.int64(), nullable=False),
        pa.field("row", pa.int32(), nullable=False),
        pa.field("file", pa.string(), nullable=False),
        pa.field("pos", pa.int64(), nullable=False),
        pa.field("gtid", pa.string()),
        pa.field("timestamp", pa.timestamp("s", "UTC"), nullable=False),
        pa.field("before", image),
        pa.field("after", image),
        pa.field("before_present", pa.binary()),
        pa.field("after_present", pa.binary()),
    ]
    return pa.schema(fields)


def _batch(  # noqa: PLR0917
    table: TableSchema,
    schema: pa.Schema,
    rows: DecodedRows,
    origins: Origins,
    which: npt.NDArray[np.int64],
    events_before: int,
) -> pa.RecordBatch:
    absent_before, absent_after = rows.op == OP_INSERT, rows.op == OP_DELETE
    image = schema.field("before").type
    own: Any = pa.array(which)
    columns: list[Any] = [
        _WORDS.take(_WORD_OF[rows.op]),
        pa.array(rows.event + events_before),
        pa.array(rows.row.astype(np.int32)),
        pa.array(list(origins.files), pa.string()).take(origins.file[which]),
        pa.array(origins.pos[which]),
        origins.gtid_column().take(own),
        pa.array(origins.timestamp[which].astype(np.int64)).view(pa.timestamp("s", "UTC")),
        _image(table, image, rows.before, absent_before),
        _image(table, image, rows.after, absent_after),
        _present(rows.present_before, absent_before, len(table.columns)),
        _present(rows.present_after, absent_after, len(table.columns)),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _image(
    table: TableSchema, image: Any, columns: list[pa.Array[Any]], absent: npt.NDArray[np.bool_]
) -> pa.Array[Any]:
    if absent.all():
        nothing: pa.Array[Any] = pa.nulls(len(absent), image)
        return nothing
    values = [parquet_values(*pair) for pair in zip(table.columns, columns, strict=True)]
    mask: Any = pa.array(absent) if absent.any() else None
    made: pa.Array[Any] = pa.StructArray.from_arrays(values, fields=list(image), mask=mask)
    return made


def _present(presence: Presence | None, absent: npt.NDArray[np.bool_], columns: int) -> pa.Array[Any]:
    if presence is None:
        return pa.nulls(len(absent), pa.binary())
    last = np.full(presence.bitmaps.shape[1], 0xFF, np.uint8)
    last[-1] = 0xFF >> (-columns % 8)
    bitmaps = presence.bitmaps & last
    missing = (absent | (bitmaps == last).all(axis=1)[presence.which]).astype(np.bool_)
    data = np.ascontiguousarray(bitmaps[presence.which])
    offsets = np.arange(len(absent) + 1, dtype=np.int32) * bitmaps.shape[1]
    validity = pa.py_buffer(np.packbits(~missing, bitorder="little").tobytes())
    return pa.Array.from_buffers(
        pa.binary(), len(absent), [validity, pa.py_buffer(offsets.tobytes()), pa.py_buffer(data.tobytes())]
    )
