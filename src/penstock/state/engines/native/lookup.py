"""Finds a key in the runs of a checkpoint by compiled code: one call searches all runs and makes the value's bytes.

The steps are those of `SortedRun.finder`, which is written in Python, serves until numba is loaded, and loads pages. The
compiled lookup loads none: where it needs a page that is not in the cache yet it returns `...`, and the caller asks in
Python.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import njit, types
from numba.extending import box, intrinsic, models, register_model

from penstock.kernels.compile import cached
from penstock.kernels.crc32c import crc_of
from penstock.state.engines.key_kernels import byte_at, u32_at, u64_at
from penstock.state.engines.native.format import (
    HASH_FACTOR,
    PAGE_SHIFT,
    RECORD_BYTES,
    TAG_BITS,
    TAG_MASK,
    TOMBSTONE,
    U32_MASK,
    salt_of,
)
from penstock.state.engines.native.pages import PageCache
from penstock.state.engines.native.run import SortedRun
from penstock.state.engines.overlay import Get

# The context that `_find` gets is an array of u64: the salt of the namespace and the number of runs, then for each run
# the addresses of its cache's memory and flags, and where its index and the records of the namespace lie.
_CONTEXT_HEAD, _CONTEXT_RUN = 2, 6
_FACTOR = np.uint64(HASH_FACTOR)
_LOW = np.uint64(U32_MASK)
_TAG_BITS = np.uint64(TAG_BITS)
_TAG = np.uint64(TAG_MASK)
_TOMBSTONE = np.uint32(TOMBSTONE)

_compiled: Any = intrinsic


class _Object(types.Type):
    """A Python object that compiled code creates and returns, and never looks into."""

    def __init__(self) -> None:
        super().__init__(name="PenstockStateValue")


_object = _Object()
register_model(_Object)(models.OpaqueModel)


@box(_Object)  # type: ignore[untyped-decorator, no-untyped-call]
def _box_object(kind: Any, value: Any, c: Any) -> Any:
    return value


@_compiled  # type: ignore[untyped-decorator]
def _bytes_at(typing: Any, address: Any, size: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        start = builder.inttoptr(args[0], ir.IntType(8).as_pointer())
        return context.get_python_api(builder).bytes_from_string_and_size(start, args[1])

    return _object(types.int64, types.int64), generate


@_compiled  # type: ignore[untyped-decorator]
def _none(typing: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return context.get_python_api(builder).make_none()

    return _object(), generate


@_compiled  # type: ignore[untyped-decorator]
def _unchecked(typing: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        api = context.get_python_api(builder)
        found = api.get_c_object("_Py_EllipsisObject")
        api.incref(found)
        return found

    return _object(), generate


def _locked(function: Any) -> Any:
    """Compiles `function` to run with the GIL held: it makes Python objects, and is shorter than releasing the GIL."""
    return cached(njit(function))


@_locked
def _find(context: Any, key: Any) -> Any:
    """The newest value of the key; None where there is none; `...` where a page has to be loaded first."""
    size = len(key)
    salt, runs = u64_at(context), np.int64(u64_at(context + 8))
    value = ((np.uint64(crc_of(key, 0, size)) ^ salt) * _FACTOR) & _LOW
    tag = value & _TAG
    for run in range(runs):
        at = context + 8 * (_CONTEXT_HEAD + run * _CONTEXT_RUN)
        memory, checked = np.int64(u64_at(at)), np.int64(u64_at(at + 8))
        index_at, slots = np.int64(u64_at(at + 16)), np.int64(u64_at(at + 24))
        start, end = np.int64(u64_at(at + 32)), np.int64(u64_at(at + 40))
        slot_at = np.int64((value * np.uint64(slots)) >> np.uint64(32))
        while True:
            if byte_at(checked + ((index_at + slot_at * 8) >> PAGE_SHIFT)) == 0:
                return _unchecked()
            slot = u64_at(memory + index_at + slot_at * 8)
            if slot == np.uint64(0):
                break
            record = np.int64(slot >> _TAG_BITS)
            if slot & _TAG == tag and start <= record < end:
                page = record >> PAGE_SHIFT
                last = (record + RECORD_BYTES - 1) >> PAGE_SHIFT
                while page <= last:
                    if byte_at(checked + page) == 0:
                        return _unchecked()
                    page += 1
                key_len, value_len = np.int64(u32_at(memory + record)), u32_at(memory + record + 4)
                if key_len == size:
                    value_at = record + RECORD_BYTES + size
                    stop = value_at
                    if value_len != _TOMBSTONE:
                        stop += np.int64(value_len)
                    last = (stop - 1) >> PAGE_SHIFT
                    while page <= last:
                        if byte_at(checked + page) == 0:
                            return _unchecked()
                        page += 1
                    same = 0
                    key_at = memory + record + RECORD_BYTES
                    while same < size and byte_at(key_at + same) == key[same]:
                        same += 1
                    if same == size:
                        if value_len == _TOMBSTONE:
                            return _none()
                        return _bytes_at(memory + value_at, np.int64(value_len))
            slot_at += 1
            if slot_at == slots:
                slot_at = np.int64(0)
    return _none()


class _Getter(partial):  # type: ignore[type-arg]
    """Calls `_find` without a Python frame in between. `held` keeps alive what the context's addresses point to."""

    held: tuple[Any, ...]


def getter(namespace: int, runs: Sequence[SortedRun], caches: Sequence[PageCache]) -> Get:
    """A function that looks up keys of one namespace in `runs`, newest first, by what their caches hold."""
    found = [(run, cache) for run, cache in zip(runs, caches, strict=True) if namespace in run.sections]
    context = np.zeros(_CONTEXT_HEAD + len(found) * _CONTEXT_RUN, np.uint64)
    context[:2] = salt_of(namespace), len(found)
    held: list[Any] = [context]
    for number, (run, cache) in enumerate(found):
        memory, checked = np.frombuffer(cache.memory, np.uint8), np.frombuffer(cache.checked, np.uint8)
        held += [memory, checked]
        _, start, end, _, _ = run.sections[namespace]
        first = _CONTEXT_HEAD + number * _CONTEXT_RUN
        context[first : first + _CONTEXT_RUN] = (
            memory.ctypes.data, checked.ctypes.data, run.footer.index_at, run.footer.slots, start, end,
        )  # fmt: skip
    find = _Getter(_find, int(context.ctypes.data))
    find.held = tuple(held)
    return find
