"""What MariaDB and MySQL do in different ways, and which of them a server is.

The configuration's `type` is only a word: the server's own version decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from pymysql.connections import Connection

from penstock.sources.mysql.checks import Check
from penstock.sources.mysql.connection import rows
from penstock.sources.position import SourcePosition


class Family(Protocol):
    """One of the two. Has no state."""

    @property
    def can_see_end(self) -> Sequence[str]:
        """The grants each of which allows to ask where the binlog ends; the first is the one to give."""
        ...

    def identity(self, connection: Connection[Any]) -> str:
        """Whose binlog it is: another server has another one, also behind the same name."""
        ...

    def now(self, connection: Connection[Any], identity: str, known: SourcePosition | None = None) -> SourcePosition:
        """The end of the binlog: everything committed before this call is before it. Raises `SourceError` without a binlog.
        `known`: a place that this server named a moment ago, whose GTIDs need not be asked again."""
        ...

    def start(self, connection: Connection[Any], now: SourcePosition) -> SourcePosition:
        """`now` as the start of a log: a place whose GTIDs are exactly those before it."""
        ...

    def gtids_at(self, connection: Connection[Any], file: str, pos: int) -> str | None:
        """The GTIDs of all that is before an offset; None where no event begins or ends there."""
        ...

    def check_history(
        self, connection: Connection[Any], position: SourcePosition, known: SourcePosition | None = None
    ) -> None:
        """Raises `SourceError` where the server's binlog is not the one in which the position was taken, or where what
        follows the position is not there any more. `known`: as for `now`."""
        ...

    def statements(self, position: SourcePosition) -> list[str]:
        """What is set before events are asked for."""
        ...

    def dump(self, position: SourcePosition, server_id: int) -> tuple[int, bytes]:
        """The command that asks for the events after the position, by file and offset, or by GTID where it has no file."""
        ...

    def checks(self, connection: Connection[Any]) -> list[Check]:
        """Every setting and grant, passed or not."""
        ...


def family_of(connection: Connection[Any]) -> Family:
    from penstock.sources.mysql.mariadb import MARIADB  # here: they import this package's other parts
    from penstock.sources.mysql.mysql import MYSQL

    return MARIADB if "mariadb" in server_version(connection).lower() else MYSQL


def server_version(connection: Connection[Any]) -> str:
    return str(rows(connection, "SELECT VERSION()")[0][0])
