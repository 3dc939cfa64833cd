"""Reads the runs of one ledger, one after the other, for one reader: from the cache, else from the store.

A read that fails is tried again, from the next copy where there is one, each several times; then it fails by name. Bytes
below the durable end that do not decode are corruption, never skipped.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from uuid import UUID

from penstock.errors import Corruption, PenstockError, StorageFailed, Unavailable
from penstock.log.frames.check import check_chunk
from penstock.log.frames.file_header import corruption
from penstock.log.frames.format import Header
from penstock.log.frames.reader import BadFrameAt, scan_frames
from penstock.log.ledgers.footer import Footer
from penstock.log.ledgers.store import LedgerFile, LedgerStore
from penstock.log.read.cache import ReadCache
from penstock.log.read.locator import Locator
from penstock.log.read.positions import LedgerView
from penstock.log.read.run import FrameRun
from penstock.observe.metrics import METRICS

_CHUNK_BYTES_MIN = 128 << 10
_CHUNK_BYTES_MAX = 2 << 20  # stays in the processor's cache between the read and its check
READ_ATTEMPTS_MAX = 3


class ReadFailed(Unavailable):
    """Every copy of a ledger refused to be read, several times. Nothing was changed; it may heal."""


_FAILURES = (BadFrameAt, Corruption, OSError, StorageFailed, Unavailable)


class _Tries:
    """How often the copies of a ledger were asked for one thing, and what each said last."""

    def __init__(self) -> None:
        self.made = 0
        self._failures: dict[int, PenstockError] = {}

    def add(self, copy: int, failure: PenstockError) -> None:
        self.made += 1
        self._failures[copy] = failure

    def error(self) -> PenstockError:
        """One that may heal, where there is one; the others in its words."""
        failures = [self._failures[copy] for copy in sorted(self._failures)]
        worst = next((one for one in failures if one.transient), failures[0])
        if len(failures) == 1:
            return worst
        return type(worst)("; ".join(one.message for one in failures), hint=worst.hint)


class RunReader:
    """Not thread-safe: one pass of one reader. `missing(view)` is asked where a copy is not there: it gives the ledger as
    the list has it now, or says what it means that the list does not have it."""

    def __init__(
        self,
        log: UUID,
        view: LedgerView,
        *,
        store: LedgerStore,
        locator: Locator,
        cache: ReadCache,
        missing: Callable[[LedgerView], LedgerView],
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

    def run(self, entry: int, last: int) -> FrameRun:
        """A run that holds `entry`; it may reach beyond `last`, but not beyond the durable end."""
        log, ledger_id = self._log, self._view.info.id
        cached = self._cache.get(log, ledger_id, entry)
        if cached is not None:
            self._next = None
            return cached
        if self._chunk == _CHUNK_BYTES_MAX and not self._cache.shared(log):
            return self._load(entry, last)  # a long pass by the only reader would push everything else out, for nobody
        return self._cache.load(log, ledger_id, entry, lambda: self._load(entry, last))

    def headers(self, first: int, last: int) -> Iterator[tuple[Header, bytes]]:
        """The headers and encoded changes of these entries, without the data, past the cache."""
        tries = _Tries()
        while first <= last:
            try:
                file, view = self._opened(tries), self._view
                offset, stop = self._locator.locate(file, view, first, last)
                for at, header, changes in scan_frames(file, view.info.id, offset, first, stop):
                    if not view.info.sealed:
                        self._locator.remember(view.info.id, header.entry_id + 1, at + header.frame_bytes)
                    first = header.entry_id + 1
                    yield header, changes
                    if first > last:
                        return
                raise BadFrameAt(stop, f"entry {first} should stand before here")
            except _FAILURES as error:
                self._failed(tries, first, error)

    def footer(self) -> Footer:
        """The index of a sealed ledger."""
        tries = _Tries()
        while True:
            try:
                return self._locator.footer(self._opened(tries), self._view.info)
            except _FAILURES as error:
                self._failed(tries, 0, error)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _opened(self, tries: _Tries) -> LedgerFile:
        if self._file is None:
            self._file = self._store.open(self._view.info, tries.made % self._store.copies(self._view.info))
        return self._file

    def _failed(self, tries: _Tries, entry: int, error: Exception) -> None:
        """A copy could not be read: the next one is asked. Raises where each was asked often enough."""
        path = self._file.path if self._file is not None else None
        self.close()
        self._next = None
        copies = self._store.copies(self._view.info)
        copy = tries.made % copies
        if isinstance(error, FileNotFoundError):
            view, self._view = self._view, self._missing(self._view)
            if self._view.info != view.info:
                return  # it was moved meanwhile: the copies are others now
            failure: PenstockError = corruption(
                error.filename or str(error), 0, "the ledger list names this file, but it is missing"
            )
        elif isinstance(error, BadFrameAt):
            assert path is not None
            failure = corruption(path, error.offset, error.reason)
        elif isinstance(error, Corruption):
            failure = error
        else:
            failure = ReadFailed(
                f"ledger {self._view.info.id} cannot be read at entry {entry}: {error}",
                hint="check the disk; nothing was changed, and the read may be tried again",
            )
        failure.__cause__ = error if failure is not error else error.__cause__
        tries.add(copy, failure)
        if tries.made >= self._attempts_max * copies:
            raise tries.error()

    def _load(self, entry: int, last: int) -> FrameRun:
        tries = _Tries()
        while True:
            try:
                started = time.perf_counter()
                run = self._read(self._opened(tries), entry, last)
                METRICS.log_read_seconds.observe(time.perf_counter() - started)
                METRICS.log_read_bytes.inc(len(run.raw))
                return run
            except _FAILURES as error:
                self._failed(tries, entry, error)

    def _read(self, file: LedgerFile, entry: int, last: int) -> FrameRun:
        view = self._view
        if self._next is not None and self._next[0] == entry:
            offset = self._next[1]
            stop = view.frames_end
        else:
            offset, stop = self._locator.locate(file, view, entry, last)
        if view.info.sealed:  # cut where a frame ends: nothing is read twice
            size = self._locator.footer(file, view.info).frames_within(entry, self._chunk, last + 1)[0]
        else:
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
        run = FrameRun(view.info.id, entry, raw, table)
        self._next = (run.last + 1, offset + run.end)
        if not view.info.sealed:
            self._locator.remember(view.info.id, *self._next)
        self._chunk = min(2 * self._chunk, _CHUNK_BYTES_MAX)
        return run
