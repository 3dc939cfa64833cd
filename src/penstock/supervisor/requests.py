"""Questions to a child process, from threads of `control.sock` and from the run itself, and its answers, which come among
its reports."""

from __future__ import annotations

import itertools
import queue
import threading
from collections.abc import Callable
from typing import Any

from penstock.errors import PenstockError, Unavailable, error_from_json
from penstock.supervisor.restarts import ChildSlot

ANSWER_SECONDS_MAX = 60.0  # capture answers between two transactions

Answer = dict[str, Any] | PenstockError


class Requests:
    """The requests to one child. Thread-safe."""

    def __init__(self, slot: ChildSlot) -> None:
        self._slot = slot
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._waiting: dict[int, Callable[[Answer], None]] = {}

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """The child's answer. Raises what it refuses with, and `Unavailable` if it does not answer: then nobody knows whether
        it did what was asked, and the same may be asked again."""
        answer: queue.SimpleQueue[Answer] = queue.SimpleQueue()
        number = self.send(request, answer.put)
        try:
            found = answer.get(timeout=ANSWER_SECONDS_MAX)
        except queue.Empty:
            raise Unavailable(
                f"{self._slot.name} did not answer in {ANSWER_SECONDS_MAX:.0f} s: it does something else first",
                hint="ask again; it does what was asked as soon as it can",
            ) from None
        finally:
            with self._lock:
                self._waiting.pop(number, None)
        if isinstance(found, PenstockError):
            raise found
        return found

    def send(self, request: dict[str, Any], answered: Callable[[Answer], None]) -> int:
        """Asks, and returns the request's number. `answered` is called once, by whoever takes the child's reports; at once
        where no process works now, or it cannot be asked."""
        with self._lock:
            number = next(self._numbers)
            self._waiting[number] = answered
        try:
            if self._slot.ask({**request, "request": number}):
                return number
            error = Unavailable(f"{self._slot.name} does not run now: {self._slot.note or self._slot.state}")
        except Unavailable as cannot:
            error = cannot
        with self._lock:
            unanswered = self._waiting.pop(number, None) is not None
        if unanswered:
            answered(error)
        return number

    def on_answer(self, event: dict[str, Any]) -> None:
        """An `answer` event of the child."""
        with self._lock:
            waiting = self._waiting.pop(event.get("request", 0), None)
        if waiting is not None:
            error = event.get("error")
            waiting(error_from_json(error) if isinstance(error, dict) else dict(event.get("result") or {}))

    def on_end(self) -> None:
        """The child is gone: nobody answers what waits."""
        with self._lock:
            waiting, self._waiting = list(self._waiting.values()), {}
        for one in waiting:
            one(Unavailable(f"{self._slot.name} ended before it answered", hint="try again"))
