"""How a replica asks for events, as both families understand it."""

from __future__ import annotations

import struct

from penstock.sources.position import SourcePosition
from penstock.sources.source import SourceError

# Whole seconds: MySQL 8.0 takes less for none, and then sends one for each event that it skips to find a GTID.
HEARTBEAT_SECONDS = 1
COM_BINLOG_DUMP = 0x12
COM_REGISTER_SLAVE = 0x15
COM_BINLOG_DUMP_GTID = 0x1E


def dump_by_file(position: SourcePosition, server_id: int) -> tuple[int, bytes]:
    return COM_BINLOG_DUMP, struct.pack("<IHI", position.pos, 0, server_id) + position.file.encode()


def no_binlog() -> SourceError:
    return SourceError("the server writes no binlog", hint="[mysqld] log_bin = mysql-bin, then restart it")
