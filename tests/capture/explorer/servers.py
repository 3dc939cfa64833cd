"""Servers as a model: what clients committed, and how each server of one replication has it in its binlog files.

The model knows nothing of capture. A `Group` is what a client did; a `Server` writes groups into files of its own names
and offsets, in an order of its own, and may have died inside a transaction at the end of a file. What was committed is
known from the groups alone.
"""

from __future__ import annotations

import random
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from penstock.binlog.types import FLAG_ARTIFICIAL, EventType
from penstock.errors import Unavailable
from penstock.sources.demo import shop
from penstock.sources.gtid import GtidSource, MariadbGtidSet, MysqlGtidSet
from penstock.sources.position import SourcePosition
from penstock.sources.source import IDLE, Beginning, Chunk
from tests.capture.streams import FDE, SERVER, Stream, event

MARIADB_SERVER = 7  # of `event`

Step = tuple[str, int, str]  # what (rows, savepoint, rollback to), the row's number, the savepoint's name


@dataclass(frozen=True)
class Group:
    """What a client did under one GTID. `rows`: the numbers of the rows that count if it commits."""

    kind: str  # plain, compressed, rollback, prepare, one phase, xa commit, xa rollback, ddl, none
    number: int
    domain: int = 0
    xid: str = ""
    steps: tuple[Step, ...] = ()

    @property
    def rows(self) -> list[int]:
        kept: list[int] = []
        savepoints: dict[str, int] = {}
        for what, row, name in self.steps:
            if what == "rows":
                kept.append(row)
            elif what == "savepoint":
                savepoints[name] = len(kept)
            else:
                del kept[savepoints[name] :]
        return kept


def committed(groups: list[Group]) -> list[list[int]]:
    """The rows of each transaction that committed, in the order of the commits; those without rows left out."""
    prepared: dict[str, list[int]] = {}
    found: list[list[int]] = []
    for group in groups:
        if group.kind == "prepare":
            prepared[group.xid] = group.rows
        elif group.kind == "xa commit":
            found.append(prepared.pop(group.xid))
        elif group.kind == "xa rollback":
            del prepared[group.xid]
        elif group.kind in ("plain", "compressed", "one phase"):
            found.append(group.rows)
    return [rows for rows in found if rows]


@dataclass(frozen=True)
class Sent:
    """One event of a file; `group`: the GTID that it belongs to, `dead`: of a transaction that the server gave up."""

    raw: bytes
    start: int
    group: tuple[int, int]
    dead: bool = False


@dataclass
class BinlogFile:
    name: str
    events: list[Sent] = field(default_factory=list)
    died: bool = False


class Writer(Stream):
    """A stream whose GTIDs and rows are given."""

    domain = 0
    with_gtids = True

    def announce(self, flags2: int, tail: bytes = bytes(6)) -> None:
        self._rows, self._savepoints = [], {}
        if not self.with_gtids:
            return
        if self.mysql:
            self.add(EventType.GTID, b"\0" + SERVER.bytes + struct.pack("<Q", self.gtid) + bytes(17))
        else:
            self.add(EventType.MARIADB_GTID, struct.pack("<QIB", self.gtid, self.domain, flags2) + tail)

    def row(self, number: int, sizes: random.Random) -> None:
        self.table_map(shop.PRODUCTS)
        self.rows(shop.PRODUCTS, payload(number, sizes.choice((8, 90, 300, 600))))


def payload(number: int, size: int) -> bytes:
    return number.to_bytes(8, "little").ljust(size, b"x")


def number_of(raw: bytes) -> int:
    """The number of a row, from its event."""
    return int.from_bytes(raw[27:35], "little")


class Server:
    """One server: its identity and its files."""

    def __init__(self, name: str, groups: list[Group], rng: random.Random, *, mysql: bool, gtids: bool) -> None:
        self.identity = f"{'mysql' if mysql else 'mariadb'}:{name}"
        self.mysql, self.gtids = mysql, gtids
        self.files: list[BinlogFile] = []
        left = list(groups)
        first = rng.randrange(1, 40)
        while left or not self.files:
            self.files.append(BinlogFile(f"{name}.{first + len(self.files):06d}"))
            count = rng.randrange(0, len(left) + 1) if rng.random() < 0.6 else len(left)
            here, left = left[:count], left[count:]
            self._write(self.files[-1], here, left[0] if left and rng.random() < 0.5 else None, rng)

    def _write(self, file: BinlogFile, groups: list[Group], given_up: Group | None, rng: random.Random) -> None:
        writer = Writer(mysql=self.mysql)
        writer.with_gtids = self.gtids
        for group in groups:
            before, start = len(writer.events), writer.at
            self._group(writer, group, rng)
            self._note(file, writer, before, start, group)
        if given_up is not None:  # its GTID is given again, to the next transaction
            before, start = len(writer.events), writer.at
            dead = replace(given_up, kind=rng.choice(("plain", "prepare")), xid="dead")
            writer.gtid, writer.domain = dead.number, dead.domain
            writer.xa_begin("dead") if dead.kind == "prepare" else writer.begin()
            for _ in range(rng.randrange(5)):
                writer.row(10_000 + rng.randrange(1000), rng)
            self._note(file, writer, before, start, dead, dead=True)
            file.died = True

    @staticmethod
    def _note(file: BinlogFile, writer: Writer, before: int, start: int, group: Group, *, dead: bool = False) -> None:
        for raw in writer.events[before:]:
            file.events.append(Sent(raw, start, (group.domain, group.number), dead))
            start += len(raw)

    def _group(self, writer: Writer, group: Group, rng: random.Random) -> None:
        writer.gtid, writer.domain = group.number, group.domain
        kind = group.kind
        if kind in ("xa commit", "xa rollback"):
            writer.prepared[group.xid] = []
            writer.xa_commit(group.xid, rollback=kind == "xa rollback")
        elif kind in ("ddl", "none"):
            writer.ddl(f"CREATE TABLE shop.t{group.number} (id int primary key)" if kind == "ddl" else "FLUSH TABLES")
        elif kind == "compressed":
            writer.compressed_rows([payload(row, rng.choice((8, 300, 600))) for _, row, _ in group.steps])
        else:
            writer.xa_begin(group.xid) if kind in ("prepare", "one phase") else writer.begin()
            for what, row, name in group.steps:
                if what == "rows":
                    writer.row(row, rng)
                else:
                    writer.query(f"{'SAVEPOINT' if what == 'savepoint' else 'ROLLBACK TO'} `{name}`")
            if kind in ("prepare", "one phase"):
                writer.xa_prepare(group.xid, one_phase=kind == "one phase")
            elif kind == "rollback":
                writer.rollback()
            else:
                writer.commit()


