"""A chunk of an initial load as an entry (docs/formats/entry.md, *Chunks*): rows in columns, and the table they are of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.binlog.types import Flavour
from penstock.entries.format import TXN_DTYPE, BadEntry, EntryHeader, Kind, ParsedEntry, encode_entry
from penstock.files import Buffer
from penstock.schema.model import TableSchema
from penstock.sources.position import SourcePosition

_END = b"\xff\xff\xff\xff\0\0\0\0"  # of an IPC stream
_SCHEMA, _TABLE, _VERSION = b"penstock.schema", b"penstock.table", b"penstock.version"


@dataclass(frozen=True, slots=True)
class ChunkRows:
    """The rows of a chunk: an array for each column of the table's version."""

    schema: str
    table: str
    version: int
    columns: list[pa.Array[Any]]

    def __len__(self) -> int:
        return len(self.columns[0])


def encode_chunk(
    table: TableSchema, columns: list[pa.Array[Any]], commit_ts: int, position: SourcePosition
) -> list[Buffer]:
    """The entry's bytes as buffers. `position`: where the stream was when the chunk was appended."""
    metadata: dict[bytes | str, bytes | str] = {
        _SCHEMA: table.schema.encode(),
        _TABLE: table.table.encode(),
        _VERSION: str(table.version).encode(),
    }
    fields = [pa.field(column.name, array.type) for column, array in zip(table.columns, columns, strict=True)]
    batch = pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields, metadata=metadata))
    # A stream in its parts: written as one, it would grow, and be copied, again and again.
    body: list[Buffer] = [memoryview(batch.schema.serialize()), memoryview(batch.serialize()), _END]
    record = np.zeros(1, TXN_DTYPE)
    record["length"] = sum(len(part) for part in body)
    record["commit_ts"] = commit_ts
    record["start_pos"] = record["end_pos"] = position.pos
    record["kind"] = Kind.CHUNK
    flavour = Flavour.MARIADB if position.source.startswith("mariadb") else Flavour.MYSQL
    header = EntryHeader(flavour, False, position.source, (position.file,), b"")
    return encode_entry(header, record, body)


def read_chunk(parsed: ParsedEntry) -> ChunkRows:
    """The rows of an entry whose only record is a chunk. Raises `BadEntry` for bytes that are none."""
    if len(parsed.transactions) != 1:
        raise BadEntry("a chunk is not alone in its entry")
    body: Any = np.array(parsed.events)  # a copy: Arrow's arrays are aligned in it
    try:
        with pa.ipc.open_stream(pa.py_buffer(body)) as stream:
            (batch,) = list(stream)
    except (pa.ArrowInvalid, ValueError, OSError) as error:
        raise BadEntry(f"a chunk cannot be read: {error}") from error
    metadata = batch.schema.metadata or {}
    try:
        return ChunkRows(
            metadata[_SCHEMA].decode(), metadata[_TABLE].decode(), int(metadata[_VERSION]), list(batch.columns)
        )
    except (KeyError, ValueError) as error:
        raise BadEntry(f"a chunk does not say which table it is of: {error}") from error
