"""What the run asks of the capture process while it works, and its answers (`penstock.process`, *Settings*)."""

from __future__ import annotations

import queue
from collections.abc import Callable
from typing import Any

from penstock.capture.resumption import REQUEST, Resumption
from penstock.errors import BadInput, PenstockError
from penstock.process import Event


class Requests:
    """The requests that wait. Each is answered once."""

    def __init__(self, waiting: queue.SimpleQueue[dict[str, Any]], say: Callable[[dict[str, Any]], None]) -> None:
        self._waiting = waiting
        self._say = say

    @property
    def waiting(self) -> bool:
        return not self._waiting.empty()

    def answer(self, resume: Callable[[Resumption], None]) -> None:
        """Answers all that wait. An error of Penstock's own is the answer; the process goes on."""
        while True:
            try:
                request = self._waiting.get_nowait()
            except queue.Empty:
                return
            number = request.get("request")
            try:
                if request.get("op") != REQUEST:
                    raise BadInput(f"capture knows no request {request.get('op')!r}")
                resume(Resumption.from_json(request))
            except PenstockError as error:
                self._say({"event": Event.ANSWER, "request": number, "error": error.to_json()})
            else:
                self._say({"event": Event.ANSWER, "request": number, "result": {}})
