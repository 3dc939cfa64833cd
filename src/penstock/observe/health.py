"""Health of a process: which of its parts work, and a sentence about each that does not.

Alive means that nothing terminal happened; ready means, besides, that every part said so. A part that has not spoken yet is
not ready, so that a new process is never taken for a working one.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from enum import Enum


class Condition(Enum):
    STARTING = "starting"
    WORKING = "working"
    RETRYING = "retrying"  # a transient error: it will go on by itself
    FAILED = "failed"  # a terminal error: somebody must act


@dataclass(frozen=True, slots=True)
class Part:
    condition: Condition
    reason: str = ""


class Health:
    """Thread-safe. The parts are named once, at the start."""

    def __init__(self, *parts: str) -> None:
        self._lock = threading.Lock()
        self._parts = {name: Part(Condition.STARTING) for name in parts}

    def set(self, part: str, condition: Condition, reason: str = "") -> None:
        with self._lock:
            if part not in self._parts:
                raise KeyError(part)
            self._parts[part] = Part(condition, reason)

    def parts(self) -> dict[str, Part]:
        with self._lock:
            return dict(self._parts)

    @property
    def is_alive(self) -> bool:
        return all(part.condition is not Condition.FAILED for part in self.parts().values())

    @property
    def is_ready(self) -> bool:
        return all(part.condition is Condition.WORKING for part in self.parts().values())
