"""The frame format's inner loops (docs/formats/frame.md): fill the headers of a batch, check every frame of a chunk.

Compiled by numba, cached on disk, without the GIL. CRC32C by the processor's own instruction where it has one, by a table
elsewhere. This module is imported at the first batch that is worth it: numba is slow to import.
"""

from __future__ import annotations

import platform
from collections.abc import Callable
from typing import Any, TypeVar, cast

import llvmlite.binding as llvm  # type: ignore[import-untyped]
import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

F = TypeVar("F", bound=Callable[..., object])

# What `check_frames` stopped at.
END, BAD_MAGIC, BAD_HEADER, BAD_VERSION, BAD_FILE, BAD_ENTRY, BAD_BODY, FULL = range(8)

_compiled: Any = intrinsic  # its own type asks for the typing context at each call
_HARDWARE = platform.machine() in {"x86_64", "AMD64"} and bool(llvm.get_host_cpu_features().get("sse4.2", False))


def kernel(function: F) -> F:
    return cast(F, njit(cache=True, nogil=True)(function))


def _table() -> Any:
    table = np.zeros(256, np.uint32)
    for value in range(256):
        crc = value
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
        table[value] = crc
    return table


def _zeros(length: int) -> Any:
    """Tables that carry a register over `length` zero bytes (a power of two): how three streams become one."""

    def times(matrix: list[int], vector: int) -> int:
        total = 0
        for row in matrix:
            if vector & 1:
                total ^= row
            vector >>= 1
        return total

    matrix = [0x82F63B78, *(1 << bit for bit in range(31))]  # over one zero bit
    for _ in range(length.bit_length() + 2):
        matrix = [times(matrix, row) for row in matrix]
    return np.array([[times(matrix, value << shift) for value in range(256)] for shift in (0, 8, 16, 24)], np.uint32)


_TABLE = _table()
_LONG, _SHORT = 4096, 256  # the instruction takes three cycles but one can start in each: three streams at a time
_LONG_ZEROS, _SHORT_ZEROS = _zeros(_LONG), _zeros(_SHORT)


