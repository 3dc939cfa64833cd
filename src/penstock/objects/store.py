"""What is asked of an object store. Names are relative to its URL, with `/` between their parts."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Protocol

from penstock.errors import BadInput
from penstock.files import Buffer

SCHEMES = ("file", "s3", "gs", "az")


class ObjectStore(Protocol):
    """Thread-safe. Raises `Unavailable` for what may heal by itself, `StorageFailed` for what somebody must repair."""

    url: str

    def put(self, name: str, data: Buffer) -> None:
        """Makes the object hold exactly these bytes: whole, visible and durable when it returns, or as it was."""
        ...

    def get(self, name: str, offset: int, size: int) -> bytes:
        """At most `size` bytes from `offset`; fewer only at its end. Raises `FileNotFoundError`."""
        ...

    def delete(self, names: Sequence[str]) -> None:
        """In this order where the store has one; fine if they are not there; durable when it returns."""
        ...

    def list(self, directory: str) -> list[str]:
        """The names of the objects in the directory, sorted; empty where there is none."""
        ...


def checked_name(name: str, url: str) -> PurePosixPath:
    """Containment: no name leaves the store, whatever a part of it was."""
    if not name or name.startswith("/") or any(part in ("", ".", "..") for part in name.split("/")):
        raise BadInput(f"{name!r} is no name of an object under {url}")
    return PurePosixPath(name)


def missing_object(url: str, name: str) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, "there is no such object", f"{url}/{name}")
