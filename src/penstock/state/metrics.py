"""What the states of this process amount to, for metrics (observe/metrics.py). Counted when somebody asks."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import Protocol
from weakref import WeakSet

from penstock.errors import PenstockError
from penstock.observe.metrics import METRICS, StateTotals
from penstock.state.store import ITERATIONS


class WatchedState(Protocol):
    """An owner's state."""

    wal_bytes: int
    writes: int

    @property
    def reads(self) -> int: ...

    @property
    def size_bytes(self) -> int: ...


_lock = threading.Lock()
_states: WeakSet[WatchedState] = WeakSet()
_closed = StateTotals()  # what states that are closed have counted


def watch_state(state: WatchedState) -> None:
    with _lock:
        _states.add(state)


def forget_state(state: WatchedState) -> None:
    """Its counts stay: a counter never goes back."""
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
    now, begun = time.monotonic(), [iteration.since for iteration in ITERATIONS.copy()]
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
        iterations=len(ITERATIONS),
        iteration_age_seconds=max((now - since for since in begun), default=0.0),
    )


METRICS.watch_states(state_totals)
