"""Whether a changefeed is paused, as its keeper has it. Not thread-safe: the keeper holds its lock around every call."""

from __future__ import annotations

from penstock.changefeed.facts import PAUSED, PAUSED_KEY
from penstock.delivery.keeper_client import PauseWish
from penstock.state import BucketState, Change


class Pausing:
    """`since_ms`: None while it is not paused."""

    def __init__(self, state: BucketState) -> None:
        self._store = state.store(PAUSED)
        self._changes = 0
        self.since_ms = self._store.get(PAUSED_KEY)

    @property
    def wish(self) -> PauseWish:
        return PauseWish(self.since_ms is not None, self._changes)

    def put(self, change: Change, *, paused: bool, now_ms: int) -> PauseWish:
        """With the change, it is paused, or is not. One that is paused again is so since it was first."""
        self.since_ms = (self.since_ms or now_ms) if paused else None
        if self.since_ms is None:
            self._store.delete(change, PAUSED_KEY)
        else:
            self._store.put(change, PAUSED_KEY, self.since_ms)
        self._changes += 1
        return self.wish
