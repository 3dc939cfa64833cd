"""Offloads a log in rounds, one at a time: started by the log's maintenance or by a caller.

A round (1) deletes discarded objects, (2) copies sealed ledgers beyond a threshold, oldest first, (3) removes the local
files of copied ledgers after the lag, (4) deletes what was discarded on the way. Rounds of the maintenance run on a thread of
their own, so that neither trim nor roll waits for a remote store; the thread ends with the round. Closing the log stops a
round before its next put.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Sequence
from typing import NamedTuple

from penstock.clock import Clock
from penstock.errors import Closed, Corruption, Fenced, PenstockError, Unavailable
from penstock.log.ledgers.catalog import LedgerCatalog
from penstock.log.ledgers.info import LedgerInfo
from penstock.log.offload.steps import OffloadSteps, Superseded
from penstock.log.offload.store import TieredLedgerStore
from penstock.log.settings import LogSettings
from penstock.objects import checked_url
from penstock.threads import start_thread

_PAUSE_SECONDS = 30.0  # after a failed round, before the maintenance starts the next

_logger = logging.getLogger(__name__)


class OffloadInProgress(Unavailable):
    """An offload of this log is under way; there is one at a time."""


class OffloadProgress(NamedTuple):
    """How far a round is: `bytes` of `bytes_total` of ledger `ledger_id`, which is number `ledger` of `ledgers` to copy."""

    ledger_id: int
    bytes: int
    bytes_total: int
    ledger: int
    ledgers: int


Progress = Callable[[OffloadProgress], None]


def to_offload(ledgers: Sequence[LedgerInfo], keep_bytes: int) -> list[LedgerInfo]:
    """The sealed ledgers without a complete copy, except the newest `keep_bytes` of them; oldest first."""
    going: list[LedgerInfo] = []
    kept = 0
    for info in reversed(ledgers):
        if info.sealed and not info.is_offloaded and not info.skipped:  # what is damaged is not copied
            kept += info.frames_end
            if kept > keep_bytes:
                going.append(info)
    return going[::-1]


class Offloader:
    """Offloads one log for its owner. Thread-safe. `check_owner` raises `Fenced` where another owner took over."""

    def __init__(
        self,
        name: str,
        *,
        settings: LogSettings,
        clock: Clock,
        catalog: LedgerCatalog,
        store: TieredLedgerStore,
        check_owner: Callable[[], None],
    ) -> None:
        self._name = name
        self._settings = settings
        self._clock = clock
        self._catalog = catalog
        self._store = store
        self._check_owner = check_owner
        self._steps = OffloadSteps(
            part_bytes=settings.offload_part_bytes, clock=clock, catalog=catalog, store=store, check=self._check
        )
        self._busy = threading.Lock()  # held during a round
        self._caller: threading.Thread | None = None  # whose round it is, where a caller makes one
        self._thread_lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._closing = False
        self._damaged: set[int] = set()  # ledgers with a damaged local file: the maintenance does not try them again
        self._not_before = 0.0
        moved = {info.id for info in catalog.list.ledgers if not info.is_local}
        self._leftovers = moved & set(store.list()) if moved else set()  # ledgers whose local file is to be removed
        self.progress: OffloadProgress | None = None
        self.last_error: Exception | None = None

    @property
    def failures(self) -> int:
        """Copies that failed, since the log was opened."""
        return self._steps.failures

    @property
    def failed_deletes(self) -> int:
        return self._steps.failed_deletes

    def offload(self, url: str, keep_bytes: int = 0, progress: Progress | None = None) -> list[int]:
        """Makes one round on this thread. Returns the ledgers that were copied. Raises `OffloadInProgress`."""
        url = checked_url(url)
        if not self._busy.acquire(blocking=False):
            raise OffloadInProgress(f"{self._name}: an offload is under way", hint="try again when it is done")
        try:
            self._caller = threading.current_thread()
            return self._round(url, keep_bytes, progress, skip=set())
        finally:
            self._caller = None
            self._busy.release()

    def wake(self) -> None:
        """For the maintenance: starts a round if there is work. Returns at once."""
        if self._busy.locked() or not self._is_due():
            return
        with self._thread_lock:
            if self._closing or (self._thread is not None and self._thread.is_alive()):
                return
            self._thread = start_thread(self._run, f"{self._name} offload")

    def discard(self) -> None:
        """Deletes the objects that a trim just discarded; a round that is under way does it at its end instead."""
        if self._catalog.list.discarded and self._busy.acquire(blocking=False):
            try:
                self._discard()
            finally:
                self._busy.release()

    def close(self) -> None:
        """Stops a round before its next put. Returns once nothing runs any more, except where it is called in the round
        itself, by `progress`: that round ends with `Closed`."""
        with self._thread_lock:
            self._closing = True
            thread = self._thread
        if thread is not None:
            thread.join()
        if self._caller is not threading.current_thread():
            with self._busy:
                pass

    def _is_due(self) -> bool:
        listed, settings = self._catalog.list, self._settings
        if self._clock.monotonic() < self._not_before:
            return False
        if listed.discarded or self._leftovers or any(map(self._is_over_lag, listed.ledgers)):
            return True
        if settings.offload_url is None or settings.offload_threshold_bytes is None:
            return False
        going = to_offload(listed.ledgers, settings.offload_threshold_bytes)
        return any(info.id not in self._damaged for info in going)

    def _is_over_lag(self, info: LedgerInfo) -> bool:
        if info.offload is None or info.offload.state != "copied":
            return False
        lag_ms = self._settings.offload_deletion_lag_seconds * 1000
        return self._clock.wall_ms() - info.offload.copied_ms >= lag_ms

    def _run(self) -> None:
        settings = self._settings
        url = checked_url(settings.offload_url) if settings.offload_url is not None else None
        with self._busy:
            try:
                self.last_error = None
                self._round(url, settings.offload_threshold_bytes, None, skip=self._damaged)
            except (Closed, Fenced):
                return
            except (PenstockError, OSError) as error:  # the next round tries again; statistics show it
                _logger.warning("offload of %s failed and will be tried again: %s", self._name, error)
                self.last_error = error
                self._not_before = self._clock.monotonic() + _PAUSE_SECONDS

    def _round(self, url: str | None, keep_bytes: int | None, progress: Progress | None, skip: set[int]) -> list[int]:
        done: list[int] = []
        errors: list[Corruption] = []  # each of one ledger: the round goes on with the others
        try:
            self._discard()
            if url is not None and keep_bytes is not None:
                going = [info for info in to_offload(self._catalog.list.ledgers, keep_bytes) if info.id not in skip]
                for number, info in enumerate(going, 1):
                    try:
                        self._steps.copy(info, url, self._reporter(info, number, len(going), progress))
                        done.append(info.id)
                    except Superseded:
                        continue
                    except Corruption as error:
                        self._damaged.add(info.id)
                        errors.append(error)
            errors += self._remove_local_files()
        except BaseException:
            if not self._closing:
                with contextlib.suppress(PenstockError):
                    self._discard()
            raise
        finally:
            self.progress = None
        self._discard()
        if errors:
            raise errors[0]
        return done

    def _reporter(
        self, info: LedgerInfo, number: int, ledgers: int, progress: Progress | None
    ) -> Callable[[int], None]:
        def report(size: int) -> None:
            self.progress = OffloadProgress(info.id, size, info.frames_end, number, ledgers)
            if progress is not None:
                progress(self.progress)

        return report

    def _remove_local_files(self) -> list[Corruption]:
        """Steps 5 and 6, for every ledger whose lag is over."""
        errors: list[Corruption] = []
        for info in self._catalog.list.ledgers:
            if self._is_over_lag(info):
                try:
                    self._steps.move(info)
                except Superseded:
                    continue
                except Corruption as error:
                    errors.append(error)
                    continue
                self._leftovers.add(info.id)
            if info.id in self._leftovers:
                self._remove_local(info.id)
        for number in sorted(self._leftovers):  # ledgers that were trimmed since
            self._remove_local(number)
        return errors

    def _remove_local(self, ledger_id: int) -> None:
        """Step 6. A file that cannot be removed now is tried again in the next round."""
        try:
            self._store.delete(ledger_id)
            self._leftovers.discard(ledger_id)
        except (PenstockError, OSError):
            self._steps.failed_deletes += 1

    def _discard(self) -> None:
        failure = self._steps.discard()
        if failure is not None:
            self.last_error = failure
            self._not_before = self._clock.monotonic() + _PAUSE_SECONDS

    def _check(self) -> None:
        if self._closing:
            raise Closed(f"{self._name} closes")
        self._check_owner()
