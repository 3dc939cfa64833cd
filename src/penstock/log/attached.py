"""Parts that stand on an owner's log, such as its state, and must know when the log rolls and when it closes."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Collection
from typing import Protocol

from penstock.errors import BadInput


class Attached(Protocol):
    """A part that stands on an owner's log."""

    def rolled(self) -> None:
        """A ledger was sealed. Called on the writer thread, so it must be short and never wait for the log."""
        ...

    def close(self) -> None:
        """The log is about to close; appends still work. What is under way ends here."""
        ...


class AttachedParts:
    """The parts of one log, at most one of each kind. Thread-safe."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._lock = threading.Lock()
        self._parts: dict[str, Attached] = {}

    def add(self, kind: str, part: Attached) -> None:
        with self._lock:
            if kind in self._parts:
                raise BadInput(f"the {kind} of {self._where} is open already", hint="share it, or close it first")
            self._parts[kind] = part

    def remove(self, part: Attached) -> None:
        """Fine if it is not there."""
        with self._lock:
            self._parts = {kind: one for kind, one in self._parts.items() if one is not part}

    def other_than(self, own: Collection[str]) -> str | None:
        """The kind of an attached part that is not among `own`; None where there is none."""
        return next((kind for kind in self._parts if kind not in own), None)

    def rolled(self) -> None:
        for part in tuple(self._parts.values()):
            part.rolled()

    def close(self) -> None:
        """Closes each part, the last one first. Raises what goes wrong, after all are closed."""
        with contextlib.ExitStack() as rest:
            for part in tuple(self._parts.values()):
                rest.callback(part.close)
