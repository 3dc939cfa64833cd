"""Group commit: one writer thread gathers what waits, writes and syncs it once, and completes the futures in order.

The owner of the file gives a `commit(batch) -> results`; this class knows nothing of files. The first error fails what
waits and every later append: a writer that failed once cannot know what is on the disk (a retried sync lies).
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Generic, NamedTuple, TypeVar

from penstock.errors import Closed, PenstockError, StorageFailed
from penstock.files import Buffer
from penstock.log.frame import StateChange
from penstock.log.pending import Pending

R = TypeVar("R")

BATCH_BYTES_MAX = 32 << 20  # a commit's latency stays that of one large write
BATCH_ITEMS_MAX = 8192


class Append(NamedTuple):
    """One waiting append. `task` stands for an operation that must run in order with the appends, on the same thread."""

    data: Sequence[Buffer]
    changes: Sequence[StateChange]
    size: int
    task: Callable[[], None] | None
    pending: Pending[object]


class GroupCommit(Generic[R]):
    """Owns the writer thread. `commit` gets appends only; tasks run alone, between two commits."""

    def __init__(
        self,
        name: str,
        commit: Callable[[list[Append]], Sequence[R]],
        waiting_bytes_max: int,
        before_end: Callable[[], None],
    ) -> None:
        self._commit = commit
        self._before_end = before_end
        self._waiting_bytes_max = waiting_bytes_max
        self._queue: deque[Append] = deque()
        self._waiting_bytes = 0
        self._idle = False
        self._closing = False
        self._error: BaseException | None = None
        self._name = name
        self._lock = threading.Lock()
        self._work = threading.Condition(self._lock)
        self._room = threading.Condition(self._lock)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    @property
    def error(self) -> BaseException | None:
        """Why nothing can be appended any more."""
        return self._error

    def submit(
        self,
        data: Sequence[Buffer],
        changes: Sequence[StateChange],
        size: int,
        task: Callable[[], None] | None = None,
        *,
        wait: bool = True,
    ) -> Pending[R]:
        """Queues one append; waits while too many bytes wait. Raises the error that stopped the writer.

        A caller that holds a lock which a callback may want must not wait here: it calls `wait_for_room` before it
        takes the lock, and then submits with `wait=False`.
        """
        pending: Pending[R] = Pending()
        item = Append(data, changes, size, task, pending)  # type: ignore[arg-type]
        with self._lock:
            if wait:
                self._wait_for_room()
            if self._error is not None:
                raise self._error
            if self._closing:
                raise Closed(f"{self._name} is closed")
            self._queue.append(item)
            self._waiting_bytes += size
            if self._idle:
                self._idle = False
                self._work.notify()
        return pending

    def wait_for_room(self) -> None:
        """Returns once fewer bytes wait than the limit, or the writer stopped."""
        with self._lock:
            self._wait_for_room()

    def _wait_for_room(self) -> None:
        while self._waiting_bytes >= self._waiting_bytes_max and self._error is None and not self._closing:
            self._room.wait()

    def close(self) -> None:
        """Finishes what waits, then ends the thread. Every future is complete when this returns."""
        with self._lock:
            self._closing = True
            self._work.notify()
            self._room.notify_all()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _run(self) -> None:
        while batch := self._gather():
            try:
                if batch[0].task is not None:
                    batch[0].task()
                    results: Sequence[object] = [None]
                else:
                    results = self._commit(batch)
            except BaseException as error:
                self._stop(batch, error)
                return
            for item, result in zip(batch, results, strict=True):
                item.pending.complete(result)
        try:
            self._before_end()
        except BaseException as error:
            self._stop([], error)

    def _gather(self) -> list[Append]:
        batch: list[Append] = []
        size = 0
        with self._lock:
            while not self._queue:
                if self._closing:
                    return batch
                self._idle = True
                self._work.wait()
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
            self._room.notify_all()
        return batch

    def _stop(self, batch: list[Append], error: BaseException) -> None:
        if not isinstance(error, PenstockError):
            failed = StorageFailed(f"{self._name}: {type(error).__name__}: {error}", hint="start again")
            failed.__cause__ = error
            error = failed
        with self._lock:
            self._error = error
            waiting = [*batch, *self._queue]
            self._queue.clear()
            self._waiting_bytes = 0
            self._room.notify_all()
        for item in waiting:
            item.pending.fail(error)
