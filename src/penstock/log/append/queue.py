"""The appends that wait for the writer thread, and how it takes them: a group at a time, in order.

Any thread puts requests in; `waiting_bytes_max` bounds what waits. The writer thread (appender.py) takes as much as one
write and one sync should carry. A task stands in the queue like an append and is a group of its own.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import TypeVar, cast

from penstock.errors import Closed, fresh
from penstock.log.append.request import AppendRequest, Terminated
from penstock.log.closed import FORK_HINT, closed_in_children
from penstock.log.pending import Pending
from penstock.log.stall import SyncStalled

T = TypeVar("T")

GROUP_BYTES_MAX = 32 << 20  # a group's latency stays that of one large write
GROUP_ITEMS_MAX = 8192
GROUP_DELAY_SECONDS_MAX = 0.002  # a group waits at most this long for more appends, and at most a quarter of a sync


class AppendQueue:
    """Thread-safe.

    The requests of a group are *in flight* from `gather` until `take_from_flight`. Whoever takes a request from flight
    answers it: the writer thread, or `stall` where the disk does not answer. So each request is answered exactly once.
    """

    def __init__(self, name: str, waiting_bytes_max: int, error: BaseException | None) -> None:
        self.error = error  # why nothing can be appended any more; None while it can
        self.waiting_bytes = 0
        self.group_came = 0.0  # when the oldest append of the group in flight came
        self.group_taken = 0.0  # when the writer took the group: no append of it came later
        self._name = name
        self._waiting_bytes_max = waiting_bytes_max
        self._queue: deque[AppendRequest] = deque()
        self._oldest = 0.0  # when the oldest append of the queue came
        self._tasks = 0  # how many of the queue are tasks
        self._last_items = 0  # how many the last group had
        self._in_flight: list[AppendRequest] = []
        self._closing = False
        self._idle = False  # the writer waits for `_work`
        self._wake_at = 1  # so many queued requests wake an idle writer
        self._writer = 0  # the thread that gathers
        self._make_locks()
        closed_in_children(self)

    # -- any thread ----------------------------------------------------------------------------------------------

    def submit(self, item: AppendRequest, *, wait: bool = True) -> None:
        """Queues an append; waits while too many bytes wait, except on the writer thread. Raises what stopped that."""
        with self._lock:
            if wait and self.waiting_bytes >= self._waiting_bytes_max:
                self._wait_for_room()
            if self.error is not None:
                raise fresh(self.error)
            if self._closing:
                raise Closed(f"{self._name} is closed")
            self._put(item)

    def submit_task(self, task: Callable[[], T]) -> Pending[T]:
        """Queues a task. It also runs on a terminated log."""
        item = AppendRequest(None, (), 0, 0)
        item.task = task
        with self._lock:
            if self.error is not None and not isinstance(self.error, Terminated):
                raise fresh(self.error)
            if self._closing:
                raise Closed(f"{self._name} is closed")
            self._put(item)
        return cast("Pending[T]", item)

    def wait_for_room(self) -> None:
        """Returns once less than `waiting_bytes_max` waits, or nothing can be appended any more."""
        with self._lock:
            self._wait_for_room()

    def close(self) -> bool:
        """Takes nothing more; what waits is still gathered. False where it was closed before."""
        with self._lock:
            before, self._closing = self._closing, True
            self._work.notify()
            self._room.notify_all()
        return not before

    def stop(self, error: BaseException, *, tasks_too: bool = True) -> None:
        """Fails what waits; from here on every append fails. Without `tasks_too` tasks still run."""
        with self._lock:
            if not isinstance(self.error, SyncStalled):
                self.error = error
            waiting = [item for item in self._queue if item.task is None or tasks_too]
            self._queue = deque(item for item in self._queue if item.task is not None and not tasks_too)
            self._tasks = len(self._queue)
            self.waiting_bytes = 0
            self._room.notify_all()
        for item in waiting:
            item.fail(error)

    def stall(self, error: SyncStalled) -> None:
        """The disk does not answer: fails what is in flight and what waits. The writer thread answers nothing more."""
        with self._lock:
            if self.error is None or isinstance(self.error, Terminated):
                self.error = error
            in_flight, self._in_flight = self._in_flight, []
        for item in in_flight:
            item.fail(error)
        self.stop(error)

    def forked(self) -> None:
        """In a forked child there is no writer thread, and its locks may be held for ever: all appends fail at once."""
        self._make_locks()
        self.error = Closed(f"{self._name} is closed", hint=FORK_HINT)
        waiting, self._queue, self._in_flight = [*self._in_flight, *self._queue], deque(), []
        for item in waiting:
            item.fail(self.error)

    def _make_locks(self) -> None:
        self._lock = threading.Lock()
        self._work = threading.Condition(self._lock)
        self._room = threading.Condition(self._lock)

    def _put(self, item: AppendRequest) -> None:
        if not self._queue:
            self._oldest = time.perf_counter()
        self._queue.append(item)
        self.waiting_bytes += item.size
        self._tasks += item.task is not None
        if self._idle and (len(self._queue) >= self._wake_at or item.task is not None):
            self._idle = False
            self._work.notify()

    def _wait_for_room(self) -> None:
        if threading.get_ident() == self._writer:
            return  # in a callback: this very thread makes the room
        limit = self._waiting_bytes_max
        while self.waiting_bytes >= limit and self.error is None and not self._closing:
            self._room.wait()

    # -- the writer thread ---------------------------------------------------------------------------------------

    def gather(self, sync_seconds: float) -> list[AppendRequest]:
        """The next group, in flight from here on: appends, or one task. Empty once the queue is closed and all is done.

        `sync_seconds`: how long the last sync took.
        """
        group: list[AppendRequest] = []
        self._writer = threading.get_ident()
        with self._lock:
            queue = self._queue
            while not queue:
                if self._closing:
                    return group
                self._idle, self._wake_at = True, 1
                self._work.wait()
            if len(queue) < self._last_items and not self._closing and queue[-1].task is None:
                # The callers that the last group answered are about to append again: one sync should carry all of them.
                self._idle, self._wake_at = True, self._last_items
                self._work.wait(min(GROUP_DELAY_SECONDS_MAX, sync_seconds / 4))
                self._idle = False
            self.group_came, self.group_taken = self._oldest, time.perf_counter()
            if not self._tasks and len(queue) <= GROUP_ITEMS_MAX and self.waiting_bytes <= GROUP_BYTES_MAX:
                group = list(queue)
                queue.clear()
                self._last_items, self.waiting_bytes = len(group), 0
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
                self._oldest = self.group_taken
            self.waiting_bytes -= size
            self._in_flight = group
            self._room.notify_all()
        return group

    def take_from_flight(self, items: int) -> None:
        """The writer answers the first `items` in flight now. Raises `SyncStalled` where `stall` has done so."""
        with self._lock:
            self.check_not_stalled()
            self._in_flight = self._in_flight[items:]

    def keep_in_flight(self, kept: list[AppendRequest]) -> None:
        """The writer answers now what is in flight and not among `kept`. Raises as `take_from_flight`."""
        with self._lock:
            self.check_not_stalled()
            self._in_flight = kept

    def check_not_stalled(self) -> None:
        """Raises `SyncStalled` where the group in flight was failed by `stall`."""
        if isinstance(self.error, SyncStalled):
            raise fresh(self.error)
