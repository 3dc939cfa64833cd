"""The parts of an owner's log: made in the order in which they need each other, closed in the reverse order.

`Log` (log.py) is the handle with the calls; what stands behind it is put together here.
"""

from __future__ import annotations

import contextlib
import enum
import logging
import threading
from pathlib import Path

from penstock.clock import Clock
from penstock.errors import Fenced, OutcomeUnknown, Unavailable, fresh
from penstock.files import Files
from penstock.log.append.appender import Appender
from penstock.log.append.request import Terminated
from penstock.log.attached import AttachedParts
from penstock.log.cursors.table import CursorTable
from penstock.log.offload.offloader import Offloader
from penstock.log.opening import take_ownership
from penstock.log.read.cache import cache_for, cache_key
from penstock.log.read.reader import LogReader
from penstock.log.read.tail import Tail
from penstock.log.retention.retention import Retention
from penstock.log.retention.trim import Trimmer
from penstock.log.settings import LogSettings
from penstock.log.statistics import LogStatistics, gather_statistics
from penstock.metadata import MetadataStore
from penstock.threads import start_thread

_logger = logging.getLogger(__name__)


class LogState(enum.StrEnum):
    """What may be done with a log: `Log.state` explains each."""

    OPEN = "open"
    TERMINATED = "terminated"
    STOPPED = "stopped"
    FENCED = "fenced"
    CLOSED = "closed"


class LogParts:
    """Thread-safe. The owner's lock on the directory is held already; `resources` are closed last."""

    def __init__(
        self,
        directory: Path,
        *,
        settings: LogSettings,
        files: Files,
        clock: Clock,
        metadata: MetadataStore,
        resources: contextlib.ExitStack,
    ) -> None:
        name = f"log {directory}"
        self.directory = directory
        self.files = files
        self.clock = clock
        self.metadata = metadata
        self.attached = AttachedParts(name)
        self.settings = settings
        self._resources = resources
        self._tail = Tail(is_notified=True)
        self._cache = cache_for(files)
        self._reader: LogReader | None = None
        self._cursors: CursorTable | None = None
        self._lock = threading.Lock()  # for the making of `_reader` and `_cursors`, and for `_closed`
        self._closed = False
        with contextlib.ExitStack() as on_error:
            owned = take_ownership(
                directory, settings=settings, files=files, clock=clock, metadata=metadata, resources=on_error
            )
            self._end_file, self.catalog, store = owned.end_file, owned.catalog, owned.store
            self._store = store
            self._cache_key = cache_key(self.catalog.list.uuid, directory)
            self._trimmer = Trimmer(
                directory.name,
                settings=settings,
                clock=clock,
                metadata=metadata,
                catalog=self.catalog,
                store=store,
                on_gone=self._forget_ledgers,
            )
            self._trimmer.delete_tombstoned()
            self._offloader = Offloader(
                name, settings=settings, clock=clock, catalog=self.catalog, store=store, check_owner=self.check_owner
            )
            self.appender = Appender(
                name,
                settings=settings,
                clock=clock,
                files=files,
                store=store,
                catalog=self.catalog,
                end_file=self._end_file,
                cache=self._cache,
                cache_key=self._cache_key,
                ledger=owned.ledger,
                last=owned.last,
                on_roll=self._rolled,
                on_publish=self._tail.notify,
            )
            on_error.callback(self.appender.close)
            self.retention = Retention(
                directory.name,
                name,
                files=files,
                settings=settings,
                metadata=metadata,
                catalog=self.catalog,
                store=store,
                trimmer=self._trimmer,
                offloader=self._offloader,
                appender=self.appender,
                reader=self.reader,
                cursors=self.cursors,
                check_owner=self.check_owner,
                on_gone=self._forget_ledgers,
            )
            self.retention.start_maintenance()  # last: its thread uses everything above
            on_error.pop_all()
        resources.callback(self._end_file.close)

    def reader(self) -> LogReader:
        """A reader that shares the owner's metadata store and cache. Made once."""
        with self._lock:
            if self._reader is None:
                self._reader = LogReader(
                    self.directory,
                    self.files,
                    self.metadata,
                    owns_metadata=False,
                    store=self._store,
                    cache=self._cache,
                    read_attempts_max=self.settings.read_attempts_max,
                )
                self._resources.callback(self._reader.close)
            return self._reader

    def cursors(self) -> CursorTable:
        """The cursors that are open here. Made once."""
        reader = self.reader()
        with self._lock:
            if self._cursors is None:
                self._cursors = CursorTable(
                    reader,
                    files=self.files,
                    clock=self.clock,
                    tail=self._tail,
                    on_moved=self.retention.maintain_soon,
                )
            return self._cursors

    def check_owner(self) -> None:
        """Raises `Fenced` where another owner came, `OutcomeUnknown` where nobody knows what the metadata store holds.
        Cheap: one small read."""
        if isinstance(self.appender.error, Fenced):
            raise fresh(self.appender.error)
        if (stopped := self.catalog.stopped) is not None:
            raise stopped
        self._end_file.check()

    def error(self) -> BaseException | None:
        """Why nothing is appended any more; None while something can be. A new error for each caller."""
        stopped = self.catalog.stopped
        error = self.appender.error
        if stopped is not None and not isinstance(error, Fenced | OutcomeUnknown):
            return stopped
        return None if error is None else fresh(error)

    def state(self) -> LogState:
        error = self.error()
        if error is None:
            return LogState.OPEN
        if isinstance(error, Terminated):
            return LogState.TERMINATED
        return LogState.FENCED if isinstance(error, Fenced) else LogState.STOPPED

    def statistics(self) -> LogStatistics:
        return gather_statistics(
            listed=self.catalog.list,
            views=self.reader().ledgers(),
            appender=self.appender,
            trimmer=self._trimmer,
            offloader=self._offloader,
            cache=self._cache,
            state=self.state(),
            error=self.error(),
            maintenance_error=self.retention.maintenance_error,
            maintenance_failures=self.retention.maintenance_failures,
        )

    @property
    def closed(self) -> bool:
        """Whether it was closed, or is being closed."""
        return self._closed

    def close(self) -> None:
        """What still appends is closed while appends work; the writer thread after it; locks and files last. Once.

        In a callback of an append, on the writer thread, all this is left to a thread of its own: the writer thread must
        first finish what waits, with the lock held and its files open. Raises `Unavailable` where the system gives none:
        then all is as before, and it may be closed later.
        """
        with self._lock:
            if self._closed:
                return
            self._closed = True
        if self.appender.runs_here():
            try:
                start_thread(self._close_behind, f"close of log {self.directory}", daemon=False)
            except Unavailable:
                self._closed = False
                raise
        else:
            self._close_all()

    def _close_behind(self) -> None:
        try:
            self._close_all()
        except Exception:
            _logger.exception("the close of log %s failed", self.directory)
        if self.appender.error is not None:
            _logger.warning("log %s was closed after an error: %s", self.directory, self.appender.error)

    def _close_all(self) -> None:
        with contextlib.ExitStack() as rest:
            rest.callback(self._resources.close)
            rest.callback(self.appender.close)
            rest.callback(self.retention.close)
            if self._cursors is not None:
                rest.callback(self._cursors.close)
            rest.callback(self.attached.close)

    def _rolled(self) -> None:
        self.retention.maintain_soon()
        self.attached.rolled()

    def _forget_ledgers(self, ledger_ids: set[int]) -> None:
        """The ledgers left the list: what is in memory of them goes too."""
        self._cache.drop(self._cache_key, ledger_ids)
        self.reader().refresh()
