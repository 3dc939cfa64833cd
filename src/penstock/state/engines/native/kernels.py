"""The inner loops over runs: write, merge, index, check. Compiled by numba, cached on disk, without the GIL.

They take addresses where they read from several buffers at once. Nothing in here looks at bounds: the caller holds the
buffers, and has checked every page of a run before its address comes here. Imported at the first checkpoint: numba is
slow to import.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.kernels.compile import kernel
from penstock.kernels.crc32c import crc_of
from penstock.state.engines.key_kernels import compare, copy_bytes, u32_at
from penstock.state.engines.native.format import (
    HASH_FACTOR,
    PAGE_BYTES,
    RECORD_BYTES,
    TAG_BITS,
    TAG_MASK,
    TOMBSTONE,
    U32_MASK,
)

DONE, FULL, USED_UP = 0, 1, 2  # why `merge_records` returned

_TOMBSTONE = np.uint32(TOMBSTONE)
_FACTOR = np.uint64(HASH_FACTOR)
_LOW = np.uint64(U32_MASK)
_TAG_BITS = np.uint64(TAG_BITS)
_TAG = np.uint64(TAG_MASK)


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
    """Writes the records of `order[done:]` into `raw[used:]` until `raw` is full.

    `raw` begins at `raw_offset` of the file. A value_len below 0 is a tombstone. The offset and hash of each record go
    into `offsets` and `hashes`, from `count` on. Returns (done, used, count).
    """
    while done < len(order):
        i = order[done]
        key_len, value_len = key_lens[i], value_lens[i]
        size = RECORD_BYTES + key_len + max(value_len, 0)
        if used + size > len(raw):
            break
        _write_head(raw, used, key_len, _TOMBSTONE if value_len < 0 else value_len)
        copy_bytes(raw_address + used + RECORD_BYTES, keys + key_starts[i], key_len)
        if value_len > 0:
            copy_bytes(raw_address + used + RECORD_BYTES + key_len, values + value_starts[i], value_len)
        offsets[count] = raw_offset + used
        hashes[count] = _hash(raw, used + RECORD_BYTES, used + RECORD_BYTES + key_len, salt)
        count += 1
        used += size
        done += 1
    return done, used, count


@kernel
def merge_records(  # noqa: PLR0917
    at: Any,
    end: Any,
    more: Any,
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
    """Merges sorted sources, newest first, into `raw[used:]`.

    `at` and `end` hold the address of each source's next record and of the end of its window; `more` says whether the
    source goes on after its window. Of each key the newest record is written; with `bottom` tombstones are left out.
    Advances `at`, fills `offsets` and `hashes` as `write_records` does, and adds puts, tombstones and bytes of content
    to `totals`. Returns (used, count, DONE, FULL, or USED_UP: a source needs its next window).
    """
    while True:
        best = -1
        for k in range(len(at)):
            if at[k] >= end[k] and more[k]:
                return used, count, USED_UP
            if at[k] < end[k] and (
                best < 0
                or compare(
                    at[k] + RECORD_BYTES, np.int64(u32_at(at[k])), at[best] + RECORD_BYTES, np.int64(u32_at(at[best]))
                )
                < 0
            ):
                best = k
        if best < 0:
            return used, count, DONE
        record = at[best]
        key_len, value_len = np.int64(u32_at(record)), u32_at(record + 4)
        deleted = value_len == _TOMBSTONE
        size = RECORD_BYTES + key_len + (0 if deleted else np.int64(value_len))
        if not (deleted and bottom):
            if used + size > len(raw):
                return used, count, FULL
            copy_bytes(raw_address + used, record, size)
            offsets[count] = raw_offset + used
            hashes[count] = _hash(raw, used + RECORD_BYTES, used + RECORD_BYTES + key_len, salt)
            count += 1
            used += size
            totals[1 if deleted else 0] += 1
            totals[2] += size - RECORD_BYTES
        for k in range(best + 1, len(at)):
            if at[k] < end[k]:
                other_len, other_value = np.int64(u32_at(at[k])), u32_at(at[k] + 4)
                if (
                    other_len == key_len
                    and compare(at[k] + RECORD_BYTES, other_len, record + RECORD_BYTES, key_len) == 0
                ):
                    at[k] += RECORD_BYTES + other_len + (0 if other_value == _TOMBSTONE else np.int64(other_value))
        at[best] += size


@kernel
def next_size(at: Any, end: Any) -> Any:
    """Bytes of the largest record that comes next in any source: `merge_records` needs at most that much space."""
    largest: Any = 0
    for k in range(len(at)):
        if at[k] < end[k]:
            value_len = u32_at(at[k] + 4)
            size = RECORD_BYTES + np.int64(u32_at(at[k])) + (0 if value_len == _TOMBSTONE else np.int64(value_len))
            largest = max(size, largest)
    return largest


@kernel
def whole_records(at: Any, end: Any) -> Any:
    """The address after the last record that lies wholly between the two addresses."""
    while at + RECORD_BYTES <= end:
        value_len = u32_at(at + 4)
        size = RECORD_BYTES + np.int64(u32_at(at)) + (0 if value_len == _TOMBSTONE else np.int64(value_len))
        if at + size > end:
            break
        at += size
    return at


@kernel
def build_index(offsets: Any, hashes: Any, count: Any, slots: Any) -> None:
    """Fills `slots`, all 0 before, with the hash table of a run (docs/formats/checkpoint.md, "Index")."""
    size = len(slots)
    for i in range(count):
        value = np.uint64(hashes[i])
        at: Any = np.int64((value * np.uint64(size)) >> np.uint64(32))
        while slots[at] != 0:
            at += 1
            if at == size:
                at = 0
        slots[at] = (np.uint64(offsets[i]) << _TAG_BITS) | (value & _TAG)


@kernel
def page_checksums(raw: Any, size: Any, checksums: Any) -> None:
    """Fills `checksums` with the CRC32C of each page of `raw[:size]`; the last page may be short."""
    for page in range(len(checksums)):
        checksums[page] = crc_of(raw, page * PAGE_BYTES, min((page + 1) * PAGE_BYTES, size))
