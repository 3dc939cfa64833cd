"""The writer thread of a log: takes what waits, writes and syncs it, answers it, and goes on after a failed ledger.

The steps of a group: (1) the fence is checked; (2) frames are written and synced; (3) the fence is checked again; (4)
the slot is written, which readers see; (5) the futures are completed, in order.

A ledger that fails is never written again. Its last durable entry becomes its end, a new ledger is made, and the
entries that were not acknowledged are written into that one, in order, none twice. Where no new ledger can be made (the
disk or the metadata store fails too), the waiting appends fail, after a record in the `end` file makes sure that no
later owner finds their frames; the next append tries again. Which ledger is written, and when the next one begins, is
decided in ledger_sequence.py.

What the error of an append says of its entry:

| error | the entry |
|---|---|
| `StorageFailed`, `Unavailable` | never appears; later appends may work |
| `OutcomeUnknown` (`SyncStalled`: the disk does not answer), `Fenced` | may be found by the next owner, or never; final |

`OutcomeUnknown` comes where that record cannot be written, or where nobody knows whether the metadata store made a
change: the log stops at once, removes nothing, and the next open finds the truth.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

from penstock.clock import Clock
from penstock.errors import BadInput, Fenced, OutcomeUnknown, PenstockError, StorageFailed, Unavailable, kept
from penstock.files import Files
from penstock.log.append.groups import answer, entries_that_fit, split_orphans, split_unwritable
from penstock.log.append.ledger_sequence import Counters, LedgerSequence
from penstock.log.append.queue import AppendQueue
from penstock.log.append.request import AppendRequest, Terminated
from penstock.log.frames.end_file import EndFile
from penstock.log.frames.format import FRAME_BYTES_MIN
from penstock.log.ledgers.catalog import LedgerCatalog
from penstock.log.ledgers.store import LedgerStore, OpenLedger
from penstock.log.pending import Pending
from penstock.log.position import Position
from penstock.log.read.cache import LogKey, ReadCache
from penstock.log.read.run import run_of
from penstock.log.settings import LogSettings
from penstock.log.stall import WATCH, SyncStalled
from penstock.observe.metrics import METRICS
from penstock.threads import start_thread

T = TypeVar("T")


class _Unwritable(Exception):
    """A group could not be encoded. Nothing of it was written."""

    def __init__(self, reason: Exception) -> None:
        super().__init__(str(reason))
        self.reason = reason


class Appender:
    """Owns the queue, the writer thread and, through `ledgers`, the open ledger.

    `on_roll` is called after each roll, `on_publish` after the end that readers see moved; both on the writer thread.
    """

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
        cache_key: LogKey,
        ledger: OpenLedger | None,
        last: Position,
        on_roll: Callable[[], None],
        on_publish: Callable[[], None],
    ) -> None:
        self.counters = Counters()
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
            on_publish=on_publish,
        )
        self._name = name
        self._settings = settings
        self._clock = clock
        self._catalog = catalog
        self._end_file = end_file
        self._cache = cache
        self._on_publish = on_publish
        self._cache_key = cache_key
        self._sync_seconds = 0.0
        self._step = 0  # the step of the group in flight, as the watch of the disk knows it
        self._append_failed = False  # an append failed once, and the log went on: later ones may depend on it
        terminated = Terminated(f"{name} was terminated") if ledger is None else None
        self._queue = AppendQueue(name, settings.waiting_bytes_max, terminated)
        self.submit = self._queue.submit  # the queue's own method: no call in between for each append
        self._ended = threading.Event()  # the thread is about to end, or the disk does not answer it
        WATCH.enter()
        try:
            self._thread = start_thread(self._run, name)
        except BaseException:
            WATCH.leave()
            raise

    # -- any thread ----------------------------------------------------------------------------------------------

    @property
    def error(self) -> BaseException | None:
        """Why nothing can be appended any more; None while it can."""
        return self._queue.error

    @property
    def last(self) -> Position:
        """The last durable entry."""
        return self.ledgers.last

    @property
    def waiting_bytes(self) -> int:
        return self._queue.waiting_bytes

    def on_writer_thread(self, task: Callable[[], T]) -> Pending[T]:
        """Calls `task` on the writer thread, between two groups, in order with the appends."""
        return self._queue.submit_task(task)

    def call_on_writer_thread(self, task: Callable[[], T]) -> T:
        """As `on_writer_thread`, and waits for the result."""
        self.check_may_wait()
        return self.on_writer_thread(task).result()

    def check_may_wait(self) -> None:
        """Raises `BadInput` in a callback of an append, where a call that waits for the writer thread would wait for ever."""
        if self.runs_here():
            raise BadInput(
                f"{self._name}: this waits for the thread that it is called on, in a callback of an append",
                hint="hand it to another thread",
            )

    def runs_here(self) -> bool:
        """Whether the caller is in a callback of an append: on the writer thread, or on the one that watches the disk,
        which answers in its place where the disk does not."""
        return threading.current_thread() is self._thread or WATCH.runs_here()

    def wait_for_room(self) -> None:
        """Returns once less than `waiting_bytes_max` waits."""
        self._queue.wait_for_room()

    def close(self) -> None:
        """Finishes what waits, seals the ledger and ends the thread. Every future is complete when this returns.

        A thread that the disk does not answer is left behind.
        """
        first = self._queue.close()
        if not self.runs_here() and self._thread.is_alive():
            self._ended.wait()
            if not isinstance(self.error, SyncStalled):
                self._thread.join()
        if first:
            WATCH.leave()

    # -- the writer thread ---------------------------------------------------------------------------------------

    def terminate(self) -> Position:
        """As a task: seals the ledger and says in the list that nothing follows; gives the last entry."""
        if not isinstance(self.error, Terminated):
            try:
                self.ledgers.terminate()
            finally:
                if self._catalog.list.terminated:  # whatever failed after that: nothing may be appended any more
                    self._queue.stop(Terminated(f"{self._name} was terminated at {self.last}"), tasks_too=False)
                    self._on_publish()
        return self.last

    def _run(self) -> None:
        try:
            while group := self._queue.gather(self._sync_seconds):
                step = self._step = self._begin_step()
                try:
                    if group[0].task is not None:
                        self._run_task(group[0])
                    else:
                        self._commit(group)
                finally:
                    WATCH.end(step)
            step = self._begin_step()
            try:
                self.ledgers.seal_at_close()
            finally:
                WATCH.end(step)
        except BaseException as error:
            self._queue.stop(kept(self._typed(error)))
        finally:
            self.ledgers.close()
            self._ended.set()

    def _begin_step(self) -> int:
        return WATCH.begin(self._name, self._settings.stall_seconds_max, self._stalled)

    def _stalled(self, error: SyncStalled) -> None:
        """On the watch's thread: the disk does not answer the writer thread."""
        self._queue.stall(error)
        self._ended.set()

    def _run_task(self, item: AppendRequest) -> None:
        assert item.task is not None
        result, failure = None, None
        try:
            result = item.task()
        except Exception as error:
            failure = error
        self._queue.take_from_flight(1)
        with WATCH.paused(self._step):
            if failure is None:
                item.complete(result)
                return
            item.fail(failure)
        if isinstance(failure, Fenced | OutcomeUnknown):
            raise failure

    def _commit(self, group: list[AppendRequest]) -> None:
        switches = 0
        if self._append_failed:
            group = self._without_orphans(group)
        try:
            while group:
                try:
                    done = self._write(group)
                except (StorageFailed, Unavailable) as error:
                    self._queue.check_not_stalled()
                    self.ledgers.give_up()
                    if switches >= self._settings.ledger_switches_max:
                        self._fail_group(group, error)
                        return
                    switches += 1
                    continue
                except _Unwritable as error:
                    group = self._without_orphans(self._without(group, *split_unwritable(group, error.reason)))
                    continue
                group = group[done:]
        except SyncStalled:
            raise  # the queue failed the group already
        except BaseException as error:
            failure = self._typed(error)
            self._queue.take_from_flight(len(group))
            self._fail(dict.fromkeys(group, failure))
            raise failure from error

    def _write(self, group: list[AppendRequest]) -> int:
        """Makes the head of the group durable and answers it; how many requests that were."""
        if (stopped := self._catalog.stopped) is not None:
            raise stopped
        ledger = self.ledgers.open()
        self._end_file.check()
        self.ledgers.republish(ledger)
        entries, taken = entries_that_fit(group, ledger, self._settings, may_roll=self.ledgers.may_roll())
        wall_ms = self._clock.wall_ms()
        first, offset, messages = ledger.next_entry, ledger.synced_end, ledger.synced_messages
        keep = self._cache.wants(self._cache_key)
        try:
            packed = ledger.add(entries, wall_ms, keep=keep)
        except (StorageFailed, Unavailable, Fenced):
            raise
        except Exception as error:  # nothing is written yet, so it is the fault of a request
            raise _Unwritable(error) from error
        started = time.perf_counter()
        ledger.sync()
        self._sync_seconds = time.perf_counter() - started
        self._end_file.check()
        self._queue.check_not_stalled()
        last = Position(ledger.info.id, ledger.next_entry - 1)
        self.ledgers.publish(ledger, last)
        for frames in packed if keep else ():
            self._cache.put(self._cache_key, run_of(ledger.info.id, frames, wall_ms))
        self.ledgers.last = last
        self.ledgers.used_now()
        self._count(len(entries), ledger.synced_end - offset, ledger.synced_messages - messages)
        self._queue.take_from_flight(taken)
        with WATCH.paused(self._step):  # callbacks run in here, on this thread: they hold up the log, but not the disk
            answer(group if taken == len(group) else group[:taken], ledger.info.id, first)
        return taken

    def _count(self, entries: int, size: int, messages: int) -> None:
        counters = self.counters
        counters.groups += 1
        counters.entries += entries
        counters.bytes += size
        counters.messages += messages
        counters.sync_seconds += self._sync_seconds
        METRICS.log_append_entries.inc(entries)
        METRICS.log_append_bytes.inc(size)
        METRICS.log_append_body_bytes.inc(size - entries * FRAME_BYTES_MIN)
        METRICS.log_append_messages.inc(messages)
        METRICS.log_group_entries.observe(entries)
        METRICS.log_sync_seconds.observe(self._sync_seconds)
        now, queue = time.perf_counter(), self._queue
        METRICS.log_append_seconds.observe_between(now - queue.group_taken, now - queue.group_came, entries)

    def _fail_group(self, group: list[AppendRequest], error: PenstockError) -> None:
        """Fails the appends, once it is sure that their entries never appear."""
        self.ledgers.write_final_end()
        self._append_failed = True
        self._queue.take_from_flight(len(group))
        self._fail(dict.fromkeys(group, error))

    def _fail(self, failed: dict[AppendRequest, BaseException]) -> None:
        with WATCH.paused(self._step):
            for item, error in failed.items():
                item.fail(error)

    def _without_orphans(self, group: list[AppendRequest]) -> list[AppendRequest]:
        """Fails the appends whose `after` failed; the others."""
        return self._without(group, *split_orphans(group))

    def _without(
        self, group: list[AppendRequest], kept: list[AppendRequest], failed: dict[AppendRequest, BaseException]
    ) -> list[AppendRequest]:
        """Fails these requests of the group, of which nothing was written; the others."""
        if not failed:
            return group
        self._append_failed = True
        self._queue.keep_in_flight(kept)
        self._fail(failed)
        return kept

    def _typed(self, error: BaseException) -> BaseException:
        if isinstance(error, PenstockError):
            return error
        failure = OutcomeUnknown(f"{self._name}: {type(error).__name__}: {error}", hint="start again")
        failure.__cause__ = error
        return failure
