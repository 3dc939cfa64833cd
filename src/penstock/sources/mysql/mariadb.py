"""MariaDB's ways: GTIDs of domains, `BINLOG_GTID_POS`, a start by GTID through session variables."""

from __future__ import annotations

import struct
from typing import Any

from pymysql.connections import Connection

from penstock.sources.gtid import GtidSet, MariadbGtidSet, contains, parse_gtid_set
from penstock.sources.mysql.checks import Check, check_server
from penstock.sources.mysql.connection import rows
from penstock.sources.mysql.dump import COM_BINLOG_DUMP, HEARTBEAT_SECONDS, dump_by_file, no_binlog
from penstock.sources.position import SourcePosition
from penstock.sources.source import SourceError

# REPLICATION CLIENT is BINLOG MONITOR's old name, which every version takes in a GRANT.
_CAN_SEE_END = ("REPLICATION CLIENT", "BINLOG MONITOR", "SUPER", "ALL PRIVILEGES", "ALL")


class MariaDb:
    can_see_end = _CAN_SEE_END

    def identity(self, connection: Connection[Any]) -> str:
        return f"mariadb:{rows(connection, 'SELECT @@server_id')[0][0]}"

    def now(self, connection: Connection[Any], identity: str, known: SourcePosition | None = None) -> SourcePosition:
        found = rows(connection, "SHOW MASTER STATUS")
        if not found:
            raise no_binlog()
        file, pos = str(found[0][0]), int(found[0][1])
        if known is not None and (known.source, known.file, known.pos) == (identity, file, pos):
            return SourcePosition(file, pos, gtid=known.gtid, source=identity)
        return SourcePosition(file, pos, gtid=self.gtids_at(connection, file, pos) or "", source=identity)

    def start(self, connection: Connection[Any], now: SourcePosition) -> SourcePosition:
        del connection
        return now

    def check_history(
        self, connection: Connection[Any], position: SourcePosition, known: SourcePosition | None = None
    ) -> None:
        if position.by_gtid:
            self._check_gtids(connection, position)
        elif known is None or not _is_same_place(known, position):
            self._check_file(connection, position)

    def _check_gtids(self, connection: Connection[Any], position: SourcePosition) -> None:
        """A server that does not know a domain would send it from its beginning, without a word."""
        there = parse_gtid_set(str(rows(connection, "SELECT @@GLOBAL.gtid_binlog_pos")[0][0] or ""))
        if not contains(there, position.gtid_set):
            raise SourceError(
                f"the server does not know GTID {position.gtid}, up to which the log was filled; its own is "
                f"{there or 'none'}. Nothing was skipped.",
                hint="is it another server, or did it fall behind? Start again with a new state_dir, or wait for it",
            )

    def _check_file(self, connection: Connection[Any], position: SourcePosition) -> None:
        if not position.gtid or position.file not in _files(connection):
            return  # that a file was purged the server says itself
        there = self.gtids_at(connection, position.file, position.pos)
        if there is None or not _agrees(position.gtid_set, parse_gtid_set(there)):
            raise SourceError(
                f"the server's {position.file}:{position.pos} is after GTID {there or 'none'}, and the log was filled up to "
                f"GTID {position.gtid}. Nothing was skipped.",
                hint="was RESET MASTER run, or is this another server? Start again with a new state_dir",
            )

    def statements(self, position: SourcePosition) -> list[str]:
        found = [
            f"SET @master_heartbeat_period = {HEARTBEAT_SECONDS * 10**9}",
            "SET @master_binlog_checksum = @@global.binlog_checksum",
            "SET @mariadb_slave_capability = 4",
        ]
        if position.by_gtid:
            found += [f"SET @slave_connect_state = '{position.gtid}'", "SET @slave_gtid_strict_mode = 0"]
        return found

    def dump(self, position: SourcePosition, server_id: int) -> tuple[int, bytes]:
        if not position.by_gtid:
            return dump_by_file(position, server_id)
        return COM_BINLOG_DUMP, struct.pack("<IHI", 4, 0, server_id)

    def checks(self, connection: Connection[Any]) -> list[Check]:
        return check_server(connection, self.can_see_end)

    def gtids_at(self, connection: Connection[Any], file: str, pos: int) -> str | None:
        """The server reads the file up to there to answer."""
        value = rows(connection, "SELECT BINLOG_GTID_POS(%s, %s)", (file, pos))[0][0]
        return None if value is None else str(value)


def _is_same_place(a: SourcePosition, b: SourcePosition) -> bool:
    return (a.source, a.file, a.pos, a.gtid) == (b.source, b.file, b.pos, b.gtid)


def _files(connection: Connection[Any]) -> set[str]:
    return {str(row[0]) for row in rows(connection, "SHOW BINARY LOGS")}


def _agrees(ours: GtidSet, there: GtidSet) -> bool:
    """Whether the server's last GTID is ours in each domain that we know. After a start by file we know only those that came
    since."""
    known = there.domains if isinstance(there, MariadbGtidSet) else {}
    return isinstance(ours, MariadbGtidSet) and all(known.get(domain) == at for domain, at in ours.domains.items())


MARIADB = MariaDb()
