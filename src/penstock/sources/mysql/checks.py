"""The settings and grants that a MariaDB server needs before capture can read it, each with the SQL that gives it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pymysql.connections import Connection

from penstock.errors import NotSupported
from penstock.sources.mysql.connection import rows
from penstock.sources.source import SourceError

_CAN_READ = ("REPLICATION SLAVE", "ALL PRIVILEGES")
_CAN_SEE_END = ("BINLOG MONITOR", "REPLICATION CLIENT", "SUPER", "ALL PRIVILEGES")


@dataclass(frozen=True, slots=True)
class Check:
    """One setting or grant. Capture refuses to start without a `required` one."""

    name: str
    passed: bool
    message: str
    sql: str = ""
    required: bool = True


def server_checks(connection: Connection[Any]) -> list[Check]:
    """Every check, passed or not. Raises `NotSupported` for a server that is not MariaDB."""
    version, user = rows(connection, "SELECT VERSION(), CURRENT_USER()")[0]
    if "mariadb" not in str(version).lower():
        raise NotSupported(f"the server is {version}, not MariaDB: MySQL is not in this version yet")
    # Unlike SELECT @@name, this is no error for a variable that an old server does not have.
    wanted = (
        "'log_bin', 'binlog_format', 'binlog_row_image', 'binlog_row_metadata', 'log_bin_compress', 'encrypt_binlog'"
    )
    variables = {
        str(k): str(v) for k, v in rows(connection, f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ({wanted})")
    }
    grants = " ".join(str(row[0]).upper() for row in rows(connection, "SHOW GRANTS"))
    quoted = "@".join(f"'{part}'" for part in str(user).rsplit("@", 1))
    return [
        _variable(variables, "log_bin", "ON", "(set [mysqld] log_bin = mysql-bin in my.cnf, then restart the server)"),
        _variable(variables, "binlog_format", "ROW", "SET GLOBAL binlog_format = 'ROW';"),
        _variable(variables, "binlog_row_image", "FULL", "SET GLOBAL binlog_row_image = 'FULL';"),
        _variable(variables, "binlog_row_metadata", "FULL", "SET GLOBAL binlog_row_metadata = 'FULL';", required=False),
        _variable(variables, "log_bin_compress", "OFF", "SET GLOBAL log_bin_compress = OFF;"),
        _grant(grants, "REPLICATION SLAVE", _CAN_READ, quoted),
        _grant(grants, "BINLOG MONITOR", _CAN_SEE_END, quoted),
    ]


def require(checks: list[Check]) -> None:
    """Raises `SourceError` with everything that is missing, and the SQL that gives it."""
    missing = [check for check in checks if check.required and not check.passed]
    if missing:
        raise SourceError(
            "the server is not ready for capture: " + "; ".join(check.message for check in missing),
            hint="run: " + " ".join(check.sql for check in missing),
        )


def _variable(variables: dict[str, str], name: str, wanted: str, sql: str, *, required: bool = True) -> Check:
    value = variables.get(name)
    if value is None and wanted == "OFF":
        return Check(name, True, f"{name} is not known to this server", required=required)
    passed = value is not None and value.upper() == wanted
    return Check(name, passed, f"{name} is {value or 'not set'}, must be {wanted}", sql, required)


def _grant(grants: str, name: str, enough: tuple[str, ...], user: str) -> Check:
    passed = any(grant in grants for grant in enough)
    return Check(name, passed, f"the user lacks {name}", f"GRANT {name} ON *.* TO {user};")
