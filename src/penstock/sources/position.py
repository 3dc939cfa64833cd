"""The source position: one immutable value, and the tracker that says which one a frame may carry.

A position lands on a transaction's start (or on the end of the part last appended, for an open, cut transaction, whose
own facts are in `OpenTransaction`). File and offset always change together, so a position cannot tear. The offset is a
running count of bytes in 64 bits: `end_log_pos` of an event is never trusted, it may be 0, artificial or wrapped.

What the tracker promises, for every interleaving of reading and durable frames:

A. `durable` is at or before the start of the oldest transaction that is not yet in a durable frame.
C. Frames may be acknowledged in any order: `durable` is the end of the longest acknowledged prefix.
D. It never goes backwards.
E. Once all is acknowledged and the source is idle, it is the end of the last thing read.
M. Idle traffic (heartbeats, rotations, transactions without rows) moves it only while nothing earlier is pending, and a
   frame for it is due at most once a second.
"""

from __future__ import annotations

import json
import re
from collections import deque
from dataclasses import asdict, dataclass, replace
from typing import Any

from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.errors import Corruption

IDLE_SECONDS_MIN = 1.0  # between two frames that carry nothing but a position

_FILE_NUMBER = re.compile(r"(\d+)$")


def file_number(name: str) -> int:
    """The number at the end of a binlog's name; -1 where there is none."""
    match = _FILE_NUMBER.search(name)
    return int(match.group(1)) if match else -1


@dataclass(frozen=True, slots=True)
class SourcePosition:
    """Where to read on. `gtid` is the last one of each domain (MariaDB: `0-1-42,1-1-7`); empty where it is unknown.

    `commit_ts` is the last one given to anything, so that the next one is larger whatever the clock says.
    """

    file: str
    pos: int
    gtid: str = ""
    commit_ts: int = 0
    source: str = ""  # whose files these are: server id and kind
    epoch: int = 0  # grows when the numbering of files starts again

    @property
    def order(self) -> tuple[int, int, str, int]:
        """Compares positions of one source."""
        return (self.epoch, file_number(self.file), self.file, self.pos)

    def __str__(self) -> str:
        return f"{self.file}:{self.pos}"

    def to_json(self) -> str:
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def from_json(cls, raw: str | bytes) -> SourcePosition:
        return cls(**_object(raw, "source position"))

    def at(self, file: str, pos: int, *, gtid: str | None = None, commit_ts: int | None = None) -> SourcePosition:
        """The same source, elsewhere."""
        return replace(
            self,
            file=file,
            pos=pos,
            gtid=self.gtid if gtid is None else gtid,
            commit_ts=self.commit_ts if commit_ts is None else commit_ts,
        )


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A transaction of which parts are in the log and the end is not: what a restart needs to go on inside it."""

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


class PositionTracker:
    """Follows what was read, what is in flight and what is durable. Not thread-safe: owned by the capture loop."""

    def __init__(self, start: SourcePosition, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._read = start
        self._durable = start
        self._in_flight: deque[tuple[int, SourcePosition]] = deque()
        self._acknowledged: set[int] = set()
        self._next_ticket = 0
        self._last_frame = clock.monotonic()

    @property
    def durable(self) -> SourcePosition:
        """A restart goes on from here."""
        return self._durable

    @property
    def read(self) -> SourcePosition:
        """The end of what was cut so far: transactions, or traffic without rows."""
        return self._read

    @property
    def pending(self) -> bool:
        return bool(self._in_flight)

    def appended(self, position: SourcePosition) -> int:
        """A frame that carries `position` is on its way. The ticket is for `acknowledge`."""
        self._forward(position)
        ticket = self._next_ticket
        self._next_ticket += 1
        self._in_flight.append((ticket, position))
        self._last_frame = self._clock.monotonic()
        return ticket

    def acknowledge(self, ticket: int) -> None:
        """The frame is durable. Order does not matter."""
        self._acknowledged.add(ticket)
        while self._in_flight and self._in_flight[0][0] in self._acknowledged:
            done, position = self._in_flight.popleft()
            self._acknowledged.discard(done)
            self._durable = position

    def passed(self, position: SourcePosition) -> None:
        """Everything up to `position` held nothing to append, or was appended before."""
        if position.order > self._read.order:
            self._forward(position)

    def idle_due(self) -> SourcePosition | None:
        """The position for a frame with state only, where one is due: nothing pending, something passed, a second over."""
        if self._in_flight or self._read.order <= self._durable.order:
            return None
        if self._clock.monotonic() - self._last_frame < IDLE_SECONDS_MIN:
            return None
        return self._read

    def _forward(self, position: SourcePosition) -> None:
        if position.order < self._read.order:
            raise Corruption(
                f"the source went back from {self._read} to {position}",
                hint="is it still the same server, with the same binlog files?",
            )
        self._read = position
