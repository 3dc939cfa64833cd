"""A sink filled from a log without Spark: the same entries, encoders, names of files and cursor as in a flow, one process."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from penstock.capture.loop import Capture, open_log
from penstock.delivery.storage.layout import METADATA_PATH, date_of, layout_of
from penstock.delivery.storage.place import open_place
from penstock.encode import open_format
from penstock.files import REAL_FILES, Buffer
from penstock.log import Cursor, LogReader
from penstock.operations.config.loading import load
from penstock.operations.config.model import Config
from penstock.operations.verify.log_replay import LogReplay
from penstock.operations.verify.verify import rules_at_sink
from penstock.schema.changes import ChangeBatch
from penstock.schema.schema_file import schema_file
from penstock.sources.mysql.source import ServerSource
from penstock.sources.settings import ServerSettings
from penstock.sources.source import Source
from tools.components.database import DatabaseServer

ROWS_MAX = 700  # of a payload


def capture(config: Config, source: Source) -> None:
    """Everything that the source has now, into the log."""
    log = open_log(config.state_dir)
    try:
        assert Capture(log, source).run(until_now=True)
    finally:
        log.close()


def deliver(config: Config) -> None:
    """Everything that the log has, to every sink; no sink has anything yet."""
    reader = LogReader.open(config.state_dir / "log")
    for name, settings in config.sinks.items():
        fmt, layout = open_format(settings.format, settings.format_options), layout_of(settings.format)
        objects = open_place(settings.url, REAL_FILES).objects
        payloads: dict[str, list[Buffer]] = {}
        checkpoint_ts = 0
        replay = LogReplay(reader, reader.end(), rules_at_sink(config, name))
        for batch, _ in replay.changes():
            schema_name, content = schema_file(batch.table)
            objects.put(f"{layout.schema_directory(batch.table.schema, batch.table.table)}/{schema_name}", content)
            checkpoint_ts = max(checkpoint_ts, int(batch.commit_ts[-1])) if len(batch) else checkpoint_ts
            for start in range(0, len(batch), ROWS_MAX):
                part: ChangeBatch = batch.slice(start, min(start + ROWS_MAX, len(batch)))
                table = batch.table
                directory = layout.data_directory(
                    table.schema, table.table, table.version, date_of(int(part.commit_ts[0]))
                )
                payloads.setdefault(directory, []).append(fmt.encode(part))
        for _, told in replay.statements:
            schema_name, content = schema_file(told)
            objects.put(f"{layout.schema_directory(told.schema, told.table)}/{schema_name}", content)
        for directory, each in payloads.items():
            files = [each[at : at + 3] for at in range(0, len(each), 3)]
            for number, some in enumerate(files, 1):
                objects.put(layout.data_path(directory, number), fmt.assemble(some))
            last = layout.data_path(directory, len(files)).rpartition("/")[2]
            objects.put(layout.index_path(directory), f"{last}\n".encode())
        objects.put(METADATA_PATH, json.dumps({"checkpoint-ts": checkpoint_ts}).encode())
        cursor = Cursor.open(reader, config.state_dir / "cursors", name, start="earliest")
        cursor.mark_delete(reader.end()).result()
        cursor.close()
    reader.close()


def deliver_from_server(config: Config, server: DatabaseServer, database: str, statements: Iterable[str]) -> None:
    """The log learns of the server's tables, the statements are run, and what they did is delivered. Its state is new."""
    config.state_dir.mkdir(mode=0o700)
    run_statements(server, database, ())
    for some in ((), statements):
        run_statements(server, database, some)
        capture_server(config)
    deliver(config)


def capture_server(config: Config) -> None:
    """Up to where the server is now, into the log."""
    assert isinstance(config.source, ServerSettings)
    source = ServerSource(config.source, config.state_dir)
    try:
        capture(config, source)
    finally:
        source.close()


def run_statements(server: DatabaseServer, database: str, statements: Iterable[str]) -> None:
    """As a careless application: without strict mode."""
    with contextlib.closing(server.connect()) as connection, connection.cursor() as cursor:
        cursor.execute("SET sql_mode = ''")
        cursor.execute("SET time_zone = '+00:00'")
        if not cursor.execute("SHOW DATABASES LIKE %s", (database,)):  # a statement in the binlog
            cursor.execute(f"CREATE DATABASE {database}")
        cursor.execute(f"USE {database}")
        for statement in statements:
            cursor.execute(statement)


def server_config(server: DatabaseServer, database: str, directory: Path, sinks: dict[str, Any], **more: Any) -> Config:
    """Of a flow from this database."""
    source = {
        "type": server.kind, "unix_socket": str(server.socket), "user": server.user, "password": server.password,
        "tables": {"include": [f"{database}.*"]},
    }  # fmt: skip
    path = directory / "penstock.yaml"
    path.write_text(yaml.safe_dump({"version": 1, "state_dir": "./state", "source": source, "sinks": sinks, **more}))
    path.chmod(0o600)
    return load(path)
