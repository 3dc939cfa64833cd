"""Sets of global transaction ids as values: what a source position has behind it, and what a server can still give.

Two families, with the same operations:

- MySQL: for each source (a UUID, with a tag or without) a set of numbers, in intervals. `1-7:9-10` is not `1-10`: a
  gap is a transaction that is still to come, so gaps are kept. Text as the server prints it:
  `uuid:1-7:9-10:tag:1-3,uuid2:5`.
- MariaDB: the last GTID of each domain, `0-1-42,1-1-7`. It stands for every transaction of that domain up to its
  sequence number.

Values are immutable; an operation gives a new one. `str()` is the canonical text, which `parse_gtid_set` reads back.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

import numpy as np
import numpy.typing as npt

from penstock.errors import BadInput

NUMBER_MAX = (1 << 63) - 2  # the largest number that a server gives
_TAG = re.compile(r"[a-z_][a-z0-9_]{0,31}$")
_INTERVAL = re.compile(r"(\d{1,19})(?:-(\d{1,19}))?$")
_MARIADB = re.compile(r"(\d{1,10})-(\d{1,10})-(\d{1,20})$")

Interval = tuple[int, int]  # both ends included
Numbers = npt.NDArray[np.uint64]


class GtidSource(NamedTuple):
    """Who numbers the transactions of MySQL: a server's UUID in its text form, and a tag ("" for none)."""

    uuid: str
    tag: str = ""


class DomainPosition(NamedTuple):
    """The last transaction of one MariaDB domain: the server that wrote it, and its sequence number."""

    server: int
    sequence: int


@dataclass(frozen=True, slots=True)
class MysqlGtidSet:
    """Intervals by source: sorted, not empty, and never touching each other."""

    intervals: Mapping[GtidSource, tuple[Interval, ...]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.intervals)

    def __str__(self) -> str:
        texts: dict[str, list[str]] = {}
        for source in sorted(self.intervals):
            parts = texts.setdefault(source.uuid, [source.uuid])
            parts += [source.tag] if source.tag else []
            parts += [str(a) if a == b else f"{a}-{b}" for a, b in self.intervals[source]]
        return ",".join(":".join(parts) for parts in texts.values())

    def __hash__(self) -> int:
        return hash(tuple(sorted(self.intervals.items())))

    def has(self, source: GtidSource, number: int) -> bool:
        return any(a <= number <= b for a, b in self.intervals.get(source, ()))

    def contains(self, other: MysqlGtidSet) -> bool:
        """Whether every transaction of `other` is in this set."""
        return not other.subtract(self)

    def union(self, other: MysqlGtidSet) -> MysqlGtidSet:
        merged = dict(self.intervals)
        for source, intervals in other.intervals.items():
            merged[source] = _joined([*merged.get(source, ()), *intervals])
        return MysqlGtidSet(merged)

    def subtract(self, other: MysqlGtidSet) -> MysqlGtidSet:
        """The transactions of this set that are not in `other`."""
        left = {
            source: _without(intervals, other.intervals.get(source, ())) for source, intervals in self.intervals.items()
        }
        return MysqlGtidSet({source: intervals for source, intervals in left.items() if intervals})

    def add(self, source: GtidSource, numbers: Iterable[int] | Numbers) -> MysqlGtidSet:
        """This set and these transactions of one source; many of them cost little more than one."""
        found = np.unique(np.asarray(numbers, np.uint64))
        if not len(found):
            return self
        edges = np.flatnonzero(np.diff(found) != 1)
        firsts = found[np.concatenate(([0], edges + 1))].tolist()
        lasts = found[np.concatenate((edges, [len(found) - 1]))].tolist()
        known = self.intervals.get(source, ())
        return MysqlGtidSet({**self.intervals, source: _joined([*known, *zip(firsts, lasts, strict=True)])})


