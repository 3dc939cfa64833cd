"""Connections to a MariaDB server, through PyMySQL, whose errors become Penstock's own kinds."""

from __future__ import annotations

import contextlib
import hashlib
import os
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pymysql
from pymysql.connections import Connection

from penstock.errors import Unavailable
from penstock.sources.settings import MariadbSettings, Tls
from penstock.sources.source import SourceError

CONNECT_SECONDS_MAX = 10
QUERY_SECONDS_MAX = 60
_ACCESS_DENIED = frozenset({1044, 1045, 1698, 1142, 1227})
_LOST = frozenset(
    {1040, 1053, 1077, 1079, 1129, 1152, 1158, 1159, 1160, 1161, 1184, 1203, 1205, 1927, 2002, 2003, 2006, 2013}
)


def connect(settings: MariadbSettings) -> Connection[Any]:
    """A connection for queries, in UTF-8 and autocommit. Raises `SourceError`; `Unavailable` if nothing answers."""
    address: dict[str, Any] = {"host": settings.host, "port": settings.port}
    if settings.unix_socket is not None:
        address = {"unix_socket": str(settings.unix_socket)}
    with translate_errors(f"cannot connect to {where(settings)}"):
        return pymysql.connect(
            **address,
            user=settings.user,
            password=settings.secret(),
            ssl=_context(settings.tls) if settings.tls is not None else None,
            charset="utf8mb4",
            autocommit=True,
            connect_timeout=CONNECT_SECONDS_MAX,
            read_timeout=QUERY_SECONDS_MAX,
            write_timeout=QUERY_SECONDS_MAX,
            program_name="penstock",
        )


def where(settings: MariadbSettings) -> str:
    return str(settings.unix_socket) if settings.unix_socket else f"{settings.host}:{settings.port}"


def unique_server_id(settings: MariadbSettings, state_dir: Path) -> int:
    """Our id as a replica: a function of host and state directory, from a range that people do not assign by hand."""
    if settings.server_id is not None:
        return settings.server_id
    identity = f"{socket.gethostname()} {os.fspath(state_dir.resolve())}".encode()
    return 0x40000000 | int.from_bytes(hashlib.sha256(identity).digest()[:4], "little") & 0x3FFFFFFF


@contextlib.contextmanager
def translate_errors(
    what: str, denied: str = "check source.user, source.password and the grants of that user"
) -> Iterator[None]:
    """Inside it, errors of PyMySQL and of the socket become `SourceError` or `Unavailable`: `what: the error`. `denied` is
    the hint where the user may not do it."""
    try:
        yield
    except pymysql.err.MySQLError as error:
        code = error.args[0] if error.args and isinstance(error.args[0], int) else 0
        text = str(error.args[1]) if len(error.args) > 1 else str(error)
        if code in _ACCESS_DENIED:
            raise SourceError(f"{what}: {text}", hint=denied) from error
        if code in _LOST or code == 0:
            raise Unavailable(f"{what}: {text}") from error
        raise SourceError(f"{what}: {text} (error {code})") from error
    except (OSError, EOFError) as error:
        raise Unavailable(f"{what}: {error}") from error


def rows(connection: Connection[Any], sql: str, arguments: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The rows of a query."""
    with translate_errors(sql.split(None, 1)[0]), connection.cursor() as cursor:
        cursor.execute(sql, arguments or None)
        return [tuple(row) for row in cursor.fetchall()]


def _context(tls: Tls) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=os.fspath(tls.ca) if tls.ca else None)
        if tls.cert is not None:
            context.load_cert_chain(tls.cert, tls.key)
    except (OSError, ssl.SSLError) as error:
        raise SourceError(f"source.tls: {error}", hint="check the files of ca, cert and key") from error
    if not tls.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
