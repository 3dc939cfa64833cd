"""The writer thread of a log: gathers what waits, writes and syncs it once, rolls, and survives a failed ledger.

One group: (1) fence asked; (2) frames written and synced; (3) fence asked again; (4) slot; (5) the futures, in order.
A ledger that fails is never written again. Its last durable entry becomes its end, a new ledger is made, and what was
not acknowledged is sent again, in order, none twice. Where no new ledger can be made (the disk or the metadata store
fails too) the waiting appends fail, after a cut record makes sure that no later owner finds them; the next append tries
again. `Fenced` is for ever.
"""

from __future__ import annotations

import contextlib
import dataclasses
import threading
import time
from collections import deque
from collections.abc import Callable
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar, cast

from penstock.clock import Clock
from penstock.errors import Closed, Fenced, PenstockError, StorageFailed, Terminal, Unavailable
from penstock.files import Buffer, Files
from penstock.log.cache import ReadCache
from penstock.log.catalog import LedgerCatalog
from penstock.log.frame import HEADER_BYTES, TRAILER_BYTES, Changes
from penstock.log.frame_writer import NewEntry
from penstock.log.ledger import LedgerInfo, LedgerList
from penstock.log.ledger_store import LedgerStore, OpenLedger
from penstock.log.pending import Pending, complete_all
from penstock.log.position import Position
from penstock.log.runs import run_of
from penstock.log.settings import LogSettings
from penstock.log.synced import HINTS_MAX, Cut, EndFile
from penstock.observe.metrics import METRICS

T = TypeVar("T")

GROUP_BYTES_MAX = 32 << 20  # a group's latency stays that of one large write
GROUP_ITEMS_MAX = 8192
_HINT_BYTES = 1 << 20  # a reader that seeks in the open ledger walks over at most about this much
_ROLL_PAUSE_SECONDS = 1.0  # after a roll that failed, before the next attempt
_COMPANY_SECONDS_MAX = (
    0.002  # a group waits this long at most, and a quarter of a sync, for those that came with the last
)
_FRAME_BYTES = HEADER_BYTES + TRAILER_BYTES

_COUNT, _CHANGES, _SIZE, _DATA = map(attrgetter, ("count", "changes", "size", "data"))


class Terminated(Terminal):
    """The log was terminated: nothing is appended any more."""


class Span(NamedTuple):
    """Where a batch is: from `first` to `last`, both included, all in one ledger."""

    first: Position
    last: Position


class Waiting(Pending[Any]):
    """An append that waits, and its answer in one object: the hot path makes nothing else.

    What a fresh one has in common with the others stands in the class: four stores make one, not ten.
    """

    _done = False
    _value = None
    _error = None
    _callbacks = None
    _waiters = None
    task: Callable[[], object] | None = None
    ledger_id: int | None = None  # of the entry that `_value` numbers
    after: Pending[Any] | None = None  # where that one failed, this one does too

    def __init__(self, data: Any, changes: Changes, size: int, count: int) -> None:
        self.data = data
        self.changes = changes
        self.size = size
        self.count = count  # 0: one entry, answered by its position; else so many, answered by their span

    def result(self, timeout: float | None = None) -> Any:
        """The answer. A position is made when it is asked for: most are looked at once, if at all."""
        value = super().result(timeout)
        return value if self.ledger_id is None else Position(self.ledger_id, value)


@dataclasses.dataclass(slots=True)
class Counters:
    """What the writer did since the log was opened."""

    entries: int = 0
    bytes: int = 0
    groups: int = 0
    rolls: int = 0
    switches: int = 0  # ledgers given up because they failed
    sync_seconds: float = 0.0


