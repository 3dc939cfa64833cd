"""Small binlog streams for tests: real bytes, with sizes and shapes that a test chooses."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

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


@dataclass
class Stream:
    """A file of events, built one by one."""

    events: list[bytes] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)  # offsets of the transactions' starts
    at: int = 4 + len(FDE)
    gtid: int = 0

    def add(self, kind: EventType, body: bytes) -> None:
        self.events.append(event(kind, body, self.at))
        self.at += len(self.events[-1])

    def begin(self, flags2: int = 0x0C) -> None:
        self.starts.append(self.at)
        self.gtid += 1
        self.add(EventType.MARIADB_GTID, struct.pack("<QIB6x", self.gtid, 0, flags2))

    def table_map(self, table: shop.Table) -> None:
        self.add(EventType.TABLE_MAP, table.table_id.to_bytes(6, "little") + table.table_map)

    def rows(self, table: shop.Table, payload: bytes, *, last: bool = True) -> None:
        self.add(EventType.WRITE_ROWS_V1, table.table_id.to_bytes(6, "little") + bytes([int(last), 0]) + payload)

    def commit(self) -> None:
        self.add(EventType.XID, self.gtid.to_bytes(8, "little"))

    def query(self, sql: str) -> None:
        self.add(EventType.QUERY, struct.pack("<IIBHH", 5, 0, 4, 0, 0) + b"shop\0" + sql.encode())

    def ddl(self, sql: str) -> None:
        self.begin(0x29)
        self.query(sql)

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

    def begin(self, version: int) -> Beginning:
        del version
        return Beginning(SourcePosition(FILE, 4, source=self.name))

    def end(self) -> SourcePosition:
        return SourcePosition(FILE, self._stream.at, source=self.name)

    def open(self, position: SourcePosition) -> Iterator[Chunk]:
        yield Chunk(np.frombuffer(FDE, np.uint8), FILE, 4)
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
