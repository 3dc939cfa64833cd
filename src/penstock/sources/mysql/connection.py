"""Connections to a server, through PyMySQL, whose errors become Penstock's own kinds."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Iterator
from typing import Any

import pymysql
from pymysql.connections import Connection

from penstock.errors import PenstockError, Unavailable
from penstock.sources.mysql.protection import CarefulConnection, login_methods, tls_arguments
from penstock.sources.settings import ServerSettings
from penstock.sources.source import SourceError

CONNECT_SECONDS_MAX = 10
QUERY_SECONDS_MAX = 60
_ACCESS_DENIED = frozenset({1044, 1045, 1698, 1142, 1227})
_ACCOUNT = {  # what only its owner can mend
    1820: "the password has expired: ALTER USER … IDENTIFIED BY … sets a new one, or the same again",
    1862: "the password has expired: ALTER USER … IDENTIFIED BY … sets a new one, or the same again",
    3118: "ALTER USER … ACCOUNT UNLOCK",
    4151: "ALTER USER … ACCOUNT UNLOCK",
}
_LOST = frozenset(
    {
        *(1040, 1203, 1226),  # too many connections: of all, of one user
        *(1037, 1038, 1041, 1135),  # out of memory or threads
        *(1053, 1077, 1079, 1129, 1152, 1158, 1159, 1160, 1161, 1184, 1927, 4031),  # the connection or the server ends
        *(1205, 1317, 3024),  # a lock or the query took too long, or somebody ended the query
        1047,  # a node of a cluster that is not ready yet
        *(2002, 2003, 2006, 2013),  # PyMySQL's own
    }
)


def connect(settings: ServerSettings) -> Connection[Any]:
    """A connection for queries, in UTF-8 and autocommit. Raises `SourceError`; `Unavailable` if nothing answers."""
    address: dict[str, Any] = {"host": settings.host, "port": settings.port}
    if settings.unix_socket is not None:
        address = {"unix_socket": str(settings.unix_socket)}
    with translate_errors(f"cannot connect to {where(settings)}"):
        connection = CarefulConnection(
            **address,
            **tls_arguments(settings),
            auth_plugin_map=login_methods(verified=settings.is_verified, by_socket=settings.unix_socket is not None),
            local_infile=False,
            defer_connect=True,
            user=settings.user,
            password=settings.secret().reveal().encode(),  # of a text PyMySQL would make latin-1, where it can
            charset="utf8mb4",
            autocommit=True,
            connect_timeout=CONNECT_SECONDS_MAX,
            read_timeout=QUERY_SECONDS_MAX,
            write_timeout=QUERY_SECONDS_MAX,
            program_name="penstock",
        )
        connection.tls_wanted = settings.tls_mode not in ("preferred", "disabled")
        connection.tls_verified = settings.is_verified
        connection.by_socket = settings.unix_socket is not None
        connection.connect()
        return connection


@contextlib.contextmanager
def waiting_up_to(connection: Connection[Any], seconds: float) -> Iterator[None]:
    """Inside it, the server may be silent for so long."""
    private: Any = connection
    before, private._read_timeout = private._read_timeout, seconds
    try:
        yield
    finally:
        private._read_timeout = before


def where(settings: ServerSettings) -> str:
    return str(settings.unix_socket) if settings.unix_socket else f"{settings.host}:{settings.port}"


@contextlib.contextmanager
def translate_errors(
    what: str, denied: str = "check source.user, source.password and the grants of that user"
) -> Iterator[None]:
    """Inside it, errors of PyMySQL and of the socket become `SourceError` or `Unavailable`: `what: the error`. `denied` is
    the hint where the user may not do it."""
    try:
        yield
    except pymysql.err.MySQLError as error:
        if isinstance(original := getattr(error, "original_exception", None), ssl.SSLError):
            raise _tls_failed(what, original) from error
        code = error.args[0] if error.args and isinstance(error.args[0], int) else 0
        text = str(error.args[1]) if len(error.args) > 1 else str(error)
        if code in _ACCESS_DENIED:
            raise SourceError(f"{what}: {text}", hint=denied) from error
        if code in _ACCOUNT:
            raise SourceError(f"{what}: {text}", hint=_ACCOUNT[code]) from error
        if code in _LOST or code == 0:
            raise Unavailable(f"{what}: {text}") from error
        raise SourceError(f"{what}: {text} (error {code})") from error
    except ssl.SSLError as error:
        raise _tls_failed(what, error) from error
    except (OSError, EOFError) as error:
        raise Unavailable(f"{what}: {error}") from error
    except RuntimeError as error:  # PyMySQL's own, where a package is missing or the server asks for a local file
        needs_package = "nacl" in str(error).lower()
        hint = "this user logs in with ed25519: pip install 'pymysql[ed25519]'" if needs_package else ""
        raise SourceError(f"{what}: {error}", hint=hint) from error


def _tls_failed(what: str, error: ssl.SSLError) -> PenstockError:
    """A broken connection heals by itself; a certificate that is wrong does not."""
    if isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError | ssl.SSLSyscallError):
        return Unavailable(f"{what}: {error}")
    if isinstance(error, ssl.SSLCertVerificationError):
        return SourceError(
            f"{what}: the server's identity cannot be verified: {error.verify_message}",
            hint="source.tls.ca names the certificate that signed the server's; source.tls.mode says what is verified",
        )
    return SourceError(f"{what}: TLS failed: {error.reason or error}", hint="check source.tls and the server's TLS")


def rows(connection: Connection[Any], sql: str, arguments: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The rows of a query."""
    with translate_errors(sql.split(None, 1)[0]), connection.cursor() as cursor:
        cursor.execute(sql, arguments or None)
        return [tuple(row) for row in cursor.fetchall()]
