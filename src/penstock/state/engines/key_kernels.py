"""Keys as bytes in memory: load, compare, sort. Compiled by numba, cached on disk, without the GIL.

The kernels take addresses, because they read from several buffers at once. Nothing in them looks at bounds: the caller
holds the buffers, and knows that the keys lie inside them. `sorted_keys` puts the keys of a large table in byte order
without holding the GIL for long: `sorted` would hold it until it is done. Imported when it is first needed: numba is
slow to import.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from penstock.kernels.compile import kernel
from penstock.state.engines.overlay import KEYS_AT_ONCE, PAUSE_SECONDS

_compiled: Any = intrinsic
_SMALL_SORT = 12  # keys that an insertion sort orders before the merges begin
Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]


def _pointer(builder: Any, address: Any, bits: int) -> Any:
    return builder.inttoptr(address, ir.IntType(bits).as_pointer())


@_compiled  # type: ignore[untyped-decorator]
def byte_at(typing: Any, address: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load(_pointer(builder, args[0], 8))

    return types.uint8(types.int64), generate


@_compiled  # type: ignore[untyped-decorator]
def u32_at(typing: Any, address: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        loaded = builder.load(_pointer(builder, args[0], 32))
        loaded.align = 1
        return loaded

    return types.uint32(types.int64), generate


@_compiled  # type: ignore[untyped-decorator]
def u64_at(typing: Any, address: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        loaded = builder.load(_pointer(builder, args[0], 64))
        loaded.align = 1
        return loaded

    return types.uint64(types.int64), generate


@_compiled  # type: ignore[untyped-decorator]
def _big_endian_u64_at(typing: Any, address: Any) -> Any:
    """Eight bytes as a big-endian number: two such numbers compare as their bytes do."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        loaded = builder.load(_pointer(builder, args[0], 64))
        loaded.align = 1
        return builder.bswap(loaded)

    return types.uint64(types.int64), generate


@_compiled  # type: ignore[untyped-decorator]
def copy_bytes(typing: Any, target: Any, source: Any, size: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        target, source = _pointer(builder, args[0], 8), _pointer(builder, args[1], 8)
        cgutils.raw_memcpy(builder, target, source, args[2], 1)  # type: ignore[no-untyped-call]
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), generate


@kernel
def compare(a: Any, a_len: Any, b: Any, b_len: Any) -> Any:
    """Below, at or above 0 as the bytes at `a` come before, are, or come after those at `b`."""
    common = min(a_len, b_len)
    at = np.int64(0)
    while at + 8 <= common:
        left, right = _big_endian_u64_at(a + at), _big_endian_u64_at(b + at)
        if left != right:
            return -1 if left < right else 1
        at += 8
    while at < common:
        one, other = byte_at(a + at), byte_at(b + at)
        if one != other:
            return -1 if one < other else 1
        at += 1
    return a_len - b_len


@kernel
def _common_prefix(keys: Any, starts: Any, lens: Any) -> Any:
    """How many bytes at the start all keys have in common."""
    common = lens[0]
    for i in range(1, len(starts)):
        common = min(common, lens[i])
        at = np.int64(0)
        while at < common and byte_at(keys + starts[0] + at) == byte_at(keys + starts[i] + at):
            at += 1
        common = at
        if common == 0:
            break
    return common


@kernel
def sort_keys(keys: Any, starts: Any, lens: Any) -> Any:
    """The indices of the keys in byte order. The keys lie at address `keys`. A bottom-up merge sort."""
    count = len(starts)
    order = np.arange(count)
    if count < 2:
        return order
    skip = _common_prefix(keys, starts, lens)
    # The eight bytes of each key after what all have in common: they tell most keys apart, and lie next to each other
    # in memory, so that most comparisons touch no key.
    heads = np.empty(count, np.uint64)
    for i in range(count):
        head = np.uint64(0)
        for at in range(8):
            head <<= np.uint64(8)
            if skip + at < lens[i]:
                head |= np.uint64(byte_at(keys + starts[i] + skip + at))
        heads[i] = head
    for first in range(0, count, _SMALL_SORT):
        for i in range(first + 1, min(first + _SMALL_SORT, count)):
            moved = order[i]
            j = i
            while j > first:
                other = order[j - 1]
                if heads[other] < heads[moved] or (
                    heads[other] == heads[moved]
                    and compare(keys + starts[other], lens[other], keys + starts[moved], lens[moved]) <= 0
                ):
                    break
                order[j] = other
                j -= 1
            order[j] = moved
    spare = np.empty(count, np.int64)
    width = _SMALL_SORT
    while width < count:
        for first in range(0, count, 2 * width):
            middle, last = min(first + width, count), min(first + 2 * width, count)
            i, j = first, middle
            for k in range(first, last):
                if j >= last:
                    take_left = True
                elif i >= middle:
                    take_left = False
                else:
                    a, b = order[i], order[j]
                    if heads[a] != heads[b]:
                        take_left = heads[a] < heads[b]
                    else:
                        take_left = compare(keys + starts[a], lens[a], keys + starts[b], lens[b]) <= 0
                if take_left:
                    spare[k] = order[i]
                    i += 1
                else:
                    spare[k] = order[j]
                    j += 1
        order, spare = spare, order
        width *= 2
    return order


def sorted_keys(table: Iterable[bytes]) -> list[bytes]:
    """The keys of `table` in byte order. Nobody may change the table meanwhile."""
    keys: list[bytes] = []
    parts: list[bytes] = []
    lens: list[Ints] = []
    left = iter(table)
    while portion := list(itertools.islice(left, KEYS_AT_ONCE)):
        keys += portion
        parts.append(b"".join(portion))
        lens.append(np.fromiter(map(len, portion), np.int64, len(portion)))
        time.sleep(PAUSE_SECONDS)
    raw = joined(parts)
    all_lens = np.concatenate(lens)
    order = sort_keys(raw.ctypes.data, starts_of(all_lens), all_lens)
    ordered: list[bytes] = []
    for first in range(0, len(keys), KEYS_AT_ONCE):
        ordered += map(keys.__getitem__, order[first : first + KEYS_AT_ONCE].tolist())
        time.sleep(PAUSE_SECONDS)
    return ordered


def joined(parts: list[bytes]) -> Bytes:
    """All parts in one buffer, copied one by one: a single join would hold the GIL until it is done."""
    whole = np.empty(max(sum(map(len, parts)), 1), np.uint8)
    at = 0
    for part in parts:
        whole[at : at + len(part)] = np.frombuffer(part, np.uint8)
        at += len(part)
    return whole


def starts_of(lens: Ints) -> Ints:
    """Where each of the pieces that lie back to back begins; a length below 0 takes no bytes."""
    starts = np.zeros(len(lens), np.int64)
    np.cumsum(np.maximum(lens[:-1], 0), out=starts[1:])
    return starts
