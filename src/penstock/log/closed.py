"""What stands in the place of a part after its owner was closed: every use of it raises `Closed`, by the owner's name.

A handle that puts one of these in the place of its parts needs no check in each call, and no call can be forgotten.
"""

from __future__ import annotations

import os
import weakref
from typing import Any, NoReturn, Protocol

from penstock.errors import Closed
from penstock.log import pending  # its own locks are made anew in a child before the objects here are told


class ClosedPart:
    """Any attribute of it raises `Closed`; `what` is who was closed."""

    __slots__ = ("_why",)

    def __init__(self, what: str, hint: str = "") -> None:
        self._why = (what, hint)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        self.refuse()

    def refuse(self, *_: object, **__: object) -> NoReturn:
        """Takes any arguments: it stands in for the methods of what was closed."""
        what, hint = self._why
        raise Closed(f"{what} is closed", hint=hint)


class Owned(Protocol):
    """Something whose threads and locks a forked child does not have."""

    def forked(self) -> None:
        """Called in the child: from here on every call on it raises `Closed`, and `close` does nothing."""
        ...


_owned: weakref.WeakSet[Any] = weakref.WeakSet()
FORK_HINT = "it belongs to the process that opened it; open it again in this one once that process has closed it"


def closed_in_children(owned: Owned) -> None:
    """The object is told when the process forks, in the child. It is held weakly."""
    _owned.add(owned)


def _forked() -> None:
    for owned in list(_owned):
        owned.forked()


assert pending
os.register_at_fork(after_in_child=_forked)
