"""What Penstock asks of a metadata store: small versioned values that change by compare-and-set.

Every transaction gets a number, higher than all before it in this store; what it creates or puts has that number as its
version. So a version of a key is never given again, not even after the key was deleted and created anew: who holds an
old version conflicts, and never meets a stranger under it.

Every operation is durable when it returns. A conflict changes nothing and is never retried here: it means that another
process changed the key, and only the caller knows what follows from that. `Unavailable` and `StorageFailed` change
nothing either. After `OutcomeUnknown` nobody knows whether the transaction was made: a crash may still bring it back. The
handle then refuses everything; the next one that is opened and settled finds the truth.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from penstock.arguments import check_count, check_text, check_type
from penstock.errors import BadInput, OutcomeUnknown, Terminal


class VersionConflict(Terminal):
    """The key is not at the version that the caller saw. Nothing was changed."""


class Versioned(NamedTuple):
    """A value and the version at which it was read."""

    value: bytes
    version: int


@dataclass(frozen=True, slots=True)
class Create:
    """The key must not exist."""

    key: str
    value: bytes


@dataclass(frozen=True, slots=True)
class Put:
    """The key must be at `expected`."""

    key: str
    value: bytes
    expected: int


@dataclass(frozen=True, slots=True)
class Delete:
    """The key must be at `expected`."""

    key: str
    expected: int


@dataclass(frozen=True, slots=True)
class Check:
    """The key must be at `expected` (0: must not exist); it stays as it is."""

    key: str
    expected: int


Operation = Create | Put | Delete | Check


class MetadataStore(Protocol):
    """Versioned compare-and-set over a flat set of keys (`a/b/c`)."""

    @property
    def unknown(self) -> OutcomeUnknown | None:
        """Why this handle answers nothing any more; None while it does. Costs nothing to ask."""
        ...

    def settle(self) -> None:
        """What is read from here on is durable. Called by whoever acts on what it reads before it changes anything.

        A process that failed or was killed may have left a transaction that is not on the disk yet, or one that does not
        show and that a power cut would bring back. After this its fate is decided, whichever it is.
        """
        ...

    def get(self, key: str) -> Versioned | None: ...

    def create(self, key: str, value: bytes) -> int:
        """Returns the new version. Raises `VersionConflict` if the key exists."""
        ...

    def put(self, key: str, value: bytes, expected: int) -> int:
        """Returns the new version. Raises `VersionConflict` if the key is not at `expected`."""
        ...

    def delete(self, key: str, expected: int) -> None: ...

    def children(self, prefix: str) -> list[str]:
        """Sorted keys that start with `prefix`."""
        ...

    def entries(self, prefix: str) -> list[tuple[str, Versioned]]:
        """The keys of `children` with their values, all as of one moment."""
        ...

    def transaction(self, operations: Sequence[Operation]) -> int:
        """Applies all operations, or none and raises `VersionConflict`. The version of what it created and put."""
        ...

    def close(self) -> None: ...


def check_key(key: object) -> None:
    """Raises `BadInput` unless it can be a key: text that is not empty, has UTF-8, and no NUL."""
    check_text("a key of the metadata", key, empty=False)
    if "\0" in str(key):
        raise BadInput(f"{key!a} cannot be a key of the metadata", hint="text without NUL")


def checked_operations(operations: Sequence[Operation]) -> list[Operation]:
    """The operations as they are now. Raises `BadInput` where one of them makes no sense, before anything is begun."""
    check_type("operations", operations, (list, tuple))
    for operation in operations:
        check_type("an operation", operation, (Create, Put, Delete, Check))
        check_key(operation.key)
        if isinstance(operation, Create | Put):
            check_type("a value of the metadata", operation.value, bytes)
        if not isinstance(operation, Create):
            check_count("the expected version", operation.expected)
    return list(operations)


def conflict(key: str, expected: int, version: int) -> VersionConflict:
    """The error for a key that is at `version` instead of `expected` (0: there is none)."""
    return VersionConflict(
        f"metadata {key!r} is at version {version or 'none'}, not at {expected or 'none'}",
        hint="another process changed it",
    )


def refusal(unknown: OutcomeUnknown) -> OutcomeUnknown:
    """The error of every call after `unknown`: one of its own, so that no traceback grows with each call."""
    return OutcomeUnknown(f"nothing is done here since an outcome is unknown: {unknown.message}", hint=unknown.hint)