@_compiled  # type: ignore[untyped-decorator]
def _crc_word(typing: Any, crc: Any, word: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        i64 = ir.IntType(64)
        name = "llvm.x86.sse42.crc32.64.64"
        return builder.call(builder.module.declare_intrinsic(name, (), ir.FunctionType(i64, (i64, i64))), args)

    return types.uint64(types.uint64, types.uint64), generate


@_compiled  # type: ignore[untyped-decorator]
def _crc_byte(typing: Any, crc: Any, byte: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        i32, i8 = ir.IntType(32), ir.IntType(8)
        name = "llvm.x86.sse42.crc32.32.8"
        return builder.call(builder.module.declare_intrinsic(name, (), ir.FunctionType(i32, (i32, i8))), args)

    return types.uint32(types.uint32, types.uint8), generate


@_compiled  # type: ignore[untyped-decorator]
def _load(typing: Any, array: Any, at: Any) -> Any:
    """Eight bytes at any offset, little-endian as the formats are."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        from numba.np import arrayobj

        source = arrayobj.make_array(signature.args[0])(context, builder, args[0])  # type: ignore[no-untyped-call]
        pointer = builder.bitcast(builder.gep(source.data, [args[1]]), ir.IntType(64).as_pointer())
        loaded = builder.load(pointer)
        loaded.align = 1
        return loaded

    return types.uint64(array, types.int64), generate


if _HARDWARE:

    @kernel
    def _over(zeros: Any, crc: Any) -> Any:
        low = np.uint32(crc)
        return np.uint64(
            zeros[0, low & np.uint32(0xFF)]
            ^ zeros[1, (low >> np.uint32(8)) & np.uint32(0xFF)]
            ^ zeros[2, (low >> np.uint32(16)) & np.uint32(0xFF)]
            ^ zeros[3, low >> np.uint32(24)]
        )

    @kernel
    def _three(zeros: Any, size: Any, crc: Any, raw: Any, at: Any) -> Any:
        second = third = np.uint64(0)
        for i in range(at, at + size, 8):
            crc = _crc_word(crc, _load(raw, i))
            second = _crc_word(second, _load(raw, i + size))
            third = _crc_word(third, _load(raw, i + 2 * size))
        return _over(zeros, _over(zeros, crc) ^ second) ^ third

    @kernel
    def _extend(crc: Any, raw: Any, start: Any, end: Any) -> Any:
        """The raw register, neither inverted before nor after."""
        wide = np.uint64(crc)
        at = start
        while at + 3 * _LONG <= end:
            wide = _three(_LONG_ZEROS, _LONG, wide, raw, at)
            at += 3 * _LONG
        while at + 3 * _SHORT <= end:
            wide = _three(_SHORT_ZEROS, _SHORT, wide, raw, at)
            at += 3 * _SHORT
        while at + 8 <= end:
            wide = _crc_word(wide, _load(raw, at))
            at += 8
        narrow = np.uint32(wide)
        while at < end:
            narrow = _crc_byte(narrow, raw[at])
            at += 1
        return narrow

else:

    @kernel
    def _extend(crc: Any, raw: Any, start: Any, end: Any) -> Any:
        narrow = np.uint32(crc)
        for at in range(start, end):
            narrow = _TABLE[(narrow ^ np.uint32(raw[at])) & np.uint32(0xFF)] ^ (narrow >> np.uint32(8))
        return narrow


@kernel
def crc_of(raw: Any, start: Any, end: Any) -> Any:
    """CRC32C of `raw[start:end]`."""
    return np.uint32(_extend(np.uint32(0xFFFFFFFF), raw, start, end)) ^ np.uint32(0xFFFFFFFF)


@kernel
def _put(raw: Any, at: Any, value: Any, size: int) -> None:
    left = np.uint64(value)
    for i in range(size):
        raw[at + i] = np.uint8(left & np.uint64(0xFF))
        left >>= np.uint64(8)


@kernel
def _get(raw: Any, at: Any, size: int) -> Any:
    value = np.uint64(0)
    for i in range(size):
        value |= np.uint64(raw[at + i]) << np.uint64(8 * i)
    return value


@kernel
def fill_frames(  # noqa: PLR0917
    raw: Any,
    data_lens: Any,
    changes_lens: Any,
    file_id: int,
    epoch: int,
    entry_id: int,
    wall_ms: int,
    synced_end: int,
    offsets: Any,
) -> None:
    """Frames lie back to back in `raw`, data and changes in their places: writes headers and checksums, and `offsets`."""
    at = 0
    for i in range(len(data_lens)):
        offsets[i] = at
        body = at + 64
        changes = body + data_lens[i]
        end = changes + changes_lens[i]
        raw[at], raw[at + 1], raw[at + 2], raw[at + 3] = 80, 83, 70, 49  # PSF1
        _put(raw, at + 4, 1, 4)
        _put(raw, at + 8, file_id, 8)
        _put(raw, at + 16, epoch, 8)
        _put(raw, at + 24, entry_id + i, 8)
        _put(raw, at + 32, wall_ms, 8)
        _put(raw, at + 40, synced_end, 8)
        _put(raw, at + 48, data_lens[i], 4)
        _put(raw, at + 52, changes_lens[i], 4)
        _put(raw, at + 56, crc_of(raw, changes, end) if end > changes else 0, 4)
        _put(raw, at + 60, crc_of(raw, at, at + 60), 4)
        _put(raw, end, crc_of(raw, at, end), 4)
        at = end + 4


@kernel
def check_frames(raw: Any, at: Any, file_id: int, entry_id: int, found: Any) -> Any:
    """Whole frames from `raw[at]` on, which must be entries `entry_id` and following of file `file_id`.

    Fills rows of `found` with (offset, data_len, changes_len, wall_ms, synced_end); gives (rows, where it stopped,
    why, bytes of the frame there if its header is good). `END`: the bytes end before the next frame does.
    """
    count = 0
    size = len(raw)
    while True:
        if count == len(found):
            return count, at, FULL, 0
        if at + 64 > size:
            return count, at, END, 64
        if raw[at] != 80 or raw[at + 1] != 83 or raw[at + 2] != 70 or raw[at + 3] != 49:
            return count, at, BAD_MAGIC, 0
        data_len = np.int64(_get(raw, at + 48, 4))
        changes_len = np.int64(_get(raw, at + 52, 4))
        end = at + 64 + data_len + changes_len
        # The body's checksum covers the header too: where it matches, the header's own need not be asked.
        whole = end + 4 <= size and _get(raw, end, 4) == np.uint64(crc_of(raw, at, end))
        if not whole and _get(raw, at + 60, 4) != np.uint64(crc_of(raw, at, at + 60)):
            return count, at, BAD_HEADER, 0
        if raw[at + 4] != 1 or raw[at + 5] != 0:
            return count, at, BAD_VERSION, 0
        if _get(raw, at + 8, 8) != np.uint64(file_id):
            return count, at, BAD_FILE, 0
        if _get(raw, at + 24, 8) != np.uint64(entry_id + count):
            return count, at, BAD_ENTRY, 0
        if not whole:
            return count, at, END if end + 4 > size else BAD_BODY, end + 4 - at
        found[count, 0] = at
        found[count, 1] = data_len
        found[count, 2] = changes_len
        found[count, 3] = np.int64(_get(raw, at + 32, 8))
        found[count, 4] = np.int64(_get(raw, at + 40, 8))
        count += 1
        at = end + 4
