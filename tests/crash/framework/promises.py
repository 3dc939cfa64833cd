"""How a test says that the code under test broke a promise."""

from __future__ import annotations


class Violation(AssertionError):
    """The code under test broke a promise. Each one counts, also where the code under test caught it: a callback of a
    pending answer, and a file operation on a background thread, cannot raise it to the explorer themselves."""

    def __init__(self, promise: str) -> None:
        super().__init__(promise)
        BROKEN.append(self)


BROKEN: list[Violation] = []


def must(holds: bool, promise: str) -> None:
    if not holds:
        raise Violation(promise)


def raise_broken() -> None:
    """Raises the first violation since the last call, if there was one."""
    broken = BROKEN[:1]
    BROKEN.clear()
    if broken:
        raise broken[0]