@dataclass(frozen=True, slots=True)
class MariadbGtidSet:
    """The last GTID by domain; every transaction of the domain up to its sequence number is in the set."""

    domains: Mapping[int, DomainPosition] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.domains)

    def __str__(self) -> str:
        return ",".join(f"{d}-{at.server}-{at.sequence}" for d, at in sorted(self.domains.items()))

    def __hash__(self) -> int:
        return hash(tuple(sorted(self.domains.items())))

    def has(self, domain: int, sequence: int) -> bool:
        known = self.domains.get(domain)
        return known is not None and sequence <= known.sequence

    def contains(self, other: MariadbGtidSet) -> bool:
        return all(self.has(domain, at.sequence) for domain, at in other.domains.items())

    def union(self, other: MariadbGtidSet) -> MariadbGtidSet:
        merged = dict(self.domains)
        for domain, at in other.domains.items():
            if not self.has(domain, at.sequence):
                merged[domain] = at
        return MariadbGtidSet(merged)

    def subtract(self, other: MariadbGtidSet) -> MariadbGtidSet:
        """The domains in which this set is ahead of `other`, with where it is there."""
        return MariadbGtidSet({d: at for d, at in self.domains.items() if not other.has(d, at.sequence)})

    def add(self, domain: int, server: int, sequence: int) -> MariadbGtidSet:
        """The transaction was read after those of the set: it is its domain's last one.

        Also where its number is smaller, which happens without `gtid_strict_mode`: the domain's last one by the order
        of the binlog is where a server goes on from.
        """
        return MariadbGtidSet({**self.domains, domain: DomainPosition(server, sequence)})


GtidSet = MysqlGtidSet | MariadbGtidSet


def contains(a: GtidSet, b: GtidSet) -> bool:
    """Whether `a` has every transaction of `b`. Sets of two families have none in common."""
    if isinstance(a, MysqlGtidSet) and isinstance(b, MysqlGtidSet):
        return a.contains(b)
    if isinstance(a, MariadbGtidSet) and isinstance(b, MariadbGtidSet):
        return a.contains(b)
    return not b


def parse_gtid_set(text: str) -> GtidSet:
    """A set of either family, by its form; the empty text is MySQL's empty set. Raises `BadInput`."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if parts and ":" not in parts[0]:
        return _parse_mariadb(parts)
    return _parse_mysql(parts)


def _parse_mariadb(parts: list[str]) -> MariadbGtidSet:
    found = MariadbGtidSet()
    for part in parts:
        match = _MARIADB.match(part)
        if match is None or int(match[1]) >> 32 or int(match[2]) >> 32 or int(match[3]) >> 64:
            raise BadInput(f"{part!r} is not a GTID of MariaDB", hint="domain-server-sequence, such as 0-1-42")
        domain, server, sequence = (int(group) for group in match.groups())
        if domain in found.domains:
            raise BadInput(f"domain {domain} stands twice in {','.join(parts)!r}", hint="one GTID for each domain")
        found = found.add(domain, server, sequence)
    return found


def _parse_mysql(parts: list[str]) -> MysqlGtidSet:
    found: dict[GtidSource, list[Interval]] = {}
    for part in parts:
        text, *rest = (piece.strip() for piece in part.split(":"))
        source = GtidSource(_uuid(text, part))
        for piece in rest:
            match = _INTERVAL.match(piece)
            if match is None:
                if not _TAG.match(piece.lower()):
                    raise BadInput(f"{piece!r} in {part!r} is neither an interval nor a tag", hint="uuid:1-7:9-10")
                source = GtidSource(source.uuid, piece.lower())
                continue
            first, last = int(match[1]), int(match[2] or match[1])
            if not 0 < first <= last <= NUMBER_MAX:
                raise BadInput(f"{piece!r} in {part!r} is not an interval of GTID numbers", hint="they start at 1")
            found.setdefault(source, []).append((first, last))
    return MysqlGtidSet({source: _joined(intervals) for source, intervals in found.items()})


def _uuid(text: str, part: str) -> str:
    try:
        return str(UUID(text))
    except ValueError:
        raise BadInput(f"{part!r} is not a set of GTIDs", hint="uuid:1-7:9-10, or 0-1-42 for MariaDB") from None


def _joined(intervals: list[Interval]) -> tuple[Interval, ...]:
    """Sorted, with those that overlap or follow each other put together."""
    found: list[Interval] = []
    for first, last in sorted(intervals):
        if found and first <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(found[-1][1], last))
        else:
            found.append((first, last))
    return tuple(found)


def _without(intervals: tuple[Interval, ...], others: tuple[Interval, ...]) -> tuple[Interval, ...]:
    found: list[Interval] = []
    for interval in intervals:
        first, last = interval
        for a, b in others:
            if b < first or a > last:
                continue
            if a > first:
                found.append((first, a - 1))
            first = b + 1
        if first <= last:
            found.append((first, last))
    return tuple(found)
