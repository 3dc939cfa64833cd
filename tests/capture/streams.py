"""Small binlog streams for tests: real bytes, with sizes and shapes that a test chooses."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from uuid import UUID

import numpy as np
import pyarrow as pa

from penstock.binlog.types import EventType
from penstock.sources.demo import shop
from penstock.sources.demo.plan import Plan
from penstock.sources.demo.stream import chunk_file
from penstock.sources.position import SourcePosition
from penstock.sources.source import IDLE, Beginning, Chunk

FILE = "bin.000001"
FDE = bytes(chunk_file(Plan(1, 100), 0).data[4:256].tobytes())


def event(kind: EventType, body: bytes, at: int, *, flags: int = 0, end_pos: int | None = None) -> bytes:
    size = 19 + len(body) + 4
    raw = (
        struct.pack("<IBIIIH", 1, kind, 7, size, (at + size if end_pos is None else end_pos) & 0xFFFFFFFF, flags) + body
    )
    return raw + struct.pack("<I", zlib.crc32(raw))


def mysql_fde() -> bytes:
    """The format description of a MySQL server; post-header lengths as MariaDB's, which are the same where it matters."""
    body = bytearray(FDE[19:-4])
    body[2:52] = b"8.0.36".ljust(50, b"\0")
    return event(EventType.FORMAT_DESCRIPTION, bytes(body), 4)


SERVER = UUID("3e11fa47-71ca-11e1-9e33-c80aa9429562")


@dataclass
class Stream:
    """A file of events, built one by one, with the row events and DDL of each transaction that commits."""

    events: list[bytes] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)  # offsets of the transactions' starts
    at: int = 4 + len(FDE)
    gtid: int = 0
    mysql: bool = False
    committed: list[list[bytes]] = field(default_factory=list)
    prepared: dict[str, list[bytes]] = field(default_factory=dict)
    _rows: list[bytes] = field(default_factory=list)
    _savepoints: dict[str, int] = field(default_factory=dict)

    @property
    def fde(self) -> bytes:
        return mysql_fde() if self.mysql else FDE

    def add(self, kind: EventType, body: bytes) -> None:
        self.events.append(event(kind, body, self.at))
        self.at += len(self.events[-1])

    def announce(self, flags2: int, tail: bytes = bytes(6)) -> None:
        """The GTID event."""
        self.starts.append(self.at)
        self.gtid += 1
        self._rows = []
        self._savepoints = {}
        if self.mysql:
            self.add(EventType.GTID, b"\0" + SERVER.bytes + struct.pack("<Q", self.gtid) + bytes(17))
        else:
            self.add(EventType.MARIADB_GTID, struct.pack("<QIB", self.gtid, 0, flags2) + tail)

    def begin(self, flags2: int = 0x0C) -> None:
        self.announce(flags2)
        if self.mysql:
            self.query("BEGIN")

    def table_map(self, table: shop.Table) -> None:
        self.add(EventType.TABLE_MAP, table.table_id.to_bytes(6, "little") + table.table_map)

    def rows(self, table: shop.Table, payload: bytes, *, last: bool = True) -> None:
        self.add(EventType.WRITE_ROWS_V1, table.table_id.to_bytes(6, "little") + bytes([int(last), 0]) + payload)
        self._rows.append(self.events[-1])

    def statement(self, size: int) -> None:
        self.table_map(shop.PRODUCTS)
        self.rows(shop.PRODUCTS, bytes([len(self.events) % 256]) * size)

    def commit(self) -> None:
        self.add(EventType.XID, self.gtid.to_bytes(8, "little"))
        if self._rows:
            self.committed.append(self._rows)

    def query(self, sql: str) -> None:
        self.add(EventType.QUERY, struct.pack("<IIBHH", 5, 0, 4, 0, 0) + b"shop\0" + sql.encode())

    def ddl(self, sql: str) -> None:
        self.announce(0x29)
        self.query(sql)
        if sql.startswith(("CREATE TABLE", "ALTER TABLE", "DROP TABLE")):
            self.committed.append([self.events[-1]])

    def savepoint(self, name: str) -> None:
        self.query(f"SAVEPOINT `{name}`")
        self._savepoints.pop(name, None)  # the name moves to the end: it is the newest now
        self._savepoints[name] = len(self._rows)

    def rollback_to(self, name: str) -> None:
        self.query(f"ROLLBACK TO `{name}`")
        self._rows = self._rows[: self._savepoints[name]]
        names = list(self._savepoints)
        for later in names[names.index(name) + 1 :]:  # a server forgets them
            del self._savepoints[later]

    def rollback(self) -> None:
        self.query("ROLLBACK")

    def compressed(self, sizes: Sequence[int]) -> None:
        self.compressed_rows([bytes([number]) * size for number, size in enumerate(sizes)])

    def compressed_rows(self, payloads: Sequence[bytes]) -> None:
        """A transaction of MySQL as one TRANSACTION_PAYLOAD: its events have no checksum and no end_log_pos."""
        self.announce(0)
        table = shop.PRODUCTS
        prefix = table.table_id.to_bytes(6, "little")
        inner = [event(EventType.QUERY, struct.pack("<IIBHH", 5, 0, 4, 0, 0) + b"shop\0BEGIN", 0, end_pos=0)]
        for payload in payloads:
            inner.append(event(EventType.TABLE_MAP, prefix + table.table_map, 0, end_pos=0))
            inner.append(event(EventType.WRITE_ROWS_V1, prefix + b"\1\0" + payload, 0, end_pos=0))
            self._rows.append(inner[-1])
        inner.append(event(EventType.XID, self.gtid.to_bytes(8, "little"), 0, end_pos=0))
        plain = b"".join(raw[:9] + struct.pack("<I", len(raw) - 4) + raw[13:-4] for raw in inner)
        packed = pa.compress(plain, codec="zstd", asbytes=True)
        fields = b"".join(
            bytes([kind, 9, 254]) + struct.pack("<Q", value)
            for kind, value in ((1, len(packed)), (2, 0), (3, len(plain)))
        )
        self.add(EventType.TRANSACTION_PAYLOAD, fields + b"\0" + packed)
        if self._rows:
            self.committed.append(self._rows)

    def xa_begin(self, xid: str) -> None:
        """XA START of MySQL, or MariaDB's GTID of a group that will be prepared."""
        self.announce(0x4C, struct.pack("<IBB", 1, len(xid), 0) + xid.encode() + b"\1")
        if self.mysql:
            self.query(f"XA START X'{xid.encode().hex()}',X'',1")

    def xa_prepare(self, xid: str, *, one_phase: bool = False) -> None:
        self.query(f"XA END X'{xid.encode().hex()}',X'',1")
        self.add(EventType.XA_PREPARE, struct.pack("<BIII", one_phase, 1, len(xid), 0) + xid.encode())
        if not one_phase:
            self.prepared[xid] = self._rows
        elif self._rows:
            self.committed.append(self._rows)

    def xa_commit(self, xid: str, *, rollback: bool = False) -> None:
        self.announce(0x8D, struct.pack("<IBB", 1, len(xid), 0) + xid.encode() + b"\0")
        self.query(f"XA {'ROLLBACK' if rollback else 'COMMIT'} X'{xid.encode().hex()}',X'',1")
        rows = self.prepared.pop(xid)
        if rows and not rollback:
            self.committed.append(rows)

    def transaction(self, sizes: Sequence[int], *, annotate: bool = False) -> None:
        """One statement a size: the products' table map and a row event with a payload of so many bytes."""
        self.begin()
        for number, size in enumerate(sizes):
            if annotate:
                self.add(EventType.ANNOTATE_ROWS, b"INSERT")
            self.table_map(shop.PRODUCTS)
            self.rows(shop.PRODUCTS, bytes([number % 256]) * size)
        self.commit()

    def kept(self) -> list[bytes]:
        """What must be in the log, once and in order."""
        return [raw for raw in self.events if raw[4] != EventType.ANNOTATE_ROWS]


