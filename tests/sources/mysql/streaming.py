"""What tests do with a real server of either family: sessions, and capture up to where the server is now."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from penstock.capture.loop import Capture
from penstock.log import Log
from penstock.sources.mysql.source import ServerSource
from penstock.sources.settings import ServerSettings
from tests.capture.running import logged_events
from tools.components.database import DatabaseServer

_ROWS = (23, 24, 25, 30, 31, 32)


def settings(server: DatabaseServer, **values: Any) -> ServerSettings:
    base = {
        "type": "mariadb",
        "unix_socket": server.socket,
        "user": server.user,
        "password": server.password,
    }
    return ServerSettings.model_validate({**base, **values})


@contextlib.contextmanager
def session(server: DatabaseServer) -> Iterator[Any]:
    with contextlib.closing(server.connect()) as connection, connection.cursor() as cursor:
        yield cursor


def run(directory: Path, source: ServerSettings) -> list[dict[str, Any]]:
    """Up to where the server is now."""
    said: list[dict[str, Any]] = []
    log = Log.open(directory / "log")
    server = ServerSource(source, directory)
    try:
        capture = Capture(log, server, tables=source.tables, report=said.append)
        assert capture.run(until_now=True)
    finally:
        server.close()
        log.close()
    return said


def row_events(directory: Path) -> list[bytes]:
    return [raw for raw in logged_events(directory / "log") if raw[4] in _ROWS]


def fresh(cursor: Any, name: str) -> None:
    cursor.execute(f"DROP DATABASE IF EXISTS {name}")
    cursor.execute(f"CREATE DATABASE {name}")
