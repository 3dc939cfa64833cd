"""A live MariaDB server as a source: the replication protocol, by file and offset or by GTID.

A start is a position, and the tables as they are at that position. To get both without a lock, the CREATE statements
are read, then the position, then the CREATE statements again; if these differ, a DDL came between, and all is read
again.
"""

from __future__ import annotations

import contextlib
import select
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from pymysql.connections import Connection

from penstock.binlog.errors import too_large_event
from penstock.binlog.types import HEADER_BYTES
from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.errors import NotSupported, Unavailable
from penstock.schema.ddl import SYSTEM_SCHEMAS, apply_ddl
from penstock.schema.model import TableSchema
from penstock.schema.tokens import quoted_name
from penstock.sources.mysql.checks import require, server_checks
from penstock.sources.mysql.connection import connect, rows, translate_errors, unique_server_id, where
from penstock.sources.mysql.packets import NOT_AN_EVENT, TOO_LARGE, unpack
from penstock.sources.position import SourcePosition
from penstock.sources.settings import MariadbSettings, StartAt
from penstock.sources.source import IDLE, Beginning, Chunk, SourceError

READ_BYTES = 4 << 20
HEARTBEAT_SECONDS = 0.5
SILENCE_SECONDS_MAX = 15.0  # without even a heartbeat: then the connection is dead, even if TCP has not noticed
_BRIEF_SECONDS = 0.005  # if nothing comes within this, the server has nothing more right now
_TICK_SECONDS = 0.05
_BEGIN_TRIES_MAX = 10
_COM_BINLOG_DUMP = 0x12
_COM_REGISTER_SLAVE = 0x15
_PURGED = 1236
_SERVER_ID_CLASH = "same server_uuid/server_id"


