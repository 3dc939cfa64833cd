"""Examines the objects of an offloaded ledger: the index, every block, every frame; and that a local copy is the same.

A store that does not answer is reported as damage too: what could not be looked at is not called sound.
"""

from __future__ import annotations

from uuid import UUID

import numpy as np

from penstock.errors import Corruption, PenstockError
from penstock.log.check.damage import DAMAGE_MAX, Damage, Examined, damage_of
from penstock.log.frames.reader import rebuild_index
from penstock.log.ledgers.footer import Footer, read_footer
from penstock.log.ledgers.info import LedgerInfo
from penstock.log.ledgers.store import LedgerFile
from penstock.log.offload.format import OffloadIndex, index_name, part_name
from penstock.log.offload.ledger import OffloadedLedger, read_index
from penstock.objects import ObjectStore


def examine_offloaded(objects: ObjectStore, log: UUID, info: LedgerInfo, local: LedgerFile | None) -> Examined:
    """Every byte of the copy; and of `local`, where it is given, that it holds the same bytes."""
    assert info.offload is not None
    where = f"{objects.url}/{index_name(log, info.id, info.offload.attempt)}"
    try:
        index = read_index(objects, log, info)
    except FileNotFoundError:
        return Examined(info.entries, 0, [Damage(where, 0, "the ledger list names this object, but it is missing")])
    except PenstockError as error:
        return Examined(info.entries, 0, [damage_of(error, where)])
    ledger = OffloadedLedger(objects, index)
    damage = _damaged_parts(objects, ledger, index, local) or _damaged_frames(ledger, info)
    return Examined(info.entries, index.frames_end + info.offload.index_bytes, damage)


def _damaged_parts(
    objects: ObjectStore, ledger: OffloadedLedger, index: OffloadIndex, local: LedgerFile | None
) -> list[Damage]:
    damage: list[Damage] = []
    in_part = index.part_bytes // index.block_bytes
    for first in range(0, len(index.checksums), in_part):
        stop = min(first + in_part, len(index.checksums))
        where = f"{objects.url}/{part_name(index.log, index.ledger_id, index.attempt, first // in_part)}"
        try:
            raw = ledger.blocks(first, stop - 1)
        except FileNotFoundError:
            damage.append(Damage(where, 0, "the index names this object, but it is missing"))
            continue
        except Corruption:
            damage += _damaged_blocks(ledger, where, first, stop)
            continue
        except PenstockError as error:
            damage.append(damage_of(error, where))
            continue
        start = first * index.block_bytes
        if local is not None and local.read_at(start, len(raw)) != raw:
            damage.append(Damage(local.path, start, f"it does not hold the same bytes as {where}"))
    return damage[:DAMAGE_MAX]


def _damaged_blocks(ledger: OffloadedLedger, where: str, first: int, stop: int) -> list[Damage]:
    """Which blocks of a part are damaged."""
    damage: list[Damage] = []
    for block in range(first, stop):
        try:
            ledger.blocks(block, block)
        except (Corruption, FileNotFoundError) as error:
            damage.append(damage_of(error, where))
    return damage


def _damaged_frames(ledger: OffloadedLedger, info: LedgerInfo) -> list[Damage]:
    try:
        found = rebuild_index(ledger, info.id, info.entries, info.frames_end)
        if ledger.entries != info.entries:
            return []  # the log was truncated since: the footer is that of the longer ledger
        footer = read_footer(ledger, info)
    except PenstockError as error:
        return [damage_of(error, ledger.path)]
    right = Footer.of(found, info.frames_end)
    same = np.array_equal(footer.offsets, right.offsets) and np.array_equal(footer.times, right.times)
    return [] if same else [Damage(f"{ledger.path}.index", 0, "its footer is not that of the entries")]
