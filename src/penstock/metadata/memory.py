"""The metadata store in memory, for crash tests, which hold the whole disk in memory too."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from penstock.metadata.store import Check, Create, Delete, Operation, Put, Versioned, conflict


class MemoryMetadata:
    """Every operation is durable at once.

    `before_write` may raise, as a power cut or a failure: nothing is changed. `after_write` may raise too, as an answer
    that was lost: the change is made, and the caller does not know.
    """

    def __init__(
        self, before_write: Callable[[], None] = lambda: None, after_write: Callable[[], None] = lambda: None
    ) -> None:
        self._entries: dict[str, Versioned] = {}
        self._lock = threading.Lock()
        self.before_write = before_write
        self.after_write = after_write

    def copy(self) -> MemoryMetadata:
        """What a crash leaves: the same entries, without the hooks."""
        after = MemoryMetadata()
        after._entries = self._entries  # shared, because it is never changed in place
        return after

    def get(self, key: str) -> Versioned | None:
        return self._entries.get(key)

    def create(self, key: str, value: bytes) -> int:
        self.transaction([Create(key, value)])
        return 1

    def put(self, key: str, value: bytes, expected: int) -> int:
        self.transaction([Put(key, value, expected)])
        return expected + 1

    def delete(self, key: str, expected: int) -> None:
        self.transaction([Delete(key, expected)])

    def children(self, prefix: str) -> list[str]:
        return [key for key, _ in self.entries(prefix)]

    def entries(self, prefix: str) -> list[tuple[str, Versioned]]:
        return sorted((key, value) for key, value in self._entries.items() if key.startswith(prefix))

    def transaction(self, operations: Sequence[Operation]) -> None:
        with self._lock:
            self.before_write()
            entries = dict(self._entries)
            for operation in operations:
                present = entries.get(operation.key)
                version = present.version if present else 0
                expected = 0 if isinstance(operation, Create) else operation.expected
                if version != expected:
                    raise conflict(operation.key, expected, version)
                match operation:
                    case Create(key, value) | Put(key, value, _):
                        entries[key] = Versioned(value, version + 1)
                    case Delete(key, _):
                        del entries[key]
                    case Check():
                        pass
            self._entries = entries
            self.after_write()

    def close(self) -> None:
        """Keeps the content: a test opens the same object again."""
