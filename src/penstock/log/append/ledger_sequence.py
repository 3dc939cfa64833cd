"""The ledgers that an owner writes, one after the other: which is open, when it rolls, what replaces one that failed.

A ledger that fails is never written again: its last durable entry becomes its end, and the next one takes its place.
Everything here is called on the writer thread (appender.py).
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable

from penstock.clock import Clock
from penstock.errors import OutcomeUnknown, StorageFailed, Unavailable, fresh
from penstock.files import Files
from penstock.log.frames.end_file import HINTS_MAX, EndFile, FinalEnd
from penstock.log.ledgers.catalog import LedgerCatalog
from penstock.log.ledgers.info import LedgerInfo, LedgerList
from penstock.log.ledgers.store import LedgerStore, OpenLedger
from penstock.log.position import Position
from penstock.log.settings import LogSettings
from penstock.observe.metrics import METRICS

_HINT_BYTES = 1 << 20  # a reader that seeks in the open ledger walks over at most about this much
_ROLL_PAUSE_SECONDS = 1.0  # after a roll that failed, before the next attempt


@dataclasses.dataclass(slots=True)
class Counters:
    """What the writer thread did since the log was opened."""

    entries: int = 0
    bytes: int = 0
    messages: int = 0
    groups: int = 0
    rolls: int = 0
    switches: int = 0  # ledgers given up because they failed
    sync_seconds: float = 0.0


class LedgerSequence:
    """Owns the open ledger and the end that readers see."""

    def __init__(
        self,
        name: str,
        *,
        settings: LogSettings,
        clock: Clock,
        files: Files,
        store: LedgerStore,
        catalog: LedgerCatalog,
        end_file: EndFile,
        ledger: OpenLedger | None,
        last: Position,
        counters: Counters,
        on_roll: Callable[[], None],
        on_publish: Callable[[], None],
    ) -> None:
        self.last = last  # the last durable entry
        self._counters = counters
        self._on_publish = on_publish
        self._name = name
        self._settings = settings
        self._clock = clock
        self._files = files
        self._store = store
        self._catalog = catalog
        self._end_file = end_file
        self._ledger = ledger
        self._failed: OpenLedger | None = None  # given up, and not replaced yet
        self._on_roll = on_roll
        self._made = self._active = clock.monotonic()
        self._roll_not_before = self._made
        self._hinted = 0  # where the last hint for readers stands (end_file.py)
        self._unpublished: StorageFailed | None = None  # why readers do not see the newest end yet

    def used_now(self) -> None:
        self._active = self._clock.monotonic()

    def republish(self, ledger: OpenLedger) -> None:
        """Publishes the end of the last group again where that failed. Raises `StorageFailed`."""
        if self._unpublished is not None:
            self.publish(ledger, self.last)
            if self._unpublished is not None:
                raise fresh(self._unpublished)

    def publish(self, ledger: OpenLedger, last: Position) -> None:
        """Writes the end that readers see. A failure is kept and not raised: the entries are durable, so their appends
        must not fail. The next group begins with another attempt (`republish`)."""
        for _ in range(2):
            try:
                self._end_file.publish(ledger.info.id, ledger.synced_end, last, ledger.synced_messages)
                if ledger.synced_end - self._hinted >= max(
                    _HINT_BYTES, self._settings.ledger_bytes_max // HINTS_MAX * 2
                ):
                    self._end_file.hint(ledger.info.id, ledger.next_entry, ledger.synced_end)
                    self._hinted = ledger.synced_end
                self._unpublished = None
                self._on_publish()
                return
            except StorageFailed as error:
                self._unpublished = error
                with contextlib.suppress(OSError):
                    self._end_file.reopen(self._files)

    def may_roll(self) -> bool:
        now = self._clock.monotonic()
        return now >= self._roll_not_before and now - self._made >= self._settings.ledger_age_min_seconds

    def open(self) -> OpenLedger:
        """The ledger that takes the next entry: rolled where it is full or old, made again where it failed."""
        ledger = self._ledger
        if ledger is None:
            return self._replace_failed()
        settings = self._settings
        full = ledger.end >= settings.ledger_bytes_max or ledger.next_entry >= settings.ledger_entries_max
        if (full and self.may_roll()) or self._is_old():
            self.roll()
        assert self._ledger is not None
        return self._ledger

    def _is_old(self) -> bool:
        now = self._clock.monotonic()
        limits = (
            (self._settings.ledger_age_max_seconds, now - self._made),
            (self._settings.ledger_idle_max_seconds, now - self._active),
        )
        return now >= self._roll_not_before and any(limit is not None and age >= limit for limit, age in limits)

    def roll_if_old(self) -> bool:
        """For the maintenance. Whether it rolled."""
        ledger = self._ledger
        return ledger is not None and ledger.next_entry > 0 and self._is_old() and self.roll()

    def roll(self) -> bool:
        """(1) footer, sync; (2) the next file; (3) compare-and-set the list; (4) slot.

        False where the ledger is empty, where the disk has no room for a new file, or where the metadata store does not
        answer: then the ledger stays open, and appends go on in it beyond its limit.
        """
        old = self._ledger
        if old is None or not old.next_entry:
            return False
        sealed = old.seal()
        try:
            self._switch(sealed)
        except (StorageFailed, Unavailable):
            old.reopen()
            self._roll_not_before = self._clock.monotonic() + _ROLL_PAUSE_SECONDS
            return False
        except BaseException:
            old.reopen()  # the log may go on in it, and no frame may stand behind the footer
            raise
        old.close()
        self._counters.rolls += 1
        self._on_roll()
        return True

    def seal_all(self) -> None:
        """Every entry is in a sealed ledger when this returns. Raises `Unavailable`."""
        if self._catalog.list.terminated:
            return
        ledger = self.open()
        if ledger.next_entry and not self.roll():
            raise Unavailable(f"{self._name}: no new ledger can be made now", hint="try again later")

    def check_end_is_writable(self) -> None:
        """Publishes the present end once more. Raises `StorageFailed` where that fails: nothing was changed."""
        assert self._ledger is not None
        self.publish(self._ledger, self.last)
        if self._unpublished is not None:
            raise fresh(self._unpublished)

    def rewind_end(self, last: Position) -> None:
        """The list was shortened by a truncation: the log ends at `last` now.

        Raises `OutcomeUnknown` where the slot cannot be written: readers elsewhere would go on to show what was removed,
        and only the slot of the next owner tells them. So this owner stops, and claims nothing.
        """
        assert self._ledger is not None
        self.last = last
        self._end_file.truncations = self._catalog.list.truncations
        self.publish(self._ledger, last)
        if self._unpublished is not None:
            raise OutcomeUnknown(
                f"{self._name} was truncated to {last}, but readers in other processes could not be told: "
                f"{self._unpublished.message}",
                hint="free space or repair the disk, then open the log again: the truncation is complete then",
            ) from self._unpublished

    def give_up(self) -> None:
        """The open ledger failed: it is not written any more. The next `open` replaces it."""
        if self._ledger is not None:
            self._failed, self._ledger = self._ledger, None
            self._failed.close()

    def _replace_failed(self) -> OpenLedger:
        failed = self._failed
        assert failed is not None
        self._switch(failed.seal_as_failed())
        self._failed = None
        self._counters.switches += 1
        METRICS.log_failed_ledgers.inc()
        assert self._ledger is not None
        return self._ledger

    def _switch(self, sealed: LedgerInfo) -> None:
        """Puts a new ledger in the place of `sealed`, the last one of the list. An empty one becomes a tombstone."""
        started = time.perf_counter()
        number = self._catalog.list.next_ledger - 1  # reserved by the last change of the list
        new = self._store.create(number, self._catalog.list.epoch, self._clock.wall_ms())

        def update(listed: LedgerList) -> LedgerList:
            kept = tuple(info for info in listed.ledgers if info.id != sealed.id)
            deleting = listed.deleting
            if sealed.entries:
                kept = (*kept, sealed)
            else:
                deleting = (*deleting, sealed.id)
            return dataclasses.replace(
                listed, ledgers=(*kept, new.info), next_ledger=listed.next_ledger + 1, deleting=deleting
            )

        try:
            self._catalog.change(update)
        except BaseException as error:
            new.close()
            if isinstance(error, Unavailable):  # the list does not name the file; after other errors it may
                with contextlib.suppress(StorageFailed):
                    self._store.delete(number)
            raise
        self._ledger = new
        self._made = self._active = self._clock.monotonic()
        self._hinted = 0
        self.publish(new, self.last)
        METRICS.log_switch_seconds.observe(time.perf_counter() - started)

    def write_final_end(self) -> None:
        """Called before appends are failed. Their frames may stand in the failed ledger: the `end` file records where
        that ledger ends for good, so that no later owner takes them for entries.

        Raises `OutcomeUnknown` where that cannot be written: then they may come back, or not.
        """
        failed = self._failed
        if failed is None:
            return
        end = FinalEnd(failed.info.id, failed.synced_end, failed.synced_entries)
        failure: StorageFailed | OSError | None = None
        for _ in range(2):
            try:
                if failure is not None:
                    self._end_file.reopen(self._files)
                self._end_file.write_final_end(end)
                return
            except (StorageFailed, OSError) as error:
                failure = error
        raise OutcomeUnknown(
            f"{self._name}: nobody knows whether the last appends are on the disk: a write failed, and so did the record "
            f"that would keep them from coming back: {failure}",
            hint="free space or repair the disk, then start again: the next start finds out",
        ) from failure

    def seal_at_close(self) -> None:
        """Seals the open ledger in the list; an empty one leaves it.

        An end that could not be published is published now. Raises `StorageFailed`, once all else is done, where that fails
        again: readers elsewhere see the last entries once the log is opened again.
        """
        ledger = self._ledger
        if ledger is None:
            return
        self._end_file.check()
        if self._unpublished is not None:
            self.publish(ledger, self.last)
        empty = not ledger.next_entry
        sealed = None if empty else ledger.seal()

        def update(listed: LedgerList) -> LedgerList:
            kept = tuple(info for info in listed.ledgers if info.id != ledger.info.id)
            return dataclasses.replace(listed, ledgers=kept if sealed is None else (*kept, sealed))

        self._catalog.change(update)
        self._end_file.sync()
        if empty:
            with contextlib.suppress(StorageFailed):  # the list does not name it: the next open removes it
                self._store.delete(ledger.info.id)
        if self._unpublished is not None:
            raise fresh(self._unpublished)

    def terminate(self) -> Position:
        """Seals the ledger and says in the list that nothing follows; the last entry.

        Raises `StorageFailed` where the end that readers see could not be synced: the log is terminated all the same.
        """
        ledger = self._ledger or self._replace_failed()
        self._end_file.check()
        self.republish(ledger)
        sealed = ledger.seal() if ledger.next_entry else None

        def update(listed: LedgerList) -> LedgerList:
            kept = tuple(info for info in listed.ledgers if info.id != ledger.info.id)
            deleting = listed.deleting if sealed else (*listed.deleting, ledger.info.id)
            ledgers = (*kept, sealed) if sealed else kept
            return dataclasses.replace(listed, ledgers=ledgers, deleting=deleting, terminated=True)

        try:
            self._catalog.change(update)
        except BaseException:
            ledger.reopen()  # as in `roll`
            raise
        self._ledger = None  # before anything can fail: the list says that the ledger takes no more entries
        ledger.close()
        self._end_file.sync()
        return self.last

    def close(self) -> None:
        """Gives the files back, whatever state they are in."""
        for ledger in (self._ledger, self._failed):
            if ledger is not None:
                ledger.close()
