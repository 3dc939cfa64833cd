"""A database of a test's own, capture into a log in this process, and the rows that the log gives in the end."""

from __future__ import annotations

import contextlib
import queue
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.capture.loop import Capture
from penstock.entries.decode import decode_entries
from penstock.entries.format import Kind, parse_entry
from penstock.log import Log, LogReader
from penstock.operations.verify.log_replay import read_history
from penstock.process import Requests
from penstock.schema.changes import OP_DELETE, OP_INSERT, ChangeBatch
from penstock.sources.mysql.source import ServerSource
from penstock.sources.settings import ServerSettings
from tools.components.database import DatabaseServer


@dataclass
class World:
    server: DatabaseServer
    database: str
    directory: Path

    def run(self, *statements: str) -> None:
        with contextlib.closing(self.server.connect(self.database)) as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        with contextlib.closing(self.server.connect(self.database)) as connection, connection.cursor() as cursor:
            cursor.execute(sql)
            return [tuple(row) for row in cursor.fetchall()]

    def settings(self, **values: Any) -> ServerSettings:
        return ServerSettings.model_validate(
            {
                "type": self.server.kind,
                "unix_socket": str(self.server.socket),  # MySQL's default user gives its password to nobody else
                "user": self.server.user,
                "password": self.server.password,
                "start": "snapshot",
                "tables": {"include": [f"{self.database}.*"]},
                **values,
            }
        )

    def catch_up(self, *requests: dict[str, Any], **values: Any) -> list[dict[str, Any]]:
        """Capture to where the server is now, and the load to its end, with requests that wait from the start on. What it
        reported."""
        settings = self.settings(**values)
        source = ServerSource(settings, self.directory)
        said: list[dict[str, Any]] = []
        waiting: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        for request in requests:
            waiting.put(request)
        log = Log.open(self.directory / "log")
        try:
            capture = Capture(
                log,
                source,
                tables=settings.tables,
                snapshot=settings.snapshot,
                scope=settings.load_scope,
                report=said.append,
                requests=Requests(waiting, said.append),
            )
            assert capture.run(until_now=True)
        finally:
            source.close()
            log.close()
        return said

    def changes(self) -> list[ChangeBatch]:
        reader = LogReader.open(self.directory / "log")
        history = read_history(reader)
        found = decode_entries(reader.read(reader.first, reader.end()), history.schemas, void=history.void)
        return [change for change in found if isinstance(change, ChangeBatch)]

    def chunks(self) -> int:
        """How many entries of the log are chunks."""
        reader = LogReader.open(self.directory / "log")
        entries = [entry for entry in reader.read(reader.first, reader.end()) if len(entry.data)]
        return sum(Kind.CHUNK in parse_entry(entry.data).transactions["kind"] for entry in entries)

    def table(self, name: str) -> dict[tuple[Any, ...], tuple[Any, ...]]:
        """The rows that remain when the changes of the log are applied in order, by key."""
        current: dict[tuple[Any, ...], tuple[Any, ...]] = {}
        for batch in self.changes():
            if batch.table.table != name:
                continue
            key = batch.table.primary_key
            before = list(zip(*(column.to_pylist() for column in batch.before), strict=True))
            after = list(zip(*(column.to_pylist() for column in batch.after), strict=True))
            for op, old, new in zip(batch.op.tolist(), before, after, strict=True):
                if op != OP_INSERT:
                    current.pop(tuple(old[i] for i in key), None)
                if op != OP_DELETE:
                    current[tuple(new[i] for i in key)] = new
        return current


@contextlib.contextmanager
def loading(server: DatabaseServer, directory: Path) -> Iterator[World]:
    database = f"load_{uuid.uuid4().hex[:12]}"
    directory.mkdir(exist_ok=True)
    with contextlib.closing(server.connect()) as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE DATABASE {database}")
        yield World(server, database, directory)
        cursor.execute(f"DROP DATABASE {database}")
