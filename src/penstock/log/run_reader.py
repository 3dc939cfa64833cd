"""Reads the runs of one ledger, one after the other, for one reader: from the cache, else from the store.

A read that fails is tried again, from the next copy where there is one; then it fails by name. Bytes below the durable
end that do not decode are corruption, never skipped.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NoReturn
from uuid import UUID

from penstock.errors import Corruption, StorageFailed, Unavailable
from penstock.log.cache import ReadCache
from penstock.log.file_header import corruption
from penstock.log.frame_reader import BadFrameAt
from penstock.log.ledger_store import LedgerFile, LedgerStore
from penstock.log.locate import Locator
from penstock.log.runs import Run, check_chunk
from penstock.log.views import LedgerView
from penstock.observe.metrics import METRICS

_CHUNK_BYTES_MIN = 128 << 10
_CHUNK_BYTES_MAX = 1 << 20  # stays in the processor's cache between the read and its check
READ_ATTEMPTS_MAX = 3


class ReadFailed(Unavailable):
    """Every copy of a ledger refused to be read, several times. Nothing was changed; it may heal."""


class RunReader:
    """Not thread-safe: one pass of one reader. `missing(view)` says what it means that the ledger is not there."""

    def __init__(
        self,
        log: UUID,
        view: LedgerView,
        *,
        store: LedgerStore,
        locator: Locator,
        cache: ReadCache,
        missing: Callable[[LedgerView], NoReturn],
        attempts_max: int = READ_ATTEMPTS_MAX,
    ) -> None:
        self._log = log
        self._view = view
        self._store = store
        self._locator = locator
        self._cache = cache
        self._missing = missing
        self._attempts_max = attempts_max
        self._file: LedgerFile | None = None
        self._chunk = _CHUNK_BYTES_MIN
        self._next: tuple[int, int] | None = None  # the entry after the last run, and its offset

    def run(self, entry: int, last: int) -> Run:
        """A run that holds `entry`; it may reach beyond `last`, but not beyond the durable end."""
        log, ledger_id = self._log, self._view.info.id
        cached = self._cache.get(log, ledger_id, entry)
        if cached is not None:
            self._next = None
            return cached
        # A long pass by the only reader would push everything else out, for nobody.
        keep = self._chunk < _CHUNK_BYTES_MAX or self._cache.shared(log)
        return self._cache.load(log, ledger_id, entry, lambda: self._load(entry, last), keep=keep)

    def file(self, copy: int = 0) -> LedgerFile:
        if self._file is None:
            try:
                self._file = self._store.open(self._view.info, copy)
            except FileNotFoundError:
                self._missing(self._view)
        return self._file

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _load(self, entry: int, last: int) -> Run:
        copies = self._store.copies(self._view.info)
        failure: Exception | None = None
        for attempt in range(max(self._attempts_max, copies)):
            try:
                started = time.perf_counter()
                run = self._read(self.file(attempt % copies), entry, last)
                METRICS.log_read_seconds.observe(time.perf_counter() - started)
                METRICS.log_read_bytes.inc(len(run.raw))
                return run
            except BadFrameAt as error:
                assert self._file is not None
                failure = corruption(self._file.path, error.offset, error.reason)
            except Corruption as error:
                failure = error
            except (OSError, StorageFailed) as error:
                failure = ReadFailed(
                    f"ledger {self._view.info.id} cannot be read at entry {entry}: {error}",
                    hint="check the disk; nothing was changed, and the read may be tried again",
                )
                failure.__cause__ = error
            self.close()
            self._next = None
        assert failure is not None
        raise failure

    def _read(self, file: LedgerFile, entry: int, last: int) -> Run:
        view = self._view
        if self._next is not None and self._next[0] == entry:
            offset = self._next[1]
            stop = view.frames_end
        else:
            offset, stop = self._locator.locate(file, view, entry, last)
        size = min(self._chunk, stop - offset)
        while True:
            with self._cache.limiter.take(size):
                raw = file.read_at(offset, size)
                table, _, need, reason = check_chunk(raw, view.info.id, entry)
            if len(table) or reason:
                break
            if offset + need > stop or len(raw) < size:
                raise BadFrameAt(offset, "the frame reaches over the end")
            size = min(max(need, self._chunk), stop - offset)
        if not len(table):
            raise BadFrameAt(offset, reason)
        # Where a bad frame follows good ones, the good ones are handed out; the next read stops at it.
        run = Run(view.info.id, entry, raw, table)
        self._next = (run.last + 1, offset + run.end)
        if not view.info.sealed:
            self._locator.remember(view.info.id, *self._next)
        self._chunk = min(2 * self._chunk, _CHUNK_BYTES_MAX)
        return run
