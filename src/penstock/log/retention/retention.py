"""The owner's calls that decide what its log keeps: trim, offload, clear, truncate, pins, maintenance."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection

from penstock.errors import BadInput, Corruption, StorageFailed
from penstock.files import Files
from penstock.log.append.appender import Appender
from penstock.log.cursors.table import CursorTable
from penstock.log.ledgers import holds
from penstock.log.ledgers.catalog import LedgerCatalog
from penstock.log.ledgers.info import LedgerInfo
from penstock.log.ledgers.store import LedgerStore
from penstock.log.offload.offloader import Offloader, OffloadProgress
from penstock.log.position import Position
from penstock.log.read.reader import LogReader
from penstock.log.retention.maintenance import Maintenance
from penstock.log.retention.skip import Skipping, plan_skip, skip_in_list
from penstock.log.retention.trim import Trimmer
from penstock.log.retention.truncate import Truncator
from penstock.log.settings import LogSettings
from penstock.metadata import MetadataStore


class Retention:
    """Thread-safe. `Log` documents the calls of the same name, and checks the ownership where one needs it.

    `reader` and `cursors` are called when they are needed: making them reads the log. `on_gone` gets the ledgers that
    left the list by a truncation.
    """

    def __init__(
        self,
        log_name: str,
        thread_name: str,
        *,
        files: Files,
        settings: LogSettings,
        metadata: MetadataStore,
        catalog: LedgerCatalog,
        store: LedgerStore,
        trimmer: Trimmer,
        offloader: Offloader,
        appender: Appender,
        reader: Callable[[], LogReader],
        cursors: Callable[[], CursorTable],
        check_owner: Callable[[], None],
        on_gone: Callable[[set[int]], None],
    ) -> None:
        self._log_name = log_name
        self._files = files
        self._settings = settings
        self._metadata = metadata
        self._catalog = catalog
        self._store = store
        self._trimmer = trimmer
        self._offloader = offloader
        self._appender = appender
        self._reader = reader
        self._cursors = cursors
        self._check_owner = check_owner
        self._on_gone = on_gone
        self._maintenance = Maintenance(thread_name, settings.maintenance_interval_seconds, self.maintain)

    def start_maintenance(self) -> None:
        """From here on the maintenance thread calls `maintain`."""
        self._maintenance.start()

    @property
    def maintenance_error(self) -> Exception | None:
        """Why the last round of the maintenance failed; None where it went well."""
        return self._maintenance.last_error

    @property
    def maintenance_failures(self) -> int:
        return self._maintenance.failures

    def roll(self) -> bool:
        return self._appender.call_on_writer_thread(self._appender.ledgers.roll)

    def trim(self) -> list[int]:
        gone = self._trimmer.trim()
        self._offloader.discard()
        return gone

    def offload(
        self, url: str | None, keep_bytes: int, progress: Callable[[OffloadProgress], None] | None
    ) -> list[int]:
        url = url or self._settings.offload_url
        if url is None:
            raise BadInput("nothing says where ledgers go to", hint="give a URL, or set offload_url")
        return self._offloader.offload(url, keep_bytes, progress)

    def clear(self) -> None:
        if pinned := self.pins():
            raise BadInput(f"the log is pinned by {', '.join(sorted(pinned))}", hint="unpin it first")
        self._appender.call_on_writer_thread(self._appender.ledgers.seal_all)
        self._trimmer.clear()
        self._appender.call_on_writer_thread(self._tell_readers)
        self._offloader.discard()

    def _tell_readers(self) -> None:
        """On the writer thread: readers in other processes look at the list again, as after a truncation. The slot alone
        would not tell them, where they saw the list between the last roll and the trim."""
        if self._catalog.list.terminated:
            return
        ledgers = self._appender.ledgers
        ledgers.open()
        self._catalog.change(lambda listed: dataclasses.replace(listed, truncations=listed.truncations + 1))
        ledgers.rewind_end(ledgers.last)

    def maintain(self) -> None:
        self._appender.call_on_writer_thread(self._appender.ledgers.roll_if_old)
        self._check_owner()
        failed: StorageFailed | Corruption | None = None
        if self._settings.cursor_inactive_seconds_max is not None:
            try:
                self._cursors().expire(self._settings.cursor_inactive_seconds_max)
            except (StorageFailed, Corruption) as error:  # a log that is not trimmed for it fills the disk
                failed = error
        self._trimmer.trim()
        self._offloader.wake()
        if failed is not None:
            raise failed

    def maintain_soon(self) -> None:
        self._maintenance.wake()

    def pin(self, name: str, position: Position) -> None:
        holds.put_pin(self._metadata, self._log_name, name, position)

    def unpin(self, name: str) -> None:
        holds.remove_pin(self._metadata, self._log_name, name)
        self.maintain_soon()

    def pins(self) -> dict[str, Position]:
        return holds.pins(self._metadata, self._log_name)

    def check_truncate(self, position: Position, *, own: Collection[str], force: bool) -> None:
        self._appender.check_may_wait()
        self._truncator().check(position, own=own, force=force)

    def truncate(self, position: Position, *, own: Collection[str], force: bool) -> list[int]:
        self._appender.check_may_wait()  # before any cursor is moved
        truncator = self._truncator()
        if force:
            truncator.check(position, own=own, force=True)  # a truncation that is refused moves no cursor
            names = [hold.name for hold in truncator.beyond(position, own) if hold.kind == "cursor"]
            self._cursors().reset(names, self._reader().next(position), self._check_owner)
        gone = self._appender.call_on_writer_thread(lambda: truncator.truncate(position, own=own, force=force))
        self._on_gone(gone)
        self._cursors().follow_log()
        self._trimmer.delete_tombstoned()
        self._offloader.discard()
        return sorted(gone)

    def skip(self, ledger_id: int, *, dry_run: bool) -> Skipping:
        def plan() -> tuple[Skipping, LedgerInfo]:
            return plan_skip(self._reader(), self._catalog.list, ledger_id, self._files, self._cursors())

        skipping, skipped = plan()
        if not dry_run:
            newest = self._catalog.list.ledgers[-1]
            if newest.id == ledger_id and not newest.sealed:  # it is still written: the plan holds once it is not
                self._appender.call_on_writer_thread(self._appender.ledgers.seal_all)
                skipping, skipped = plan()
            self._catalog.change(lambda listed: skip_in_list(listed, skipped))
            self._on_gone({ledger_id})
            self._cursors().follow_log()
        return skipping

    def close(self) -> None:
        """Ends the maintenance, then the offload."""
        try:
            self._maintenance.close()
        finally:
            self._offloader.close()

    def _truncator(self) -> Truncator:
        return Truncator(
            self._log_name,
            metadata=self._metadata,
            catalog=self._catalog,
            store=self._store,
            appender=self._appender,
            reader=self._reader(),
            cursors=self._cursors().positions,
        )
