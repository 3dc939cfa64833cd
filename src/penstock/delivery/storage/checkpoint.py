"""The file `metadata` at the prefix's root, `{"checkpoint-ts":N}`: consumers skip table versions above N.

It is written at most every two seconds, and N never goes back, not even after a restart. `_penstock/progress.json` says
the same to Penstock itself, with the wall-clock time of the write.
"""

from __future__ import annotations

import json

from penstock.clock import Clock
from penstock.delivery.storage.layout import METADATA_PATH, PROGRESS_PATH
from penstock.delivery.storage.store import Store
from penstock.errors import Corruption

METADATA_SECONDS_MIN = 2.0


class CheckpointFile:
    """For one thread at a time. Calling `write` often is cheap: it writes only when that is due."""

    def __init__(self, store: Store, clock: Clock, changefeed: str) -> None:
        self._store = store
        self._clock = clock
        self._changefeed = changefeed
        self._written: int | None = None  # None: the file at the sink was not read yet
        self._written_at: float | None = None

    @property
    def written(self) -> int:
        return self._written or 0

    def write(self, checkpoint_ts: int, *, at_once: bool = False) -> bool:
        """True if the file was written. `at_once` ignores the interval, at the end of a drain."""
        if self._written is None:
            self._written = self._read()
        now = self._clock.monotonic()
        early = self._written_at is not None and now - self._written_at < METADATA_SECONDS_MIN
        if checkpoint_ts <= self._written or (early and not at_once):
            return False
        progress = {"changefeed": self._changefeed, "checkpoint_ts": checkpoint_ts, "wall_ms": self._clock.wall_ms()}
        self._store.put(METADATA_PATH, json.dumps({"checkpoint-ts": checkpoint_ts}, separators=(",", ":")).encode())
        self._store.put(PROGRESS_PATH, json.dumps(progress).encode() + b"\n")
        self._written, self._written_at = checkpoint_ts, now
        return True

    def _read(self) -> int:
        raw = self._store.read(METADATA_PATH)
        if raw is None:
            return 0
        try:
            return int(json.loads(raw)["checkpoint-ts"])
        except (ValueError, KeyError, TypeError) as error:
            raise Corruption(f"{METADATA_PATH} at the sink cannot be read: {raw[:100]!r}") from error
