"""Finds a key in the runs of a checkpoint by compiled code: one call for all of them.

The same steps as `run.Run.finder`, which does without numba; that one serves until kernels are loaded anyway.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
from numba import njit

from penstock.log.frame_kernels import crc_of
from penstock.state.native.format import RECORD_BYTES, TOMBSTONE, salt_of
from penstock.state.native.kernels import byte_at, u32_at, u64_at
from penstock.state.native.run import Run

Get = Callable[[bytes], bytes | None]

_NOWHERE = -1
_UNCHECKED = -2  # and below: (-2 - number) is run << 40 | page, to be checked before it is used
_RUN_BITS, _PAGE_BITS = 48, 40
_OFFSET_MASK = (1 << _RUN_BITS) - 1
_PAGE_NUMBER_MASK = (1 << _PAGE_BITS) - 1
_CONTEXT_HEAD, _CONTEXT_RUN = 2, 7  # numbers before the first run, and of a run
_FACTOR = np.uint64(0x9E3779B1)
_LOW = np.uint64(0xFFFFFFFF)
_TAG = np.uint64(0xFFFF)
_TOMBSTONE = np.uint32(TOMBSTONE)


def _locked(function: Any) -> Any:
    """Keeps the GIL: a lookup is shorter than letting go of it."""
    return njit(cache=True)(function)


@_locked
def _find(key: Any, context: Any) -> Any:
    """Run << 48 | offset of the newest record of the key, `_NOWHERE`, or `_UNCHECKED` and below."""
    size = len(key)
    salt, runs = u64_at(context), np.int64(u64_at(context + 8))
    value = ((np.uint64(crc_of(key, 0, size)) ^ salt) * _FACTOR) & _LOW
    tag = value & _TAG
    for run in range(runs):
        at = context + 8 * (_CONTEXT_HEAD + run * _CONTEXT_RUN)
        mapped, checked = np.int64(u64_at(at)), np.int64(u64_at(at + 8))
        index_at, slots = np.int64(u64_at(at + 16)), np.int64(u64_at(at + 24))
        start, end = np.int64(u64_at(at + 32)), np.int64(u64_at(at + 40))
        number = np.int64(run) << _PAGE_BITS
        slot_at = np.int64((value * np.uint64(slots)) >> np.uint64(32))
        while True:
            page = (index_at + slot_at * 8) >> 12
            if byte_at(checked + page) == 0:
                return _UNCHECKED - (number | page)
            slot = u64_at(mapped + index_at + slot_at * 8)
            if slot == np.uint64(0):
                break
            record = np.int64(slot >> np.uint64(16))
            if slot & _TAG == tag and start <= record < end:
                page = record >> 12
                last = (record + RECORD_BYTES - 1) >> 12
                while page <= last:
                    if byte_at(checked + page) == 0:
                        return _UNCHECKED - (number | page)
                    page += 1
                key_len, value_len = np.int64(u32_at(mapped + record)), u32_at(mapped + record + 4)
                if key_len == size:
                    stop = record + RECORD_BYTES + size
                    if value_len != _TOMBSTONE:
                        stop += np.int64(value_len)
                    last = (stop - 1) >> 12
                    while page <= last:
                        if byte_at(checked + page) == 0:
                            return _UNCHECKED - (number | page)
                        page += 1
                    same = 0
                    key_at = mapped + record + RECORD_BYTES
                    while same < size and byte_at(key_at + same) == key[same]:
                        same += 1
                    if same == size:
                        return (np.int64(run) << _RUN_BITS) | record
            slot_at += 1
            if slot_at == slots:
                slot_at = np.int64(0)
    return _NOWHERE


def getter(namespace: int, runs: Sequence[Run]) -> Get:
    """Looks up keys of one namespace in runs, newest first."""
    runs = [run for run in runs if namespace in run.sections]
    context = np.zeros(_CONTEXT_HEAD + max(len(runs), 1) * _CONTEXT_RUN, np.int64)
    context[:2] = salt_of(namespace), len(runs)
    arrays = []
    for number, run in enumerate(runs):
        mapped, checked = run.array(), np.frombuffer(run.checked, np.uint8)
        arrays += [mapped, checked]
        _, start, end, _, _ = run.sections[namespace]
        first = _CONTEXT_HEAD + number * _CONTEXT_RUN
        context[first : first + 6] = (
            mapped.ctypes.data, checked.ctypes.data, run.footer.index_at, run.footer.slots, start, end,
        )  # fmt: skip
    maps = tuple(run.mapped for run in runs)
    checks = tuple(run.check for run in runs)
    find = cast("Callable[[bytes, int], int]", _find)
    address = int(context.ctypes.data)
    unpack = struct.Struct("<I").unpack_from
    held = (context, arrays)  # their addresses are in use as long as `get` is

    def get(key: bytes) -> bytes | None:
        while True:
            found = find(key, address)
            if found >= 0:
                mapped = maps[found >> _RUN_BITS]
                at = found & _OFFSET_MASK
                size = unpack(mapped, at + 4)[0]
                if size == TOMBSTONE:
                    return None
                at += RECORD_BYTES + len(key)
                return mapped[at : at + size]
            if found == _NOWHERE:
                return None
            page = _UNCHECKED - found
            assert held
            checks[page >> _PAGE_BITS](page & _PAGE_NUMBER_MASK)

    return get
