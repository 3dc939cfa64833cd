"""The log without threads: what its background threads would do is done by whoever waits for them.

A program over the log becomes one deterministic sequence of file operations, and thousands of crash states a second can be
looked at. While `stepping()` is in force the rooms of the log see threads that run only when somebody waits: their targets
must be loops that keep their state in objects and wait on conditions, because a target that would wait is left and later
entered again from its start. A wait that nobody can end is an error here, where real threads would hang.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import penstock.log
import penstock.state  # noqa: F401 (its modules are patched too)
from penstock.log import Pending
from penstock.log.workers import CHORES, COMMITS

_ROOMS = ("penstock.log.", "penstock.state.", "penstock.metadata.")
_ROUNDS_MAX = 1000


class Stuck(AssertionError):
    """Somebody waits for what will never come."""


class _WouldWait(BaseException):
    """A background thread has nothing to do."""


class _Thread:
    """A thread that runs when somebody waits."""

    def __init__(
        self,
        group: None = None,
        target: Callable[..., object] = lambda: None,
        name: str = "",
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
        *,
        daemon: bool | None = None,
    ) -> None:
        self._target, self._args, self._kwargs = target, args, kwargs or {}
        self.name = name
        self.daemon = daemon
        self._alive = False

    def start(self) -> None:
        self._alive = True
        STEPS.threads.append(self)

    def is_alive(self) -> bool:
        return self._alive

    def join(self, timeout: float | None = None) -> None:
        for _ in range(_ROUNDS_MAX):
            if not self._alive:
                return
            STEPS.pump()
        if timeout is None:
            raise Stuck(f"thread {self.name!r} never ends")

    def step(self) -> None:
        """Runs it until it ends or would wait."""
        outer, STEPS.current = STEPS.current, self
        try:
            self._target(*self._args, **self._kwargs)
        except _WouldWait:
            return
        finally:
            STEPS.current = outer
        self._alive = False
        if self in STEPS.threads:
            STEPS.threads.remove(self)


class _Timer(_Thread):
    """Never fires."""

    def __init__(self, interval: float, function: Callable[..., object], *_: object, **__: object) -> None:
        super().__init__(target=function)

    def start(self) -> None:
        pass

    def cancel(self) -> None:
        pass

    def join(self, timeout: float | None = None) -> None:
        pass


class _Condition:
    """A condition whose waiter does the others' work."""

    def __init__(self, lock: Any = None) -> None:
        self._lock = lock if lock is not None else threading.RLock()
        self.acquire, self.release = self._lock.acquire, self._lock.release

    def __enter__(self) -> Any:
        return self._lock.__enter__()

    def __exit__(self, *details: object) -> None:
        self._lock.release()

    def wait(self, timeout: float | None = None) -> bool:
        if isinstance(STEPS.current, _Thread):
            raise _WouldWait
        self._lock.release()
        try:
            STEPS.waits += 1
            if not STEPS.pump() and timeout is None and STEPS.waits > _ROUNDS_MAX:
                raise Stuck("a condition that nobody will notify")
        finally:
            self._lock.acquire()
        return True

    def wait_for(self, predicate: Callable[[], bool], timeout: float | None = None) -> bool:
        for _ in range(_ROUNDS_MAX):
            if predicate():
                return True
            if timeout == 0:
                return False
            self.wait(timeout)
        if timeout is None:
            raise Stuck("a condition that never comes true")
        return predicate()

    def notify(self, n: int = 1) -> None:
        STEPS.waits = 0

    def notify_all(self) -> None:
        STEPS.waits = 0


class _Event:
    def __init__(self) -> None:
        self._set = False

    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        self._set = True

    def clear(self) -> None:
        self._set = False

    def wait(self, timeout: float | None = None) -> bool:
        if self._set:
            return True
        if isinstance(STEPS.current, _Thread):
            raise _WouldWait
        for _ in range(_ROUNDS_MAX):
            STEPS.pump()
            if self._set or timeout is not None:
                return self._set
        raise Stuck("an event that nobody sets")


class Steps:
    """Which threads there are, and which of them runs."""

    def __init__(self) -> None:
        self.threads: list[_Thread] = []
        self.current: object = threading.main_thread()
        self.waits = 0

    def pump(self) -> bool:
        """Runs every thread that is not running until it would wait. Whether there was one."""
        waiting = [thread for thread in self.threads if thread is not self.current]
        for thread in waiting:
            thread.step()
        return bool(waiting)

    def reset(self) -> None:
        """Forgets every thread: their process is dead."""
        self.threads.clear()
        self.current = threading.main_thread()
        self.waits = 0
        for workers in (COMMITS, CHORES):
            workers._reset()


class _Threading:
    """Stands for the module `threading`."""

    Thread = _Thread
    Timer = _Timer
    Condition = _Condition
    Event = _Event

    @staticmethod
    def current_thread() -> object:
        return STEPS.current

    def __getattr__(self, name: str) -> Any:
        return getattr(threading, name)


STEPS = Steps()


def _modules() -> list[Any]:
    return [module for name, module in list(sys.modules.items()) if name.startswith(_ROOMS)]


@contextlib.contextmanager
def stepping() -> Iterator[Steps]:
    """See the module."""
    shim = _Threading()
    patched = [module for module in _modules() if getattr(module, "threading", None) is threading]
    result, exception = Pending.result, Pending.exception

    def wait(pending: Pending[Any]) -> None:
        for _ in range(_ROUNDS_MAX):
            if pending.done():
                return
            STEPS.pump()
        raise Stuck("a future that never completes")

    def stepped_result(self: Pending[Any], timeout: float | None = None) -> Any:
        wait(self)
        return result(self, timeout)

    def stepped_exception(self: Pending[Any], timeout: float | None = None) -> Any:
        wait(self)
        return exception(self, timeout)

    for module in patched:
        module.threading = shim
    Pending.result, Pending.exception = stepped_result, stepped_exception  # type: ignore[method-assign]
    STEPS.reset()
    try:
        yield STEPS
    finally:
        for module in patched:
            module.threading = threading
        Pending.result, Pending.exception = result, exception  # type: ignore[method-assign]
        STEPS.reset()
