"""Encoding: decoded changes into each format, on one core.

The same rows, 40 % of them updates. The peers: pyarrow's own CSV and Parquet writers, which get columns that are ready
(no operation, no key changes, no MySQL types), and for the JSON formats a plain encoder that builds the same lines row by
row. Rounds alternate; CPU time of the process, the best round counts. MB/s is of bytes written.
"""

from __future__ import annotations

import importlib
import io
import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from bench.result import Result
from penstock.commit_ts import commit_ts_of, milliseconds_of
from penstock.encode import open_format
from penstock.schema.changes import SEQ_DTYPE, ChangeBatch
from penstock.schema.model import Column, TableSchema

ROWS = max(int(100_000 * float(os.environ.get("BENCH_ENCODE_SCALE", "1"))), 2_000)
ROUNDS = 3
TABLE = TableSchema(
    "shop",
    "orders",
    1,
    (
        Column("id", "bigint", nullable=False, primary_key=True),
        Column("customer", "int unsigned"),
        Column("status", "enum('new','paid','sent')", elements=("new", "paid", "sent")),
        Column("total", "decimal(12,2)"),
        Column("weight", "double"),
        Column("note", "varchar(80)"),
        Column("made", "datetime(3)"),
        Column("changed", "timestamp"),
    ),
)

try:
    dumps: Callable[[Any], bytes] = importlib.import_module("orjson").dumps
    JSON_PEER = "orjson, row by row"
except ImportError:
    JSON_PEER = "json.dumps, row by row"

    def dumps(value: Any) -> bytes:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def measure(_directory: Path) -> Iterator[Result]:
    batch = changes(ROWS)
    ready = typed(batch)
    rows = plain_rows(batch)
    yield from _beside("csv", "pyarrow.csv.write_csv", lambda: open_format("csv").encode(batch), lambda: _csv(ready))
    canal = open_format("canal-json")
    yield from _beside("canal-json", JSON_PEER, lambda: canal.encode(batch), lambda: _canal(rows))
    debezium = open_format("debezium-json")
    yield from _beside("debezium-json", JSON_PEER, lambda: debezium.encode(batch), lambda: _debezium(rows))
    with_schema = open_format("debezium-json", {"include_schema": True})
    yield from _beside("debezium-json with schema", None, lambda: with_schema.encode(batch), None)
    parquet = open_format("parquet")
    yield from _beside(
        "parquet",
        "pyarrow.parquet.write_table",
        lambda: parquet.assemble([parquet.encode(batch)]),
        lambda: _parquet(ready),
    )


def _beside(name: str, peer: str | None, ours: Callable[[], Any], theirs: Callable[[], Any] | None) -> Iterator[Result]:
    ways = {"ours": ours} | ({"theirs": theirs} if theirs is not None else {})
    best = dict.fromkeys(ways, float("inf"))
    sizes = dict.fromkeys(ways, 0)
    for number in range(ROUNDS + 1):
        for way, run in ways.items():
            began = time.process_time()
            made = run()
            took = time.process_time() - began
            sizes[way] = memoryview(made).nbytes
            if number:  # the first round compiles, and fills the caches
                best[way] = min(best[way], took)
    speed = {way: sizes[way] / best[way] / 1e6 for way in ways}
    yield Result(f"encode {name}", speed["ours"], "MB/s", peer, speed.get("theirs"))
    rows_peer = ROWS / best["theirs"] if "theirs" in best else None
    yield Result(f"encode {name}, rows", ROWS / best["ours"], "rows/s", peer, rows_peer)


def changes(rows: int) -> ChangeBatch:
    """Inserts and updates in their physical form; an update changes two columns."""
    random = np.random.default_rng(7)
    ids = np.arange(rows, dtype=np.int64)
    notes = pa.array([f"order {n}, left at the door" if n % 5 else None for n in range(rows)])
    cents = pa.array([None if n % 50 == 0 else n * 37 % 10**9 for n in range(rows)], pa.int64())
    total = pa.Array.from_buffers(
        pa.decimal128(12, 2), rows, [cents.buffers()[0], pa.py_buffer(_words(cents).tobytes())], cents.null_count
    )
    day = ((2024 * 13 + 5) << 22 | 1 << 17 | 12 << 12) << 24
    after: list[pa.Array[Any]] = [
        pa.array(ids),
        pa.array(random.integers(0, 1 << 31, rows), pa.uint32()),
        pa.array(random.integers(1, 4, rows), pa.uint16()),
        total,
        pa.array(random.random(rows)),
        notes,
        pa.array(day + (ids % 60 << 24) + ids % 1000 * 1000, pa.int64()),
        pa.array(1_700_000_000_000_000 + ids * 1_000_000),
    ]
    updates = np.arange(rows) % 5 < 2
    before = list(after)
    before[2] = pa.array(np.where(updates, 1, 0), pa.uint16(), mask=~updates)
    before[4] = pa.array(np.zeros(rows), mask=~updates)
    seq = np.zeros(rows, SEQ_DTYPE)
    seq["ledger"], seq["entry"], seq["row"] = 3, ids // 100, ids % 100
    op = np.where(updates, ord("U"), ord("I")).astype(np.uint8)
    ts = np.full(rows, commit_ts_of(1_700_000_000_000), np.uint64) + ids.astype(np.uint64) // np.uint64(100)
    return ChangeBatch(TABLE, op, seq, ts, before, after)


def _words(cents: pa.Array[Any]) -> Any:
    words = np.zeros((len(cents), 2), np.int64)
    words[:, 0] = cents.fill_null(0).to_numpy()
    return words


def typed(batch: ChangeBatch) -> pa.Table:
    """The rows as Arrow's own types: what a writer of files would get."""
    parquet = open_format("parquet")
    return parquet.rows(parquet.assemble([parquet.encode(batch)]))


def plain_rows(batch: ChangeBatch) -> list[dict[str, Any]]:
    """The lines of canal-json as dicts, with all text made already: the peer only builds and prints objects."""
    canal = open_format("canal-json")
    return [json.loads(line) for line in bytes(canal.encode(batch)).decode().split("\r\n") if line]


def _csv(table: pa.Table) -> bytes:
    out = io.BytesIO()
    columns = [name for name in table.column_names if name not in ("_seq", "_commit_ts")]
    pa.csv.write_csv(table.select(columns), out)
    return out.getvalue()


def _parquet(table: pa.Table) -> Any:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd", compression_level=1, row_group_size=131_072)
    return sink.getvalue()


def _canal(rows: list[dict[str, Any]]) -> bytes:
    return b"".join([dumps({**row, "data": [dict(row["data"][0])]}) + b"\r\n" for row in rows])


def _debezium(rows: list[dict[str, Any]]) -> bytes:
    return b"".join([dumps(_envelope(row)) + b"\n" for row in rows])


def _envelope(row: dict[str, Any]) -> dict[str, Any]:
    after = row["data"][0]
    before = {**after, **row["old"][0]} if row["old"] else None
    ts, commit_ts = milliseconds_of(row["_tidb"]["commitTs"]), row["_tidb"]["commitTs"]
    source = {
        "version": "1", "connector": "mysql", "name": "penstock", "ts_ms": ts, "snapshot": "false", "db": row["database"],
        "sequence": None, "table": row["table"], "server_id": 0, "gtid": None, "file": "", "pos": 0, "row": 0, "thread": None,
        "query": None, "commit_ts": commit_ts, "seq": row["_penstock"]["seq"],
    }  # fmt: skip
    op = "u" if row["old"] else "c"
    return {"before": before, "after": after, "source": source, "transaction": None, "op": op, "ts_ms": ts}
