"""How a test says that the code under test broke a promise."""

from __future__ import annotations


class Violation(AssertionError):
    """The code under test broke a promise."""


def must(holds: bool, promise: str) -> None:
    if not holds:
        raise Violation(promise)
