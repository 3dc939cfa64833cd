"""Dispatchers that take no part in a run's regular ranges: whose rows are held back, and who is read again beside them.

Each batch carries at most one stretch of the log for those that replay, from where the hindmost has come to, at most to where the
batch's regular ranges start. Those that lie together share it. One whose stretches have come to that start rejoins with
the batch: its own regular ranges have it again. All of this is known when a batch is planned, because batches are published in
order; what becomes of one that fails is that the run ends.

Nothing here is durable.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.log.position import Position
from penstock.schema.model import TableSchema
from penstock.spark.log_follower import LogFollower
from penstock.spark.plan import Planner, PlanSettings, Routing

Resume = dict[str, Any]
"""Of one dispatcher, as in the run's resume table: {epoch, progress, intent_last_seq}."""


@dataclass(slots=True)
class _Replay:
    offset: Position  # where it is read next
    resume: Resume


@dataclass(frozen=True, slots=True)
class Stretch:
    """What the next batch may carry for some dispatchers alone: from `start`, at most to `limit`, both offsets."""

    start: Position
    limit: Position
    resume: Mapping[str, Resume]

    @property
    def routing(self) -> Routing:
        return Routing(only=frozenset(self.resume), resume=self.resume)

    @property
    def epochs(self) -> dict[str, int]:
        return {dispatcher: int(resume["epoch"]) for dispatcher, resume in self.resume.items()}


@dataclass(slots=True)
class Replays:
    """Of one run. Used by one thread."""

    left_out: set[str] = field(default_factory=set)
    _replays: dict[str, _Replay] = field(default_factory=dict)
    _rejoined: dict[str, Resume] = field(
        default_factory=dict
    )  # where they went on, which is later than the run's resume table

    @classmethod
    def of(cls, resume: Mapping[str, Resume]) -> Replays:
        """At the start of a run: those that its resume table leaves out."""
        return cls({dispatcher for dispatcher, each in resume.items() if each.get("left_out")})

    def __bool__(self) -> bool:
        return bool(self._replays)

    def note(self, left_out: Collection[str] | None) -> None:
        """Delivery's word. One that replayed and is left out again is read no further; None: it does not know yet."""
        if left_out is not None:
            self.left_out = set(left_out)
            for dispatcher in self.left_out & self._replays.keys():
                del self._replays[dispatcher]

    def begin(self, dispatcher: str, start: Position, resume: Resume) -> None:
        self.left_out.discard(dispatcher)
        self._replays[dispatcher] = _Replay(start, resume)

    def replays(self, dispatcher: str) -> bool:
        return dispatcher in self._replays

    @property
    def routing(self) -> Routing:
        """Of the regular ranges of the next batch."""
        return Routing(held=frozenset(self.left_out | self._replays.keys()), resume=dict(self._rejoined))

    def next(self, regular: Position) -> Stretch | None:
        """The stretch of a batch whose regular ranges start at `regular`; None where everybody is there."""
        behind = {dispatcher: each for dispatcher, each in self._replays.items() if each.offset < regular}
        if not behind:
            return None
        start = min(each.offset for each in behind.values())
        limit = min([regular, *(each.offset for each in behind.values() if each.offset > start)])
        return Stretch(start, limit, {d: each.resume for d, each in behind.items() if each.offset == start})

    def advance(self, stretch: Stretch, end: Position) -> None:
        """The batch carries the stretch up to the offset `end`."""
        for dispatcher in stretch.resume:
            self._replays[dispatcher].offset = end

    def rejoin(self, regular: Position) -> dict[str, int]:
        """Those that have come to `regular`, with their epochs: the regular ranges from there on have them."""
        met = [dispatcher for dispatcher, each in self._replays.items() if each.offset >= regular]
        for dispatcher in met:
            self._rejoined[dispatcher] = self._replays.pop(dispatcher).resume
        return {dispatcher: int(self._rejoined[dispatcher]["epoch"]) for dispatcher in met}


class ReplayPlanner:
    """Plans stretches: a follower of the log of its own, open while somebody replays."""

    def __init__(
        self,
        follow: Callable[[Position], LogFollower],
        settings: PlanSettings,
        begins_batch: Callable[[TableSchema], bool] = lambda _: False,
    ) -> None:
        self._follow = follow
        self._settings = settings
        self._begins_batch = begins_batch
        self._follower: LogFollower | None = None
        self._planner: Planner | None = None
        self._at: Position | None = None

    def at(self, offset: Position) -> Planner:
        """A planner that can plan from `offset` on."""
        if self._planner is None or self._at is None or offset < self._at:
            self.close()
            self._follower = self._follow(offset)
            self._planner = Planner(self._follower.more, self._settings, self._follower.in_force(), self._begins_batch)
        self._at = offset
        return self._planner

    def close(self) -> None:
        if self._follower is not None:
            self._follower.close()
        self._follower = self._planner = self._at = None