class MariadbSource:
    """One server. Connects with the first call that needs it."""

    def __init__(self, settings: MariadbSettings, state_dir: Path, clock: Clock = SYSTEM_CLOCK) -> None:
        self._settings = settings
        self._server_id = unique_server_id(settings, state_dir)
        self._clock = clock
        self._stream: Connection[Any] | None = None
        self._closed = False

    def begin(self, version: int) -> Beginning:
        with contextlib.closing(connect(self._settings)) as connection:
            checks = server_checks(connection)
            require(checks)
            if isinstance(self._settings.start, StartAt) and all(check.passed for check in checks):
                # The tables may have had another shape there; with full metadata the table maps tell it.
                return Beginning(self._start(connection, self._name(connection)))
            name = self._name(connection)
            for _ in range(_BEGIN_TRIES_MAX):
                before = self._creates(connection)
                position = self._start(connection, name)
                if self._creates(connection) == before:
                    return Beginning(position, self._schemas(before, version))
            raise Unavailable("tables changed again and again while their definitions were read")

    def end(self) -> SourcePosition:
        with contextlib.closing(connect(self._settings)) as connection:
            return self._now(connection, self._name(connection))

    def close(self) -> None:
        self._closed = True
        self._hang_up()

    def open(self, position: SourcePosition) -> Iterator[Chunk]:
        self._hang_up()
        self._stream = connection = connect(self._settings)
        try:
            name = self._name(connection)
            if position.source and position.source != name:
                raise SourceError(
                    f"the log was filled from {position.source}, and {where(self._settings)} is {name}",
                    hint="file offsets of one server mean nothing on another: use a new state_dir",
                )
            self._ask_for_events(connection, position)
            # The server says where it starts only with its first event: an empty chunk first, so that the caller waits
            # for nothing when the server is silent.
            yield Chunk(np.empty(0, np.uint8), idle=True)
            yield from self._chunks(connection, position)
        finally:
            self._hang_up()

    # -- where to start --------------------------------------------------------------------------------------------

    @staticmethod
    def _name(connection: Connection[Any]) -> str:
        return f"mariadb:{rows(connection, 'SELECT @@server_id')[0][0]}"

    @staticmethod
    def _now(connection: Connection[Any], name: str) -> SourcePosition:
        found = rows(connection, "SHOW MASTER STATUS")
        if not found:
            raise SourceError("the server writes no binlog", hint="[mysqld] log_bin = mysql-bin, then restart it")
        gtid = str(rows(connection, "SELECT BINLOG_GTID_POS(%s, %s)", (found[0][0], int(found[0][1])))[0][0] or "")
        return SourcePosition(str(found[0][0]), int(found[0][1]), gtid=gtid, source=name)

    def _start(self, connection: Connection[Any], name: str) -> SourcePosition:
        start = self._settings.start
        now = self._now(connection, name)
        if not isinstance(start, StartAt):
            return now
        if start.gtid is not None:
            return SourcePosition("", 0, gtid=start.gtid, source=name)
        assert start.file is not None
        return SourcePosition(start.file, start.pos or 4, source=name)

    def _creates(self, connection: Connection[Any]) -> dict[tuple[str, str], str]:
        """CREATE TABLE of every wanted table."""
        found = rows(
            connection,
            "SELECT table_schema, table_name FROM information_schema.tables WHERE table_type = 'BASE TABLE' ORDER BY 1, 2",
        )
        creates: dict[tuple[str, str], str] = {}
        for schema, table in found:
            if schema.lower() in SYSTEM_SCHEMAS or not self._settings.tables.matches(schema, table):
                continue
            # A table that was dropped since the list was read: the two readings differ, and all is read again.
            with contextlib.suppress(SourceError):
                creates[schema, table] = str(rows(connection, f"SHOW CREATE TABLE {quoted_name(schema, table)}")[0][1])
        return creates

    @staticmethod
    def _schemas(creates: dict[tuple[str, str], str], version: int) -> tuple[TableSchema, ...]:
        made: list[TableSchema] = []
        for (schema, table), sql in creates.items():
            try:
                made += apply_ddl(sql, schema, version, lambda *_: None)
            except NotSupported as error:
                raise NotSupported(
                    error.message, hint=f"or leave it out: source.tables.exclude: [{schema}.{table}]"
                ) from error
        return tuple(made)

    # -- the stream ------------------------------------------------------------------------------------------------

    def _ask_for_events(self, connection: Connection[Any], position: SourcePosition) -> None:
        by_gtid = not position.file
        statements = [
            f"SET @master_heartbeat_period = {int(HEARTBEAT_SECONDS * 1e9)}",
            "SET @master_binlog_checksum = @@global.binlog_checksum",
            "SET @mariadb_slave_capability = 4",
        ]
        if by_gtid:
            statements += [f"SET @slave_connect_state = '{position.gtid}'", "SET @slave_gtid_strict_mode = 0"]
        elif position.pos > 0xFFFFFFFF:
            raise NotSupported(
                f"{position}: a server cannot be asked for an offset above 4 GiB", hint="start by GTID (source.start)"
            )
        for statement in statements:
            rows(connection, statement)
        register = struct.pack("<I", self._server_id) + b"\0\0\0" + struct.pack("<HII", 0, 0, 0)
        file = position.file.encode()
        dump = struct.pack("<IHI", position.pos if position.file else 4, 0, self._server_id) + file
        private: Any = connection  # PyMySQL has no public way to send these two commands
        with translate_errors("cannot register as a replica"):
            private._execute_command(_COM_REGISTER_SLAVE, register)
            private._read_packet()
            private._execute_command(_COM_BINLOG_DUMP, dump)

    def _chunks(self, connection: Connection[Any], position: SourcePosition) -> Iterator[Chunk]:
        private: Any = connection
        sock = private._sock
        sock.settimeout(SILENCE_SECONDS_MAX)
        packets = bytearray(READ_BYTES)
        events = np.empty(READ_BYTES, np.uint8)
        have = 0
        heard = self._clock.monotonic()
        first = True
        while not self._closed:
            if not self._readable(sock, _BRIEF_SECONDS):
                yield IDLE
                if not self._readable(sock, _TICK_SECONDS - _BRIEF_SECONDS):
                    if self._clock.monotonic() - heard > SILENCE_SECONDS_MAX:
                        raise Unavailable(f"{where(self._settings)} is silent: not even a heartbeat")
                    continue
            with translate_errors("the stream broke"):
                got = sock.recv_into(memoryview(packets)[have:])
            if not got:
                raise Unavailable(f"{where(self._settings)} closed the connection")
            heard = self._clock.monotonic()
            have += got
            consumed, made, stopped = unpack(np.frombuffer(packets, np.uint8), have, events)
            if made:
                # The first event stands at the position that was asked for; from then on the events say where they are.
                file, start = (position.file, position.pos) if first and position.file else ("", 0)
                first = False
                yield Chunk(events[:made], file, start, gaps=True)
            if stopped == NOT_AN_EVENT:
                self._end_of_stream(bytes(packets[consumed:have]), position)
            if stopped == TOO_LARGE:
                header = packets[consumed + 5 : consumed + 5 + HEADER_BYTES]
                claimed_start = int.from_bytes(header[13:17], "little") - int.from_bytes(header[9:13], "little")
                raise too_large_event(header, where(self._settings), claimed_start & 0xFFFFFFFF)
            rest = have - consumed
            if not consumed and have == len(packets):  # an event larger than the buffer: both grow with what has come
                packets = packets + bytearray(len(packets))
                events = np.empty(len(packets), np.uint8)
            elif consumed and len(packets) > READ_BYTES and rest <= READ_BYTES // 2:  # the large event is over
                packets = bytearray(packets[consumed:have]).ljust(READ_BYTES, b"\0")
                events = np.empty(READ_BYTES, np.uint8)
            elif consumed:
                packets[:rest] = packets[consumed:have]
            have = rest

    @staticmethod
    def _readable(sock: Any, seconds: float) -> bool:
        pending = getattr(sock, "pending", None)
        if pending is not None and pending():
            return True
        return bool(select.select([sock], [], [], seconds)[0])

    def _end_of_stream(self, packet: bytes, position: SourcePosition) -> None:
        """Raises for a packet that is not an event: an error, or the end of the stream."""
        payload = packet[4:]
        if payload[:1] != b"\xff":
            raise Unavailable(f"{where(self._settings)} ended the stream")
        code = int.from_bytes(payload[1:3], "little")
        text = payload[9 if payload[3:4] == b"#" else 3 :].decode("utf-8", "replace")
        if code != _PURGED:
            raise Unavailable(f"{where(self._settings)}: {text} (error {code})")
        if _SERVER_ID_CLASH in text:
            raise SourceError(
                f"another replica uses server id {self._server_id}", hint="set source.server_id to another one"
            )
        raise self._purged(position, text)

    def _purged(self, position: SourcePosition, text: str) -> SourceError:
        oldest = "unknown"
        with contextlib.suppress(Exception), contextlib.closing(connect(self._settings)) as connection:
            oldest = str(rows(connection, "SHOW BINARY LOGS")[0][0])
            if any(str(row[0]) == position.file for row in rows(connection, "SHOW BINARY LOGS")):
                return SourceError(f"the server cannot send from {position}: {text}", hint="use a new state_dir")
        what = position.file or f"GTID {position.gtid}"
        return SourceError(
            f"{what} is gone (oldest on the server: {oldest}). Nothing was skipped.",
            hint="start again with a new state_dir; the changes in between do not reach the sinks",
        )

    def _hang_up(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            with contextlib.suppress(Exception):
                private: Any = stream
                private._force_close()
