"""The published ranges of the current run, and which of them still wait for rows to reach the sink. In memory only.

A range waits for each dispatcher whose last row in the range is beyond the dispatcher's progress. It is complete once
it waits for no dispatcher; ranges complete in any order. The index is per dispatcher and in seq order: each (range,
dispatcher) pair is added once and removed once, so moving progress costs O(1) amortised whatever the number of ranges.
`head_commit_ts` follows the longest prefix of complete ranges.

A table that is parked holds the prefix up, for days maybe, and every range after it stays. So older ranges are joined two
by two once there are many: one that was joined is acked later, never too early, and memory has a bound.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from penstock.log import LogReader
from penstock.log.position import Position, Seq

EXACT_MAX = 2048  # of the newest ranges are never joined; at most twice as many are kept


@dataclass(slots=True, eq=False)
class PublishedRange:
    """Entries `start` to `end`, both included; `commit_ts` is that of the last transaction that ends in or before
    it."""

    start: Position
    end: Position
    commit_ts: int
    waiting: int = 0


class PublishedRanges:
    def __init__(self) -> None:
        self._prefix: deque[PublishedRange] = deque()
        self._by_dispatcher: dict[str, deque[tuple[Seq, PublishedRange]]] = {}
        self.last: PublishedRange | None = None
        self.head_commit_ts = 0

    def __len__(self) -> int:
        return len(self._prefix)

    def add(self, start: Position, end: Position, commit_ts: int, pending: Mapping[str, Seq]) -> PublishedRange | None:
        """Adds a range that begins where the last one ended. Returns it if it waits for no dispatcher at all."""
        entered = PublishedRange(start, end, commit_ts, len(pending))
        for dispatcher, seq in pending.items():
            self._by_dispatcher.setdefault(dispatcher, deque()).append((seq, entered))
        self._prefix.append(entered)
        self.last = entered
        if len(self._prefix) > 2 * EXACT_MAX:
            self._join_older()
        if pending:
            return None
        self._advance()
        return entered

    def progress(self, dispatcher: str, seq: Seq) -> tuple[list[PublishedRange], int]:
        """Rows of the dispatcher at or below `seq` are at the sink. Returns the ranges that this completes, and the
        commit_ts of the last range that no longer waits for the dispatcher (0 where there is none)."""
        queue = self._by_dispatcher.get(dispatcher)
        complete: list[PublishedRange] = []
        commit_ts = 0
        while queue and queue[0][0] <= seq:
            passed = queue.popleft()[1]
            commit_ts = passed.commit_ts
            passed.waiting -= 1
            if passed.waiting == 0:
                complete.append(passed)
        if queue is not None and not queue:
            del self._by_dispatcher[dispatcher]
        if complete:
            self._advance()
        return complete, commit_ts

    def oldest_pending(self, dispatcher: str) -> Seq | None:
        """The last seq of the dispatcher in the oldest range that waits for it."""
        queue = self._by_dispatcher.get(dispatcher)
        return queue[0][0] if queue else None

    def oldest_start(self, dispatcher: str) -> Position | None:
        """Where the oldest range that waits for the dispatcher starts; all rows that it still needs are there or later."""
        queue = self._by_dispatcher.get(dispatcher)
        return queue[0][1].start if queue else None

    @property
    def waiting_for(self) -> frozenset[str]:
        """The dispatchers that some range waits for."""
        return frozenset(self._by_dispatcher)

    def _join_older(self) -> None:
        """Costs O(1) for each range that is added, amortised: the older half is halved, so many must come before the next
        time. Ranges that were given out are not changed, because somebody may be acking them."""
        older = [self._prefix.popleft() for _ in range(len(self._prefix) - EXACT_MAX)]
        joined = [
            PublishedRange(one.start, two.end, max(one.commit_ts, two.commit_ts))
            for one, two in zip(older[::2], older[1::2], strict=False)
        ]
        place = {id(one): joined[i // 2] for i, one in enumerate(older[: 2 * len(joined)])}
        self._prefix.extendleft(older[2 * len(joined) :])  # the last one, if their number is odd
        self._prefix.extendleft(reversed(joined))
        for dispatcher, queue in self._by_dispatcher.items():
            waiting: deque[tuple[Seq, PublishedRange]] = deque()
            for seq, one in queue:
                now = place.get(id(one), one)
                if waiting and waiting[-1][1] is now:
                    waiting[-1] = (seq, now)  # both of the joined ones wait for it: until the later row
                    continue
                waiting.append((seq, now))
                now.waiting += now is not one
            self._by_dispatcher[dispatcher] = waiting

    def _advance(self) -> None:
        while self._prefix and self._prefix[0].waiting == 0:
            self.head_commit_ts = max(self.head_commit_ts, self._prefix.popleft().commit_ts)


def merged(ranges: list[PublishedRange]) -> list[tuple[Position, Position]]:
    """The ranges as (first, last) pairs for acks; neighbours in one ledger become one pair."""
    pairs: list[tuple[Position, Position]] = []
    for entry in sorted(ranges, key=lambda r: r.start):
        if pairs:
            first, last = pairs[-1]
            if last.ledger_id == entry.start.ledger_id and last.entry_id + 1 == entry.start.entry_id:
                pairs[-1] = (first, entry.end)
                continue
        pairs.append((entry.start, entry.end))
    return pairs


def at_or_after(reader: LogReader, position: Position, target: Position) -> bool:
    """Compares places in the log, not positions: `(L, last)` is the same place as `(L + 1, -1)`."""
    return position >= target or reader.next(position) >= reader.next(target)
