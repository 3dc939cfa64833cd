"""A live MariaDB or MySQL server as a source: the replication protocol, by file and offset or by GTID.

A start is a position, and the tables as they are at that position. To get both without a lock, the CREATE statements
are read, then the position, then the CREATE statements again; if these differ, a DDL came between, and all is read
again.
"""

from __future__ import annotations

import contextlib
import select
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from pymysql.connections import Connection

from penstock.binlog.errors import too_large_event
from penstock.binlog.types import HEADER_BYTES
from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.errors import Unavailable
from penstock.schema.model import TableSchema
from penstock.sources.gtid import contains, parse_gtid_set
from penstock.sources.load import LoadPlan, TableReader
from penstock.sources.mysql.checks import naming_lost_grants, require
from penstock.sources.mysql.connection import connect, rows, translate_errors, where
from penstock.sources.mysql.definitions import read_definitions, tables_as_they_are, versions_of
from penstock.sources.mysql.family import Family, family_of, server_version
from penstock.sources.mysql.load.plan import examine_readable, plan_initial_loads
from penstock.sources.mysql.load.reader import ServerTableReader
from penstock.sources.mysql.packets import NOT_AN_EVENT, TOO_LARGE, unpack
from penstock.sources.mysql.replica import Replica, in_use
from penstock.sources.mysql.tables import wanted_tables
from penstock.sources.position import SourcePosition
from penstock.sources.settings import ServerSettings, StartAt
from penstock.sources.source import ANEW, IDLE, Beginning, Chunk, SourceError

READ_BYTES = 4 << 20
GATHER_BYTES = 1 << 20  # with so many, nothing more is waited for
SILENCE_SECONDS_MAX = 15.0  # without even a heartbeat: then the connection is dead, even if TCP has not noticed
_BRIEF_SECONDS = 0.005  # if nothing comes within this, the server has nothing more right now
_GATHER_SECONDS = 0.002
_TICK_SECONDS = 0.05
_BEGIN_TRIES_MAX = 10
_REFUSED = 1236  # by the sender of the binlog, for any reason
_EVICTED = 4052  # MariaDB's own number for it; MySQL says it in the text of 1236
OFFSET_MAX = 0xFFFFFFFF
_SERVER_ID_CLASH = "same server_uuid/server_id"


