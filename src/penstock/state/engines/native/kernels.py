"""The inner loops over runs: sort, write, merge, index, check. Compiled by numba, cached on disk, without the GIL.

They take addresses where they read from several buffers at once; the caller holds those buffers, and has checked every page
of a run before its address comes here: nothing in here looks at bounds. Imported at the first checkpoint: numba is slow
to import.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from penstock.log.frames.kernels import crc_of, kernel

DONE, FULL = 0, 1

_compiled: Any = intrinsic
_TOMBSTONE = np.uint32(0xFFFFFFFF)
_FACTOR = np.uint64(0x9E3779B1)
_LOW = np.uint64(0xFFFFFFFF)
_SMALL_SORT = 12


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
def _swapped(typing: Any, address: Any) -> Any:
    """Eight bytes as a big-endian number: its order is theirs."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        loaded = builder.load(_pointer(builder, args[0], 64))
        loaded.align = 1
        return builder.bswap(loaded)

    return types.uint64(types.int64), generate


@_compiled  # type: ignore[untyped-decorator]
def _copy(typing: Any, target: Any, source: Any, size: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        target, source = _pointer(builder, args[0], 8), _pointer(builder, args[1], 8)
        cgutils.raw_memcpy(builder, target, source, args[2], 1)  # type: ignore[no-untyped-call]
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), generate


@kernel
def _compare(a: Any, a_len: Any, b: Any, b_len: Any) -> Any:
    """Below, at or above 0 as the bytes at `a` come before, are, or come after those at `b`."""
    common = min(a_len, b_len)
    at = np.int64(0)
    while at + 8 <= common:
        left, right = _swapped(a + at), _swapped(b + at)
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
def _after_common(keys: Any, starts: Any, lens: Any) -> Any:
    """How many bytes all keys begin with."""
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
    """The order of the keys at address `keys`: indices into `starts` and `lens`. A merge sort from below."""
    count = len(starts)
    order = np.arange(count)
    if count < 2:
        return order
    skip = _after_common(keys, starts, lens)
    # The eight bytes that tell most keys apart, beside each other in memory.
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
                    and _compare(keys + starts[other], lens[other], keys + starts[moved], lens[moved]) <= 0
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
                        take_left = _compare(keys + starts[a], lens[a], keys + starts[b], lens[b]) <= 0
                if take_left:
                    spare[k] = order[i]
                    i += 1
                else:
                    spare[k] = order[j]
                    j += 1
        order, spare = spare, order
        width *= 2
    return order


@kernel
def _write_head(raw: Any, at: Any, key_len: Any, value_len: Any) -> None:
    left = np.uint64(key_len) | (np.uint64(value_len) << np.uint64(32))
    for i in range(8):
        raw[at + i] = np.uint8(left & np.uint64(0xFF))
        left >>= np.uint64(8)


@kernel
def _hash(raw: Any, start: Any, end: Any, salt: Any) -> Any:
    crc = np.uint64(crc_of(raw, start, end))
    return np.uint32(((crc ^ np.uint64(salt)) * _FACTOR) & _LOW)


@kernel
def write_records(  # noqa: PLR0917
    keys: Any,
    key_starts: Any,
    key_lens: Any,
    values: Any,
    value_starts: Any,
    value_lens: Any,
    order: Any,
    done: Any,
    salt: Any,
    raw: Any,
    raw_address: Any,
    used: Any,
    raw_offset: Any,
    offsets: Any,
    hashes: Any,
    count: Any,
) -> Any:
    """Records of `order[done:]` into `raw[used:]`, whose first byte lies at `raw_offset` of the file, until it is full.

    A value_len below 0 is a tombstone. Notes offset and hash of each from `count` on; gives (done, used, count).
    """
    while done < len(order):
        i = order[done]
        key_len, value_len = key_lens[i], value_lens[i]
        size = 8 + key_len + max(value_len, 0)
        if used + size > len(raw):
            break
        _write_head(raw, used, key_len, _TOMBSTONE if value_len < 0 else value_len)
        _copy(raw_address + used + 8, keys + key_starts[i], key_len)
        if value_len > 0:
            _copy(raw_address + used + 8 + key_len, values + value_starts[i], value_len)
        offsets[count] = raw_offset + used
        hashes[count] = _hash(raw, used + 8, used + 8 + key_len, salt)
        count += 1
        used += size
        done += 1
    return done, used, count


