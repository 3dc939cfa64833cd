"""The log without threads: what its background threads would do is done while somebody waits for them.

A program over the log becomes one deterministic sequence of file operations, and hundreds of crash states a second can be
looked at. While `stepping()` is in force, the rooms of the log see a `threading` whose threads are coroutines (greenlets):
each runs, when somebody waits or `STEPS.pump()` is called, until it would wait itself. Waits with a timeout end at once if
it is short, and never otherwise. A wait that nobody can end is an error here, where real threads would hang.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import greenlet

import penstock.log
import penstock.state.log_state  # noqa: F401 (imported late otherwise; its modules are patched too)
from penstock.log import Pending, stall
from penstock.log.records import workers

_ROOMS = ("penstock.log.", "penstock.state.", "penstock.metadata.")
_ROUNDS_MAX = 200
_SHORT_SECONDS = 0.1


class Stuck(AssertionError):
    """Somebody waits for what will never come."""


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
        self.name = name
        self.daemon = daemon
        self.blocked = False
        self._back: Any = None
        self._greenlet = greenlet.greenlet(lambda: target(*args, **(kwargs or {})))

    def start(self) -> None:
        STEPS.threads.append(self)

    def is_alive(self) -> bool:
        return self in STEPS.threads

    def join(self, timeout: float | None = None) -> None:
        STEPS.wait(lambda: self not in STEPS.threads, f"the end of thread {self.name!r}", timeout)

    def step(self) -> None:
        """Runs it until it ends or waits."""
        self._switch(self._greenlet.switch)

    def end(self) -> None:
        """Its process is dead: whatever it would still do must not count."""
        with contextlib.suppress(Exception):
            if not self._greenlet.dead and bool(self._greenlet):
                self._switch(lambda: self._greenlet.throw(greenlet.GreenletExit))

    def _switch(self, switch: Callable[[], object]) -> None:
        outer, STEPS.current = STEPS.current, self
        self._back = greenlet.getcurrent()
        try:
            switch()
        finally:
            STEPS.current = outer
            if self._greenlet.dead and self in STEPS.threads:
                STEPS.threads.remove(self)

    def yield_(self) -> None:
        """Called on the thread itself: goes on where it was waited for."""
        self._back.switch()


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


class _Lock:
    __slots__ = ("_held",)

    def __init__(self) -> None:
        self._held = False

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        if self._held:
            if not blocking:
                return False
            if not STEPS.wait(lambda: not self._held, "a lock", None if timeout < 0 else timeout):
                return False
        self._held = True
        return True

    def release(self) -> None:
        self._held = False

    def locked(self) -> bool:
        return self._held

    def __enter__(self) -> bool:
        if self._held:
            STEPS.wait(lambda: not self._held, "a lock")
        self._held = True
        return True

    def __exit__(self, *_: object) -> None:
        self._held = False


class _RLock:
    def __init__(self) -> None:
        self._owner: object = None
        self._depth = 0

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        if self._depth and self._owner is not STEPS.current:
            if not blocking:
                return False
            STEPS.wait(lambda: not self._depth, "a lock")
        self._owner = STEPS.current
        self._depth += 1
        return True

    def release(self) -> None:
        self._depth -= 1

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self._depth -= 1


class _Condition:
    def __init__(self, lock: Any = None) -> None:
        self._lock = lock if lock is not None else _RLock()
        self._waiters: list[list[bool]] = []
        self.acquire, self.release = self._lock.acquire, self._lock.release

    def __enter__(self) -> Any:
        return self._lock.__enter__()

    def __exit__(self, *details: object) -> None:
        self._lock.__exit__(*details)

    def wait(self, timeout: float | None = None) -> bool:
        token = [False]
        self._waiters.append(token)
        self._lock.release()
        try:
            return STEPS.wait(lambda: token[0], "a condition", timeout)
        finally:
            self._lock.acquire()
            if not token[0]:
                self._waiters.remove(token)

    def wait_for(self, predicate: Callable[[], bool], timeout: float | None = None) -> bool:
        while not predicate():
            if not self.wait(timeout) and not predicate():
                return False
        return True

    def notify(self, n: int = 1) -> None:
        for token in self._waiters[:n]:
            token[0] = True
        del self._waiters[:n]

    def notify_all(self) -> None:
        self.notify(len(self._waiters))


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
        return self._set or STEPS.wait(lambda: self._set, "an event", timeout)


class Steps:
    """Which threads there are, and which of them runs."""

    def __init__(self) -> None:
        self.threads: list[_Thread] = []
        self.current: object = threading.main_thread()
        self._process_wide = _process_wide()

    def wait(self, ready: Callable[[], bool], what: str, timeout: float | None = None) -> bool:
        """Lets the others run until `ready`. False where a timeout passed."""
        current = self.current
        rounds = 0
        while not ready():
            if isinstance(current, _Thread):
                if timeout is not None and timeout <= _SHORT_SECONDS and rounds:
                    return False
                current.blocked = True
                current.yield_()
                current.blocked = False
            elif not self.pump() or rounds > _ROUNDS_MAX:
                if timeout is None:
                    raise Stuck(f"nobody will ever bring {what}")
                return False
            rounds += 1
        return True

    def pump(self) -> bool:
        """Every thread goes on until it waits. Whether there was one."""
        before = self.current
        ran = False
        for thread in list(self.threads):
            if thread is not before and thread in self.threads:
                thread.step()
                ran = True
        return ran

    def reset(self) -> None:
        """Every thread is gone, as after kill -9."""
        threads, self.threads = self.threads, []
        for thread in threads:
            thread.end()
        self.threads.clear()
        self.current = threading.main_thread()
        for shared in (workers.COMMITS, workers.CHORES, stall.WATCH):
            shared._reset()
        for kept in self._process_wide:
            kept.__init__()


class _Threading:
    """Stands for the module `threading`."""

    Thread = _Thread
    Timer = _Timer
    Lock = _Lock
    RLock = _RLock
    Condition = _Condition
    Event = _Event

    @staticmethod
    def current_thread() -> object:
        return STEPS.current

    def __getattr__(self, name: str) -> Any:
        return getattr(threading, name)


def _process_wide() -> list[Any]:
    """What the log keeps for the whole process: a new process has none of it."""
    names = ("penstock.log.read.cache", "penstock.log.log")
    modules = [sys.modules[name] for name in names if name in sys.modules]
    return [
        value
        for module in modules
        for value in vars(module).values()
        if type(value).__name__ in {"ReadCache", "OpenLogs"}
    ]


STEPS = Steps()


@contextlib.contextmanager
def stepping() -> Iterator[Steps]:
    """See the module."""
    shim = _Threading()
    modules = [module for name, module in list(sys.modules.items()) if name.startswith(_ROOMS)]
    patched: list[Any] = [module for module in modules if getattr(module, "threading", None) is threading]
    result, exception = Pending.result, Pending.exception

    def stepped_result(self: Pending[Any], timeout: float | None = None) -> Any:
        STEPS.wait(self.done, "a result", timeout)
        return result(self, timeout)

    def stepped_exception(self: Pending[Any], timeout: float | None = None) -> Any:
        STEPS.wait(self.done, "a result", timeout)
        return exception(self, timeout)

    for module in patched:
        module.threading = shim
    Pending.result, Pending.exception = stepped_result, stepped_exception  # type: ignore[method-assign]
    STEPS.reset()
    try:
        yield STEPS
    finally:
        STEPS.reset()
        for module in patched:
            module.threading = threading
        Pending.result, Pending.exception = result, exception  # type: ignore[method-assign]
        STEPS.reset()
