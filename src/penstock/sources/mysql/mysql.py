"""MySQL's ways: sets of GTIDs, `COM_BINLOG_DUMP_GTID`, an identity that is a UUID."""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import Any
from uuid import UUID

from pymysql.connections import Connection

from penstock.errors import PenstockError
from penstock.sources.gtid import GtidSet, MysqlGtidSet, parse_gtid_set
from penstock.sources.mysql.checks import Check, check_server
from penstock.sources.mysql.connection import rows
from penstock.sources.mysql.dump import COM_BINLOG_DUMP_GTID, HEARTBEAT_SECONDS, dump_by_file, no_binlog
from penstock.sources.position import SourcePosition
from penstock.sources.source import ANEW, SourceError

_CAN_SEE_END = ("REPLICATION CLIENT", "SUPER", "ALL PRIVILEGES", "ALL")
_THROUGH_GTID = 4
_TAGGED = 1  # the form of a set in which sources have tags
_PAGE_EVENTS = 20_000  # of a binlog, that the server describes at once


class MySql:
    can_see_end = _CAN_SEE_END

    def identity(self, connection: Connection[Any]) -> str:
        return f"mysql:{rows(connection, 'SELECT @@server_uuid')[0][0]}"

    def now(self, connection: Connection[Any], identity: str, known: SourcePosition | None = None) -> SourcePosition:
        del known  # the server says its GTIDs with the place
        try:
            found = rows(connection, "SHOW MASTER STATUS")
        except PenstockError:  # MySQL 8.4 has only the new words, 8.0 only the old ones
            found = rows(connection, "SHOW BINARY LOG STATUS")
        if not found:
            raise no_binlog()
        gtid = str(found[0][4] or "").replace("\n", "") if len(found[0]) > 4 else ""
        return SourcePosition(str(found[0][0]), int(found[0][1]), gtid=gtid, source=identity)

    def start(self, connection: Connection[Any], now: SourcePosition) -> SourcePosition:
        """By GTID. The server reads its set and its offset one after the other, so commits may lie between the two; another
        server would send them again one day, after newer rows."""
        if now.gtid and gtid_mode(connection) == "ON":
            return replace(now, file="", pos=0, by_gtid=True)
        return now

    def gtids_at(self, connection: Connection[Any], file: str, pos: int) -> str | None:
        """By reading the binlog up to there, once in the life of a log."""
        head = rows(connection, "SHOW BINLOG EVENTS IN %s LIMIT 2", (file,))
        found = _mysql_set(next((str(row[5]) for row in head if row[2] == "Previous_gtids"), ""))
        at = 4
        while at < pos:
            page = rows(connection, f"SHOW BINLOG EVENTS IN %s FROM {at} LIMIT {_PAGE_EVENTS}", (file,))
            if not page:
                return None
            for _, start, kind, _, end, info in page:
                if int(start) >= pos:
                    break
                if kind == "Gtid":  # SET @@SESSION.GTID_NEXT= 'uuid:number'
                    found = found.union(_mysql_set(str(info).split("'")[1]))
                at = int(end)
        return str(found) if at == pos else None

    def check_history(
        self, connection: Connection[Any], position: SourcePosition, known: SourcePosition | None = None
    ) -> None:
        del known  # sets are compared, and no file is read
        if not position.gtid:
            return
        known, complete = rows(
            connection,
            "SELECT GTID_SUBSET(%s, @@GLOBAL.gtid_executed), GTID_SUBSET(@@GLOBAL.gtid_purged, %s)",
            (position.gtid, position.gtid),
        )[0]
        if not known:
            raise SourceError(
                f"the server does not know GTIDs of {position.gtid}, up to which the log was filled. Nothing was skipped.",
                hint="was RESET MASTER run, or is this another server? Start again with a new state_dir",
            )
        if not complete and position.by_gtid:
            raise SourceError(
                f"transactions after GTID {position.gtid} are gone: the server has purged their binlog. Nothing was skipped.",
                hint=ANEW,
            )

    def statements(self, position: SourcePosition) -> list[str]:
        del position
        period = HEARTBEAT_SECONDS * 10**9
        # The words before 8.0.26, and those since.
        return [
            f"SET @master_heartbeat_period = {period}, @source_heartbeat_period = {period}",
            "SET @master_binlog_checksum = @@global.binlog_checksum, @source_binlog_checksum = @@global.binlog_checksum",
        ]

    def dump(self, position: SourcePosition, server_id: int) -> tuple[int, bytes]:
        if not position.by_gtid:
            return dump_by_file(position, server_id)
        known = encoded_gtids(position.gtid_set)
        head = struct.pack("<HIIQI", _THROUGH_GTID, server_id, 0, 4, len(known))
        return COM_BINLOG_DUMP_GTID, head + known

    def checks(self, connection: Connection[Any]) -> list[Check]:
        return check_server(connection, self.can_see_end)


def gtid_mode(connection: Connection[Any]) -> str:
    """OFF for a server that is too old to know it."""
    found = rows(connection, "SHOW GLOBAL VARIABLES LIKE 'gtid_mode'")
    return str(found[0][1]).upper() if found else "OFF"


def _mysql_set(text: str) -> MysqlGtidSet:
    found = parse_gtid_set(text.replace("\n", ""))
    return found if isinstance(found, MysqlGtidSet) else MysqlGtidSet()


def encoded_gtids(gtids: GtidSet) -> bytes:
    """The set as the server takes it, with ends that are not included.

    With tags, which servers know since 8.3, the number of sources stands between two marks, and each source has its tag,
    after twice the tag's length.
    """
    if not isinstance(gtids, MysqlGtidSet):
        raise SourceError(f"{gtids} are GTIDs of MariaDB, and the server is MySQL")
    tagged = any(source.tag for source in gtids.intervals)
    count = len(gtids.intervals)
    made = struct.pack("<Q", _TAGGED << 56 | count << 8 | _TAGGED if tagged else count)
    for source, intervals in sorted(gtids.intervals.items()):
        made += UUID(source.uuid).bytes
        if tagged:
            made += bytes([2 * len(source.tag)]) + source.tag.encode()
        made += struct.pack("<Q", len(intervals))
        made += b"".join(struct.pack("<QQ", first, last + 1) for first, last in intervals)
    return made


MYSQL = MySql()
