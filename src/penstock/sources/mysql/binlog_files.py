"""Which binlog files a server has, and how long it keeps them: what is left of the time until it purges one."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

from penstock.sources.mysql.connection import connect, rows
from penstock.sources.mysql.family import server_version
from penstock.sources.settings import ServerSettings

_TIMES = ("binlog_expire_logs_seconds", "expire_logs_days", "binlog_expire_logs_auto_purge")
_SIZES = ("max_binlog_total_size", "binlog_space_limit")  # of MariaDB 11.4, and of Percona


@dataclass(frozen=True, slots=True)
class BinlogFiles:
    """`names` from the oldest to the newest. `expire_seconds`: after this time without a write the server purges a file; None: it
    purges none by itself. `server_ms`: its clock when it was asked. `by_size`: it also purges files when all of them together have
    become too large."""

    names: tuple[str, ...]
    expire_seconds: float | None
    server_ms: int
    server: str = ""  # family and version
    by_size: bool = False


def ask_binlog_files(settings: ServerSettings) -> BinlogFiles:
    """Raises `SourceError` or `Unavailable` where the server does not say."""
    with contextlib.closing(connect(settings)) as connection:
        names = ", ".join(f"'{name}'" for name in (*_TIMES, *_SIZES))
        found = rows(connection, f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ({names})")
        now = float(rows(connection, "SELECT UNIX_TIMESTAMP(NOW(3))")[0][0])
        version = server_version(connection)
        files = tuple(str(row[0]) for row in rows(connection, "SHOW BINARY LOGS"))
    variables = {str(name).lower(): str(value) for name, value in found}
    name = "MariaDB" if "mariadb" in version.lower() else "MySQL"
    server = f"{name} {version.partition('-')[0]}"
    return BinlogFiles(files, expire_seconds(variables), round(now * 1000), server, purges_by_size(variables))


def expire_seconds(variables: dict[str, str]) -> float | None:
    """By the server's variables. MariaDB has its days in fractions; a server that has both means the seconds."""
    if variables.get("binlog_expire_logs_auto_purge", "ON").upper() in ("OFF", "0"):
        return None
    seconds = float(variables.get("binlog_expire_logs_seconds") or 0)
    seconds = seconds or float(variables.get("expire_logs_days") or 0) * 86_400
    return seconds or None


def purges_by_size(variables: dict[str, str]) -> bool:
    return any(float(variables.get(name) or 0) > 0 for name in _SIZES)