class Appender:
    """Owns the writer thread, the open ledger and the published end."""

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
        cache: ReadCache,
        ledger: OpenLedger | None,
        last: Position,
        on_roll: Callable[[], None],
    ) -> None:
        self.counters = Counters()
        self.last = last
        self._name = name
        self._settings = settings
        self._clock = clock
        self._files = files
        self._store = store
        self._catalog = catalog
        self._end_file = end_file
        self._cache = cache
        self._uuid = catalog.list.uuid
        self._ledger = ledger
        self._failed: OpenLedger | None = None
        self._on_roll = on_roll
        self.on_publish: Callable[[], None] = lambda: None  # the end that readers see moved
        self._made = self._active = clock.monotonic()
        self._roll_not_before = self._made
        self._hinted = 0
        self._unpublished: StorageFailed | None = None
        self._queue: deque[Waiting] = deque()
        self._waiting_bytes = 0
        self._tasks = 0
        self._idle = False
        self._company = 0
        self._last_items = 0
        self._oldest = self._group_came = 0.0  # when the first of those that wait came, and of the group
        self._sync_seconds = 0.0
        self._closing = False
        self._refused = False  # an append failed once, and the log went on
        self._error: BaseException | None = Terminated(f"{name} was terminated") if ledger is None else None
        self._lock = threading.Lock()
        self._work = threading.Condition(self._lock)
        self._room = threading.Condition(self._lock)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    # -- any thread ----------------------------------------------------------------------------------------------

    @property
    def error(self) -> BaseException | None:
        """Why nothing can be appended any more; None while it can."""
        return self._error

    @property
    def waiting_bytes(self) -> int:
        return self._waiting_bytes

    def submit(self, item: Waiting, *, wait: bool = True) -> None:
        """Queues an append; waits while too many bytes wait. Raises the error that stopped the writer."""
        with self._lock:
            if wait and self._waiting_bytes >= self._settings.waiting_bytes_max:
                self._wait_for_room()
            if self._error is not None:
                raise self._error
            if self._closing:
                raise Closed(f"{self._name} is closed")
            self._put(item)

    def run(self, task: Callable[[], T]) -> Pending[T]:
        """Runs `task` on the writer thread, between two groups, in order with the appends."""
        item = Waiting(None, (), 0, 0)
        item.task = task
        with self._lock:
            if self._error is not None and not isinstance(self._error, Terminated):
                raise self._error
            if self._closing:
                raise Closed(f"{self._name} is closed")
            self._put(item)
        return cast("Pending[T]", item)

    def wait_for_room(self) -> None:
        with self._lock:
            self._wait_for_room()

    def close(self) -> None:
        """Finishes what waits, seals the ledger and ends the thread. Every future is complete when this returns."""
        with self._lock:
            self._closing = True
            self._work.notify()
            self._room.notify_all()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _put(self, item: Waiting) -> None:
        if not self._queue:
            self._oldest = time.perf_counter()
        self._queue.append(item)
        self._waiting_bytes += item.size
        self._tasks += item.task is not None
        if self._idle and (len(self._queue) >= self._company or item.task is not None):
            self._idle = False
            self._work.notify()

    def _wait_for_room(self) -> None:
        limit = self._settings.waiting_bytes_max
        while self._waiting_bytes >= limit and self._error is None and not self._closing:
            self._room.wait()

    # -- the writer thread ---------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while group := self._gather():
                if group[0].task is not None:
                    self._run_task(group[0])
                else:
                    self._commit(group)
            if self._ledger is not None:
                self._seal_at_close(self._ledger)
        except BaseException as error:
            self._stop(error)
        finally:
            for ledger in (self._ledger, self._failed):
                if ledger is not None:
                    ledger.close()

    def _gather(self) -> list[Waiting]:
        group: list[Waiting] = []
        with self._lock:
            queue = self._queue
            while not queue:
                if self._closing:
                    return group
                self._idle, self._company = True, 1
                self._work.wait()
            if len(queue) < self._last_items and not self._closing and queue[-1].task is None:
                # The callers that the last group answered are about to come again: one sync for all of them.
                self._idle, self._company = True, self._last_items
                self._work.wait(min(_COMPANY_SECONDS_MAX, self._sync_seconds / 4))
                self._idle = False
            self._group_came = self._oldest
            if not self._tasks and len(queue) <= GROUP_ITEMS_MAX and self._waiting_bytes <= GROUP_BYTES_MAX:
                group = list(queue)
                queue.clear()
                self._last_items, self._waiting_bytes = len(group), 0
                self._room.notify_all()
                return group
            size = 0
            while queue and len(group) < GROUP_ITEMS_MAX and size < GROUP_BYTES_MAX:
                item = queue[0]
                if item.task is not None:
                    if not group:
                        group.append(queue.popleft())
                        self._tasks -= 1
                    break
                queue.popleft()
                group.append(item)
                size += item.size
            self._last_items = len(group)
            if queue:
                self._oldest = time.perf_counter()
            self._waiting_bytes -= size
            self._room.notify_all()
        return group

    def _run_task(self, item: Waiting) -> None:
        assert item.task is not None
        try:
            result = item.task()
        except Fenced as error:
            item.fail(error)
            raise
        except Exception as error:
            item.fail(error)
            return
        item.complete(result)

    def _commit(self, group: list[Waiting]) -> None:
        switches = 0
        if self._refused:
            group = self._without_orphans(group)
        try:
            while group:
                try:
                    done = self._write(group)
                except (StorageFailed, Unavailable) as error:
                    self._give_up_ledger()
                    if switches >= self._settings.ledger_switches_max:
                        self._refuse(group, error)
                        return
                    switches += 1
                    continue
                group = group[done:]
        except BaseException as error:
            failure = self._typed(error)
            for item in group:
                item.fail(failure)
            raise failure from error

    def _write(self, group: list[Waiting]) -> int:
        """Makes the head of the group durable and answers it; how many that were."""
        if self._catalog.fenced is not None:
            raise self._catalog.fenced
        ledger = self._open_ledger()
        self._end_file.check()
        if self._unpublished is not None:
            self._publish(ledger, self.last)
            if self._unpublished is not None:
                raise self._unpublished
        entries, taken = self._fitting(ledger, group)
        wall_ms = self._clock.wall_ms()
        first, offset = ledger.next_entry, ledger.synced_end
        keep = self._cache.wants(self._uuid)
        packed = ledger.add(entries, wall_ms, keep=keep)
        started = time.perf_counter()
        ledger.sync()
        self._sync_seconds = time.perf_counter() - started
        self._end_file.check()
        last = Position(ledger.info.id, ledger.next_entry - 1)
        self._publish(ledger, last)
        for frames in packed if keep else ():
            self._cache.put(self._uuid, run_of(ledger.info.id, frames, wall_ms))
        self.last = last
        self._active = self._clock.monotonic()
        counters = self.counters
        counters.groups += 1
        counters.entries += len(entries)
        counters.bytes += ledger.synced_end - offset
        counters.sync_seconds += self._sync_seconds
        METRICS.log_append_entries.inc(len(entries))
        METRICS.log_append_bytes.inc(ledger.synced_end - offset)
        METRICS.log_group_entries.observe(len(entries))
        METRICS.log_sync_seconds.observe(self._sync_seconds)
        METRICS.log_append_seconds.observe(time.perf_counter() - self._group_came)
        self._answer(group if taken == len(group) else group[:taken], ledger.info.id, first)
        return taken

    @staticmethod
    def _answer(items: list[Waiting], ledger_id: int, first: int) -> None:
        if not any(map(_COUNT, items)):
            for item in items:
                item.ledger_id = ledger_id
            complete_all(items, range(first, first + len(items)))
            return
        answers: list[Any] = []
        for item in items:
            if item.count:
                answers.append(Span(Position(ledger_id, first), Position(ledger_id, first + item.count - 1)))
            else:
                answers.append(first)
                item.ledger_id = ledger_id
            first += item.count or 1
        complete_all(items, answers)

    def _fitting(self, ledger: OpenLedger, group: list[Waiting]) -> tuple[list[NewEntry | Buffer], int]:
        """The entries of the items that still go into this ledger, at least one item."""
        entries: list[NewEntry | Buffer] = []
        settings = self._settings
        bytes_max, entries_max = settings.ledger_bytes_max, settings.ledger_entries_max
        may_roll = self._may_roll()
        end, before = ledger.end, ledger.next_entry
        if not any(map(_COUNT, group)) and not any(map(_CHANGES, group)):
            size = sum(map(_SIZE, group)) + len(group) * _FRAME_BYTES
            if not may_roll or (end + size < bytes_max and before + len(group) < entries_max):
                return list(map(_DATA, group)), len(group)
        for taken, item in enumerate(group):
            if (end >= bytes_max or before + len(entries) >= entries_max) and may_roll and taken:
                return entries, taken
            if item.count:
                entries += item.data
                end += item.size + item.count * _FRAME_BYTES
            else:
                entries.append(NewEntry(item.data, item.changes) if item.changes else item.data)
                end += item.size + _FRAME_BYTES
        return entries, len(group)

    def _publish(self, ledger: OpenLedger, last: Position) -> None:
        """Tells readers. The data is durable, so a failure here is none of the entries': the next group repeats it."""
        for _ in range(2):
            try:
                self._end_file.publish(ledger.info.id, ledger.synced_end, last)
                if ledger.synced_end - self._hinted >= max(
                    _HINT_BYTES, self._settings.ledger_bytes_max // HINTS_MAX * 2
                ):
                    self._end_file.hint(ledger.info.id, ledger.next_entry, ledger.synced_end)
                    self._hinted = ledger.synced_end
                self._unpublished = None
                self.on_publish()
                return
            except StorageFailed as error:
                self._unpublished = error
                with contextlib.suppress(OSError):
                    self._end_file.reopen(self._files)

    # -- ledgers -------------------------------------------------------------------------------------------------

    def _may_roll(self) -> bool:
        now = self._clock.monotonic()
        return now >= self._roll_not_before and now - self._made >= self._settings.ledger_age_min_seconds

    def _open_ledger(self) -> OpenLedger:
        """The ledger that takes the next entry: rolled where it is full or old, made again where it failed."""
        ledger = self._ledger
        if ledger is None:
            return self._replace_failed()
        settings = self._settings
        full = ledger.end >= settings.ledger_bytes_max or ledger.next_entry >= settings.ledger_entries_max
        if (full and self._may_roll()) or self._is_old():
            self.roll()
        assert self._ledger is not None
        return self._ledger

    def _is_old(self) -> bool:
        now = self._clock.monotonic()
        limits = (
            (self._settings.ledger_age_max_seconds, now - self._made),
            (
                self._settings.ledger_idle_max_seconds,
                now - self._active,
            ),
        )
        return now >= self._roll_not_before and any(limit is not None and age >= limit for limit, age in limits)

    def roll_if_old(self) -> bool:
        """For the maintenance, as a task."""
        ledger = self._ledger
        return ledger is not None and ledger.next_entry > 0 and self._is_old() and self.roll()

    def roll(self) -> bool:
        """(1) footer, sync; (2) the next file; (3) compare-and-set the list; (4) slot. On the writer thread alone.

        Where the store has no room for a new file or the metadata store does not answer, the ledger stays open and goes
        on beyond its limit: False.
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
        old.close()
        self.counters.rolls += 1
        self._on_roll()
        return True

    def roll_before_cut(self) -> None:
        """Everything is in sealed ledgers when this returns. On the writer thread alone."""
        ledger = self._open_ledger()
        if ledger.next_entry and not self.roll():
            raise Unavailable(f"{self._name}: no new ledger can be made now", hint="try again later")

    def went_back(self, last: Position) -> None:
        """The list was cut: the log ends here now. On the writer thread alone."""
        assert self._ledger is not None
        self.last = last
        self._publish(self._ledger, last)

    def _give_up_ledger(self) -> None:
        if self._ledger is not None:
            self._failed, self._ledger = self._ledger, None
            self._failed.close()

    def _replace_failed(self) -> OpenLedger:
        failed = self._failed
        assert failed is not None
        self._switch(failed.seal_as_failed())
        self._failed = None
        self.counters.switches += 1
        METRICS.log_failed_ledgers.inc()
        assert self._ledger is not None
        return self._ledger

    def _switch(self, sealed: LedgerInfo) -> None:
        """A new ledger in the place of `sealed`, which is the last of the list. (An empty one gets a tombstone.)"""
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
        except BaseException:
            new.close()
            with contextlib.suppress(StorageFailed):
                self._store.delete(number)
            raise
        self._ledger = new
        self._made = self._active = self._clock.monotonic()
        self._hinted = 0
        self._publish(new, self.last)
        METRICS.log_switch_seconds.observe(time.perf_counter() - started)

    def _refuse(self, group: list[Waiting], error: PenstockError) -> None:
        """Fails the group, once it is sure that its entries never appear."""
        failed = self._failed
        if failed is not None:
            cut = Cut(failed.info.id, failed.synced_end, failed.synced_entries)
            for _ in range(2):
                try:
                    self._end_file.cut(cut)
                    break
                except StorageFailed:
                    with contextlib.suppress(OSError, StorageFailed):
                        self._end_file.reopen(self._files)
        self._refused = True
        for item in group:
            item.fail(error)

    @staticmethod
    def _without_orphans(group: list[Waiting]) -> list[Waiting]:
        """The appends but for those that stand on one that failed."""
        kept: list[Waiting] = []
        for item in group:
            before = item.after
            error = before.exception(0) if before is not None and before.done() else None
            if error is None:
                kept.append(item)
            else:
                item.fail(error)
        return kept

    def _seal_at_close(self, ledger: OpenLedger) -> None:
        self._end_file.check()
        empty = not ledger.next_entry
        sealed = None if empty else ledger.seal()

        def update(listed: LedgerList) -> LedgerList:
            kept = tuple(info for info in listed.ledgers if info.id != ledger.info.id)
            return dataclasses.replace(listed, ledgers=kept if sealed is None else (*kept, sealed))

        self._catalog.change(update)
        self._end_file.sync()
        if empty:
            self._store.delete(ledger.info.id)

    def terminate(self) -> Position:
        """Seals the ledger and says in the list that nothing follows. On the writer thread alone."""
        ledger = self._ledger
        if ledger is None:
            if isinstance(self._error, Terminated):
                return self.last
            ledger = self._replace_failed()
        self._end_file.check()
        sealed = ledger.seal() if ledger.next_entry else None

        def update(listed: LedgerList) -> LedgerList:
            kept = tuple(info for info in listed.ledgers if info.id != ledger.info.id)
            deleting = listed.deleting if sealed else (*listed.deleting, ledger.info.id)
            ledgers = (*kept, sealed) if sealed else kept
            return dataclasses.replace(listed, ledgers=ledgers, deleting=deleting, terminated=True)

        try:
            self._catalog.change(update)
        except BaseException:
            ledger.reopen()
            raise
        self._end_file.sync()
        self._ledger = None
        ledger.close()
        self._stop(Terminated(f"{self._name} was terminated at {self.last}"), tasks_too=False)
        self.on_publish()
        return self.last

    # -- the end -------------------------------------------------------------------------------------------------

    def _typed(self, error: BaseException) -> BaseException:
        if isinstance(error, PenstockError):
            return error
        failure = StorageFailed(f"{self._name}: {type(error).__name__}: {error}", hint="start again")
        failure.__cause__ = error
        return failure

    def _stop(self, error: BaseException, *, tasks_too: bool = True) -> None:
        """From here on every append fails."""
        error = self._typed(error)
        with self._lock:
            self._error = error
            waiting = [item for item in self._queue if item.task is None or tasks_too]
            self._queue = deque(item for item in self._queue if item.task is not None and not tasks_too)
            self._tasks = len(self._queue)
            self._waiting_bytes = 0
            self._room.notify_all()
        for item in waiting:
            item.fail(error)
