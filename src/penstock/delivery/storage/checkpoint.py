"""The file `metadata` at the prefix's root, `{"checkpoint-ts":N}`: consumers skip table versions above N.

It is written at most every two seconds, and N never goes back, not even after a restart: it is replaced only by whoever
knows what it holds, so that the write of a dead process that arrives late changes nothing. `_penstock/progress.json` says
the same to Penstock itself, with the wall-clock time of the write, and is replaced in the same way.
"""

from __future__ import annotations

import json

from penstock.clock import Clock
from penstock.delivery.storage.layout import METADATA_PATH, PROGRESS_PATH
from penstock.delivery.storage.place import SinkObjects
from penstock.errors import Corruption, PenstockError

METADATA_SECONDS_MIN = 2.0


class CheckpointFile:
    """For one thread at a time. Calling `write` often is cheap: it writes only when that is due."""

    def __init__(self, store: SinkObjects, clock: Clock, changefeed: str) -> None:
        self._store = store
        self._clock = clock
        self._changefeed = changefeed
        self._written: int | None = None  # None: nobody knows what the file at the sink holds
        self._token: str | None = None  # of what it holds
        self._progress_token: str | None = None  # of what the other one holds
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
        content = json.dumps({"checkpoint-ts": checkpoint_ts}, separators=(",", ":")).encode()
        try:
            self._token = self._store.put_if(METADATA_PATH, content, self._token)
            text = json.dumps(progress).encode() + b"\n"
            self._progress_token = self._store.put_if(PROGRESS_PATH, text, self._progress_token)
        except PenstockError:
            self._written = None
            raise
        self._written, self._written_at = checkpoint_ts, now
        return True

    def _read(self) -> int:
        progress, found = self._store.read(PROGRESS_PATH), self._store.read(METADATA_PATH)
        self._progress_token = progress.token if progress is not None else None
        self._token = found.token if found is not None else None
        if found is None:
            return 0
        try:
            return int(json.loads(found.data)["checkpoint-ts"])
        except (ValueError, KeyError, TypeError) as error:
            raise Corruption(f"{METADATA_PATH} at the sink cannot be read: {found.data[:100]!r}") from error
