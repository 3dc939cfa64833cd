"""Where a sink's files go: the objects below its URL, and who may write there.

`OwnedObjects` is what writers get. Before each put it looks whether the owner object still names this process's claim:
a sink that was deleted, or whose disk is not mounted, is noticed before a file is written into the empty place, and an
old process that wakes up writes nothing. On a remote store it looks at most once a second, and what it puts within that
second is harmless: it is put on a condition. A large file cannot be, so before its last request it always looks; who takes
the place over ends all uploads that were begun before (`owner.py`), so that one that had looked by then comes to nothing.
Nor does a deletion have a condition: it always looks, too.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from penstock.delivery.settings import is_local, local_directory
from penstock.delivery.storage.layout import CONTROL_DIRECTORY, LOCK_PATH
from penstock.files import Buffer, Files
from penstock.objects import DirectoryObjects, Found, ObjectStore, open_objects


@dataclass(frozen=True, slots=True)
class SinkPlace:
    """`lock` keeps out other processes of this machine for as long as it is held; a remote store has none."""

    objects: ObjectStore
    lock: Callable[[], AbstractContextManager[None]]
    remote: bool

    @property
    def where(self) -> str:
        return self.objects.url


def open_place(url: str, files: Files) -> SinkPlace:
    """The place of a URL, or of a plain path. Nothing is made or asked for."""
    if not is_local(url):
        return SinkPlace(open_objects(url), contextlib.nullcontext, remote=True)
    root = local_directory(url)

    @contextlib.contextmanager
    def lock() -> Generator[None]:
        files.make_directory(root / CONTROL_DIRECTORY)
        with files.lock(root / LOCK_PATH):
            yield

    return SinkPlace(DirectoryObjects(str(root), root, files), lock, remote=False)


class SinkObjects(Protocol):
    """What the writers of a sink ask of its objects; see `ObjectStore`."""

    def put(self, name: str, data: Buffer) -> None: ...

    def put_stream(self, name: str, parts: Iterable[Buffer]) -> None: ...

    def end_uploads(self, name: str) -> int: ...

    def put_if(self, name: str, data: Buffer, token: str | None) -> str: ...

    def settle(self, name: str) -> None: ...

    def read(self, name: str) -> Found | None: ...

    def size(self, name: str) -> int | None: ...

    def get(self, name: str, offset: int, size: int) -> bytes: ...

    def list(self, directory: str) -> list[str]: ...

    def walk(self, directory: str = "") -> Iterator[str]: ...

    def delete(self, names: Sequence[str]) -> None: ...


class OwnedObjects:
    """`SinkObjects` that ask `check` before each put; it raises where the place is no longer this process's. With `now=True`
    it does not rely on an answer of a moment ago."""

    def __init__(self, objects: SinkObjects, check: Callable[..., Any]) -> None:
        self._objects = objects
        self._check = check
        self.settle = objects.settle
        self.read = objects.read
        self.size = objects.size
        self.get = objects.get
        self.list = objects.list

    def put(self, name: str, data: Buffer) -> None:
        self._check()
        self._objects.put(name, data)

    def put_stream(self, name: str, parts: Iterable[Buffer]) -> None:
        self._check()
        self._objects.put_stream(name, self._checked(parts))

    def _checked(self, parts: Iterable[Buffer]) -> Iterator[Buffer]:
        """Looks again before the last part is out of hand: a large file takes long."""
        yield from parts
        self._check(now=True)

    def walk(self, directory: str = "") -> Iterator[str]:
        return self._objects.walk(directory)

    def delete(self, names: Sequence[str]) -> None:
        self._check(now=True)
        self._objects.delete(names)

    def end_uploads(self, name: str) -> int:
        self._check()
        return self._objects.end_uploads(name)

    def put_if(self, name: str, data: Buffer, token: str | None) -> str:
        self._check()
        return self._objects.put_if(name, data, token)
