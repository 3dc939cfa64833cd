"""Becoming the owner of a log (docs/formats/ledger.md, "Open"): epoch, fence, recovery, a new ledger.

A failure or crash at any step leaves the log as the next open expects it: no file is removed before the list says so.
"""

from __future__ import annotations

import contextlib
import dataclasses
import uuid
from pathlib import Path
from typing import NamedTuple

from penstock.clock import Clock
from penstock.errors import Corruption, Fenced, StorageFailed
from penstock.files import Files
from penstock.log.frames.end_file import EndFile
from penstock.log.ledgers.catalog import LedgerCatalog
from penstock.log.ledgers.info import LedgerInfo, LedgerList, ledger_name
from penstock.log.ledgers.local import LocalLedgerStore
from penstock.log.ledgers.store import OpenLedger
from penstock.log.offload.store import TieredLedgerStore
from penstock.log.position import Position
from penstock.log.read.reader import END_NAME, log_key
from penstock.log.settings import LogSettings
from penstock.metadata import MetadataStore, VersionConflict, Versioned


class Owned(NamedTuple):
    """What an owner holds. `ledger` is None where the log was terminated."""

    end_file: EndFile
    catalog: LedgerCatalog
    store: TieredLedgerStore
    ledger: OpenLedger | None
    last: Position


def take_ownership(
    directory: Path,
    *,
    settings: LogSettings,
    files: Files,
    clock: Clock,
    metadata: MetadataStore,
    resources: contextlib.ExitStack,
) -> Owned:
    """Becomes the owner, in the steps that ledger.md numbers. The lock is held already."""
    key = log_key(directory)
    found = metadata.get(key)
    before = LedgerList.decode(found.value) if found else None
    orphans = _orphans(directory, files, before)
    _prepare_directory(directory, files, is_new=found is None)
    end_file = EndFile.open(files, directory / END_NAME, writable=True)
    resources.callback(end_file.close)
    if found is None and end_file.read() is not None:
        raise Corruption(
            f"{directory / END_NAME} tells of a log, but the metadata does not know it",
            hint="nothing was changed; restore the metadata file, or remove the directory if its entries may go",
        )
    listed, version = _take_over(directory, metadata, end_file, found, settings.first_ledger)
    catalog = LedgerCatalog(metadata, key, directory, listed, version)
    slot = end_file.fence(listed.epoch)
    reserve = min(settings.preallocate_bytes, settings.ledger_bytes_max)
    store = TieredLedgerStore(directory, files, listed.uuid, reserve)
    final_end = end_file.read_final_end()
    ledgers: list[LedgerInfo] = []
    finished = listed.without_uploads()
    for info in finished.ledgers:
        synced_end = slot.synced_end if slot is not None and slot.file_id == info.id else 0
        ledgers.append(info if info.sealed else store.recover(info, synced_end, final_end))
    kept = tuple(info for info in ledgers if info.entries)
    number = listed.next_ledger - 1
    last = Position(kept[-1].id, kept[-1].entries - 1) if kept else Position(number, -1)
    ledger = None
    if not listed.terminated:
        ledger = store.create(number, listed.epoch, clock.wall_ms())
        resources.callback(ledger.close)
        kept = (*kept, ledger.info)
    # This change also reserves the number for the next roll, which then needs only one change of the list.
    catalog.change(lambda _: dataclasses.replace(finished, next_ledger=listed.next_ledger + 1, ledgers=kept))
    end_file.truncations = listed.truncations
    if ledger is not None:
        end_file.publish(number, ledger.synced_end, last)
    for leftover in {*orphans, *(info.id for info in ledgers if not info.entries)}:
        with contextlib.suppress(StorageFailed):  # the file is empty: the next open tries again
            store.delete(leftover)
    return Owned(end_file, catalog, store, ledger, last)


def _orphans(directory: Path, files: Files, listed: LedgerList | None) -> list[int]:
    """The ledger files that the list does not name: leftovers. Raises `Corruption` where one of them holds entries."""
    known = {*(info.id for info in listed.ledgers), *listed.deleting} if listed else set()
    store = LocalLedgerStore(directory, files, listed.uuid if listed else uuid.UUID(int=0))
    orphans = [number for number in store.list() if number not in known]
    for number in orphans:
        if store.holds_entries(number):
            raise Corruption(
                f"{directory / ledger_name(number)} holds entries, but the metadata does not know it",
                hint="nothing was changed; the metadata file is older than the log, restore the newest one",
            )
    return orphans


def _prepare_directory(directory: Path, files: Files, *, is_new: bool) -> None:
    if is_new:
        EndFile.create(files, directory / END_NAME)
    elif not files.exists(directory / END_NAME):
        raise Corruption(
            f"{directory / END_NAME} is missing, but the metadata knows this log",
            hint="nothing was changed; restore the directory from a copy",
        )


def _take_over(
    directory: Path, metadata: MetadataStore, end_file: EndFile, found: Versioned | None, first_ledger: int
) -> tuple[LedgerList, int]:
    """The list with our epoch and a ledger number reserved, durable."""
    key = log_key(directory)
    try:
        if found is None:
            first = LedgerList(uuid.uuid4(), end_file.fence_epoch() + 1, first_ledger + 1, 0, ())
            return first, metadata.create(key, first.encode())
        old = LedgerList.decode(found.value)
        new = dataclasses.replace(old, epoch=old.epoch + 1, next_ledger=old.next_ledger + 1)
        return new, metadata.put(key, new.encode(), found.version)
    except VersionConflict as error:
        raise Fenced(f"{directory}: another process opened the log at the same time") from error
