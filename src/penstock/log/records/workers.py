"""A few threads for all record logs of a process: thousands of cursors must not mean thousands of threads.

There are two lanes: `COMMITS` writes and syncs; `CHORES` does what may wait (compaction, publishing a cursor's
position), so that a slow metadata store never holds up an ack. Threads start when there is work and end with the last
user. A thread that the disk does not answer is replaced by another one, and its task gets `SyncStalled` (stall.py).
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections import deque
from collections.abc import Callable

from penstock.errors import Unavailable
from penstock.log import stall
from penstock.threads import start_thread

_logger = logging.getLogger(__name__)
OnStall = Callable[[stall.SyncStalled], None]


class Workers:
    """A lane: runs tasks in the order in which they are handed in, on at most `threads_max` threads. Thread-safe."""

    def __init__(self, name: str, threads_max: int) -> None:
        self._name = name
        self._steps = threading.local()  # `number`: the step of the task that a thread runs
        self._threads_max = threads_max
        self._reset()

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._work = threading.Condition(self._lock)
        self._queue: deque[tuple[Callable[[], None], OnStall]] = deque()
        self._threads: list[threading.Thread] = []
        self._idle = 0
        self._users = 0

    def enter(self) -> None:
        """Registers a user. What it hands in before it leaves will run."""
        stall.WATCH.enter()
        with self._lock:
            self._users += 1

    def leave(self) -> None:
        """Ends what `enter` began. The last user waits until the threads have ended, unless it is one of them."""
        with self._lock:
            self._users -= 1
            threads: list[threading.Thread] = []
            if not self._users:
                threads, self._threads = self._threads, []
                self._work.notify_all()
        for thread in threads:
            if thread is not threading.current_thread():
                thread.join()
        stall.WATCH.leave()

    def run(self, task: Callable[[], None], on_stall: OnStall = lambda _: None) -> None:
        """Queues `task`, which handles its own errors. `on_stall` is called where the disk does not answer the task.

        Raises `Unavailable` where the system gives no thread, and there is none that could run it: then it never runs.
        """
        with self._lock:
            self._queue.append((task, on_stall))
            if (
                len(self._queue) <= self._idle
            ):  # a thread that was woken counts as idle, and its task as queued, until it runs
                self._work.notify()
            elif len(self._threads) < self._threads_max:
                try:
                    self._start()
                except Unavailable:
                    if not self._threads:
                        self._queue.pop()
                        raise

    def callers_code(self) -> contextlib.AbstractContextManager[None]:
        """For a task: what happens inside is not the disk's time (stall.py)."""
        return stall.WATCH.paused(getattr(self._steps, "number", 0))

    def has(self, thread: threading.Thread) -> bool:
        """Whether it is one of this lane's threads."""
        with self._lock:
            return thread in self._threads

    def _start(self) -> None:
        self._threads.append(start_thread(self._serve, f"penstock {self._name} {len(self._threads)}"))

    def _serve(self) -> None:
        while True:
            with self._lock:
                while not self._queue:
                    if threading.current_thread() not in self._threads:
                        return
                    self._idle += 1
                    self._work.wait()
                    self._idle -= 1
                task, on_stall = self._queue.popleft()
            step = self._steps.number = self._watch(on_stall)
            try:
                task()
            except Exception:  # a task handles its own errors: this one is a mistake in the code
                _logger.exception("a task of the %s lane failed", self._name)
            finally:
                stall.WATCH.end(step)

    def _watch(self, on_stall: OnStall) -> int:
        thread = threading.current_thread()

        def give_up(error: stall.SyncStalled) -> None:
            with self._lock:
                if thread in self._threads:
                    self._threads.remove(thread)
                if self._queue and self._users:
                    with contextlib.suppress(Unavailable):  # the next `run` tries again
                        self._start()
            on_stall(error)

        return stall.WATCH.begin(f"the {self._name} lane", stall.STALL_SECONDS_MAX, give_up)


COMMITS = Workers("commits", 4)  # syncs of different files overlap; more threads than this only queue at the disk
CHORES = Workers("chores", 1)


def is_worker() -> bool:
    """Whether the calling thread is one of the lanes', or the one that answers in their place where the disk does not: it
    must not wait for what they do."""
    thread = threading.current_thread()
    return COMMITS.has(thread) or CHORES.has(thread) or stall.WATCH.runs_here()


# A forked child has none of the threads: its lanes start empty.
os.register_at_fork(after_in_child=COMMITS._reset)
os.register_at_fork(after_in_child=CHORES._reset)
