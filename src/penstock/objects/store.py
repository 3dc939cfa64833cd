"""What Penstock asks of an object store. Names are relative to the store's URL, with `/` between their parts."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Protocol

from penstock.errors import BadInput
from penstock.files import Buffer

SCHEMES = ("file", "s3", "gs", "az")


class ObjectStore(Protocol):
    """Thread-safe. Raises `Unavailable` for what may heal by itself, `StorageFailed` for what an operator must
    repair."""

    url: str

    def put(self, name: str, data: Buffer) -> None:
        """Makes the object hold exactly these bytes, durable and visible when it returns; if it raises, the object is
        as before."""
        ...

    def get(self, name: str, offset: int, size: int) -> bytes:
        """At most `size` bytes from `offset`; fewer only at the object's end. Raises `FileNotFoundError`."""
        ...

    def delete(self, names: Sequence[str]) -> None:
        """Deletes the objects, in this order if the store keeps one; skips missing ones. Durable when it returns."""
        ...

    def list(self, directory: str) -> list[str]:
        """The names of the objects in the directory, sorted; empty where there is none."""
        ...


def checked_name(name: str, url: str) -> PurePosixPath:
    """The name, or `BadInput` if it could lead out of the store (`..`, an absolute path, an empty part)."""
    if not name or name.startswith("/") or any(part in ("", ".", "..") for part in name.split("/")):
        raise BadInput(f"{name!r} is no name of an object under {url}")
    return PurePosixPath(name)


def missing_object(url: str, name: str) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, "there is no such object", f"{url}/{name}")
