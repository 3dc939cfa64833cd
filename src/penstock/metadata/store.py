"""What Penstock asks of a metadata store: small versioned values that change by compare-and-set.

A key has version 1 when it is created, and one more with each put; a key that was deleted and created again starts at
1. Every operation is durable when it returns. A conflict changes nothing and is never retried here: it means that
another process changed the key, and only the caller knows what follows from that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from penstock.errors import Terminal


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

    def get(self, key: str) -> Versioned | None: ...

    def create(self, key: str, value: bytes) -> int:
        """Returns the new version, 1. Raises `VersionConflict` if the key exists."""
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

    def transaction(self, operations: Sequence[Operation]) -> None:
        """Applies all operations, or none and raises `VersionConflict`."""
        ...

    def close(self) -> None: ...


def conflict(key: str, expected: int, version: int) -> VersionConflict:
    """The error for a key that is at `version` instead of `expected` (0: there is none)."""
    return VersionConflict(
        f"metadata {key!r} is at version {version or 'none'}, not at {expected or 'none'}",
        hint="another process changed it",
    )
