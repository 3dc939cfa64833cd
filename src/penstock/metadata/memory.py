"""The metadata store in memory, for crash tests, which hold the whole disk in memory too."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence
from typing import NamedTuple

from penstock.arguments import check_text
from penstock.errors import OutcomeUnknown
from penstock.metadata.store import (
    Check,
    Create,
    Delete,
    Operation,
    Put,
    Versioned,
    check_key,
    checked_operations,
    conflict,
    refusal,
)


class _Content(NamedTuple):
    entries: dict[str, Versioned]  # never changed in place: contents share it
    version: int  # of the last transaction


class _Shared:
    """What the handles of one store have in common: the store itself."""

    def __init__(self, content: _Content, others: tuple[_Content, ...] = ()) -> None:
        self.content = content
        self.others = others  # what a crash may leave in place of `content`
        self.lock = threading.Lock()


class MemoryMetadata:
    """A handle on a store, with the states that SQLite's can be in.

    `before_write` may raise, as a power cut or a failure before the commit: nothing is changed. `after_write` may raise
    `OutcomeUnknown`, as a commit whose write or sync failed: every handle still shows the content of before, but a crash
    may leave either. This handle answers nothing more; a transaction of another one goes over the change, which then
    never was. `killed` and `crashed` are what the next process finds. After a kill it reads one content, while the disk
    may hold the other: until `settle` or a transaction of its own, a power cut may still choose that one.
    """

    def __init__(
        self, before_write: Callable[[], None] = lambda: None, after_write: Callable[[], None] = lambda: None
    ) -> None:
        self._shared = _Shared(_Content({}, 0))
        self._unknown: OutcomeUnknown | None = None
        self.before_write = before_write
        self.after_write = after_write

    @property
    def unknown(self) -> OutcomeUnknown | None:
        return self._unknown

    def handle(self) -> MemoryMetadata:
        """The handle of another process on the same store, with the same hooks."""
        other = MemoryMetadata(self.before_write, self.after_write)
        other._shared = self._shared
        return other

    def copy(self) -> MemoryMetadata:
        """A store with the same content, without the hooks: what a crash leaves where no outcome is unknown."""
        return _store(self._shared.content)

    def killed(self, rng: random.Random) -> MemoryMetadata:
        """What the next process finds after kill -9: a commit that failed shows, from the page cache, or does not, because
        another process has the store open all the time."""
        contents = (self._shared.content, *self._shared.others)
        shown = rng.choice(contents)
        return _store(shown, tuple(content for content in contents if content is not shown))

    def crashed(self, rng: random.Random) -> MemoryMetadata:
        """What a power cut leaves: what is read after it is what the disk holds."""
        return _store(rng.choice((self._shared.content, *self._shared.others)))

    def settle(self) -> None:
        if self._shared.others:
            self.transaction([])

    def get(self, key: str) -> Versioned | None:
        check_key(key)
        self._check()
        return self._shared.content.entries.get(key)

    def create(self, key: str, value: bytes) -> int:
        return self.transaction([Create(key, value)])

    def put(self, key: str, value: bytes, expected: int) -> int:
        return self.transaction([Put(key, value, expected)])

    def delete(self, key: str, expected: int) -> None:
        self.transaction([Delete(key, expected)])

    def children(self, prefix: str) -> list[str]:
        return [key for key, _ in self.entries(prefix)]

    def entries(self, prefix: str) -> list[tuple[str, Versioned]]:
        check_text("a prefix of keys", prefix)
        self._check()
        return sorted((key, value) for key, value in self._shared.content.entries.items() if key.startswith(prefix))

    def transaction(self, operations: Sequence[Operation]) -> int:
        operations = checked_operations(operations)
        self._check()
        self.before_write()  # without the lock: another process may change the store in this moment
        shared = self._shared
        with shared.lock:
            new = shared.content.version + 1
            entries = dict(shared.content.entries)
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
                shared.others, self._unknown = (*shared.others, content), error
                raise
            shared.content, shared.others = content, ()
            return new

    def close(self) -> None:
        """Keeps the content: a test opens the same object again."""

    def _check(self) -> None:
        if self._unknown is not None:
            raise refusal(self._unknown)


def _store(content: _Content, others: tuple[_Content, ...] = ()) -> MemoryMetadata:
    store = MemoryMetadata()
    store._shared = _Shared(content, others)
    return store
