"""The rows of a Parquet file (docs/formats/parquet.md): TiCDC's consumer does not read it, so the page is the contract."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq

from tests.consumer.canal_json import Row
from tests.consumer.schemas import Schema
from tests.consumer.violation import require


def read_rows(path: Path, schema: Schema) -> Iterator[Row]:
    table = pq.read_table(path, partitioning=None)
    names = ["_op", "_commit_ts", "_seq"]
    require(table.column_names == [*names, *schema.names], "parquet", path, f"{table.column_names}")
    last = b"", ""
    for number, row in enumerate(table.to_pylist(), 1):
        op, moment, seq = (row.pop(name) for name in names)
        require(op in ("I", "U", "D") and len(seq) == 24 and (seq, op) > last, "parquet", f"{path}: row {number}", op)
        last = seq, op
        yield Row(op, int(moment.timestamp() * 1000), row, None, f"{path}: row {number}")
