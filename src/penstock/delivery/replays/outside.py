"""Which dispatchers take no part in the regular ranges of a run, and how far each replay has come. Pure state of one run.

- *left out*: what a regular range brings of it does not count.
- *replaying*: it has a new epoch, and extra ranges of its own. Each starts exactly where the one before it ended, and none goes beyond the
  published end. What regular ranges bring of it is of an older epoch, or only said to be there (*held*), and does not count.
- It *rejoins* with a publish, once its extra ranges have come to the published end: from there on the regular ranges have it.

A held row of a dispatcher that takes part would be lost, and a row of its new epoch in a regular range before it rejoins would be out
of order: both are refused, before anything is changed, and the run goes back to the keeper's facts.

Not thread-safe: its owner holds a lock around every call.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.delivery.payload import Payload, StageKey
from penstock.delivery.staging import PublishRange
from penstock.errors import BadInput, StaleRun
from penstock.log.position import Position

_REMEMBERED_MAX = 64  # a driver repeats at most its last batch


@dataclass(frozen=True, slots=True)
class ExtraRange:
    """A range of a `publish` message that is for some dispatchers alone, by id with the epoch of their replay."""

    named: PublishRange
    epochs: Mapping[str, int]

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> ExtraRange:
        return cls(PublishRange.from_json(value), epochs_from_json(value.get("dispatchers")))


def epochs_from_json(value: object) -> dict[str, int]:
    if not isinstance(value, dict) or not all(isinstance(epoch, int) for epoch in value.values()):
        raise BadInput(f"publish: {value!r} are no dispatchers with epochs")
    return {str(dispatcher): epoch for dispatcher, epoch in value.items()}


@dataclass(slots=True)
class _Replay:
    epoch: int
    next: Position  # where its next extra range starts


class Outside:
    """Of one run. `left_out` says of a dispatcher whether it is left out now."""

    def __init__(self, left_out: Callable[[str], bool]) -> None:
        self.missed: set[str] = set()  # those without whom a statement of several tables could not be delivered
        self._left_out = left_out
        self._replays: dict[str, _Replay] = {}
        self._taken: deque[tuple[Position, Position, frozenset[tuple[str, int]]]] = deque(maxlen=_REMEMBERED_MAX)

    def begin(self, dispatcher: str, epoch: int, start: Position) -> None:
        """Its replay begins; one that was under way is over."""
        before = self._replays.get(dispatcher)
        if before is not None and epoch <= before.epoch:
            raise StaleRun(f"the replay of {dispatcher} at epoch {epoch} comes after {before.epoch}")
        self._replays[dispatcher] = _Replay(epoch, start)

    def replays(self, dispatcher: str) -> bool:
        return dispatcher in self._replays and not self._left_out(dispatcher)

    def is_outside(self, dispatcher: str) -> bool:
        return dispatcher in self._replays or self._left_out(dispatcher)

    def replayed(self, dispatcher: str) -> Position | None:
        """Where its next extra range starts; None where it does not replay."""
        return self._replays[dispatcher].next if self.replays(dispatcher) else None

    # ---- a publish: all checks come before anything is taken

    def check(
        self, extras: Iterable[ExtraRange], rejoin: Mapping[str, int], published_end: Position | None
    ) -> list[ExtraRange]:
        """The extra ranges that are no repetitions. Raises `BadInput` where one does not start where its dispatcher has come
        to, or goes too far, and where one rejoins too early."""
        ends = {dispatcher: replay.next for dispatcher, replay in self._replays.items()}
        fresh = []
        for extra in extras:
            if _key(extra) in self._taken:
                continue
            fresh.append(extra)
            for dispatcher in self._counting(extra.epochs):
                if extra.named.start != ends[dispatcher]:
                    raise BadInput(
                        f"publish: the replay {extra.named} of {dispatcher} does not start at {ends[dispatcher]}",
                        hint="nothing was published; the run must begin again",
                    )
                if published_end is None or extra.named.end > published_end:
                    raise BadInput(
                        f"publish: the replay {extra.named} goes beyond {published_end}, where the run has come to"
                    )
                ends[dispatcher] = _after(extra.named.end)
        for dispatcher in self._counting(rejoin):
            if published_end is not None and ends[dispatcher] < _after(published_end):
                raise BadInput(
                    f"publish: {dispatcher} rejoins at {ends[dispatcher]}, before {published_end}",
                    hint="nothing was published; the run must begin again",
                )
        return fresh

    def counts(self, dispatcher: str, epoch: int, known_epoch: int, rejoin: Collection[str]) -> bool:
        """Whether what a regular range brings of the dispatcher counts. `rejoin`: those that do so with this publish."""
        if self._left_out(dispatcher):
            return False
        if dispatcher in self._replays and dispatcher not in rejoin:
            if epoch >= known_epoch:
                raise StaleRun(
                    f"publish: {dispatcher} at epoch {epoch} replays, and has not rejoined", hint="begin a new run"
                )
            return False
        if epoch != known_epoch:
            raise StaleRun(f"publish: {dispatcher} is of epoch {epoch}, not {known_epoch}", hint="begin a new run")
        return True

    def check_held(self, dispatchers: Iterable[str], rejoin: Collection[str]) -> None:
        """Rows that a task held back are of dispatchers that are outside."""
        for dispatcher in dispatchers:
            if not self._left_out(dispatcher) and (dispatcher not in self._replays or dispatcher in rejoin):
                raise StaleRun(
                    f"publish: rows of {dispatcher} were held back, and it takes part", hint="begin a new run"
                )

    def take(self, extra: ExtraRange) -> None:
        for dispatcher in self._counting(extra.epochs):
            self._replays[dispatcher].next = _after(extra.named.end)
        self._taken.append(_key(extra))

    def is_over(self, key: StageKey, payload: Payload) -> bool:
        """Whether the range was taken for the dispatcher's replay: what a slow task still brings of it is left over."""
        replay = (payload.dispatcher, payload.epoch)
        return any((key.start, key.end) == (start, end) and replay in epochs for start, end, epochs in self._taken)

    def returning(self, rejoin: Mapping[str, int]) -> frozenset[str]:
        """Those of `rejoin` that will take part: the others were left out again meanwhile."""
        return frozenset(self._counting(rejoin))

    def rejoin(self, dispatchers: Mapping[str, int]) -> list[str]:
        """Those of them that take part from here on. One that was left out again stays so."""
        found = self._counting(dispatchers)
        for dispatcher in found:
            del self._replays[dispatcher]
        return found

    def takes(self, dispatcher: str, epoch: int) -> bool:
        """Whether what an extra range brings of the dispatcher counts."""
        return bool(self._counting({dispatcher: epoch}))

    def _counting(self, epochs: Mapping[str, int]) -> list[str]:
        """Those whose replay this is. An older one is over: what comes of it does not count."""
        found = []
        for dispatcher, epoch in epochs.items():
            replay = self._replays.get(dispatcher)
            if replay is None or self._left_out(dispatcher) or epoch < replay.epoch:
                continue
            if epoch > replay.epoch:
                raise StaleRun(
                    f"publish: {dispatcher} replays at epoch {replay.epoch}, not {epoch}", hint="begin a new run"
                )
            found.append(dispatcher)
        return found


def _after(position: Position) -> Position:
    return Position(position.ledger_id, position.entry_id + 1)


def _key(extra: ExtraRange) -> tuple[Position, Position, frozenset[tuple[str, int]]]:
    return extra.named.start, extra.named.end, frozenset(extra.epochs.items())
