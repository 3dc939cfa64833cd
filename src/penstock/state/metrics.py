"""The totals of all states of this process, for metrics (observe/metrics.py); summed when metrics are asked for.

States and iterations enter themselves here, so that this module needs none of theirs.
"""

from __future__ import annotations

import contextlib
import threading
import time
from typing import Protocol
from weakref import WeakSet

from penstock.errors import PenstockError
from penstock.observe.metrics import METRICS, StateTotals


class WatchedState(Protocol):
    """The state of an owner."""

    wal_bytes: int
    writes: int

    @property
    def reads(self) -> int: ...

    @property
    def size_bytes(self) -> int: ...


# The iterations that are open in this process: the id of each, and since when, of the monotonic clock. A plain dict of
# numbers, because any thread enters and removes its own at any moment, also the garbage collector: each step on it is one
# of the interpreter's, so that a scrape needs no lock and meets no set that changes under it.
ITERATIONS: dict[int, float] = {}

_lock = threading.Lock()
_states: WeakSet[WatchedState] = WeakSet()
_closed = StateTotals()  # the counts of states that were closed


def watch_state(state: WatchedState) -> None:
    with _lock:
        _states.add(state)


def forget_state(state: WatchedState) -> None:
    """The state was closed. Its counts stay in the totals: a counter never goes back."""
    global _closed
    with _lock:
        if state in _states:
            _states.discard(state)
            _closed = _closed._replace(
                reads=_closed.reads + state.reads,
                writes=_closed.writes + state.writes,
                wal_bytes=_closed.wal_bytes + state.wal_bytes,
            )


def state_totals() -> StateTotals:
    with _lock:
        states, closed = list(_states), _closed
    now, begun = time.monotonic(), list(ITERATIONS.values())
    size = 0
    for state in states:
        with contextlib.suppress(PenstockError, OSError):
            size += state.size_bytes
    return StateTotals(
        states=len(states),
        size_bytes=size,
        reads=closed.reads + sum(state.reads for state in states),
        writes=closed.writes + sum(state.writes for state in states),
        wal_bytes=closed.wal_bytes + sum(state.wal_bytes for state in states),
        iterations=len(begun),
        iteration_age_seconds=max((now - since for since in begun), default=0.0),
    )


METRICS.watch_states(state_totals)
