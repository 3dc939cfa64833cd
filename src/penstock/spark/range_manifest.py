"""The row that a task yields for its range: what it staged, under which attempt, and where its time went.

Spark's planning processes import this module, so it imports nothing heavy.
"""

from __future__ import annotations

import gc
import json
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.log.position import Position

COLUMNS = (
    "start string, end string, attempt bigint, payloads bigint, rows bigint, bytes bigint, read_bytes bigint, "
    "commit_ts bigint, seconds string, error string"
)

_frozen = False


@dataclass(slots=True)
class RangeManifest:
    """What the driver learns of a range. `commit_ts` is that of the last transaction that ends in it; 0 where none
    does."""

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

    def to_row(self) -> tuple[Any, ...]:
        counts = (self.attempt, self.payloads, self.rows, self.bytes, self.read_bytes, self.commit_ts)
        return (str(self.start), str(self.end), *counts, json.dumps(self.seconds), self.error)

    @classmethod
    def from_row(cls, row: Iterable[Any]) -> RangeManifest:
        from penstock.log.position import Position

        start, end, attempt, payloads, rows, size, read, commit_ts, seconds, error = row
        positions = Position.parse(start), Position.parse(end)
        return cls(*positions, attempt, payloads, rows, size, read, commit_ts, json.loads(seconds), error)

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