@kernel
def merge_records(  # noqa: PLR0917
    at: Any,
    end: Any,
    bottom: Any,
    salt: Any,
    raw: Any,
    raw_address: Any,
    used: Any,
    raw_offset: Any,
    offsets: Any,
    hashes: Any,
    count: Any,
    totals: Any,
) -> Any:
    """Sorted sources into `raw[used:]`: `at` and `end` are addresses of their next records and ends, newest source first.

    Of a key the newest record counts; with `bottom` tombstones are left out. Moves `at`, notes offsets and hashes as
    `write_records`, adds puts, tombstones and bytes of content to `totals`; gives (used, count, DONE or FULL).
    """
    while True:
        best = -1
        for k in range(len(at)):
            if at[k] < end[k] and (
                best < 0 or _compare(at[k] + 8, np.int64(u32_at(at[k])), at[best] + 8, np.int64(u32_at(at[best]))) < 0
            ):
                best = k
        if best < 0:
            return used, count, DONE
        record = at[best]
        key_len, value_len = np.int64(u32_at(record)), u32_at(record + 4)
        deleted = value_len == _TOMBSTONE
        size = 8 + key_len + (0 if deleted else np.int64(value_len))
        if not (deleted and bottom):
            if used + size > len(raw):
                return used, count, FULL
            _copy(raw_address + used, record, size)
            offsets[count] = raw_offset + used
            hashes[count] = _hash(raw, used + 8, used + 8 + key_len, salt)
            count += 1
            used += size
            totals[1 if deleted else 0] += 1
            totals[2] += size - 8
        for k in range(best + 1, len(at)):
            if at[k] < end[k]:
                other_len, other_value = np.int64(u32_at(at[k])), u32_at(at[k] + 4)
                if other_len == key_len and _compare(at[k] + 8, other_len, record + 8, key_len) == 0:
                    at[k] += 8 + other_len + (0 if other_value == _TOMBSTONE else np.int64(other_value))
        at[best] += size


@kernel
def next_size(at: Any, end: Any) -> Any:
    """Of the largest record that comes next in a source: what `merge_records` may need room for."""
    largest: Any = 0
    for k in range(len(at)):
        if at[k] < end[k]:
            value_len = u32_at(at[k] + 4)
            size = 8 + np.int64(u32_at(at[k])) + (0 if value_len == _TOMBSTONE else np.int64(value_len))
            largest = max(size, largest)
    return largest


@kernel
def build_index(offsets: Any, hashes: Any, count: Any, slots: Any) -> None:
    """Fills `slots`, all 0 before."""
    size = len(slots)
    for i in range(count):
        value = np.uint64(hashes[i])
        at: Any = np.int64((value * np.uint64(size)) >> np.uint64(32))
        while slots[at] != 0:
            at += 1
            if at == size:
                at = 0
        slots[at] = (np.uint64(offsets[i]) << np.uint64(16)) | (value & np.uint64(0xFFFF))


@kernel
def page_checksums(raw: Any, size: Any, checksums: Any) -> None:
    """CRC32C of each 4096 bytes of `raw[:size]`."""
    for page in range(len(checksums)):
        checksums[page] = crc_of(raw, page * 4096, min((page + 1) * 4096, size))


@kernel
def first_bad_page(raw: Any, size: Any, checksums: Any) -> Any:
    """The first page of `raw[:size]` whose checksum does not match, or -1."""
    for page in range(len(checksums)):
        if checksums[page] != crc_of(raw, page * 4096, min((page + 1) * 4096, size)):
            return page
    return -1