class StreamSource:
    """A source over a stream, in chunks of so many events; may stop (as if killed) after some events."""

    def __init__(self, stream: Stream, events_per_chunk: int = 3, stop_after: int | None = None) -> None:
        self._stream = stream
        self._step = events_per_chunk
        self._stop_after = stop_after
        self.name = "test"
        self.lower_case_table_names = 0

    def begin(self, version: int) -> Beginning:
        del version
        return Beginning(SourcePosition(FILE, 4, source=self.name))

    def end(self) -> SourcePosition:
        return SourcePosition(FILE, self._stream.at, source=self.name)

    def resume(self, position: SourcePosition) -> SourcePosition:
        return position

    def open(self, position: SourcePosition) -> Iterator[Chunk]:
        yield Chunk(np.frombuffer(self._stream.fde, np.uint8), FILE, 4)
        at = 4 + len(FDE)
        events = self._stream.events if self._stop_after is None else self._stream.events[: self._stop_after]
        group: list[bytes] = []
        start = at
        for raw in events:
            if at >= position.pos:
                if not group:
                    start = at
                group.append(raw)
                if len(group) == self._step:
                    yield Chunk(np.frombuffer(b"".join(group), np.uint8), FILE, start)
                    group = []
            at += len(raw)
        if group:
            yield Chunk(np.frombuffer(b"".join(group), np.uint8), FILE, start)
        if self._stop_after is None:
            yield IDLE

    def close(self) -> None:
        pass
