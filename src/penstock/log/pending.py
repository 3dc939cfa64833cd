"""A light future: the answer to an append, complete once it is durable.

`concurrent.futures.Future` costs a condition for each object; this one costs a few attributes and makes a lock only for
the caller that really waits. Callbacks run on the thread that completes it, with the result there, before waiters
wake: they must be short.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")

_logger = logging.getLogger(__name__)
_guard = threading.Lock()  # orders registration against completion, for all of them: held for a few instructions


def _forked() -> None:
    """In a child process the thread that may hold the lock does not exist."""
    global _guard
    _guard = threading.Lock()


os.register_at_fork(after_in_child=_forked)


class Pending(Generic[T]):
    """A result that will come. Completed exactly once, with a value or an exception."""

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
        """The value, once it is there. Raises what went wrong, or `TimeoutError`."""
        if not self._done:
            self._wait(timeout)
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[return-value]

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """What went wrong, or None where nothing did."""
        if not self._done:
            self._wait(timeout)
        return self._error

    def add_done_callback(self, callback: Callable[[Pending[T]], None]) -> None:
        """Calls `callback(self)` when it is done; at once where it is already."""
        with _guard:
            if not self._done:
                if self._callbacks is None:
                    self._callbacks = []
                self._callbacks.append(callback)
                return
        callback(self)

    def complete(self, value: T) -> None:
        """For the producer alone."""
        self._value = value
        self._finish()

    def fail(self, error: BaseException) -> None:
        """For the producer alone."""
        self._error = error
        self._finish()

    def _finish(self) -> None:
        with _guard:
            self._done = True
            callbacks, self._callbacks = self._callbacks, None
            waiters, self._waiters = self._waiters, None
        self._tell(callbacks, waiters)

    def _tell(self, callbacks: list[Callable[[Pending[T]], None]] | None, waiters: list[threading.Lock] | None) -> None:
        for callback in callbacks or ():
            try:
                callback(self)
            except Exception:  # one caller's mistake must not cost another caller its answer
                _logger.exception("a callback of a pending result failed")
        for waiter in waiters or ():
            waiter.release()

    def _wait(self, timeout: float | None) -> None:
        waiter = threading.Lock()
        waiter.acquire()
        with _guard:
            if self._done:
                return
            if self._waiters is None:
                self._waiters = []
            self._waiters.append(waiter)
        if not waiter.acquire(timeout=-1 if timeout is None else max(timeout, 0.0)) and self._give_up(waiter):
            raise TimeoutError(f"not durable within {timeout} s")

    def _give_up(self, waiter: threading.Lock) -> bool:
        with _guard:
            if self._waiters is None:  # it came at this very moment
                return False
            self._waiters.remove(waiter)
            return True


def complete_all(pendings: Sequence[Pending[T]], values: Sequence[T]) -> None:
    """Completes each with its value, in order, under one lock. For the producer alone."""
    watched: list[tuple[list[Callable[[Pending[T]], None]] | None, list[threading.Lock] | None, Pending[T]]] = []
    with _guard:
        for pending, value in zip(pendings, values, strict=True):
            pending._value = value
            pending._done = True
            if pending._callbacks is not None or pending._waiters is not None:
                watched.append((pending._callbacks, pending._waiters, pending))
                pending._callbacks = pending._waiters = None
    for callbacks, waiters, pending in watched:
        pending._tell(callbacks, waiters)


def wait_all(pendings: list[Pending[T]], timeout: float | None = None) -> list[T]:
    """The results of all of them, within one shared budget of time."""
    deadline = None if timeout is None else time.monotonic() + timeout
    return [p.result(None if deadline is None else deadline - time.monotonic()) for p in pendings]
