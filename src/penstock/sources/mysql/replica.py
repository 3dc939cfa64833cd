"""Who we are to the server: a replica with a server id of its own.

A server has room for one replica of an id: a second one evicts the first, which comes back and evicts the second. So an id
that another replica uses is refused before anything is asked for; the one that we choose ourselves is another one then. An
own connection that died and that the server still lists is told by the name under which it registered.
"""

from __future__ import annotations

import hashlib
import os
import socket
import struct
from pathlib import Path
from typing import Any

from pymysql.connections import Connection

from penstock.errors import PenstockError
from penstock.sources.mysql.connection import rows, translate_errors
from penstock.sources.mysql.dump import COM_REGISTER_SLAVE
from penstock.sources.settings import ServerSettings
from penstock.sources.source import SourceError

_CHOICES_MAX = 8


class Replica:
    """Our id and name as a replica of one server: functions of the host and the state directory."""

    def __init__(self, settings: ServerSettings, state_dir: Path) -> None:
        identity = f"{socket.gethostname()} {os.fspath(state_dir.resolve())}".encode()
        self._digest = hashlib.sha256(identity).digest()
        self._given = settings.server_id
        self.name = f"penstock-{self._digest[:6].hex()}"
        self.server_id = self._given if self._given is not None else self._choice(0)

    def _choice(self, number: int) -> int:
        """From a range that people do not assign by hand."""
        return 0x40000000 | int.from_bytes(self._digest[4 * number : 4 * number + 4], "little") & 0x3FFFFFFF

    def register(self, connection: Connection[Any]) -> None:
        """Raises `SourceError` where another replica uses the id that was given."""
        taken = self._taken(connection)
        if self._given is None:
            free = (choice for number in range(_CHOICES_MAX) if (choice := self._choice(number)) not in taken)
            self.server_id = next(free, self.server_id)
        if self.server_id in taken:
            raise in_use(self.server_id, taken[self.server_id])
        name = self.name.encode()
        body = struct.pack("<IB", self.server_id, len(name)) + name + b"\0\0" + struct.pack("<HII", 0, 0, 0)
        private: Any = connection  # PyMySQL has no public way to send a command of the replication protocol
        with translate_errors("cannot register as a replica"):
            private._execute_command(COM_REGISTER_SLAVE, body)
            private._read_packet()

    def _taken(self, connection: Connection[Any]) -> dict[int, str]:
        """The ids of other replicas, with their names; the server's own."""
        taken = {int(rows(connection, "SELECT @@server_id")[0][0]): "the server itself"}
        try:
            listed = rows(connection, "SHOW SLAVE HOSTS")
        except PenstockError:
            try:
                listed = rows(connection, "SHOW REPLICAS")  # MySQL 8.4 has only the new words
            except PenstockError:
                listed = []  # a right that is not needed for anything else
        for row in listed:
            if str(row[1]) != self.name:
                taken[int(row[0])] = f"replica {row[1] or 'without a name'}"
        return taken


def in_use(server_id: int, by: str = "another replica") -> SourceError:
    return SourceError(
        f"server id {server_id} is in use by {by}; two replicas of one id evict each other for ever",
        hint="set source.server_id to another number, or leave it out: then one is chosen",
    )
