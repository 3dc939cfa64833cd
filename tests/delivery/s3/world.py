"""A real delivery process that writes Canal-JSON to a real S3 server through a proxy, with a keeper that outlives it."""

from __future__ import annotations

import base64
import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from penstock.objects import open_objects
from penstock.schema.model import TableSchema
from penstock.wire import Server, socket_path
from tests.consumer.consumer import read_sink, settings_for
from tests.delivery.memory_keeper import MemoryKeeper
from tests.delivery.rig import CHANGEFEED, Row, expected_tables, payloads_of, stream
from tests.delivery.s3.history import History
from tests.delivery.s3.nursery import Born, Nursery
from tests.delivery.s3.proxy import S3Proxy
from tests.delivery.test_process import stage
from tests.support.waiting import LIMIT_SECONDS
from tools.components.s3 import BUCKET, S3Server


class CanalRow(Row):
    """An insert with a key of its own, as a consumer of Canal-JSON reads it."""

    @property
    def line(self) -> bytes:
        seq, columns = self.seq, self.schema.columns
        key = str((seq.entry_id << 20) + (seq.event << 10) + seq.row)
        value = {
            "id": 0,
            "database": self.schema.schema,
            "table": self.schema.table,
            "pkNames": ["c0"],
            "isDdl": False,
            "type": "INSERT",
            "es": 0,
            "ts": 0,
            "sql": "",
            "sqlType": {},
            "mysqlType": {column.name: column.mysql_type for column in columns},
            "data": [{column.name: key if column.name == "c0" else None for column in columns}],
            "old": None,
            "_tidb": {"commitTs": self.commit_ts},
        }
        return json.dumps(value).encode() + b"\r\n"


def keyed(schema: TableSchema) -> TableSchema:
    first, *rest = schema.columns
    return replace(schema, columns=(replace(first, nullable=False, primary_key=True), *rest))


def canal_stream(entries: int, **options: Any) -> list[Row]:
    rows = stream(entries, **options)
    schemas = {row.schema: keyed(row.schema) for row in rows}
    return [CanalRow(row.seq, row.commit_ts, schemas[row.schema], row.ddl) for row in rows]


@dataclass
class S3World:
    url: str
    state_dir: Path
    proxy: S3Proxy
    server: S3Server
    nursery: Nursery
    stack: ExitStack
    keeper: MemoryKeeper = field(default_factory=MemoryKeeper)
    history: History = field(default_factory=History)

    def start(self, *, size: int = 1024, every: float = 0.1, **changes: Any) -> Born:
        sink = {"url": self.url, "format": "canal-json", "flush": {"size": size, "every": every}}
        settings = {
            "state_dir": str(changes.pop("state_dir", self.state_dir)),
            "log_uuid": changes.pop("log_uuid", "u1"),
            "changefeeds": {CHANGEFEED: sink},
            **changes,
        }
        born = self.nursery.start(settings)
        self.stack.callback(born.kill)
        return born

    def begin(self, born: Born, run: str) -> str:
        incarnation = str(born.client.call("begin_run", changefeed=CHANGEFEED, run=run)["incarnation"])
        self.keeper.begin_run(run)
        return incarnation

    def deliver(self, born: Born, run: str, rows: list[Row], *, batch: int = 7, rows_max: int = 9) -> None:
        """A run from the keeper's facts to the end of the rows, as Spark would make it."""
        incarnation = self.begin(born, run)
        facts = self.keeper.dispatchers(CHANGEFEED)
        start = self.keeper.mark_delete.entry_id + 1 if self.keeper.mark_delete is not None else 0
        entries = rows[-1].seq.entry_id + 1
        while start < entries:
            end = min(entries, start + batch) - 1
            inside = [row for row in rows if start <= row.seq.entry_id <= end]
            named = stage(born.client, run, start, end, payloads_of(inside, facts, rows_max=rows_max))
            born.client.call("publish", changefeed=CHANGEFEED, run=run, incarnation=incarnation, ranges=[named])
            start = end + 1
        born.client.call("flush", changefeed=CHANGEFEED, timeout_seconds=LIMIT_SECONDS)

    def status(self, born: Born) -> dict[str, Any]:
        return dict(born.client.call("status")["changefeeds"][CHANGEFEED])

    @property
    def prefix(self) -> str:
        return self.url.removeprefix(f"s3://{BUCKET}/")

    def sizes(self) -> dict[str, int]:
        """Of the data files."""
        objects = open_objects(self.url)
        return {
            name: objects.size(name) or 0 for name in objects.walk() if "/CDC" in name and not name.endswith(".index")
        }

    def check(self, rows: list[Row], copy: Path, *, settled: bool = True) -> None:
        """The bucket as the strict consumer reads it, each row once and in order, and how it came to be so."""
        self.proxy.wait_for_late_ones()
        self.history.check(rows, self.prefix)
        objects = open_objects(self.url)
        for name in objects.walk():
            found = objects.read(name)
            assert found is not None
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            (copy / name).write_bytes(found.data)
        rebuilt = read_sink(copy, settings_for("canal-json", settled=settled, complete=True))
        expected = expected_tables(rows)
        assert {table: each.changes for (_, table), each in rebuilt.tables.items() if each.changes} == {
            table: len(lines) for table, lines in expected.items()
        }
        for table, lines in expected.items():
            files = sorted(copy.glob(f"shop/{table}/*/*/CDC*.json"), key=_file_order)
            assert [line for file in files for line in file.read_bytes().splitlines(keepends=True)] == lines
        assert unfinished_uploads(self.server, self.prefix) == []


def _file_order(path: Path) -> tuple[int, str, str]:
    return int(path.parts[-3]), path.parts[-2], path.name


def unfinished_uploads(server: S3Server, prefix: str) -> list[str]:
    """The objects below the prefix with a multipart upload that nobody has ended, as SeaweedFS keeps them."""
    request = urllib.request.Request(
        f"{server.filer}/buckets/{BUCKET}/.uploads/?limit=10000", headers={"Accept": "application/json"}
    )
    try:
        with urllib.request.urlopen(request) as answer:
            entries = json.loads(answer.read())["Entries"] or []
    except urllib.error.HTTPError as error:
        if error.code == 404:
            return []
        raise
    names = [base64.b64decode(entry["Extended"]["key"]).decode() for entry in entries]
    return [name for name in names if name.startswith(f"{prefix}/")]


@contextmanager
def s3_world(
    url: str, server: S3Server, nursery: Nursery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[S3World]:
    """Delivery talks to the proxy; the test itself to the server (`s3_url` has made the environment so)."""
    state_dir = tmp_path / "state"
    (state_dir / "run").mkdir(parents=True)
    with ExitStack() as stack:
        proxy = stack.enter_context(S3Proxy(server.endpoint).running())
        open_objects(url)  # the test's own client: it keeps the endpoint of the environment that it was made in
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.endpoint)
        world = S3World(url, state_dir, proxy, server, nursery, stack)
        proxy.on_done = world.history.see
        control = Server(socket_path(state_dir / "run", "control"), world.keeper.handlers())
        stack.callback(control.close)
        yield world
