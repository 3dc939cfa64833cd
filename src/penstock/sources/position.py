"""Where to read on in a source: immutable values that capture stores with every frame.

A position is the start of a transaction, or the end of the last part appended of a transaction that is only partly in
the log (`OpenTransaction` holds what is needed to continue it). File and offset are one value, so they always change
together. The offset is our own count of bytes, in 64 bits. `end_log_pos` of an event has 32 bits and may be 0,
artificial or wrapped, so it is used only where a source leaves events out.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass, replace
from typing import Any

from penstock.errors import Corruption

_FILE_NUMBER = re.compile(r"(\d+)$")


def file_number(name: str) -> int:
    """The number at the end of a binlog's name; -1 where there is none."""
    match = _FILE_NUMBER.search(name)
    return int(match.group(1)) if match else -1


@dataclass(frozen=True, slots=True)
class SourcePosition:
    """Where to read on. `gtid` is the last GTID of each domain (MariaDB: `0-1-42,1-1-7`); empty where it is unknown.

    `commit_ts` is the largest one given so far, to a transaction or to a schema: after a restart the next one is
    larger, whatever the clock says.
    """

    file: str
    pos: int
    gtid: str = ""
    commit_ts: int = 0
    source: str = ""  # whose files these are: server id and kind
    epoch: int = 0  # grows when the numbering of files starts again

    @property
    def order(self) -> tuple[int, int, str, int]:
        """A key that sorts positions of one source."""
        return (self.epoch, file_number(self.file), self.file, self.pos)

    def __str__(self) -> str:
        return f"{self.file}:{self.pos}"

    def to_json(self) -> str:
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def from_json(cls, raw: str | bytes) -> SourcePosition:
        return cls(**_object(raw, "source position"))

    def at(self, file: str, pos: int, *, gtid: str | None = None, commit_ts: int | None = None) -> SourcePosition:
        """Another position of the same source."""
        return replace(
            self,
            file=file,
            pos=pos,
            gtid=self.gtid if gtid is None else gtid,
            commit_ts=self.commit_ts if commit_ts is None else commit_ts,
        )


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A transaction that is only partly in the log: what a restart needs to continue inside it."""

    commit_ts: int
    gtid: str  # hex of the 24 bytes of the transaction record
    file: str  # where it starts
    start_pos: int
    appended: int  # source events appended so far; repeated table maps are not counted
    checksum: int  # CRC32C over the bytes of those events
    end_pos: int  # source offset after the last of them

    def to_json(self) -> str:
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def from_json(cls, raw: str | bytes) -> OpenTransaction:
        return cls(**_object(raw, "open transaction"))


def _object(raw: str | bytes, what: str) -> dict[str, Any]:
    try:
        value = json.loads(raw)
    except ValueError as error:
        raise Corruption(f"the stored {what} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise Corruption(f"the stored {what} is {type(value).__name__}, not an object")
    return value
