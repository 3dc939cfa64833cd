"""Trim: which ledgers may go, and how they go.

(1) one metadata transaction takes the ledgers out of the list, notes them as `deleting` (tombstones) and their objects
as `discarded` (deleted by the offloader), and checks that no hold was made since the holds were read; (2) the files are
removed; (3) the list forgets the tombstones. A crash after (1) leaves tombstones: the next trim or open goes on at (2).
A removal that fails is tried again with every trim. The open ledger always stays.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from penstock.clock import Clock
from penstock.errors import BadInput, StorageFailed, Unavailable
from penstock.log.ledgers.catalog import HoldsChanged, LedgerCatalog
from penstock.log.ledgers.holds import Hold, read_holds
from penstock.log.ledgers.info import LedgerInfo, LedgerList
from penstock.log.ledgers.store import LedgerStore
from penstock.log.settings import LogSettings
from penstock.metadata import MetadataStore

_ATTEMPTS = 20


def passed_by(info: LedgerInfo, holds: Sequence[Hold]) -> bool:
    """Whether no hold needs an entry of this sealed ledger. `(L, last)` is the same place as `(L + 1, -1)`."""
    return all(
        info.id < hold.after.ledger_id or (info.id == hold.after.ledger_id and hold.after.entry_id >= info.entries - 1)
        for hold in holds
    )


def written_by(ledgers: Sequence[LedgerInfo], now_ms: int) -> list[int]:
    """When the last entry of each ledger was written, as far as the clock can know: not after now, and where its own time
    is from the future (the clock was wrong), not after the ledger that follows it."""
    times = []
    known = now_ms
    for info in reversed(ledgers):
        if info.sealed and info.last_ms <= now_ms:
            known = info.last_ms
        times.append(known)
    return times[::-1]


def over_retention(ledgers: Sequence[LedgerInfo], settings: LogSettings, now_ms: int) -> int:
    """How many ledgers, from the first on, retention does not keep: too old, or the log is too large with them."""
    total = sum(info.frames_end for info in ledgers)
    count = 0
    for info, last_ms in zip(ledgers, written_by(ledgers, now_ms), strict=True):
        seconds, size = settings.retention_seconds, settings.retention_bytes
        old = seconds is not None and now_ms - last_ms >= seconds * 1000
        large = size is not None and total > size
        if not info.sealed or not (old or large):
            break
        total -= info.frames_end
        count += 1
    return count


class Trimmer:
    """Trims one log for its owner. Any thread may call it; `on_gone` gets the ledgers that left the list."""

    def __init__(
        self,
        log_name: str,
        *,
        settings: LogSettings,
        clock: Clock,
        metadata: MetadataStore,
        catalog: LedgerCatalog,
        store: LedgerStore,
        on_gone: Callable[[set[int]], None],
    ) -> None:
        self._log_name = log_name
        self._settings = settings
        self._clock = clock
        self._metadata = metadata
        self._catalog = catalog
        self._store = store
        self._on_gone = on_gone
        self.failed_deletes = 0

    def trim(self) -> list[int]:
        """Removes the ledgers that no cursor, no pin and no retention setting keeps; their numbers."""
        settings = self._settings
        if settings.retention_seconds is None and settings.retention_bytes is None:
            self.delete_tombstoned()
            return []
        return self._remove(self._trimmable)

    def clear(self) -> list[int]:
        """Removes every sealed ledger, whatever cursors need. Raises `BadInput` where there is a pin: looked for among
        the holds that the transaction checks, so that one made at the last moment counts too."""

        def all_sealed(listed: LedgerList, holds: Sequence[Hold]) -> list[int]:
            if pinned := sorted(hold.name for hold in holds if hold.kind == "pin"):
                raise BadInput(f"the log is pinned by {', '.join(pinned)}", hint="unpin it first")
            return [info.id for info in listed.ledgers if info.sealed]

        return self._remove(all_sealed)

    def delete_tombstoned(self) -> None:
        """Steps (2) and (3) for every tombstone. A file that cannot be removed now keeps its tombstone."""
        deleting = self._catalog.list.deleting
        done: set[int] = set()
        for number in deleting:
            try:
                self._store.delete(number)
                done.add(number)
            except (StorageFailed, Unavailable, OSError):
                self.failed_deletes += 1
        if done:

            def forget(listed: LedgerList) -> LedgerList:
                return dataclasses.replace(listed, deleting=tuple(n for n in listed.deleting if n not in done))

            self._catalog.change(forget)

    def _trimmable(self, listed: LedgerList, holds: Sequence[Hold]) -> list[int]:
        if not self._settings.trim_without_cursors and not any(hold.kind == "cursor" for hold in holds):
            return []
        old = over_retention(listed.ledgers, self._settings, self._clock.wall_ms())
        going = []
        for info in listed.ledgers[:old]:
            if not passed_by(info, holds):
                break
            going.append(info.id)
        return going

    def _remove(self, choose: Callable[[LedgerList, Sequence[Hold]], list[int]]) -> list[int]:
        for _ in range(_ATTEMPTS):
            holds = read_holds(self._metadata, self._log_name)
            going = choose(self._catalog.list, holds.holds)
            if not going:
                break

            def tombstone(listed: LedgerList, going: list[int] = going) -> LedgerList:
                if not {info.id for info in listed.ledgers}.issuperset(going):
                    raise HoldsChanged  # another trim or a truncation was faster: choose again
                return listed.trimmed(going)

            try:
                self._catalog.change(tombstone, holds.unchanged)
            except HoldsChanged:
                continue  # a cursor or pin was made or moved back: choose again
            self._on_gone(set(going))
            self.delete_tombstoned()
            return going
        self.delete_tombstoned()
        return []
