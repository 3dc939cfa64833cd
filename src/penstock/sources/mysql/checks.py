"""The settings and grants that a server needs before capture can read it, each with the SQL that gives it."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pymysql.connections import Connection

from penstock.errors import PenstockError
from penstock.sources.mysql.connection import rows
from penstock.sources.mysql.hosting import hosted_form
from penstock.sources.source import SourceError

_CAN_READ = ("REPLICATION SLAVE", "ALL PRIVILEGES", "ALL")
_EVERYWHERE = re.compile(r"GRANT (.+?) ON \*\.\* TO ", re.IGNORECASE)
_SERVER_ID_SQL = "SET GLOBAL server_id = 1;"
_FILTERS_SQL = "(take binlog_do_db and binlog_ignore_db out of my.cnf, then restart the server)"
_UPDATES_SQL = "(set [mysqld] log_slave_updates = ON in my.cnf, then restart the server)"
_NAMED_MAX = 5  # tables in one message
_LOG_BIN_SQL = "(set [mysqld] log_bin = mysql-bin in my.cnf, then restart the server)"


@dataclass(frozen=True, slots=True)
class Check:
    """One setting or grant. Capture refuses to start without a `required` one."""

    name: str
    passed: bool
    message: str
    sql: str = ""
    required: bool = True


@dataclass(frozen=True, slots=True)
class Wanted:
    """A variable of the server and what it must be. A server that does not know the variable passes with `OFF` or an empty
    value."""

    name: str
    value: str
    sql: str
    required: bool = True
    otherwise: str = ""  # what happens without it, where it is not required


_MORE_VARIABLES = ("server_id", "log_slave_updates", "log_replica_updates")
_ROW_BINLOG = (  # what both families need
    Wanted("log_bin", "ON", _LOG_BIN_SQL),
    Wanted("binlog_format", "ROW", "SET GLOBAL binlog_format = 'ROW';"),
    Wanted(
        "binlog_row_image",
        "FULL",
        "SET GLOBAL binlog_row_image = 'FULL';",
        required=False,
        otherwise="changes then lack the columns that the server leaves out",
    ),
    Wanted(
        "binlog_row_metadata",
        "FULL",
        "SET GLOBAL binlog_row_metadata = 'FULL';",
        required=False,
        otherwise="the shape of a table is then known from its CREATE TABLE alone",
    ),
)


def check_cascades(connection: Connection[Any], tables: Sequence[tuple[str, str]]) -> list[Check]:
    """A warning that names the tables whose rows the server deletes or changes by itself; nothing where there are none."""
    found = rows(
        connection,
        "SELECT DISTINCT constraint_schema, table_name FROM information_schema.referential_constraints "
        "WHERE delete_rule NOT IN ('RESTRICT', 'NO ACTION') OR update_rule NOT IN ('RESTRICT', 'NO ACTION') ORDER BY 1, 2",
    )
    wanted = set(tables)
    names = [f"{schema}.{table}" for schema, table in found if (schema, table) in wanted]
    if not names:
        return []
    listed = ", ".join(names[:_NAMED_MAX]) + (
        f" and {len(names) - _NAMED_MAX:,} more" if len(names) > _NAMED_MAX else ""
    )
    return [
        Check(
            "foreign keys",
            False,
            f"the server changes rows of {listed} by foreign keys (CASCADE, SET NULL, SET DEFAULT), and logs none of it: "
            "a sink keeps the rows as they were",
            "(delete or change such rows by statements of your own: docs/source.md)",
            required=False,
        )
    ]


def check_server(connection: Connection[Any], can_see_end: Sequence[str]) -> list[Check]:
    """Every check, passed or not. `can_see_end`: the grants each of which allows to ask where the binlog ends; the first is
    the one to give."""
    names = ", ".join(f"'{name}'" for name in (*(one.name for one in _ROW_BINLOG), *_MORE_VARIABLES))
    # Unlike SELECT @@name, this is no error for a variable that an old server does not have.
    found = rows(connection, f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ({names})")
    variables = {str(name): str(value) for name, value in found}
    hosted = hosted_form(connection)
    return [
        *(_variable(variables.get(one.name), one, hosted) for one in _ROW_BINLOG),
        *_check_server_id(variables),
        *check_grants(connection, can_see_end),
        *_left_out(connection, variables),
    ]


def check_grants(connection: Connection[Any], can_see_end: Sequence[str]) -> list[Check]:
    """Of the user and of its roles, on all databases: replication is no right on one of them."""
    grants = {
        privilege.strip().upper()
        for row in rows(connection, "SHOW GRANTS")
        if (match := _EVERYWHERE.match(str(row[0])))
        for privilege in match[1].split(",")
    }
    user = quoted_user(connection)
    return [
        _grant(grants, "REPLICATION SLAVE", _CAN_READ, user),
        _grant(grants, can_see_end[0], can_see_end, user),
    ]


def quoted_user(connection: Connection[Any]) -> str:
    """The account that the server took us for, as a GRANT names it."""
    user = str(rows(connection, "SELECT CURRENT_USER()")[0][0])
    return "@".join("'{}'".format(part.replace("'", "''")) for part in user.rsplit("@", 1))


@contextlib.contextmanager
def naming_lost_grants(connection: Connection[Any], can_see_end: Sequence[str]) -> Iterator[None]:
    """Inside it, what the server refuses is told by the grant that the user lacks, where that is why."""
    try:
        yield
    except SourceError as error:
        missing: list[Check] = []
        with contextlib.suppress(PenstockError):  # the connection is gone, too: the first error says enough
            missing = [check for check in check_grants(connection, can_see_end) if not check.passed]
        if missing:
            raise _not_ready(missing) from error
        raise


def require(checks: list[Check]) -> None:
    """Raises `SourceError` with everything that is missing, and the SQL that gives it."""
    missing = [check for check in checks if check.required and not check.passed]
    if missing:
        raise _not_ready(missing)


def _not_ready(missing: list[Check]) -> SourceError:
    return SourceError(
        "the server is not ready for capture: " + "; ".join(check.message for check in missing),
        hint="run: " + " ".join(check.sql for check in missing),
    )


def _variable(value: str | None, wanted: Wanted, hosted: str) -> Check:
    if value is None and wanted.value in ("OFF", ""):
        return Check(wanted.name, True, f"{wanted.name} is not known to this server", required=wanted.required)
    passed = value is not None and value.upper() == wanted.value
    if passed:
        return Check(wanted.name, True, f"{wanted.name} is {value or 'empty'}", required=wanted.required)
    want = "must be" if wanted.required else "should be"
    because = f": {wanted.otherwise}" if wanted.otherwise else ""
    message = f"{wanted.name} is {value or 'not set'}, {want} {wanted.value or 'empty'}{because}"
    sql = hosted.format(name=wanted.name, value=wanted.value or "''") if hosted else wanted.sql
    return Check(wanted.name, False, message, sql, wanted.required)


def _check_server_id(variables: dict[str, str]) -> list[Check]:
    """Only where it is wrong: a server whose id is 0 refuses every replica."""
    if variables.get("server_id", "1") != "0":
        return []
    return [Check("server_id", False, "server_id is 0, must be another number", _SERVER_ID_SQL)]


def _left_out(connection: Connection[Any], variables: dict[str, str]) -> list[Check]:
    """What the server does not write into its binlog: nobody could tell that it is missing. Silent where the user may not
    ask."""
    found: list[Check] = []
    status = _first(connection, "SHOW MASTER STATUS", "SHOW BINARY LOG STATUS")
    filters = [str(value) for value in (status or ())[2:4] if value]
    if filters:
        message = f"the server leaves databases out of its binlog ({', '.join(filters)}): their changes never come"
        found.append(Check("binlog_do_db", False, message, _FILTERS_SQL, required=False))
    updates = variables.get("log_slave_updates", variables.get("log_replica_updates", "ON"))
    if updates.upper() == "OFF" and _first(connection, "SHOW SLAVE STATUS", "SHOW REPLICA STATUS"):
        message = "this server is a replica and does not log what it gets from its source: these changes never come"
        found.append(Check("log_slave_updates", False, message, _UPDATES_SQL, required=False))
    return found


def _first(connection: Connection[Any], *statements: str) -> tuple[Any, ...] | None:
    """The first row of the first of these statements that the server knows and allows."""
    for sql in statements:
        with contextlib.suppress(SourceError):
            found = rows(connection, sql)
            return found[0] if found else None
    return None


def _grant(grants: set[str], name: str, enough: Sequence[str], user: str) -> Check:
    passed = any(grant in grants for grant in enough)
    if passed:
        return Check(name, True, f"the user has {name}")
    return Check(name, False, f"the user lacks {name}", f"GRANT {name} ON *.* TO {user};")
