"""Where to read on in a source: immutable values that capture stores with every frame.

A position is a file and offset **and** a set of GTIDs: two ways to say the same place. By file and offset the same
server goes on exactly there; by GTIDs another server of the same replication does. All of it is one value, so it always
changes together. A position is the start of a transaction; `OpenTransaction` holds what is needed to continue one that
is only partly in the log.

Positions are ordered as they were read, never by the names of files: a server that was reset, or another server behind
the same address, numbers its files anew. The offset is our own count of bytes, in 64 bits. `end_log_pos` of an event has
32 bits and may be 0, artificial or wrapped, so it is used only where a source leaves events out.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass, replace
from typing import Any

from penstock.errors import Corruption
from penstock.sources.gtid import GtidSet, contains, parse_gtid_set

_FILE_NUMBER = re.compile(r"(\d+)$")


def file_number(name: str) -> int:
    """The number at the end of a binlog's name; -1 where there is none."""
    match = _FILE_NUMBER.search(name)
    return int(match.group(1)) if match else -1


def files_between(first: str, second: str) -> int | None:
    """How many files of one server the second comes after the first; None where they go by different names."""
    if _FILE_NUMBER.sub("", first) != _FILE_NUMBER.sub("", second):
        return None
    return file_number(second) - file_number(first)


@dataclass(frozen=True, slots=True)
class SourcePosition:
    """Where to read on. `gtid` is the canonical text of the set of GTIDs before it (sources/gtid.py): for MySQL all
    transactions so far, gaps kept; for MariaDB the last one of each domain; empty where it is unknown.

    `commit_ts` is the largest one given so far, to a transaction or to a schema: after a restart the next one is
    larger, whatever the clock says.
    """

    file: str
    pos: int
    gtid: str = ""
    commit_ts: int = 0
    source: str = ""  # whose files these are: the server's identity
    epoch: int = 0  # grows with each change of the server whose files these are
    turn: int = 0  # how many files were begun before this one, in the order in which they were read
    begun: int = (
        0  # when the file was begun, in its own words: a file of the same name may be another one; 0 if unknown
    )
    by_gtid: bool = False  # what follows is asked for by GTID, and file and offset only say how far that was read

    @property
    def order(self) -> tuple[int, int, int, bool]:
        """A key that sorts the positions of one log by the order in which they were read. Of the same place twice, the one
        that knows more of its file comes after."""
        return (self.epoch, self.turn, self.pos, self.begun > 0)

    @property
    def gtid_set(self) -> GtidSet:
        return parse_gtid_set(self.gtid)

    def reaches(self, target: SourcePosition) -> bool:
        """Whether everything before `target`, a place that the source itself named, was read.

        The target has no place in the order of reading. In the files of one server, read in their order, offset and number
        decide: MariaDB's GTIDs need not ascend in them. Where a server was asked by GTID, or files go by another name now,
        GTIDs decide.
        """
        if self._in_files_of(target):
            here, there = file_number(self.file), file_number(target.file)
            return self.pos >= target.pos if here == there else here > there
        return bool(self.gtid and target.gtid) and contains(self.gtid_set, target.gtid_set)

    def is_beyond(self, target: SourcePosition) -> bool:
        """Whether this lies after `target`, the end that the source has now: then it is not the source that was read."""
        return self._in_files_of(target) and self.reaches(target) and (self.file, self.pos) != (target.file, target.pos)

    def _in_files_of(self, target: SourcePosition) -> bool:
        same = files_between(self.file, target.file) is not None
        return same and self.source == target.source and not self.by_gtid

    def on_another(self, identity: str) -> SourcePosition:
        """The same place on another server, which has files of its own. It is asked by GTID from there on, also when the
        connection is made anew: it leaves out what the log has, and may have that after what the log has not."""
        return replace(self, file="", pos=0, begun=0, source=identity, epoch=self.epoch + 1, by_gtid=True)

    def __str__(self) -> str:
        return f"{self.file}:{self.pos}"

    def to_json(self) -> str:
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def from_json(cls, raw: str | bytes) -> SourcePosition:
        return cls(**_object(raw, "source position"))

    def at(
        self,
        file: str,
        pos: int,
        *,
        turn: int | None = None,
        gtid: str | None = None,
        commit_ts: int | None = None,
        begun: int | None = None,
    ) -> SourcePosition:
        """Another position of the same source."""
        return replace(
            self,
            file=file,
            pos=pos,
            turn=self.turn if turn is None else turn,
            gtid=self.gtid if gtid is None else gtid,
            commit_ts=self.commit_ts if commit_ts is None else commit_ts,
            begun=(self.begun if file == self.file else 0) if begun is None else begun,
        )


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A transaction that is only partly in the log: what a restart needs to continue inside it, or to take it back."""

    commit_ts: int
    gtid: str  # hex of the 24 bytes of the transaction record
    file: str  # where it starts
    start_pos: int
    appended: int  # source events in the log so far
    checksum: int  # CRC32C of the last of those events
    end_pos: int  # source offset after it
    entries: int = 1  # parts in the log so far
    source: str = ""  # the server's identity
    held: str = ""  # the XA id: of a group whose rows are coming
    copies: str = ""  # the XA id: of a group that committed and is being appended again
    restore: tuple[str, ...] = ()  # JSON of the schemas to put back if the transaction becomes void
    after: str = ""  # of a held group: a position of the log before its first entry

    def to_json(self) -> str:
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def from_json(cls, raw: str | bytes) -> OpenTransaction:
        value = _object(raw, "open transaction")
        return cls(**{**value, "restore": tuple(value.get("restore", ()))})


@dataclass(frozen=True, slots=True)
class HeldGroup:
    """An XA group that is prepared. Its rows are in the log as held entries, and count once it commits."""

    xid: str
    commit_ts: int  # of its entries
    entries: int  # how many there are; 0 for a group without rows
    after: str = ""  # a position of the log before the first of them; a pin keeps what follows it
    file: str = ""  # where it was prepared
    pos: int = 0

    def to_json(self) -> str:
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def from_json(cls, raw: str | bytes) -> HeldGroup:
        return cls(**_object(raw, "held group"))


def _object(raw: str | bytes, what: str) -> dict[str, Any]:
    try:
        value = json.loads(raw)
    except ValueError as error:
        raise Corruption(f"the stored {what} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise Corruption(f"the stored {what} is {type(value).__name__}, not an object")
    return value
