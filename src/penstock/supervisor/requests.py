"""Questions to the capture process from threads of `control.sock`, and its answers, which come among its reports."""

from __future__ import annotations

import itertools
import queue
import threading
from typing import Any

from penstock.errors import PenstockError, Unavailable, error_from_json
from penstock.supervisor.restarts import ChildSlot

ANSWER_SECONDS_MAX = 60.0  # capture answers between two transactions


class Requests:
    """The requests to one child. Thread-safe."""

    def __init__(self, slot: ChildSlot) -> None:
        self._slot = slot
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._waiting: dict[int, queue.SimpleQueue[dict[str, Any] | PenstockError]] = {}

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """The child's answer. Raises what it refuses with, and `Unavailable` if it does not answer: then nobody knows whether
        it did what was asked, and the same may be asked again."""
        answer: queue.SimpleQueue[dict[str, Any] | PenstockError] = queue.SimpleQueue()
        with self._lock:
            number = next(self._numbers)
            self._waiting[number] = answer
        try:
            if not self._slot.ask({**request, "request": number}):
                raise Unavailable(f"{self._slot.name} does not run now: {self._slot.note or self._slot.state}")
            found = answer.get(timeout=ANSWER_SECONDS_MAX)
        except queue.Empty:
            raise Unavailable(
                f"{self._slot.name} did not answer in {ANSWER_SECONDS_MAX:.0f} s: it is inside a large transaction",
                hint="ask again; it does what was asked as soon as it can",
            ) from None
        finally:
            with self._lock:
                self._waiting.pop(number, None)
        if isinstance(found, PenstockError):
            raise found
        return found

    def on_answer(self, event: dict[str, Any]) -> None:
        """An `answer` event of the child."""
        with self._lock:
            waiting = self._waiting.get(event.get("request", 0))
        if waiting is not None:
            error = event.get("error")
            waiting.put(error_from_json(error) if isinstance(error, dict) else dict(event.get("result") or {}))

    def on_end(self) -> None:
        """The child is gone: nobody answers what waits."""
        with self._lock:
            waiting = list(self._waiting.values())
        for one in waiting:
            one.put(Unavailable(f"{self._slot.name} ended before it answered", hint="try again"))
