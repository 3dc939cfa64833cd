"""A light future: the answer to an append, completed once the entry is durable.

`concurrent.futures.Future` costs a condition variable for each object; a `Pending` costs a few attributes, and a lock only
for a caller that really waits.

Callbacks run on the completing thread (of an append: the log's writer thread), one after the other, before waiters wake.
A slow one holds up every later append, but is never taken for a slow disk. It may append, and never waits for room then.
One that waits for an append of the same log waits for itself: hand such work to another thread. (Calls of a log that wait
for its writer thread, such as `roll`, refuse to be called there.)
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable, Generator, Sequence
from typing import Any, Generic, TypeVar

from penstock.arguments import check_callable, check_timeout
from penstock.errors import fresh, kept

T = TypeVar("T")

_logger = logging.getLogger(__name__)
_guard = threading.Lock()  # of all objects: registering and completing exclude each other, for a few instructions
# What a callback may raise without harm to anybody: also what is meant to end a task or a thread, because the thread that
# calls back is neither the callback's own task nor its own thread.
_CALLBACK_ERRORS = (Exception, asyncio.CancelledError, SystemExit, KeyboardInterrupt, GeneratorExit)


def _reset_after_fork() -> None:
    """In a forked child the thread that may hold the lock does not exist."""
    global _guard
    _guard = threading.Lock()


os.register_at_fork(after_in_child=_reset_after_fork)


class Pending(Generic[T]):
    """A result that will come. The producer completes it exactly once, with a value or an exception."""

    __slots__ = ("_callbacks", "_done", "_error", "_value", "_waiters")

    def __init__(self) -> None:
        self._done = False
        self._value: T | None = None
        self._error: BaseException | None = None
        self._callbacks: list[Callable[[Pending[T]], None]] | None = None
        self._waiters: list[threading.Lock] | None = None

    def done(self) -> bool:
        return self._done

    def result(self, timeout: float | None = None) -> T:
        """Waits for the value. Raises the error that it failed with, or `TimeoutError`."""
        if not self._done:
            self._wait(timeout)
        if self._error is not None:
            raise fresh(self._error)
        return self._value  # type: ignore[return-value]

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Waits until it is done. Returns the error that it failed with, or None."""
        if not self._done:
            self._wait(timeout)
        return None if self._error is None else fresh(self._error)

    def add_done_callback(self, callback: Callable[[Pending[T]], None]) -> None:
        """Calls `callback(self)` when it is done; at once if it is done already. What it raises is logged, and reaches nobody."""
        check_callable("callback", callback)
        with _guard:
            if not self._done:
                if self._callbacks is None:
                    self._callbacks = []
                self._callbacks.append(callback)
                return
        self._notify([callback], None)

    def __await__(self) -> Generator[Any, None, T]:
        """`await log.append(…)`: the result, without holding up the event loop. A cancelled wait takes nothing back."""
        if not self._done:
            loop = asyncio.get_running_loop()
            woken = loop.create_future()

            def wake(_: Pending[T]) -> None:
                with contextlib.suppress(RuntimeError):  # the loop was closed: nobody waits any more
                    loop.call_soon_threadsafe(_set_unless_done, woken)

            self.add_done_callback(wake)
            yield from woken
        return self.result()

    def as_future(self) -> concurrent.futures.Future[T]:
        """The same answer as a `concurrent.futures.Future`, for code that wants one (`asyncio.wrap_future`, `wait`).

        It cannot be cancelled: what was appended cannot be called back.
        """
        future: concurrent.futures.Future[T] = concurrent.futures.Future()
        future.set_running_or_notify_cancel()

        def copy(done: Pending[T]) -> None:
            error = done.exception(0)
            if error is None:
                future.set_result(done.result(0))
            else:
                future.set_exception(error)

        self.add_done_callback(copy)
        return future

    def complete(self, value: T) -> None:
        """For the producer alone."""
        self._value = value
        self._finish()

    def fail(self, error: BaseException) -> None:
        """For the producer alone."""
        self._error = kept(error)
        self._finish()

    def _finish(self) -> None:
        with _guard:
            self._done = True
            callbacks, self._callbacks = self._callbacks, None
            waiters, self._waiters = self._waiters, None
        self._notify(callbacks, waiters)

    def _notify(
        self, callbacks: list[Callable[[Pending[T]], None]] | None, waiters: list[threading.Lock] | None
    ) -> None:
        for callback in callbacks or ():
            try:
                callback(self)
            except _CALLBACK_ERRORS:  # a failing callback must not keep the answer from the others
                _logger.exception("a callback of a pending result failed")
        for waiter in waiters or ():
            waiter.release()

    def _wait(self, timeout: float | None) -> None:
        check_timeout(timeout)
        waiter = threading.Lock()
        waiter.acquire()
        with _guard:
            if self._done:
                return
            if self._waiters is None:
                self._waiters = []
            self._waiters.append(waiter)
        seconds = -1 if timeout is None else min(max(timeout, 0.0), threading.TIMEOUT_MAX)
        if not waiter.acquire(timeout=seconds) and self._give_up(waiter):
            raise TimeoutError(f"not durable within {timeout} s")

    def _give_up(self, waiter: threading.Lock) -> bool:
        with _guard:
            if self._waiters is None:  # it was completed in this very moment
                return False
            self._waiters.remove(waiter)
            return True


def _set_unless_done(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def complete_all(pendings: Sequence[Pending[T]], values: Sequence[T]) -> None:
    """Completes each one with its value, in order, taking the lock once. For the producer alone."""
    watched: list[tuple[list[Callable[[Pending[T]], None]] | None, list[threading.Lock] | None, Pending[T]]] = []
    with _guard:
        for pending, value in zip(pendings, values, strict=True):
            pending._value = value
            pending._done = True
            if pending._callbacks is not None or pending._waiters is not None:
                watched.append((pending._callbacks, pending._waiters, pending))
                pending._callbacks = pending._waiters = None
    for callbacks, waiters, pending in watched:
        pending._notify(callbacks, waiters)


def wait_all(pendings: list[Pending[T]], timeout: float | None = None) -> list[T]:
    """The results of all of them; `timeout` is for all together."""
    check_timeout(timeout)
    deadline = None if timeout is None else time.monotonic() + timeout
    return [p.result(None if deadline is None else deadline - time.monotonic()) for p in pendings]
