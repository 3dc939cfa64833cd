"""What lives on a log and must know when it rolls and when it closes: its state."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Collection
from typing import Protocol

from penstock.errors import BadInput


class Attached(Protocol):
    """A part of the process that stands on an owner's log."""

    def rolled(self) -> None:
        """A ledger was sealed. Called on the writer thread: it must be short and never wait for the log."""
        ...

    def close(self) -> None:
        """The log closes: what is under way ends while appends still work."""
        ...


class AttachedParts:
    """Thread-safe. Costs nothing while nothing is attached. One of a kind at a time."""

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
        """The kind of a part that is attached and not among the caller's own; None where there is none."""
        return next((kind for kind in self._parts if kind not in own), None)

    def rolled(self) -> None:
        for part in tuple(self._parts.values()):
            part.rolled()

    def close(self) -> None:
        """Closes each of them, the last one first. Raises what went wrong."""
        with contextlib.ExitStack() as rest:
            for part in tuple(self._parts.values()):
                rest.callback(part.close)
