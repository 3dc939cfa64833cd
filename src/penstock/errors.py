"""The few kinds of error that Penstock raises.

Each error says what happened, where, and what to do next (`hint`), and whether it heals by itself: a `Transient` error
may be retried by the same owner, a `Terminal` one must not be. A package subclasses a kind only where some caller
tells the subclass from its kind; nobody raises the bare base.

Between processes an error travels as JSON under the name of its kind (`to_json`, `error_from_json`).
"""

from __future__ import annotations

import copy
import traceback
from collections.abc import Mapping
from typing import Any, TypeVar

E = TypeVar("E", bound=BaseException)


class PenstockError(Exception):
    """Base of every error that reaches a user. `str()` is one calm sentence; `hint` is the next step."""

    transient: bool = False

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message

    @property
    def kind(self) -> str:
        """The name of the nearest class in this module: what a process without the subclass knows."""
        return next(str(c.__name__) for c in type(self).__mro__ if globals().get(c.__name__) is c)

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind, "message": self.message, "hint": self.hint}


class Transient(PenstockError):
    """Heals by itself: retry with backoff, the owner and its facts stay valid."""

    transient = True


class Terminal(PenstockError):
    """Does not heal by itself: stop, and tell the operator."""


class BadInput(Terminal):
    """Configuration, binlog bytes or a request that Penstock refuses. Nothing was changed."""


class NotSupported(BadInput):
    """A known feature that this version does not have yet, refused by name."""


class Corruption(Terminal):
    """Bytes below the synced end do not match their checksum. Nothing was truncated or deleted."""


class Fenced(Terminal):
    """Another owner took over. Every write of this owner fails from now on."""


class StorageFailed(Terminal):
    """A write or sync of the file system failed; the handle is poisoned until it is reopened."""


class OutcomeUnknown(Terminal):
    """Nobody knows whether the change was made: it may be found later, or never. The handle accepts nothing more; what is
    opened next finds out, before it acts on either."""


class Unavailable(Transient):
    """Another process or server does not answer right now."""


class TooMuch(Unavailable):
    """More was sent at once than can be held now: come again with less."""


class StaleRun(Transient):
    """The message belongs to an older run or to another incarnation of delivery; go back to the resume table."""


class Closed(Terminal):
    """The object was closed."""


def fresh(error: E) -> E:
    """An equal error to raise now, for one that is kept and raised again and again.

    Raising adds the frames of the caller to the error, and frames hold what their callers hold: an error that is kept
    must never be raised itself. The copy has the same cause, and no traceback yet.
    """
    if isinstance(error, PenstockError):
        new: Any = type(error).__new__(type(error), *error.args)
        new.__dict__.update(error.__dict__)
    else:
        try:
            new = copy.copy(error)
        except Exception:  # made in a way that cannot be repeated
            return error.with_traceback(None)
    new.__cause__ = error.__cause__
    new.__suppress_context__ = error.__suppress_context__
    return new.with_traceback(None)  # type: ignore[no-any-return]


def kept(error: E) -> E:
    """The error itself, ready to be kept: it and its causes let go of the frames that they came through.

    Where an error is not one of ours, and so a mistake, those frames stay with it as text.
    """
    one: BaseException | None = error
    while one is not None and (one.__traceback__ is not None or one.__context__ is not None):
        if not isinstance(one, PenstockError) and one.__traceback__ is not None:
            one.add_note("".join(traceback.format_tb(one.__traceback__)))
        one.__traceback__ = None
        one.__context__ = None  # it may belong to whoever called, and holds frames too
        one = one.__cause__
    return error


def kind_named(name: str) -> type[PenstockError] | None:
    """The class of this module with this name, if there is one."""
    found = globals().get(name)
    return found if isinstance(found, type) and issubclass(found, PenstockError) else None


def error_from_json(value: Mapping[str, Any]) -> PenstockError:
    """The opposite of `to_json`. A kind that this version does not know is `Terminal`."""
    kind = kind_named(str(value["kind"])) or Terminal
    return kind(value["message"], hint=value.get("hint", ""))
