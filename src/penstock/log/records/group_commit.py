"""Group commit for a record log, on the threads that all record logs of a process share (workers.py).

At most one thread works for a record log at a time, so its groups stay in order. An append may give a *builder* in
place of its bytes: it is called when its group is written, so that the record holds everything that came until then.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Generic, NamedTuple, TypeVar

from penstock.errors import Closed, Fenced, OutcomeUnknown, PenstockError, StorageFailed, fresh, kept
from penstock.files import Buffer
from penstock.log.closed import FORK_HINT, closed_in_children
from penstock.log.frames.format import Changes
from penstock.log.pending import Pending
from penstock.log.records.workers import CHORES, COMMITS
from penstock.log.stall import SyncStalled

R = TypeVar("R")

BATCH_BYTES_MAX = 32 << 20  # a commit's latency stays that of one large write
BATCH_ITEMS_MAX = 8192

Builder = Callable[[], bytes]


class Queued(NamedTuple):
    """One waiting append; or, where `task` is set, an operation that runs alone, in order with the appends."""

    data: Sequence[Buffer] | Builder
    changes: Changes
    size: int
    task: Callable[[], None] | None
    pending: Pending[object]


class GroupCommit(Generic[R]):
    """Thread-safe. The first error fails what waits and every later append: a sync that is tried again after a failure
    may report success for data that was lost.

    What the error of an append says of its record: `OutcomeUnknown` (its group was being written as the disk failed) and
    `Fenced`: the next owner may find it, or not; `StorageFailed` (it still waited, or came later): it never appears.

    `commit` makes a group durable and returns its answers: for a request of which nothing was written, an error.
    `check_owner` raises `Fenced` where another owner came. It is asked before a missing file is blamed on the disk,
    because the next owner removes files.
    """

    def __init__(
        self,
        name: str,
        commit: Callable[[list[Queued]], Sequence[R | BaseException]],
        waiting_bytes_max: int,
        check_owner: Callable[[], None] = lambda: None,
    ) -> None:
        self._name = name
        self._commit = commit
        self._check_owner = check_owner
        self._waiting_bytes_max = waiting_bytes_max
        self._queue: deque[Queued] = deque()
        self._waiting_bytes = 0
        self._scheduled = False
        self._closing = False
        self._closed = False
        self._worker: threading.Thread | None = None
        self._in_flight: list[Queued] = []
        self._error: BaseException | None = None
        self._make_locks()
        closed_in_children(self)
        COMMITS.enter()
        CHORES.enter()

    @property
    def error(self) -> BaseException | None:
        """Why nothing can be appended any more."""
        return self._error

    def submit(
        self,
        data: Sequence[Buffer] | Builder,
        changes: Changes = (),
        size: int = 0,
        task: Callable[[], None] | None = None,
        *,
        wait: bool = True,
    ) -> Pending[R]:
        """Queues one append. Waits while `waiting_bytes_max` wait, unless `wait` is off. Raises what stopped it."""
        pending: Pending[R] = Pending()
        with self._lock:
            if wait:
                self._wait_for_room()
            if self._error is not None:
                raise fresh(self._error)
            if self._closing:
                raise Closed(f"{self._name} is closed")
            if not self._scheduled:
                COMMITS.run(self._run, self._stalled)  # it waits for the lock; where it raises, nothing was queued
                self._scheduled = True
            self._queue.append(Queued(data, changes, size, task, pending))  # type: ignore[arg-type]
            self._waiting_bytes += size
        return pending

    def forked(self) -> None:
        """In a forked child, which has none of the threads: every append fails at once, `close` has nothing to do."""
        self._make_locks()
        self._closing = self._closed = True
        self._scheduled = False
        batch, self._in_flight = self._in_flight, []
        self._stop(batch, Closed(f"{self._name} is closed", hint=FORK_HINT))

    def _make_locks(self) -> None:
        self._lock = threading.Lock()
        self._change = threading.Condition(self._lock)  # there is room in the queue, or nothing is left in it

    def wait_for_room(self) -> None:
        """Returns once fewer than `waiting_bytes_max` wait, or nothing can be appended any more."""
        with self._lock:
            self._wait_for_room()

    def _wait_for_room(self) -> None:
        if self._worker is threading.current_thread():
            return  # in a callback: this very thread makes the room
        while self._waiting_bytes >= self._waiting_bytes_max and self._error is None and not self._closing:
            self._change.wait()

    def close(self) -> None:
        """Takes nothing more; returns once every future is complete."""
        with self._lock:
            self._closing = True
            self._change.notify_all()
            while self._scheduled:
                self._change.wait()
            if self._closed:
                return
            self._closed = True
        CHORES.leave()
        COMMITS.leave()

    def _run(self) -> None:
        """Commits one group, then queues itself again behind the other record logs: a busy one does not starve them."""
        self._worker = threading.current_thread()
        batch = self._gather()
        results: Sequence[object] = [None]
        failure: BaseException | None = None
        try:
            if batch[0].task is not None:
                batch[0].task()
            else:
                results = self._commit(batch)
        except BaseException as error:
            failure = self._explained(error)
        with self._lock:
            if not self._in_flight:
                return  # the disk answered too late: `_stalled` failed the group, and this record log with it
            self._in_flight = []
        with COMMITS.callers_code():
            if failure is not None:
                self._stop(batch, failure)
            else:
                _answer(batch, results)
        with self._lock:
            self._worker = None
            self._scheduled = bool(self._queue)
            if self._scheduled:
                COMMITS.run(self._run, self._stalled)
            else:
                self._change.notify_all()

    def _stalled(self, error: SyncStalled) -> None:
        """On the watch's thread: the disk does not answer the thread that commits. What waits fails."""
        with self._lock:
            batch, self._in_flight = self._in_flight, []
        self._stop(batch, SyncStalled(f"{self._name}: {error.message}", hint=error.hint))
        with self._lock:
            self._worker = None
            self._scheduled = False
            self._change.notify_all()

    def _gather(self) -> list[Queued]:
        batch: list[Queued] = []
        size = 0
        with self._lock:
            queue = self._queue
            while queue and len(batch) < BATCH_ITEMS_MAX and size < BATCH_BYTES_MAX:
                if queue[0].task is not None and batch:
                    break
                item = queue.popleft()
                batch.append(item)
                size += item.size
                if item.task is not None:
                    break
            self._waiting_bytes -= size
            self._in_flight = batch
            self._change.notify_all()
        return batch

    def _explained(self, error: BaseException) -> BaseException:
        # Only where a file is missing. After other failures the newest name may be a claim of this very owner that
        # failed half-way, which `check_owner` would take for another owner's.
        if isinstance(error, FileNotFoundError) or isinstance(error.__cause__, FileNotFoundError):
            try:
                self._check_owner()
            except Fenced as fenced:
                fenced.__cause__ = error
                return fenced
        return error

    def _stop(self, batch: list[Queued], error: BaseException) -> None:
        """Fails the group that was being written, and with it what waits: of that nothing was written."""
        if not isinstance(error, PenstockError):
            failed = StorageFailed(f"{self._name}: {type(error).__name__}: {error}", hint="start again")
            failed.__cause__ = error
            error = failed
        in_flight = error
        if type(error) is StorageFailed:  # a subclass says more than that the disk failed
            in_flight = OutcomeUnknown(
                f"{self._name}: nobody knows whether the last records are on the disk: {error.message}",
                hint="repair the disk, then start again: the next start finds out",
            )
            in_flight.__cause__ = error
        with self._lock:
            self._error = kept(error)
            waiting = list(self._queue)
            self._queue.clear()
            self._waiting_bytes = 0
        for item in batch:
            item.pending.fail(in_flight)
        for item in waiting:
            item.pending.fail(error)


def _answer(batch: list[Queued], results: Sequence[object]) -> None:
    for item, result in zip(batch, results, strict=True):
        if isinstance(result, BaseException):
            item.pending.fail(result)
        else:
            item.pending.complete(result)
