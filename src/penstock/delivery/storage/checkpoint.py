"""The file `metadata` at the prefix's root, `{"checkpoint-ts":N}`: consumers skip table versions above N.

It is written at most every two seconds, and N never goes back, not even after a restart: it is replaced only by whoever
knows what it holds, so that the write of a dead process that arrives late changes nothing. `_penstock/progress.json`
(progress.py) is written after it.
"""

from __future__ import annotations

import json

from penstock.clock import Clock
from penstock.delivery.storage.layout import METADATA_PATH
from penstock.delivery.storage.place import SinkObjects
from penstock.delivery.storage.progress import AskPoint, ProgressFile
from penstock.errors import Corruption, PenstockError
from penstock.objects import Found

METADATA_SECONDS_MIN = 2.0


class CheckpointFile:
    """For one thread at a time. Calling `write` often is cheap: it writes only when that is due."""

    def __init__(
        self, store: SinkObjects, clock: Clock, changefeed: str, *, epoch: int = 0, ask_point: AskPoint | None = None
    ) -> None:
        self._store = store
        self._clock = clock
        self._progress = ProgressFile(store, clock, changefeed, epoch, ask_point)
        self._written: int | None = None  # None: nobody knows what the file at the sink holds
        self._token: str | None = None  # of what it holds
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
        moved = checkpoint_ts > self._written and (at_once or not early)
        try:
            if moved:
                content = json.dumps({"checkpoint-ts": checkpoint_ts}, separators=(",", ":")).encode()
                self._token = self._store.put_if(METADATA_PATH, content, self._token)
            self._progress.write(checkpoint_ts if moved else self._written, moved=moved, at_once=at_once)
        except PenstockError:
            self._written = None
            raise
        if moved:
            self._written, self._written_at = checkpoint_ts, now
        return moved

    def _read(self) -> int:
        found = self._store.read(METADATA_PATH)
        self._token = found.token if found is not None else None
        return checkpoint_of(found)


def checkpoint_of(found: Found | None) -> int:
    """The checkpoint that the file holds, 0 where there is none. Raises `Corruption`."""
    if found is None:
        return 0
    try:
        return int(json.loads(found.data)["checkpoint-ts"])
    except (ValueError, KeyError, TypeError) as error:
        raise Corruption(f"{METADATA_PATH} at the sink cannot be read: {found.data[:100]!r}") from error