class Broken(BaseException):
    """kill -9 of capture."""


class Replication:
    """A source over servers that have the same transactions. Breaks, kills and failovers come by the dice."""

    lower_case_table_names = 0

    def __init__(self, servers: list[Server], rng: random.Random) -> None:
        self.servers, self._rng = servers, rng
        self._now = servers[0]
        self.fuse = -1  # events until something happens
        self.kill = True
        self.failovers = self.opened = 0

    def begin(self, version: int) -> Beginning:
        del version
        return Beginning(SourcePosition(self._now.files[0].name, 4, source=self._now.identity))

    def end(self) -> SourcePosition:
        raise NotImplementedError

    def close(self) -> None:
        pass

    def resume(self, position: SourcePosition) -> SourcePosition:
        if len(self.servers) > 1 and self._rng.random() < 0.6 and position.gtid:
            self._now = self._rng.choice(self.servers)
        if self._now.identity != position.source:
            self.failovers += 1
            return position.on_another(self._now.identity)
        return position

    def open(self, position: SourcePosition) -> Iterator[Chunk]:
        left = self.fuse
        self.opened += 1
        assert self.opened < 60, "the source is read again and again"
        waiting: list[bytes] = []
        first = not position.by_gtid

        def flush() -> Iterator[Chunk]:
            nonlocal first
            if waiting:
                file, start = (position.file, position.pos) if first else ("", 0)
                first = False
                yield Chunk(np.frombuffer(b"".join(waiting), np.uint8), file, start, gaps=True)
                waiting.clear()

        for raw in self._events(position):
            if left == 0:
                self.fuse = -1
                if self.kill:
                    raise Broken
                yield from flush()
                raise Unavailable("the line broke")
            left -= 1
            waiting.append(raw)
            if self._rng.random() < 0.4:
                yield from flush()
                if self._rng.random() < 0.2:
                    yield IDLE
        yield from flush()
        yield IDLE

    def _events(self, position: SourcePosition) -> Iterator[bytes]:
        server = self._now
        names = [file.name for file in server.files]
        at = 0 if position.by_gtid else names.index(position.file)
        start = 4 if position.by_gtid else position.pos
        for file in server.files[at:]:
            yield rotate(file.name, start, artificial=True)
            fde = Stream(mysql=server.mysql).fde
            yield fde if start == 4 else without_end(fde)
            end = 4 + len(FDE)
            for sent in file.events:
                end = sent.start + len(sent.raw)
                if sent.start < start:
                    continue
                if position.by_gtid and self._has(position, sent.group):
                    if self._rng.random() < 0.3:  # a server that leaves out much says that it is alive
                        yield event(EventType.HEARTBEAT, file.name.encode(), 0, flags=FLAG_ARTIFICIAL, end_pos=end)
                    continue
                yield sent.raw
            if not file.died and file is not server.files[-1]:
                following = server.files[server.files.index(file) + 1]
                yield rotate(following.name, 4, at=end)
            start = 4

    @staticmethod
    def _has(position: SourcePosition, group: tuple[int, int]) -> bool:
        known = position.gtid_set
        if isinstance(known, MariadbGtidSet):
            return known.has(*group)
        assert isinstance(known, MysqlGtidSet)
        return known.has(GtidSource(str(SERVER)), group[1])


def rotate(file: str, position: int, *, artificial: bool = False, at: int = 0) -> bytes:
    body = struct.pack("<Q", position) + file.encode()
    return event(
        EventType.ROTATE, body, at, flags=FLAG_ARTIFICIAL if artificial else 0, end_pos=0 if artificial else None
    )


def without_end(fde: bytes) -> bytes:
    """The format description as a server sends it that begins in the middle of its file."""
    raw = fde[:13] + bytes(4) + fde[17:-4]
    return raw + struct.pack("<I", zlib.crc32(raw))
