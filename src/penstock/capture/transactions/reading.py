"""Where in the source capture reads, and the position that the next frame may carry.

The position of a frame is the end of the last complete transaction, or the start of the open one. It is one value and
changes with the frames, never with single events.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from uuid import UUID

import numpy as np
import numpy.typing as npt

from penstock.binlog.types import Flavour
from penstock.commit_ts import CommitClock
from penstock.sources.gtid import GtidSet, GtidSource, MariadbGtidSet, MysqlGtidSet
from penstock.sources.position import SourcePosition, files_between
from penstock.sources.source import SourceError


class Reading:
    """Files, GTIDs and the last frame's position, `emitted`."""

    def __init__(self, position: SourcePosition, clock: CommitClock) -> None:
        self._clock = clock
        self.emitted = position
        # Asked by GTID, a server begins with a file of its choice, which is a new turn even if it is the same file.
        self.file = "" if position.by_gtid else position.file
        self.turn = position.turn
        self.files: list[str] = [self.file]  # of the records in the buffer
        self.tags: list[str] = []
        self.gtids: GtidSet = position.gtid_set
        self._printed: tuple[GtidSet, str] = (self.gtids, position.gtid)
        self._begun: dict[str, int] = {}  # when each of `files` was begun, and the one that is read
        self._expected = (position.file, position.begun)

    def use_file(self, name: str, *, waiting: bool) -> int:
        """Another file begins. Returns its index among `files`; `waiting`: records of earlier files are in the buffer."""
        self.file = name
        self.turn += 1
        if not waiting:
            self.files = []
        self.files.append(name)
        return len(self.files) - 1

    def file_begun(self, timestamp: int) -> None:
        """The file that is read says when it was begun; of several format descriptions in it the first counts. Raises
        `SourceError` where the log was filled from another file of that name."""
        if self.file in self._begun:
            return
        file, expected = self._expected
        later = files_between(self.file, file)  # asked by GTID, a server may begin with an earlier file, or a later one
        if later is None or later <= 0:
            self._expected = ("", 0)
        if expected and timestamp and later is not None and _is_other_file(later, timestamp, expected):
            here, there = (datetime.fromtimestamp(value, UTC).isoformat(" ") for value in (timestamp, expected))
            raise SourceError(
                f"{self.file} was begun at {here}, and the log was filled from a file {_named(self.file, file)} that was begun "
                f"at {there}: the source was reset (RESET MASTER), or is another one. Nothing was skipped",
                hint="start again with a new state_dir",
            )
        self._begun[self.file] = timestamp

    def forget_files(self) -> None:
        """The buffer has no records any more."""
        self.files = [self.file]
        self._begun = {file: begun for file, begun in self._begun.items() if file == self.file}

    def tag_index(self, tag: str) -> int:
        """What a record says for a tag: 0 for none."""
        if not tag:
            return 0
        if tag not in self.tags:
            self.tags.append(tag)
        return self.tags.index(tag) + 1

    def seen(self, flavour: Flavour, gtid: bytes, tag: str = "") -> bool:
        """Whether the transaction is among those before the start. For MariaDB: a later one of the same server is."""
        if not any(gtid):
            return False
        if flavour is Flavour.MARIADB:
            domain, server, sequence = _mariadb(gtid)
            known = self.gtids.domains.get(domain) if isinstance(self.gtids, MariadbGtidSet) else None
            return known is not None and known.server == server and sequence <= known.sequence
        if not isinstance(self.gtids, MysqlGtidSet):
            return False
        return self.gtids.has(GtidSource(str(UUID(bytes=gtid[:16])), tag), int.from_bytes(gtid[16:], "little"))

    def note(self, flavour: Flavour, gtids: npt.NDArray[np.uint8], tags: npt.NDArray[np.int64]) -> None:
        """These transactions are finished, in this order."""
        known = gtids.any(axis=1)
        gtids, tags = np.ascontiguousarray(gtids[known]), tags[known]
        if not len(gtids):
            return
        if flavour is Flavour.MARIADB:
            found = self.gtids if isinstance(self.gtids, MariadbGtidSet) else MariadbGtidSet()
            domains = np.ascontiguousarray(gtids[:, :4]).view("<u4").reshape(-1)
            for domain in np.unique(domains).tolist():
                found = found.add(*_mariadb(gtids[np.flatnonzero(domains == domain)[-1]].tobytes()))
            self.gtids = found
            return
        executed = self.gtids if isinstance(self.gtids, MysqlGtidSet) else MysqlGtidSet()
        numbers = np.ascontiguousarray(gtids[:, 16:]).view("<u8").reshape(-1)
        sources = np.ascontiguousarray(gtids[:, :16]).view("V16").reshape(-1)
        for raw in {bytes(source) for source in sources}:
            same = sources == np.void(raw)
            for tag in np.unique(tags[same]).tolist():
                source = GtidSource(str(UUID(bytes=raw)), self.tags[tag - 1] if tag else "")
                executed = executed.add(source, numbers[same & (tags == tag)])
        self.gtids = executed

    @property
    def gtid_text(self) -> str:
        """Printed once for each set: a set of MySQL may have thousands of intervals."""
        if self._printed[0] is not self.gtids:
            self._printed = (self.gtids, str(self.gtids))
        return self._printed[1]

    def at_end(self, pos: int, file_index: int | None = None) -> SourcePosition:
        """A transaction ended at `pos`: the next frame's position."""
        index = len(self.files) - 1 if file_index is None else file_index
        self.emitted = self.emitted.at(
            self.files[index],
            pos,
            turn=self.turn - (len(self.files) - 1 - index),
            gtid=self.gtid_text,
            commit_ts=self._clock.last,
            begun=self._begun.get(self.files[index], 0),
        )
        return self.emitted

    def at_start(self, pos: int) -> SourcePosition:
        """The open transaction started at `pos`, and nothing before it is unfinished: the next frame's position."""
        begun = self._begun.get(self.file, 0)
        self.emitted = self.emitted.at(self.file, pos, turn=self.turn, gtid=self.gtid_text, begun=begun)
        return self.stamp()

    def stamp(self) -> SourcePosition:
        """The last frame's position, with the largest commit_ts given by now."""
        self.emitted = replace(self.emitted, commit_ts=self._clock.last)
        return self.emitted

    def passed(self, pos: int) -> SourcePosition:
        """Everything up to `pos` is in a frame already given out, or had nothing to append: nothing goes back behind it."""
        here = self.emitted.at(
            self.file,
            pos,
            turn=self.turn,
            gtid=self.gtid_text,
            commit_ts=self._clock.last,
            begun=self._begun.get(self.file, 0),
        )
        # A server repeats the format description from the head of the file: that offset is before the one asked for.
        if here.order > self.emitted.order:
            self.emitted = here
        return self.emitted


def _is_other_file(later: int, begun: int, expected: int) -> bool:
    """Whether a file cannot be of the history that the log has: the log knows one, `later` files after it, by when it was
    begun. A server begins its files one after the other."""
    return begun != expected if later == 0 else later > 0 and begun > expected


def _named(file: str, other: str) -> str:
    return "of that name" if file == other else f"after it ({other})"


def _mariadb(gtid: bytes) -> tuple[int, int, int]:
    """Domain, server and sequence number."""
    return (
        int.from_bytes(gtid[:4], "little"),
        int.from_bytes(gtid[4:8], "little"),
        int.from_bytes(gtid[8:16], "little"),
    )
