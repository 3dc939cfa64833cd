"""The writer thread of a log: gathers what waits, writes and syncs it once, answers it, and survives a failed ledger.

One group: (1) fence asked; (2) frames written and synced; (3) fence asked again; (4) slot; (5) the futures, in order.
A ledger that fails is never written again. Its last durable entry becomes its end, a new ledger is made, and what was
not acknowledged is sent again, in order, none twice. Where no new ledger can be made (the disk or the metadata store
fails too) the waiting appends fail, after a cut record makes sure that no later owner finds them; the next append tries
again. `Fenced` is for ever; so is `SyncStalled`, for a disk that does not answer: what waits fails, and is not acknowledged
when the answer comes after all. Which ledger is written, and when the next one begins, is in ledger_sequence.py.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from operator import attrgetter
from typing import Any, TypeVar, cast

from penstock.clock import Clock
from penstock.errors import Closed, Fenced, PenstockError, StorageFailed, Unavailable
from penstock.files import Buffer, Files
from penstock.log.append.ledger_sequence import Counters, LedgerSequence
from penstock.log.append.request import AppendRequest, Span, Terminated
from penstock.log.frames.end_file import EndFile
from penstock.log.frames.format import HEADER_BYTES, TRAILER_BYTES
from penstock.log.frames.writer import NewEntry
from penstock.log.ledgers.catalog import LedgerCatalog
from penstock.log.ledgers.store import LedgerStore, OpenLedger
from penstock.log.pending import Pending, complete_all
from penstock.log.position import Position
from penstock.log.read.cache import ReadCache
from penstock.log.read.run import run_of
from penstock.log.settings import LogSettings
from penstock.log.stall import WATCH, SyncStalled
from penstock.observe.metrics import METRICS

T = TypeVar("T")

GROUP_BYTES_MAX = 32 << 20  # a group's latency stays that of one large write
GROUP_ITEMS_MAX = 8192
GROUP_DELAY_SECONDS_MAX = (
    0.002  # a group waits this long at most, and a quarter of a sync, for those that came with the last
)
_FRAME_BYTES = HEADER_BYTES + TRAILER_BYTES

_COUNT, _CHANGES, _SIZE, _DATA = map(attrgetter, ("count", "changes", "size", "data"))


class Appender:
    """Owns the writer thread and what waits for it."""

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
        self.on_publish: Callable[[], None] = lambda: None  # the end that readers see moved
        self.ledgers = LedgerSequence(
            name,
            settings=settings,
            clock=clock,
            files=files,
            store=store,
            catalog=catalog,
            end_file=end_file,
            ledger=ledger,
            last=last,
            counters=self.counters,
            on_roll=on_roll,
            on_publish=self._published,
        )
        self._name = name
        self._settings = settings
        self._clock = clock
        self._catalog = catalog
        self._end_file = end_file
        self._cache = cache
        self._uuid = catalog.list.uuid
        self._queue: deque[AppendRequest] = deque()
        self._waiting_bytes = 0
        self._tasks = 0
        self._idle = False
        self._company = 0
        self._last_items = 0
        self._oldest = self._group_came = 0.0  # when the first of those that wait came, and of the group
        self._sync_seconds = 0.0
        self._in_flight: list[AppendRequest] = []  # the group or task that the writer thread is at
        self._closing = False
        self._refused = False  # an append failed once, and the log went on
        self._error: BaseException | None = Terminated(f"{name} was terminated") if ledger is None else None
        self._lock = threading.Lock()
        self._work = threading.Condition(self._lock)
        self._room = threading.Condition(self._lock)
        self._ended = threading.Event()  # the thread is about to end, or was given up
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        WATCH.enter()
        self._thread.start()

    # -- any thread ----------------------------------------------------------------------------------------------

    @property
    def error(self) -> BaseException | None:
        """Why nothing can be appended any more; None while it can."""
        return self._error

    @property
    def last(self) -> Position:
        """The last durable entry."""
        return self.ledgers.last

    @property
    def waiting_bytes(self) -> int:
        return self._waiting_bytes

    def submit(self, item: AppendRequest, *, wait: bool = True) -> None:
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
        item = AppendRequest(None, (), 0, 0)
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
        """Finishes what waits, seals the ledger and ends the thread. Every future is complete when this returns.

        Where the disk does not answer, the thread is left to it.
        """
        with self._lock:
            again, self._closing = self._closing, True
            self._work.notify()
            self._room.notify_all()
        if threading.current_thread() is not self._thread and self._thread.is_alive():
            self._ended.wait()
            if not isinstance(self._error, SyncStalled):
                self._thread.join()
        if not again:
            WATCH.leave()

    def _published(self) -> None:
        self.on_publish()

    def _put(self, item: AppendRequest) -> None:
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
                step = self._begin()
                try:
                    if group[0].task is not None:
                        self._run_task(group[0])
                    else:
                        self._commit(group)
                finally:
                    WATCH.end(step)
            step = self._begin()
            try:
                self.ledgers.seal_at_close()
            finally:
                WATCH.end(step)
        except BaseException as error:
            self._stop(error)
        finally:
            self.ledgers.close()
            self._ended.set()

    def _begin(self) -> int:
        return WATCH.begin(self._name, self._settings.stall_seconds_max, self._stalled)

    def _stalled(self, error: SyncStalled) -> None:
        """On the watch's thread: nobody waits for the disk any more."""
        with self._lock:
            if self._error is None or isinstance(self._error, Terminated):
                self._error = error
            waiting, self._in_flight = self._in_flight, []
        for item in waiting:
            item.fail(error)
        self._stop(error)
        self._ended.set()

    def _check_not_stalled(self) -> None:
        """Raises `SyncStalled` where callers were told so. What it says of a group holds until `_take_from_flight`."""
        if isinstance(self._error, SyncStalled):
            raise self._error

    def _take_from_flight(self, items: int) -> None:
        """These many of the group in flight are about to be answered: from here on nobody else does so."""
        with self._lock:
            self._check_not_stalled()
            self._in_flight = self._in_flight[items:]

    def _gather(self) -> list[AppendRequest]:
        group: list[AppendRequest] = []
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
                self._work.wait(min(GROUP_DELAY_SECONDS_MAX, self._sync_seconds / 4))
                self._idle = False
            self._group_came = self._oldest
            if not self._tasks and len(queue) <= GROUP_ITEMS_MAX and self._waiting_bytes <= GROUP_BYTES_MAX:
                group = list(queue)
                queue.clear()
                self._last_items, self._waiting_bytes = len(group), 0
                self._in_flight = group
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
            self._in_flight = group
            self._room.notify_all()
        return group

    def _run_task(self, item: AppendRequest) -> None:
        assert item.task is not None
        result, failure = None, None
        try:
            result = item.task()
        except Exception as error:
            failure = error
        self._take_from_flight(1)
        if failure is None:
            item.complete(result)
            return
        item.fail(failure)
        if isinstance(failure, Fenced):
            raise failure

    def _commit(self, group: list[AppendRequest]) -> None:
        switches = 0
        if self._refused:
            group = self._without_orphans(group)
        try:
            while group:
                try:
                    done = self._write(group)
                except (StorageFailed, Unavailable) as error:
                    self._check_not_stalled()
                    self.ledgers.give_up()
                    if switches >= self._settings.ledger_switches_max:
                        self._refuse(group, error)
                        return
                    switches += 1
                    continue
                group = group[done:]
        except SyncStalled:
            raise  # they were told already
        except BaseException as error:
            failure = self._typed(error)
            self._take_from_flight(len(group))
            for item in group:
                item.fail(failure)
            raise failure from error

    def _write(self, group: list[AppendRequest]) -> int:
        """Makes the head of the group durable and answers it; how many that were."""
        if self._catalog.fenced is not None:
            raise self._catalog.fenced
        ledger = self.ledgers.open()
        self._end_file.check()
        self.ledgers.republish(ledger)
        entries, taken = self._fitting(ledger, group)
        wall_ms = self._clock.wall_ms()
        first, offset = ledger.next_entry, ledger.synced_end
        keep = self._cache.wants(self._uuid)
        packed = ledger.add(entries, wall_ms, keep=keep)
        started = time.perf_counter()
        ledger.sync()
        self._sync_seconds = time.perf_counter() - started
        self._end_file.check()
        self._check_not_stalled()
        last = Position(ledger.info.id, ledger.next_entry - 1)
        self.ledgers.publish(ledger, last)
        for frames in packed if keep else ():
            self._cache.put(self._uuid, run_of(ledger.info.id, frames, wall_ms))
        self.ledgers.last = last
        self.ledgers.used_now()
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
        self._take_from_flight(taken)
        self._answer(group if taken == len(group) else group[:taken], ledger.info.id, first)
        return taken

    @staticmethod
    def _answer(items: list[AppendRequest], ledger_id: int, first: int) -> None:
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

    def _fitting(self, ledger: OpenLedger, group: list[AppendRequest]) -> tuple[list[NewEntry | Buffer], int]:
        """The entries of the items that still go into this ledger, at least one item."""
        entries: list[NewEntry | Buffer] = []
        settings = self._settings
        bytes_max, entries_max = settings.ledger_bytes_max, settings.ledger_entries_max
        may_roll = self.ledgers.may_roll()
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

    def _refuse(self, group: list[AppendRequest], error: PenstockError) -> None:
        """Fails the group, once it is sure that its entries never appear."""
        self.ledgers.cut_failed()
        self._refused = True
        self._take_from_flight(len(group))
        for item in group:
            item.fail(error)

    def _without_orphans(self, group: list[AppendRequest]) -> list[AppendRequest]:
        """The appends but for those that stand on one that failed."""
        kept: list[AppendRequest] = []
        orphans: dict[AppendRequest, BaseException] = {}  # they may stand on each other
        for item in group:
            before: Any = item.after
            error = orphans.get(before)
            if error is None and before is not None and before.done():
                error = before.exception(0)
            if error is None:
                kept.append(item)
            else:
                orphans[item] = error
        with self._lock:
            self._check_not_stalled()
            self._in_flight = kept
        for item, error in orphans.items():
            item.fail(error)
        return kept

    # -- tasks, for `run` ----------------------------------------------------------------------------------------

    def roll(self) -> bool:
        return self.ledgers.roll()

    def roll_if_old(self) -> bool:
        return self.ledgers.roll_if_old()

    def roll_before_cut(self) -> None:
        self.ledgers.roll_before_cut()

    def rewind_end(self, last: Position) -> None:
        self.ledgers.rewind_end(last)

    def terminate(self) -> Position:
        """Seals the ledger and says in the list that nothing follows."""
        if not isinstance(self._error, Terminated):
            last = self.ledgers.terminate()
            self._stop(Terminated(f"{self._name} was terminated at {last}"), tasks_too=False)
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
            if not isinstance(self._error, SyncStalled):
                self._error = error
            waiting = [item for item in self._queue if item.task is None or tasks_too]
            self._queue = deque(item for item in self._queue if item.task is not None and not tasks_too)
            self._tasks = len(self._queue)
            self._waiting_bytes = 0
            self._room.notify_all()
        for item in waiting:
            item.fail(error)
