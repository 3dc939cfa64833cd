"""What a task returns for its range: what it staged, under which attempt, and where its time went.

The driver imports this module too, so it imports nothing heavy.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.log.position import Position

_frozen = False


@dataclass(slots=True)
class RangeManifest:
    """What the driver learns of a range. `commit_ts` is that of the last transaction that ends in it; 0 where none
    does. `extra`: it is for dispatchers that replay alone. `held`: by dispatcher, the last of the rows that were held back, and
    how many they are: {seq, schema, table, rows}."""

    start: Position
    end: Position
    attempt: int
    payloads: int = 0
    rows: int = 0
    bytes: int = 0
    read_bytes: int = 0
    commit_ts: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    error: str = ""
    extra: bool = False
    held: dict[str, dict[str, Any]] = field(default_factory=dict)

    @contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        begun = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[stage] = self.seconds.get(stage, 0.0) + time.perf_counter() - begun


def freeze_once() -> None:
    """Spark's worker collects garbage after every task: exempts the objects that exist now from those collections."""
    global _frozen
    if not _frozen:
        gc.collect()
        gc.freeze()
        _frozen = True
