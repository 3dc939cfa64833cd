"""What Penstock asks of an object store. Names are relative to the store's URL, with `/` between their parts."""

from __future__ import annotations

import errno
from collections.abc import Iterable, Iterator, Sequence
from pathlib import PurePosixPath
from typing import NamedTuple, Protocol

from penstock.errors import BadInput, Terminal
from penstock.files import Buffer

SCHEMES = ("file", "s3", "gs", "az")


class Found(NamedTuple):
    """What an object holds. `token` names exactly this content, for `put_if`."""

    data: bytes
    token: str


class ObjectChanged(Terminal):
    """The object holds something else than the caller believes. Nothing was written."""


class ObjectStore(Protocol):
    """Thread-safe. Raises `Unavailable` for what may heal by itself, `StorageFailed` for what an operator must
    repair."""

    url: str

    def put(self, name: str, data: Buffer) -> None:
        """Makes the object hold exactly these bytes, durable and visible when it returns; if it raises, the object is
        as before, or as it was to be: only the next `put`, `put_if` or `settle` that returns makes that durable."""
        ...

    def settle(self, name: str) -> None:
        """What is under this name is durable when it returns, or that nothing is. For who found it there and goes on from that: it
        may be of a put that raised, or of a process that died over it, whose last step nobody saw."""
        ...

    def put_stream(self, name: str, parts: Iterable[Buffer]) -> None:
        """As `put`, of bytes that come one after another: no more than a few parts of them are in memory. If `parts` raises, so
        does it, and nothing stays behind."""
        ...

    def end_uploads(self, name: str) -> int:
        """Ends what others have begun to put as a stream under this name, or below the whole URL where it is empty: they died, or
        are fenced, and cannot finish it any more. Returns how many there were, 0 where the store cannot tell."""
        ...

    def put_if(self, name: str, data: Buffer, token: str | None) -> str:
        """As `put`, if the object still holds what `token` names; None: if there is no such object. Returns the new token.
        Raises `ObjectChanged` otherwise, but not where the object holds exactly `data`: an earlier try has done it."""
        ...

    def read(self, name: str) -> Found | None:
        """The whole object; None where there is none."""
        ...

    def size(self, name: str) -> int | None:
        """None where there is no such object."""
        ...

    def get(self, name: str, offset: int, size: int) -> bytes:
        """At most `size` bytes from `offset`; fewer only at the object's end. Raises `FileNotFoundError`."""
        ...

    def delete(self, names: Sequence[str]) -> None:
        """Deletes the objects, in this order if the store keeps one; skips missing ones. Durable when it returns."""
        ...

    def list(self, directory: str) -> list[str]:
        """The names of all objects below the directory, at any depth, sorted; empty where there is none."""
        ...

    def walk(self, directory: str = "") -> Iterator[str]:
        """As `list`, in any order and without waiting for the last one; "" is the whole store."""
        ...


def checked_name(name: str, url: str) -> PurePosixPath:
    """The name, or `BadInput` if it could lead out of the store (`..`, an absolute path, an empty part)."""
    if not name or name.startswith("/") or any(part in ("", ".", "..") for part in name.split("/")):
        raise BadInput(f"{name!r} is no name of an object under {url}")
    return PurePosixPath(name)


def missing_object(url: str, name: str) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, "there is no such object", f"{url}/{name}")


def changed_object(url: str, name: str, *, there: bool) -> ObjectChanged:
    what = "holds something else than was expected" if there else "is gone"
    return ObjectChanged(f"{url}/{name} {what}; nothing was written", hint="somebody else writes there")
