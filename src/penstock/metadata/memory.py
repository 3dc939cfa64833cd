"""The metadata store in memory, for crash tests, which hold the whole disk in memory too."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence
from typing import NamedTuple

from penstock.errors import OutcomeUnknown
from penstock.metadata.store import Check, Create, Delete, Operation, Put, Versioned, conflict, refusal


class _Content(NamedTuple):
    entries: dict[str, Versioned]  # never changed in place: contents share it
    version: int  # of the last transaction


class MemoryMetadata:
    """A handle on a store, with the states that SQLite's can be in.

    `before_write` may raise, as a power cut or a failure before the commit: nothing is changed. `after_write` may raise
    `OutcomeUnknown`, as a commit whose write or sync failed: this handle still shows the content of before, but a crash
    may leave either, and it answers nothing more. `killed` and `crashed` are what the next process finds. After a kill it
    reads one content, while the disk may hold the other: until `settle` or a transaction of its own, a power cut may
    still choose that one.
    """

    def __init__(
        self, before_write: Callable[[], None] = lambda: None, after_write: Callable[[], None] = lambda: None
    ) -> None:
        self._content = _Content({}, 0)
        self._others: tuple[_Content, ...] = ()  # what a crash may leave in place of `_content`
        self._lock = threading.Lock()
        self._unknown: OutcomeUnknown | None = None
        self.before_write = before_write
        self.after_write = after_write

    @property
    def unknown(self) -> OutcomeUnknown | None:
        return self._unknown

    def copy(self) -> MemoryMetadata:
        """The same content, without the hooks: what a crash leaves where no outcome is unknown."""
        return _store(self._content)

    def killed(self, rng: random.Random) -> MemoryMetadata:
        """What the next process finds after kill -9: a commit that failed shows, from the page cache, or does not, because
        another process has the store open all the time."""
        contents = (self._content, *self._others)
        shown = rng.choice(contents)
        return _store(shown, tuple(content for content in contents if content is not shown))

    def crashed(self, rng: random.Random) -> MemoryMetadata:
        """What a power cut leaves: what is read after it is what the disk holds."""
        return _store(rng.choice((self._content, *self._others)))

    def settle(self) -> None:
        if self._others:
            self.transaction([])

    def get(self, key: str) -> Versioned | None:
        self._check()
        return self._content.entries.get(key)

    def create(self, key: str, value: bytes) -> int:
        return self.transaction([Create(key, value)])

    def put(self, key: str, value: bytes, expected: int) -> int:
        return self.transaction([Put(key, value, expected)])

    def delete(self, key: str, expected: int) -> None:
        self.transaction([Delete(key, expected)])

    def children(self, prefix: str) -> list[str]:
        return [key for key, _ in self.entries(prefix)]

    def entries(self, prefix: str) -> list[tuple[str, Versioned]]:
        self._check()
        return sorted((key, value) for key, value in self._content.entries.items() if key.startswith(prefix))

    def transaction(self, operations: Sequence[Operation]) -> int:
        with self._lock:
            self._check()
            self.before_write()
            new = self._content.version + 1
            entries = dict(self._content.entries)
            for operation in operations:
                present = entries.get(operation.key)
                version = present.version if present else 0
                expected = 0 if isinstance(operation, Create) else operation.expected
                if version != expected:
                    raise conflict(operation.key, expected, version)
                match operation:
                    case Create(key, value) | Put(key, value, _):
                        entries[key] = Versioned(value, new)
                    case Delete(key, _):
                        del entries[key]
                    case Check():
                        pass
            content = _Content(entries, new)
            try:
                self.after_write()
            except OutcomeUnknown as error:
                self._others, self._unknown = (*self._others, content), error
                raise
            self._content, self._others = content, ()
            return new

    def close(self) -> None:
        """Keeps the content: a test opens the same object again."""

    def _check(self) -> None:
        if self._unknown is not None:
            raise refusal(self._unknown)


def _store(content: _Content, others: tuple[_Content, ...] = ()) -> MemoryMetadata:
    store = MemoryMetadata()
    store._content, store._others = content, others
    return store
