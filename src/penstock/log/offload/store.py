"""Ledgers as files of one directory, and the copies of some of them in object stores (docs/formats/offload.md).

New ledgers are local files. The ledger list says which copies of a ledger may be read; the local one comes first. `delete`
removes the local file only; objects are deleted by their tombstones in the list (`OffloadSteps.discard`).
"""

from __future__ import annotations

import threading
from pathlib import Path
from uuid import UUID

from penstock.files import Files
from penstock.log.ledgers.info import LedgerInfo
from penstock.log.ledgers.local import LocalLedgerStore
from penstock.log.ledgers.store import LedgerFile
from penstock.log.offload.ledger import OffloadedLedger, OffloadIndexes
from penstock.objects import ObjectStore, open_objects


class TieredLedgerStore(LocalLedgerStore):
    """The `LedgerStore` of logs and their readers. Thread-safe."""

    def __init__(self, directory: Path, files: Files, uuid: UUID, preallocate_bytes: int = 0) -> None:
        super().__init__(directory, files, uuid, preallocate_bytes)
        self._indexes = OffloadIndexes(uuid)
        self._stores: dict[str, ObjectStore] = {}
        self._stores_lock = threading.Lock()

    def copies(self, info: LedgerInfo) -> int:
        return int(info.is_local) + int(info.is_offloaded)

    def open(self, info: LedgerInfo, copy: int = 0) -> LedgerFile:
        if info.is_local and copy == 0:
            return self.open_local(info)
        return self.open_offloaded(info)

    def open_local(self, info: LedgerInfo) -> LedgerFile:
        return super().open(info)

    def open_offloaded(self, info: LedgerInfo) -> OffloadedLedger:
        assert info.offload is not None
        objects = self.objects(info.offload.url)
        return OffloadedLedger(objects, self._indexes.get(objects, info))

    def objects(self, url: str) -> ObjectStore:
        """The object store of that URL; no request is made."""
        with self._stores_lock:
            store = self._stores.get(url)
            if store is None:
                store = self._stores[url] = open_objects(url, self._files)
            return store
