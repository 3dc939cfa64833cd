"""Reads the runs of one ledger, one after the other, for one reader: from the cache, else from the ledger store.

A read that fails is repeated, with the next copy of the ledger where there are several. Once every copy was tried
`attempts_max` times, the read fails, and the error says what each copy answered. Bytes below the durable end that do not
decode are corruption; they are never skipped.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from penstock.errors import BadInput, Corruption, PenstockError, StorageFailed, Unavailable
from penstock.log.frames.check import check_chunk
from penstock.log.frames.file_header import corruption
from penstock.log.frames.format import Header
from penstock.log.frames.reader import BadFrameAt, scan_frames
from penstock.log.ledgers.footer import Footer
from penstock.log.ledgers.store import LedgerFile, LedgerStore
from penstock.log.read.cache import LogKey, ReadCache
from penstock.log.read.locator import Locator
from penstock.log.read.positions import LedgerView
from penstock.log.read.run import FrameRun
from penstock.observe.metrics import METRICS

_CHUNK_BYTES_MIN = 128 << 10
_CHUNK_BYTES_MAX = 2 << 20  # stays in the processor's cache between the read and its check
READ_ATTEMPTS_MAX = 3


_FAILURES = (BadFrameAt, Corruption, OSError, StorageFailed, Unavailable)


class _Attempts:
    """The failed attempts of one read, and the last failure of each copy."""

    def __init__(self) -> None:
        self.made = 0
        self._failures: dict[int, PenstockError] = {}

    def add(self, copy: int, failure: PenstockError) -> None:
        self.made += 1
        self._failures[copy] = failure

    def error(self) -> PenstockError:
        """A failure that may heal, if there is one, with the messages of all of them."""
        failures = [self._failures[copy] for copy in sorted(self._failures)]
        worst = next((one for one in failures if one.transient), failures[0])
        if len(failures) == 1:
            return worst
        return type(worst)("; ".join(one.message for one in failures), hint=worst.hint)


class RunReader:
    """Not thread-safe: for one pass of one reader.

    `reread(view)` is called where a copy is gone: it returns the ledger as the list has it now, or raises where the list has
    it no more.
    """

    def __init__(
        self,
        log: LogKey,
        view: LedgerView,
        *,
        store: LedgerStore,
        locator: Locator,
        cache: ReadCache,
        reread: Callable[[LedgerView], LedgerView],
        attempts_max: int = READ_ATTEMPTS_MAX,
    ) -> None:
        self._log = log
        self._view = view
        self._store = store
        self._locator = locator
        self._cache = cache
        self._reread = reread
        self._attempts_max = attempts_max
        self._file: LedgerFile | None = None
        self._chunk = _CHUNK_BYTES_MIN
        self._next: tuple[int, int] | None = None  # the entry after the last run, and its offset

    def run(self, entry: int, last: int) -> FrameRun:
        """A run that holds `entry`. It may reach beyond entry `last`, but not beyond the durable end."""
        log, ledger_id = self._log, self._view.info.id
        cached = self._cache.get(log, ledger_id, entry)
        if cached is not None:
            self._next = None
            return cached
        if self._chunk == _CHUNK_BYTES_MAX and not self._cache.shared(log):
            return self._load(entry, last)  # a long pass of the only reader: caching it pushes out the rest for nothing
        return self._cache.load(log, ledger_id, entry, lambda: self._load(entry, last))

    def headers(self, first: int, last: int) -> Iterator[tuple[Header, bytes]]:
        """The headers and encoded changes of entries `first` to `last`, without the data. The cache is not used."""
        attempts = _Attempts()
        while first <= last:
            try:
                file, view = self._opened(attempts), self._view
                offset, stop = self._locator.locate(file, view, first, self._kept(first, last))
                for at, header, changes in scan_frames(file, view.info.id, offset, first, stop):
                    if not view.info.sealed:
                        self._locator.remember(view.info.id, header.entry_id + 1, at + header.frame_bytes)
                    first = header.entry_id + 1
                    yield header, changes
                    if first > last:
                        return
                raise BadFrameAt(stop, f"entry {first} should stand before here")
            except _FAILURES as error:
                self._failed(attempts, first, error)

    def footer(self) -> Footer:
        """The index of a sealed ledger."""
        attempts = _Attempts()
        while True:
            try:
                return self._locator.footer(self._opened(attempts), self._view.info)
            except _FAILURES as error:
                self._failed(attempts, 0, error)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _kept(self, first: int, last: int) -> int:
        """The last entry up to `last` that the ledger has. Raises `BadInput` where it has no entry `first` any more."""
        if first >= self._view.entries:
            raise BadInput(
                f"entry {self._view.info.id}:{first} was truncated meanwhile", hint="ask for the log's end()"
            )
        return min(last, self._view.entries - 1)

    def _opened(self, attempts: _Attempts) -> LedgerFile:
        if self._file is None:
            self._file = self._store.open(self._view.info, attempts.made % self._store.copies(self._view.info))
        return self._file

    def _failed(self, attempts: _Attempts, entry: int, error: Exception) -> None:
        """Notes that a copy could not be read, so that the next is tried. Raises once all were tried often enough."""
        path = self._file.path if self._file is not None else None
        self.close()
        self._next = None
        copies = self._store.copies(self._view.info)
        copy = attempts.made % copies
        if isinstance(error, FileNotFoundError):
            view, self._view = self._view, self._reread(self._view)
            if self._view.info != view.info:
                return  # the ledger was moved meanwhile: it has other copies now
            failure: PenstockError = corruption(
                error.filename or str(error), 0, "the ledger list names this file, but it is missing"
            )
        elif isinstance(error, BadFrameAt):
            assert path is not None
            failure = corruption(path, error.offset, error.reason)
        elif isinstance(error, Corruption):
            failure = error
        else:
            failure = Unavailable(
                f"ledger {self._view.info.id} cannot be read at entry {entry}: {error}",
                hint="check the disk; nothing was changed, and the read may be tried again",
            )
        failure.__cause__ = error if failure is not error else error.__cause__
        attempts.add(copy, failure)
        if attempts.made >= self._attempts_max * copies:
            raise attempts.error()

    def _load(self, entry: int, last: int) -> FrameRun:
        attempts = _Attempts()
        while True:
            try:
                started = time.perf_counter()
                run = self._read(self._opened(attempts), entry, last)
                METRICS.log_read_seconds.observe(time.perf_counter() - started)
                METRICS.log_read_bytes.inc(len(run.raw))
                return run
            except _FAILURES as error:
                self._failed(attempts, entry, error)

    def _read(self, file: LedgerFile, entry: int, last: int) -> FrameRun:
        view, last = self._view, self._kept(entry, last)
        if self._next is not None and self._next[0] == entry:
            offset = self._next[1]
            stop = view.frames_end
        else:
            offset, stop = self._locator.locate(file, view, entry, last)
        if view.info.sealed:  # read whole frames, so that no byte is read twice
            size = self._locator.footer(file, view.info).frames_within(entry, self._chunk, last + 1)[0]
        else:
            size = min(self._chunk, stop - offset)
        while True:
            with self._cache.limiter.take(size):
                raw = file.read_at(offset, size)
                table, _, need, reason, more = check_chunk(raw, view.info.id, entry)
            if len(table) or reason:
                break
            if offset + need > stop or len(raw) < size:
                raise BadFrameAt(offset, "the frame reaches over the end")
            size = min(max(need, self._chunk), stop - offset)
        if not len(table):
            raise BadFrameAt(offset, reason)
        # Where a bad frame follows good ones, the good ones are handed out; the next read fails at the bad one.
        run = FrameRun(view.info.id, entry, raw, table, more)
        self._next = (run.last + 1, offset + run.end)
        if not view.info.sealed:
            self._locator.remember(view.info.id, *self._next)
        self._chunk = min(2 * self._chunk, _CHUNK_BYTES_MAX)
        return run
