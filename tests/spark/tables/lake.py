"""A sink's prefix made by hand, document by document: a small lake of Parquet files that a test grows as a flow does."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.commit_ts import commit_ts_of
from penstock.delivery.storage.expiry import EXPIRED_PATH
from penstock.delivery.storage.layout import METADATA_PATH, OWNER_PATH, layout_of
from penstock.delivery.storage.owner import Owner
from penstock.encode.parquet.encoder import parquet_schema
from penstock.log.position import Seq
from penstock.schema.model import Column, DdlType, TableSchema
from penstock.schema.schema_file import schema_file
from tests.delivery.rig import local_objects

LAYOUT = layout_of("parquet")


def at(day: str, counter: int = 0) -> int:
    """A commit_ts of a day."""
    return commit_ts_of(int(datetime.fromisoformat(day).replace(tzinfo=UTC).timestamp() * 1000)) + counter


def orders(version: int, *names: str, table: str = "orders", query: str = "") -> TableSchema:
    columns = (Column("id", "int", nullable=False, primary_key=True), *(Column(name, "varchar(20)") for name in names))
    return TableSchema("shop", table, version, columns, query, DdlType.ADD_COLUMN)


class Lake:
    def __init__(self, root: Path, log: str = "log-1", *, adopted: bool = False) -> None:
        self.root = root
        self.objects = local_objects(root)
        self.own(log, adopted=adopted)
        self.numbers: dict[str, int] = {}
        self.rows = 0

    def own(self, log: str, *, adopted: bool = False) -> None:
        self.objects.put(OWNER_PATH, Owner("lake", log, "parquet", 1, 0, "test", adopted).to_bytes())

    def checkpoint(self, commit_ts: int) -> None:
        self.objects.put(METADATA_PATH, json.dumps({"checkpoint-ts": commit_ts}).encode())

    def expire(self, before: str) -> None:
        """Files of earlier days go, as the sink deletes them."""
        self.objects.put(EXPIRED_PATH, json.dumps({"before": before, "finished": True}).encode())
        for name in self.objects.list("shop"):
            if f"/{LAYOUT.date_prefix}" in name and name.split("/")[3].removeprefix(LAYOUT.date_prefix) < before:
                self.objects.delete([name])

    def schema(self, table: TableSchema) -> None:
        name, content = schema_file(table)
        self.objects.put(f"{LAYOUT.schema_directory(table.schema, table.table)}/{name}", content)

    def add(self, table: TableSchema, day: str, *ids: int, index: bool = True) -> str:
        """One more file; its path."""
        self.schema(table)
        directory = LAYOUT.data_directory(table.schema, table.table, table.version, day)
        number = self.numbers[directory] = self.numbers.get(directory, 0) + 1
        rows = []
        for one in ids:
            self.rows += 1
            made = {column.name: f"{column.name}{one}" for column in table.columns[1:]}
            moment = datetime.fromisoformat(day).replace(tzinfo=UTC)
            rows.append(
                {"_op": "I", "_commit_ts": moment, "_seq": Seq(1, self.rows, 0, 0).to_bytes(), "id": one, **made}
            )
        out = io.BytesIO()
        pq.write_table(pa.Table.from_pylist(rows, schema=parquet_schema(table)), out)
        path = LAYOUT.data_path(directory, number)
        self.objects.put(path, out.getvalue())
        if index:
            self.index(path)
        return path

    def index(self, path: str) -> None:
        directory, _, name = path.rpartition("/")
        self.objects.put(LAYOUT.index_path(directory), f"{name}\n".encode())
