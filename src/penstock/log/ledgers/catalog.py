"""The owner's changes of the ledger list: each by compare-and-set, one at a time.

If the list has another version than ours, another owner changed it: `Fenced`, for good. If the metadata store does not
answer, nothing was changed: `Unavailable`; the log goes on in its open ledger, and the next attempt may work. If nobody
knows whether a change was made, ours or another one through the same store, neither is believed: `OutcomeUnknown`, for
good. No file is removed on either belief, and the next owner finds out which it is.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from penstock.errors import Fenced, OutcomeUnknown, StorageFailed, Unavailable
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
        self._fenced = False
        self.list = listed

    @property
    def stopped(self) -> Fenced | OutcomeUnknown | None:
        """Why this owner may not write any more, for good; None while it may. A new error for each caller."""
        if self._fenced:
            return Fenced(f"{self._directory}: another owner changed the ledger list", hint="stop this process")
        unknown = self._metadata.unknown
        if unknown is not None:
            return OutcomeUnknown(f"{self._directory} accepts nothing more: {unknown.message}", hint=unknown.hint)
        return None

    def change(self, update: Callable[[LedgerList], LedgerList], *also: Operation) -> LedgerList:
        """Replaces the list by `update(list)`, if the operations `also` succeed with it; durable when it returns.

        Raises `Unavailable` and `HoldsChanged` where nothing was changed, `Fenced`, `OutcomeUnknown`.
        """
        with self._lock:
            stopped = self.stopped
            if stopped is not None:
                raise stopped
            new = update(self.list)
            if new == self.list and not also:
                return new
            try:
                self._version = self._metadata.transaction([*also, Put(self._key, new.encode(), self._version)])
            except VersionConflict as error:
                self._refuse_another_owner(error)
                raise HoldsChanged from error
            except (Unavailable, StorageFailed) as error:
                if type(error) is not StorageFailed and not isinstance(error, Unavailable):
                    raise  # a subclass says more than that the store does not answer
                raise Unavailable(
                    f"{self._directory}: the metadata store does not answer, so its ledgers and properties cannot "
                    f"change now: {error}",
                    hint="appends go on in the open ledger; try again later",
                ) from error
            self.list = new
            return new

    def check(self) -> None:
        """Raises `Fenced` where another owner changed the list."""
        with self._lock:
            self._refuse_another_owner(None)

    def _refuse_another_owner(self, cause: Exception | None) -> None:
        found = self._metadata.get(self._key)
        if found is None or found.version != self._version:
            self._fenced = True
            stopped = self.stopped
            assert stopped is not None
            raise stopped from cause
