"""The owner's changes of the ledger list: each by compare-and-set, one at a time.

If the list has another version than ours, another owner changed it: `Fenced`, for good. If the metadata store does not
answer, nothing was changed: `Unavailable`; the log goes on in its open ledger, and the next attempt may work. After an
error the list is read once more, to learn whether the change was made although the answer was lost.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from penstock.errors import Fenced, StorageFailed, Unavailable, fresh
from penstock.log.ledgers.info import LedgerList
from penstock.metadata import MetadataStore, Operation, Put, VersionConflict


class HoldsChanged(Exception):
    """A condition of the transaction other than the list's version did not hold. Nothing was changed: read the holds again."""


class LedgerCatalog:
    """Thread-safe. `list` is the ledger list as of our last change."""

    def __init__(self, metadata: MetadataStore, key: str, directory: Path, listed: LedgerList, version: int) -> None:
        self._metadata = metadata
        self._key = key
        self._directory = directory
        self._version = version
        self._lock = threading.RLock()
        self._fenced: Fenced | None = None
        self.list = listed

    @property
    def fenced(self) -> Fenced | None:
        return self._fenced

    def change(self, update: Callable[[LedgerList], LedgerList], *also: Operation) -> LedgerList:
        """Replaces the list by `update(list)`, if the operations `also` succeed with it; durable when it returns."""
        with self._lock:
            if self._fenced is not None:
                raise fresh(self._fenced)
            new = update(self.list)
            if new == self.list and not also:
                return new
            raw = new.encode()
            try:
                self._metadata.transaction([*also, Put(self._key, raw, self._version)])
            except VersionConflict as error:
                if not self._was_made(raw, error):
                    raise HoldsChanged from error
            except (Unavailable, StorageFailed) as error:
                if type(error) is not StorageFailed and not isinstance(error, Unavailable):
                    raise  # a subclass says more than that the store does not answer
                if not self._was_made_unanswered(raw, error):
                    raise Unavailable(
                        f"{self._directory}: the metadata store does not answer, so its ledgers and properties cannot "
                        f"change now: {error}",
                        hint="appends go on in the open ledger; try again later",
                    ) from error
            self._version += 1
            self.list = new
            return new

    def check(self) -> None:
        """Raises `Fenced` where another owner changed the list."""
        with self._lock:
            found = self._metadata.get(self._key)
            if found is None or found.version != self._version:
                self._fence(None)

    def _was_made_unanswered(self, raw: bytes, error: Exception) -> bool:
        """As `_was_made`, where the store may still not answer: then the change counts as not made."""
        try:
            return self._was_made(raw, error)
        except (Unavailable, StorageFailed):
            return False

    def _was_made(self, raw: bytes, error: Exception) -> bool:
        """Whether the list is what we wanted to write. Raises `Fenced` where it is neither that nor what it was."""
        found = self._metadata.get(self._key)
        if found is not None and found.version == self._version:
            return False
        if found is not None and found.version == self._version + 1 and found.value == raw:
            return True
        return self._fence(error)

    def _fence(self, cause: Exception | None) -> bool:
        self._fenced = Fenced(f"{self._directory}: another owner changed the ledger list", hint="stop this process")
        raise fresh(self._fenced) from cause
