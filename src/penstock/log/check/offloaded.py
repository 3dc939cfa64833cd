"""Looks at the objects of an offloaded ledger: the index, every block, every frame; and that a local copy is the same.

Nothing here writes. A store that does not answer is a fault too: what could not be looked at is not called sound.
"""

from __future__ import annotations

from uuid import UUID

import numpy as np

from penstock.errors import Corruption, PenstockError
from penstock.log.check.ledgers import FAULTS_MAX, Examined, Fault
from penstock.log.frames.reader import rebuild_index
from penstock.log.ledgers.info import LedgerInfo, read_footer
from penstock.log.ledgers.local import LedgerFile
from penstock.log.offload.format import OffloadIndex, index_name, part_name
from penstock.log.offload.ledger import OffloadedLedger, read_index
from penstock.objects import ObjectStore


def examine_offloaded(objects: ObjectStore, log: UUID, info: LedgerInfo, local: LedgerFile | None) -> Examined:
    """Every byte of the copy; of `local`, where it is given, that it holds the same bytes."""
    assert info.offload is not None
    where = f"{objects.url}/{index_name(log, info.id, info.offload.attempt)}"
    try:
        index = read_index(objects, log, info)
    except FileNotFoundError:
        return Examined(info.entries, 0, [Fault(where, 0, "the ledger list names this object, but it is missing")])
    except PenstockError as error:
        return Examined(info.entries, 0, [_fault(where, error)])
    ledger = OffloadedLedger(objects, index)
    faults = _part_faults(objects, ledger, index, local)
    if not faults:
        faults = _frame_faults(ledger, info)
    return Examined(info.entries, index.frames_end + info.offload.index_bytes, faults)


def _part_faults(
    objects: ObjectStore, ledger: OffloadedLedger, index: OffloadIndex, local: LedgerFile | None
) -> list[Fault]:
    faults: list[Fault] = []
    in_part = index.part_bytes // index.block_bytes
    for first in range(0, len(index.checksums), in_part):
        stop = min(first + in_part, len(index.checksums))
        where = f"{objects.url}/{part_name(index.log, index.ledger_id, index.attempt, first // in_part)}"
        try:
            raw = ledger.blocks(first, stop - 1)
        except FileNotFoundError:
            faults.append(Fault(where, 0, "the index names this object, but it is missing"))
            continue
        except Corruption:
            faults += _block_faults(ledger, where, first, stop)
            continue
        except PenstockError as error:
            faults.append(_fault(where, error))
            continue
        start = first * index.block_bytes
        if local is not None and local.read_at(start, len(raw)) != raw:
            faults.append(Fault(local.path, start, f"it does not hold the same bytes as {where}"))
    return faults[:FAULTS_MAX]


def _block_faults(ledger: OffloadedLedger, where: str, first: int, stop: int) -> list[Fault]:
    """Which blocks of a part are damaged."""
    faults: list[Fault] = []
    for block in range(first, stop):
        try:
            ledger.blocks(block, block)
        except (Corruption, FileNotFoundError) as error:
            faults.append(_fault(where, error))
    return faults


def _frame_faults(ledger: OffloadedLedger, info: LedgerInfo) -> list[Fault]:
    try:
        found = rebuild_index(ledger, info.id, info.entries, info.frames_end)
        if ledger.entries != info.entries:
            return []  # the log was cut: the footer is of what stood there before
        footer = read_footer(ledger, info)
    except PenstockError as error:
        return [_fault(ledger.path, error)]
    times = np.asarray(found.finished_times(), np.uint64).reshape(-1, 2)
    same = np.array_equal(footer.offsets, np.asarray(found.offsets, np.uint64)) and np.array_equal(footer.times, times)
    return [] if same else [Fault(f"{ledger.path}.index", 0, "its footer is not that of the entries")]


def _fault(where: str, error: Exception) -> Fault:
    message = error.message if isinstance(error, PenstockError) else str(error)
    damaged, separator, rest = message.partition(" is damaged at byte ")
    offset, _, what = rest.partition(": ")
    if separator and offset.isdecimal():
        return Fault(damaged, int(offset), what)
    return Fault(where, 0, message)
