"""Where ledgers live: the one interface through which the log and its readers reach them.

A store makes ledgers, recovers those that an owner left open, opens them for readers, and removes them. The log decides
what is in the frames and in which order, and asks before and after each sync whether it still owns the log.
`LocalLedgerStore` (local.py) keeps ledgers as files; `TieredLedgerStore` (../offload/store.py) also reads their copies in
object stores.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from penstock.files import Buffer
from penstock.log.frames.end_file import FinalEnd
from penstock.log.frames.writer import EncodedFrames, NewEntry
from penstock.log.ledgers.footer import Footer
from penstock.log.ledgers.info import LedgerInfo


class LedgerFile(Protocol):
    """A ledger open for reading, whatever holds its bytes."""

    @property
    def path(self) -> Path | str: ...

    def read_at(self, offset: int, size: int) -> bytes: ...

    def size(self) -> int: ...

    def footer(self, info: LedgerInfo) -> Footer:
        """The index of the sealed ledger `info`: its footer; where it has none, made by reading every frame.

        Raises `Corruption`.
        """
        ...

    def close(self) -> None: ...


class OpenLedger(Protocol):
    """A ledger that its owner writes. Entries count once `sync` returned; the first failure makes it unusable."""

    info: LedgerInfo
    synced_entries: int

    @property
    def next_entry(self) -> int:
        """The entry id that the next added entry gets."""
        ...

    @property
    def end(self) -> int:
        """Its size in bytes, entries that are not synced yet included."""
        ...

    @property
    def synced_end(self) -> int: ...

    @property
    def synced_messages(self) -> int:
        """How many messages its durable entries stand for."""
        ...

    def add(self, entries: Sequence[NewEntry | Buffer], wall_ms: int, *, keep: bool) -> list[EncodedFrames]:
        """Queues entries, all or none, where everything before them is synced. With `keep` it returns their frames in memory, for readers at the tail."""
        ...

    def sync(self) -> None:
        """Makes everything that was added durable. Raises `StorageFailed`."""
        ...

    def seal(self) -> LedgerInfo:
        """Adds the footer, durably; returns what the list may say from now on."""
        ...

    def reopen(self) -> None:
        """Lets entries follow after a `seal` that the list never learned of."""
        ...

    def seal_as_failed(self) -> LedgerInfo:
        """What the list may say of a ledger that cannot be written any more: its last durable entry is its end."""
        ...

    def close(self) -> None: ...


class LedgerStore(Protocol):
    """What the log asks of the place where its ledgers are."""

    def create(self, ledger_id: int, epoch: int, created_ms: int) -> OpenLedger:
        """A new ledger whose number no list ever named; durable and empty."""
        ...

    def recover(self, info: LedgerInfo, synced_end: int, final_end: FinalEnd | None) -> LedgerInfo:
        """Seals a ledger that its owner left open, at its true end. Raises `Corruption`, having changed nothing."""
        ...

    def copies(self, info: LedgerInfo) -> int:
        """From how many places the ledger can be read: where one copy fails, readers ask the next."""
        ...

    def open(self, info: LedgerInfo, copy: int = 0) -> LedgerFile:
        """Raises `FileNotFoundError` where the copy is gone."""
        ...

    def delete(self, ledger_id: int) -> None:
        """Removes what `create` made, durably; nothing happens if it is not there."""
        ...

    def list(self) -> list[int]:
        """Numbers of the ledgers that `create` made and that are still here, whether or not a list names them."""
        ...

    def holds_entries(self, ledger_id: int) -> bool: ...
