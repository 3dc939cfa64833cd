"""CRC32 as zlib and the binlog have it, inside kernels: by carry-less multiplication where the processor has it, else by
tables.

Four accumulators of 16 bytes fold each 64 bytes onto the next 64 (Intel's "Fast CRC computation using PCLMULQDQ"), and
then onto each other; the CRC of the 16 bytes that are left is that of everything folded into them. What is shorter than
64 bytes goes through the tables, eight bytes at a time.
"""

from __future__ import annotations

import platform
from typing import Any

import llvmlite.binding as llvm  # type: ignore[import-untyped]
import numpy as np
from llvmlite import ir
from numba import config, types
from numba.extending import intrinsic

from penstock.kernels.compile import kernel
from penstock.kernels.polynomials import byte_table, fold_constant

_compiled: Any = intrinsic  # numba's own type for it demands the typing context as an argument of each call
_SETTINGS: Any = config
# numba compiles for the processor that it runs on, unless two of its settings name another. Only tables check bounds.
_IS_HOST = not (_SETTINGS.CPU_NAME or _SETTINGS.CPU_FEATURES or _SETTINGS.BOUNDSCHECK)
_FOLDING = (
    _IS_HOST and platform.machine() in {"x86_64", "AMD64"} and bool(llvm.get_host_cpu_features().get("pclmul", False))
)
_POLYNOMIAL = 0xEDB88320  # reflected
_LANE_BYTES, _LANES = 16, 4
_FOLD_BYTES = _LANE_BYTES * _LANES
_ONES = np.uint32(0xFFFFFFFF)
_LOW_BYTE = np.uint32(0xFF)


def _tables() -> Any:
    """Entry [k, b]: what byte b makes of an empty register, k zero bytes later."""
    tables = np.empty((8, 256), np.uint32)
    tables[0] = byte_table(_POLYNOMIAL)
    for k in range(1, 8):
        previous = tables[k - 1]
        tables[k] = (previous >> np.uint32(8)) ^ tables[0][previous & _LOW_BYTE]
    return tables


_TABLES = _tables()


@_compiled  # type: ignore[untyped-decorator]
def _folded(typing: Any, raw: Any, at: Any, end: Any, crc: Any) -> Any:
    """16 bytes, as two words, whose CRC from an empty register is that of `raw[at:end]` from `crc`. A multiple of 64 bytes,
    and at least as many."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        i8, i32, i64 = ir.IntType(8), ir.IntType(32), ir.IntType(64)
        pair = ir.VectorType(i64, 2)
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        signature_of_multiply = ir.FunctionType(pair, (pair, pair, i8))
        multiply = builder.module.declare_intrinsic("llvm.x86.pclmulqdq", (), signature_of_multiply)

        def constants(length: int) -> Any:
            """What carries 16 bytes over `length` bytes."""
            return ir.Constant(
                pair, [fold_constant(_POLYNOMIAL, 8 * length + 32), fold_constant(_POLYNOMIAL, 8 * length - 32)]
            )

        def load(place: Any) -> Any:
            loaded = builder.load(builder.bitcast(builder.gep(data, [place]), pair.as_pointer()))
            loaded.align = 1
            return loaded

        def fold(value: Any, over: Any, onto: Any) -> Any:
            low = builder.call(multiply, (value, over, ir.Constant(i8, 0x00)))
            high = builder.call(multiply, (value, over, ir.Constant(i8, 0x11)))
            return builder.xor(builder.xor(low, high), onto)

        def lanes_at(place: Any) -> list[Any]:
            return [load(builder.add(place, ir.Constant(i64, _LANE_BYTES * lane))) for lane in range(_LANES)]

        first = lanes_at(args[1])
        register = builder.insert_element(ir.Constant(pair, [0, 0]), builder.zext(args[3], i64), ir.Constant(i32, 0))
        first[0] = builder.xor(first[0], register)
        before = builder.block
        test, step, after = (builder.append_basic_block(name) for name in ("test", "step", "end"))
        builder.branch(test)

        builder.position_at_end(test)
        last = builder.phi(i64)
        lanes = [builder.phi(pair) for _ in range(_LANES)]
        following = builder.add(last, ir.Constant(i64, _FOLD_BYTES))
        builder.cbranch(builder.icmp_signed("<", following, args[2]), step, after)

        builder.position_at_end(step)
        over = constants(_FOLD_BYTES)
        moved = [fold(lane, over, more) for lane, more in zip(lanes, lanes_at(following), strict=True)]
        builder.branch(test)
        last.add_incoming(args[1], before)
        last.add_incoming(following, step)
        for phi, begun, value in zip(lanes, first, moved, strict=True):
            phi.add_incoming(begun, before)
            phi.add_incoming(value, step)

        builder.position_at_end(after)
        value = lanes[0]
        for lane in lanes[1:]:
            value = fold(value, constants(_LANE_BYTES), lane)
        words = [builder.extract_element(value, ir.Constant(i32, word)) for word in range(2)]
        return context.make_tuple(builder, signature.return_type, words)

    two = types.UniTuple(types.uint64, 2)  # type: ignore[no-untyped-call]
    return two(raw, types.int64, types.int64, types.uint32), generate


@kernel
def _word(crc: Any, word: Any) -> Any:
    """The register after eight more bytes."""
    word ^= np.uint64(crc)
    low, high = np.uint32(word), np.uint32(word >> np.uint64(32))
    return (
        _TABLES[7, low & _LOW_BYTE]
        ^ _TABLES[6, (low >> np.uint32(8)) & _LOW_BYTE]
        ^ _TABLES[5, (low >> np.uint32(16)) & _LOW_BYTE]
        ^ _TABLES[4, low >> np.uint32(24)]
        ^ _TABLES[3, high & _LOW_BYTE]
        ^ _TABLES[2, (high >> np.uint32(8)) & _LOW_BYTE]
        ^ _TABLES[1, (high >> np.uint32(16)) & _LOW_BYTE]
        ^ _TABLES[0, high >> np.uint32(24)]
    )


if _FOLDING:

    @kernel
    def _fold(crc: Any, raw: Any, at: Any, end: Any) -> Any:
        """Takes as many times 64 bytes as there are. Returns the register and the offset after them."""
        length = (end - at) & -_FOLD_BYTES
        if length <= 0:
            return crc, at
        low, high = _folded(raw, at, at + length, crc)
        return _word(_word(np.uint32(0), low), high), at + length

else:

    @kernel
    def _fold(crc: Any, raw: Any, at: Any, end: Any) -> Any:
        return crc, at


@kernel
def extend(crc: Any, raw: Any, start: Any, end: Any) -> Any:
    """The register after `raw[start:end]`, inverted neither before nor after."""
    crc, at = _fold(np.uint32(crc), raw, start, end)
    while at + 8 <= end:
        word = np.uint64(0)
        for k in range(8):
            word |= np.uint64(raw[at + k]) << np.uint64(8 * k)
        crc = _word(crc, word)
        at += 8
    while at < end:
        crc = (crc >> np.uint32(8)) ^ _TABLES[0, (crc ^ np.uint32(raw[at])) & _LOW_BYTE]
        at += 1
    return crc


@kernel
def crc32_of(raw: Any, start: Any, end: Any) -> Any:
    """CRC32 of `raw[start:end]`."""
    return np.uint32(extend(_ONES, raw, start, end)) ^ _ONES
