"""Faults that verify must find, planted in a file of a sink."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

Rows = list[Any]  # lines, or rows of a Parquet file


def without_a_row(rows: Rows) -> Rows:
    return rows[:3] + rows[4:]


def with_a_row_twice(rows: Rows) -> Rows:
    return rows[:4] + rows[3:]


def with_a_swapped_pair(rows: Rows) -> Rows:
    return [*rows[:3], rows[4], rows[3], *rows[5:]]


def with_a_wrong_value(rows: Rows) -> Rows:
    row = rows[0]
    if isinstance(row, bytes):
        digit = re.search(rb'"(?:data|after)":.*?"customer_id":"?(\d)', row)
        assert digit is not None
        at = digit.start(1)
        return [row[:at] + bytes([row[at] ^ 1]) + row[at + 1 :], *rows[1:]]
    return [{**row, "customer_id": row["customer_id"] + 1}, *rows[1:]]


def rewrite(path: Path, change: Callable[[Rows], Rows]) -> None:
    if path.suffix == ".parquet":
        table = pq.read_table(path, partitioning=None)
        pq.write_table(pa.Table.from_pylist(change(table.to_pylist()), table.schema), path)
    else:
        path.write_bytes(b"".join(change(path.read_bytes().splitlines(keepends=True))))
