"""Threads replaced by coroutines, so that a program with background threads is one deterministic sequence of operations.

While `stepping()` is in force, the modules under test see a `threading` whose threads are coroutines (greenlets). Each of
them runs when another one waits, or when `STEPS.pump()` is called, until it would wait itself. A wait with a short timeout
ends at once; a longer timeout never passes. A wait that nobody can end raises `Stuck`, where real threads would hang.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import greenlet

_ROUNDS_MAX = 200
_SHORT_SECONDS = 0.1


class Stuck(AssertionError):
    """A wait that no thread can end."""


class _Thread:
    """A thread that runs while another one waits."""

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
        """Runs the thread until it ends or waits."""
        self._switch(self._greenlet.switch)

    def end(self) -> None:
        """Ends the thread where it is, as the death of its process does."""
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
        """Called on the thread itself: goes on in whoever ran it last."""
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


def _wait_really(ready: Callable[[], bool], timeout: float | None) -> bool:
    deadline = None if timeout is None else time.monotonic() + timeout
    while not ready():
        if deadline is not None and time.monotonic() >= deadline:
            return False
        time.sleep(0.01)
    return True


class Steps:
    """The threads that there are, and the one that runs. `forget` drops what the code under test keeps for its process."""

    def __init__(self) -> None:
        self.threads: list[_Thread] = []
        self.current: object = threading.main_thread()
        self.forget: Callable[[], None] = lambda: None
        self._own_thread = 0

    def adopt(self) -> None:
        """The calling real thread is the one that all coroutines run on."""
        self._own_thread = threading.get_ident()

    def is_own_thread(self) -> bool:
        return threading.get_ident() == self._own_thread

    def wait(self, ready: Callable[[], bool], what: str, timeout: float | None = None) -> bool:
        """Lets other threads run until `ready`. False where a timeout passed."""
        if not self.is_own_thread():
            return _wait_really(ready, timeout)
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
        """Every thread goes on until it waits. Returns whether there was one."""
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
        self.forget()


class _Threading:
    """Stands in for the module `threading`. A thread of an earlier test, which may still run, gets the real one."""

    _REPLACED: ClassVar[dict[str, object]] = {
        "Thread": _Thread,
        "Timer": _Timer,
        "Lock": _Lock,
        "RLock": _RLock,
        "Condition": _Condition,
        "Event": _Event,
        "current_thread": lambda: STEPS.current,
    }

    def __getattr__(self, name: str) -> Any:
        if name in self._REPLACED and STEPS.is_own_thread():
            return self._REPLACED[name]
        return getattr(threading, name)


STEPS = Steps()


@contextlib.contextmanager
def stepping(packages: tuple[str, ...], future: Any, forget: Callable[[], None]) -> Iterator[Steps]:
    """Replaces the threads of all imported modules whose names start with one of `packages`.

    `future`: a class whose `result` and `exception` wait for `done`. `forget`: see `Steps`.
    """
    modules = [module for name, module in list(sys.modules.items()) if name.startswith(packages)]
    patched: list[Any] = [module for module in modules if getattr(module, "threading", None) is threading]
    result, exception = future.result, future.exception

    def stepped_result(self: Any, timeout: float | None = None) -> Any:
        if STEPS.is_own_thread():
            STEPS.wait(self.done, "a result", timeout)
        return result(self, timeout)

    def stepped_exception(self: Any, timeout: float | None = None) -> Any:
        if STEPS.is_own_thread():
            STEPS.wait(self.done, "a result", timeout)
        return exception(self, timeout)

    shim = _Threading()
    for module in patched:
        module.threading = shim
    future.result, future.exception = stepped_result, stepped_exception
    STEPS.forget = forget
    STEPS.adopt()
    STEPS.reset()
    try:
        yield STEPS
    finally:
        STEPS.reset()
        for module in patched:
            module.threading = threading
        future.result, future.exception = result, exception
        STEPS.reset()  # again: locks that it makes are real ones now
        STEPS.forget = lambda: None