class ServerSource:
    """One server. Connects with the first call that needs it."""

    def __init__(self, settings: ServerSettings, state_dir: Path, clock: Clock = SYSTEM_CLOCK) -> None:
        self._settings = settings
        self._replica = Replica(settings, state_dir)
        self._clock = clock
        self._stream: Connection[Any] | None = None
        self._closed = False
        self._bell, self._ring = socket.socketpair()  # `wake` writes to one of them, the stream waits for the other too
        self._bell.setblocking(False)
        self._ring.setblocking(False)
        self._begun: SourcePosition | None = None  # the place that `begin` gave, until it is read from
        self.lower_case_table_names = 0

    def begin(self, version: int) -> Beginning:
        with contextlib.closing(connect(self._settings)) as connection:
            family = family_of(connection)
            checks = family.checks(connection)
            require(checks)
            identity = family.identity(connection)
            if isinstance(self._settings.start, StartAt) and all(check.passed for check in checks):
                # The tables may have had another shape there; with full metadata the table maps tell it.
                return Beginning(self._start(connection, family, identity))
            for _ in range(_BEGIN_TRIES_MAX):
                before = read_definitions(connection, self._settings.tables)
                position = self._start(connection, family, identity)
                if read_definitions(connection, self._settings.tables) == before:
                    mariadb = "mariadb" in server_version(connection).lower()
                    versions = versions_of(before, version, mariadb=mariadb)
                    self._begun = None if isinstance(self._settings.start, StartAt) else position
                    if self._settings.start != "snapshot":
                        return Beginning(position, versions)
                    return Beginning(
                        position, versions, plan_initial_loads(connection, versions, self._settings.snapshot)
                    )
            raise Unavailable("tables changed again and again while their definitions were read")

    def table_reader(self) -> TableReader:
        return ServerTableReader(self._settings)

    def plan_loads(
        self, wanted: Callable[[str, str], bool], known: Callable[[str, str], TableSchema | None], where: str = ""
    ) -> LoadPlan:
        with contextlib.closing(connect(self._settings)) as connection:
            family = family_of(connection)
            mariadb = "mariadb" in server_version(connection).lower()
            identity = family.identity(connection)
            names = [name for name in wanted_tables(connection, self._settings.tables) if wanted(*name)]
            new = [name for name in names if known(*name) is None]
            for _ in range(_BEGIN_TRIES_MAX):
                before = tables_as_they_are(connection, new)
                position = family.now(connection, identity)
                if tables_as_they_are(connection, new) == before:
                    break
            else:
                raise Unavailable("tables changed again and again while their definitions were read")
            versions = {(one.schema, one.table): one for one in versions_of(before, 0, mariadb=mariadb)}
            found = (versions.get(name) or known(*name) for name in names)
            readable = (one for one in found if one is not None)
            loads, refused = examine_readable(connection, readable, self._settings.snapshot, where)
            return LoadPlan(loads, refused, {name: versions[name] for name in loads if name in versions}, position)

    def end(self) -> SourcePosition:
        with contextlib.closing(connect(self._settings)) as connection:
            family = family_of(connection)
            with naming_lost_grants(connection, family.can_see_end):
                return family.now(connection, family.identity(connection), self._begun)

    def resume(self, position: SourcePosition) -> SourcePosition:
        """Another server is followed by GTID: it must know all that is in the log. The place that `begin` gave is taken as
        the server's the first time: it named that itself, with its GTIDs, as close before this as asking again would be."""
        begun, self._begun = self._begun, None
        with contextlib.closing(connect(self._settings)) as connection:
            family = family_of(connection)
            identity = family.identity(connection)
            with naming_lost_grants(connection, family.can_see_end):
                if position.source and position.source != identity:
                    position = self._on_another(position, identity)
                elif not position.by_gtid and _file_bytes(connection, position.file) > OFFSET_MAX:
                    position = self._without_offset(position)
                family.check_history(connection, position, begun)
            self.lower_case_table_names = int(rows(connection, "SELECT @@lower_case_table_names")[0][0])
            return position

    def check(self, position: SourcePosition) -> None:
        """Raises `SourceError` where the server does not have what follows `position` any more; for who only looks."""
        position = self.resume(position)
        with contextlib.closing(connect(self._settings)) as connection:
            names = [str(row[0]) for row in rows(connection, "SHOW BINARY LOGS")]
            begun = family_of(connection).gtids_at(connection, names[0], 4) if position.by_gtid and names else None
        if position.by_gtid:
            if begun is not None and not contains(position.gtid_set, parse_gtid_set(begun)):
                raise self._purged(position, f"its oldest binlog begins after GTID {begun}")
        elif position.file not in names:
            raise self._purged(position, "")

    def _on_another(self, position: SourcePosition, identity: str) -> SourcePosition:
        known, found = position.source.partition(":")[0], identity.partition(":")[0]
        if not position.gtid or known != found:
            raise SourceError(
                f"the log was filled from {position.source}, and {where(self._settings)} is {identity}",
                hint="file offsets of one server mean nothing on another, and no GTID is known: use a new state_dir",
            )
        return position.on_another(identity)

    @staticmethod
    def _without_offset(position: SourcePosition) -> SourcePosition:
        """A server can be asked for an offset of 32 bits, and events say theirs in as many."""
        if position.gtid:
            return position.on_another(position.source)
        if position.pos <= OFFSET_MAX:
            return position
        raise SourceError(
            f"{position} is above 4 GiB, where no server can be asked to go on; and it has no GTIDs",
            hint=ANEW,
        )

    def wake(self) -> None:
        with contextlib.suppress(OSError):  # it rings already, or is closed
            self._ring.send(b"!")

    def close(self) -> None:
        self._closed = True
        self._hang_up()
        self._ring.close()
        self._bell.close()

    def open(self, position: SourcePosition) -> Iterator[Chunk]:
        self._hang_up()
        self._stream = connection = connect(self._settings)
        try:
            self._ask_for_events(connection, position)
            # The server says where it starts only with its first event: an empty chunk first, so that the caller waits
            # for nothing when the server is silent.
            yield Chunk(np.empty(0, np.uint8), idle=True)
            yield from self._chunks(connection, position)
        finally:
            self._hang_up()

    # -- where to start --------------------------------------------------------------------------------------------

    def _start(self, connection: Connection[Any], family: Family, identity: str) -> SourcePosition:
        start = self._settings.start
        now = family.now(connection, identity)
        if not isinstance(start, StartAt):
            return family.start(connection, now)
        if start.gtid is not None:
            return SourcePosition("", 0, gtid=start.gtid, source=identity, by_gtid=True)
        assert start.file is not None
        pos = start.pos or 4
        gtid = family.gtids_at(connection, start.file, pos)
        if gtid is None:
            raise SourceError(
                f"no transaction begins at {start.file}:{pos} on {where(self._settings)}",
                hint="source.start wants a place that SHOW BINLOG EVENTS lists, in a file that SHOW BINARY LOGS lists",
            )
        return SourcePosition(start.file, pos, gtid=gtid, source=identity)

    # -- the stream ------------------------------------------------------------------------------------------------

    def _ask_for_events(self, connection: Connection[Any], position: SourcePosition) -> None:
        family = family_of(connection)
        # Another server may have taken the address since `resume` looked: the position says nothing on it.
        if position.source and (identity := family.identity(connection)) != position.source:
            raise Unavailable(f"{where(self._settings)} is {identity}, and not {position.source} any more")
        for statement in family.statements(position):
            rows(connection, statement)
        with naming_lost_grants(connection, family.can_see_end):
            self._replica.register(connection)
        command, body = family.dump(position, self._replica.server_id)
        private: Any = connection  # PyMySQL has no public way to send a command of the replication protocol
        with translate_errors("cannot ask for events"):
            private._execute_command(command, body)

    def _chunks(self, connection: Connection[Any], position: SourcePosition) -> Iterator[Chunk]:
        private: Any = connection
        sock = private._sock
        sock.settimeout(SILENCE_SECONDS_MAX)
        packets = np.empty(READ_BYTES, np.uint8)
        events = np.empty(READ_BYTES, np.uint8)
        have = 0
        heard = self._clock.monotonic()
        first = True
        idle = False
        while not self._closed:
            if not self._readable(sock, _TICK_SECONDS if idle else _BRIEF_SECONDS):
                if self._clock.monotonic() - heard > SILENCE_SECONDS_MAX:
                    raise Unavailable(f"{where(self._settings)} is silent: not even a heartbeat")
                idle = True
                yield IDLE
                continue
            idle = False
            with translate_errors("the stream broke"):
                got = self._receive(sock, packets[have:])
            if not got:
                raise Unavailable(f"{where(self._settings)} closed the connection")
            heard = self._clock.monotonic()
            have += got
            consumed, made, stopped = unpack(packets, have, events)
            if made:
                # The first event stands at the position that was asked for; from then on the events say where they are.
                file, start = (position.file, position.pos) if first and not position.by_gtid else ("", 0)
                first = False
                yield Chunk(events[:made], file, start, gaps=True)
            if stopped == NOT_AN_EVENT:
                self._end_of_stream(packets[consumed:have].tobytes(), position)
            if stopped == TOO_LARGE:
                header = packets[consumed + 5 : consumed + 5 + HEADER_BYTES].tobytes()
                claimed_start = int.from_bytes(header[13:17], "little") - int.from_bytes(header[9:13], "little")
                raise too_large_event(header, where(self._settings), claimed_start & 0xFFFFFFFF)
            rest = have - consumed
            if not consumed and have == len(packets):  # an event larger than the buffer: both grow with what has come
                packets, smaller = np.empty(2 * len(packets), np.uint8), packets
                packets[:have] = smaller
                events = np.empty(len(packets), np.uint8)
            elif consumed and len(packets) > READ_BYTES and rest <= READ_BYTES // 2:  # the large event is over
                packets, larger = np.empty(READ_BYTES, np.uint8), packets
                packets[:rest] = larger[consumed:have]
                events = np.empty(READ_BYTES, np.uint8)
            elif consumed:
                packets[:rest] = packets[consumed:have]
            have = rest

    def _receive(self, sock: Any, space: npt.NDArray[np.uint8]) -> int:
        """How many bytes came; 0 at the end of the stream. What follows at once comes with them: what is done with a chunk
        costs as much for a few bytes, and under TLS a server sends 16 KiB at a time."""
        memory = space.data
        have: int = sock.recv_into(memory)
        until = self._clock.monotonic() + _GATHER_SECONDS
        while 0 < have < min(GATHER_BYTES, len(memory)):
            left = until - self._clock.monotonic()
            if left <= 0 or not self._readable(sock, left):
                break
            try:
                got = sock.recv_into(memory[have:])
            except OSError:  # what came before counts, and the next call raises it again, or finds the end
                break
            if not got:
                break
            have += got
        return have

    def _readable(self, sock: Any, seconds: float) -> bool:
        """Whether something has come from the server; False after a while, or once somebody rings."""
        pending = getattr(sock, "pending", None)
        if pending is not None and pending():
            return True
        readable = select.select([sock, self._bell], [], [], seconds)[0]
        if self._bell in readable:
            with contextlib.suppress(OSError):
                self._bell.recv(1 << 10)
        return sock in readable

    def _end_of_stream(self, packet: bytes, position: SourcePosition) -> None:
        """Raises for a packet that is not an event: an error, or the end of the stream."""
        payload = packet[4:]
        if payload[:1] != b"\xff":
            raise Unavailable(f"{where(self._settings)} ended the stream")
        code = int.from_bytes(payload[1:3], "little")
        text = payload[9 if payload[3:4] == b"#" else 3 :].decode("utf-8", "replace")
        if code == _EVICTED or _SERVER_ID_CLASH in text:
            raise in_use(self._replica.server_id)
        if code != _REFUSED:
            raise Unavailable(f"{where(self._settings)}: {text} (error {code})")
        raise self._purged(position, text)

    def _purged(self, position: SourcePosition, text: str) -> SourceError:
        if position.by_gtid:
            return SourceError(
                f"the server cannot send what follows GTID {position.gtid}: {text}. Nothing was skipped.",
                hint=f"has it purged its binlog, or has its history diverged? {ANEW}",
            )
        oldest = "unknown"
        with contextlib.suppress(Exception), contextlib.closing(connect(self._settings)) as connection:
            oldest = str(rows(connection, "SHOW BINARY LOGS")[0][0])
            if any(str(row[0]) == position.file for row in rows(connection, "SHOW BINARY LOGS")):
                return SourceError(f"the server cannot send from {position}: {text}", hint="use a new state_dir")
        return SourceError(
            f"{position.file} is gone (oldest on the server: {oldest}). Nothing was skipped.",
            hint=ANEW,
        )

    def _hang_up(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            with contextlib.suppress(Exception):
                private: Any = stream
                private._force_close()


def _file_bytes(connection: Connection[Any], file: str) -> int:
    """How long a binlog of the server is; 0 where it is gone."""
    return next((int(row[1]) for row in rows(connection, "SHOW BINARY LOGS") if str(row[0]) == file), 0)
