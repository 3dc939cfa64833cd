"""Payloads of one changefeed's current run that tasks handed over and that no publish has named yet.

A payload is kept under (run, start, end, attempt) and its ordinal. `publish` names the attempt of a range that counts;
payloads of other attempts of that range are dropped, also those that arrive later. A range covers the entries `start`
to `end`, both included, and begins right after the previous range; the first range of a run may begin anywhere.
Publishing a range again is accepted without effect, because a driver may die between our answer and its own commit.

`Awaited` are the rows that files which were begun before a restart still wait for.

Not thread-safe: its owner holds a lock around every call.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from penstock.delivery.keeper_client import LastRow
from penstock.delivery.payload import PayloadItem, StageKey
from penstock.errors import BadInput, StaleRun
from penstock.log.position import Position, Seq

_REMEMBERED_RANGES_MAX = 4096  # to recognise repetitions; a driver repeats at most its last batch


class Held(NamedTuple):
    """Rows of one dispatcher that a task read and did not stage."""

    last: LastRow
    rows: int

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Held:
        return cls(LastRow(Seq.parse(value["seq"]), str(value["schema"]), str(value["table"])), int(value["rows"]))


@dataclass(frozen=True, slots=True)
class PublishRange:
    """One range of a `publish` message: `payloads` is how many the attempt staged."""

    start: Position
    end: Position
    attempt: int
    payloads: int
    commit_ts: int
    # By dispatcher, the last of the rows that the attempt held back, and how many they are: it is left out, or replays.
    held: Mapping[str, Held] = field(default_factory=dict, compare=False)

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> PublishRange:
        try:
            parsed = cls(
                start=Position.parse(value["start"]),
                end=Position.parse(value["end"]),
                attempt=int(value["attempt"]),
                payloads=int(value["payloads"]),
                commit_ts=int(value["commit_ts"] or 0),
                held={str(d): Held.from_json(each) for d, each in (value.get("held") or {}).items()},
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise BadInput(f"publish: a range cannot be read: {error!r}") from error
        if parsed.end < parsed.start:
            raise BadInput(f"publish: the range {parsed} ends before it starts")
        return parsed

    def __str__(self) -> str:
        return f"{self.start} to {self.end}"


@dataclass(slots=True)
class _Attempts:
    by_attempt: dict[int, dict[int, PayloadItem]] = field(default_factory=dict)


class Staging:
    """Staged payloads of one run. `published_end` is the last entry of the last range taken, None before the first."""

    def __init__(self, run: str) -> None:
        self.run = run
        self.published_end: Position | None = None
        self.leftovers_dropped = 0
        self._ranges: dict[tuple[Position, Position], _Attempts] = {}
        self._remembered: deque[tuple[Position, Position]] = deque(maxlen=_REMEMBERED_RANGES_MAX)

    def stage(self, key: StageKey, item: PayloadItem) -> PayloadItem | None:
        """Keeps the item. Returns the one that is to be dropped: that which it replaces, or itself if it is a leftover
        of a published range."""
        if key.run != self.run:
            raise StaleRun(f"run {key.run} is over, {self.run} is current", hint="begin a new run")
        if self.published_end is not None and key.end <= self.published_end:
            self.leftovers_dropped += 1
            return item
        attempts = self._ranges.setdefault((key.start, key.end), _Attempts())
        payloads = attempts.by_attempt.setdefault(key.attempt, {})
        before = payloads.get(key.ordinal)
        payloads[key.ordinal] = item
        return before

    def check(self, named: list[PublishRange]) -> list[PublishRange]:
        """The ranges that are not repetitions, in order. Raises `BadInput` before anything is taken."""
        end = self.published_end
        fresh = []
        for each in sorted(named, key=lambda r: (r.start, r.end)):
            if (each.start, each.end) in self._remembered:
                continue
            self._check_follows(each.start, end, each)
            self.peek(each)
            end = each.end
            fresh.append(each)
        return fresh

    def peek(self, named: PublishRange) -> list[PayloadItem]:
        """The items of the named attempt, by ordinal. Raises unless exactly the stated number was staged."""
        attempts = self._ranges.get((named.start, named.end))
        payloads = attempts.by_attempt.get(named.attempt, {}) if attempts is not None else {}
        if len(payloads) != named.payloads or any(i not in payloads for i in range(named.payloads)):
            raise BadInput(
                f"publish: attempt {named.attempt} of the range {named} staged the payloads {sorted(payloads)[:20]}, "
                f"not {named.payloads} from 0 on",
                hint="nothing was published; the run must begin again",
            )
        return [payloads[ordinal] for ordinal in range(named.payloads)]

    def take(self, named: PublishRange) -> list[PayloadItem]:
        """The range counts from now on, with the items that `peek` gave. Returns the leftovers, which are to be dropped:
        other attempts, and ranges with other bounds, of an earlier plan, that can never be published now."""
        attempts = self._ranges.pop((named.start, named.end), _Attempts())
        attempts.by_attempt.pop(named.attempt, None)
        leftovers = _items(attempts)
        for key in [key for key in self._ranges if key[1] <= named.end]:
            leftovers += _items(self._ranges.pop(key))
        self.leftovers_dropped += len(leftovers)
        self.published_end = named.end
        self._remembered.append((named.start, named.end))
        return leftovers

    def take_extra(self, named: PublishRange, epochs: Mapping[str, int]) -> list[PayloadItem]:
        """As `take`, of a range that is for some dispatchers alone, by id with the epoch of their replay, and says nothing of how
        far the run has come. Others may be replayed over the same entries: what is staged for them stays."""
        key = (named.start, named.end)
        attempts = self._ranges.pop(key, _Attempts()).by_attempt
        attempts.pop(named.attempt, None)
        others = {
            attempt: items
            for attempt, items in attempts.items()
            if not any(epochs.get(item.dispatcher) == item.payload.epoch for item in items.values())
        }
        if others:
            self._ranges[key] = _Attempts(others)
        leftovers = [item for attempt, items in attempts.items() if attempt not in others for item in items.values()]
        self.leftovers_dropped += len(leftovers)
        return leftovers

    def discard(self) -> list[PayloadItem]:
        """Takes out everything, which is to be dropped."""
        items = [item for attempts in self._ranges.values() for item in _items(attempts)]
        self._ranges.clear()
        return items

    @staticmethod
    def _check_follows(start: Position, end: Position | None, named: PublishRange) -> None:
        """`start` must be the entry after `end`, or the first of a later ledger; the keeper checks which ledger."""
        if end is None or start == Position(end.ledger_id, end.entry_id + 1):
            return
        if start.ledger_id > end.ledger_id and start.entry_id <= 0:
            return
        what = "leaves a gap after" if start > end else "overlaps"
        raise BadInput(
            f"publish: the range {named} {what} {end}, where the run has come to",
            hint="nothing was published; the run must begin again",
        )


class Awaited:
    """By dispatcher, the last row of a file that an earlier process began, while it did not come yet in this run."""

    def __init__(self) -> None:
        self._last: dict[str, Seq] = {}

    def until(self, left_out: Collection[str] = ()) -> Position | None:
        """The entry with the last of all these rows; None where no file waits, but for those of who is left out."""
        last = [seq for dispatcher, seq in self._last.items() if dispatcher not in left_out]
        return _entry_of(max(last)) if last else None

    def wait_for(self, dispatcher: str, last: Seq) -> None:
        self._last[dispatcher] = last

    def came(self, dispatcher: str, seq: Seq) -> None:
        last = self._last.get(dispatcher)
        if last is not None and seq >= last:
            del self._last[dispatcher]

    def passed(self, end: Position, is_outside: Callable[[str], bool]) -> list[str]:
        """Everything up to `end` was published. Returns, and forgets, the dispatchers whose rows were not among it and never
        will be: their table is filtered now. For them nothing is kept from being suppressed any more. Those outside have
        ranges of their own."""
        gone = [each for each, last in self._last.items() if _entry_of(last) <= end and not is_outside(each)]
        for dispatcher in gone:
            del self._last[dispatcher]
        return gone


def _entry_of(seq: Seq) -> Position:
    return Position(seq.ledger_id, seq.entry_id)


def _items(attempts: _Attempts) -> list[PayloadItem]:
    return [item for payloads in attempts.by_attempt.values() for item in payloads.values()]
