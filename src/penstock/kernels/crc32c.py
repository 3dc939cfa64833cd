"""CRC32C over large buffers, without the GIL, by the processor's own instructions where it has them, else by a table.

The CRC instruction takes three cycles, but a new one can start in each cycle: so three streams run at a time.
Carry-less multiplication, which other units of the processor do, folds 256 bytes onto the next 256 (Intel's "Fast CRC
computation using PCLMULQDQ"). Both run side by side, each over one half of a block; at its end the four registers
become one.
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
from penstock.kernels.polynomials import byte_table, fold_constant, zeros

_compiled: Any = intrinsic  # numba's own type for it demands the typing context as an argument of each call
# numba compiles for the processor that it runs on, unless these two settings name another.
_SETTINGS: Any = config
_FEATURES = llvm.get_host_cpu_features() if not (_SETTINGS.CPU_NAME or _SETTINGS.CPU_FEATURES) else {}
_HARDWARE = platform.machine() in {"x86_64", "AMD64"} and bool(_FEATURES.get("sse4.2", False))
_FOLDING = _HARDWARE and all(_FEATURES.get(name, False) for name in ("avx2", "pclmul", "vpclmulqdq"))
_POLYNOMIAL = 0x82F63B78  # reflected


_TABLE = byte_table(_POLYNOMIAL)
_LONG, _SHORT = 4096, 256
_LONG_ZEROS, _SHORT_ZEROS = zeros(_POLYNOMIAL, _LONG), zeros(_POLYNOMIAL, _SHORT)

_FOLD_BYTES = 256  # eight accumulators of 32 bytes
_STREAM_BYTES = 88  # that each of the three streams takes in the same time
_LARGE, _SMALL = 124, 14  # steps of a block; a large block fits into an entry of 64 KiB
_BLOCK_BYTES = _FOLD_BYTES + 3 * _STREAM_BYTES
_FOLDS, _QUAD = 8, 4
_LARGE_STREAM, _LARGE_FOLDED = zeros(_POLYNOMIAL, _LARGE * _STREAM_BYTES), zeros(_POLYNOMIAL, _LARGE * _FOLD_BYTES)
_SMALL_STREAM, _SMALL_FOLDED = zeros(_POLYNOMIAL, _SMALL * _STREAM_BYTES), zeros(_POLYNOMIAL, _SMALL * _FOLD_BYTES)


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
    """Eight bytes at any offset, as a little-endian number."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        from numba.np import arrayobj

        source = arrayobj.make_array(signature.args[0])(context, builder, args[0])  # type: ignore[no-untyped-call]
        pointer = builder.bitcast(builder.gep(source.data, [args[1]]), ir.IntType(64).as_pointer())
        loaded = builder.load(pointer)
        loaded.align = 1
        return loaded

    return types.uint64(array, types.int64), generate


@_compiled  # type: ignore[untyped-decorator]
def _both(typing: Any, raw: Any, at: Any, steps: Any, crc: Any) -> Any:
    """Registers of three streams of `steps` * 88 bytes from `at`, and of the folded `steps` * 256 bytes after them."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        from numba.np import arrayobj

        i8, i32, i64 = ir.IntType(8), ir.IntType(32), ir.IntType(64)
        quad = ir.VectorType(i64, _QUAD)
        data = arrayobj.make_array(signature.args[0])(context, builder, args[0]).data  # type: ignore[no-untyped-call]
        declare = builder.module.declare_intrinsic
        multiply = declare("llvm.x86.pclmulqdq.256", (), ir.FunctionType(quad, (quad, quad, i8)))
        extend = declare("llvm.x86.sse42.crc32.64.64", (), ir.FunctionType(i64, (i64, i64)))
        start, steps = args[1], args[2]
        low, high = fold_constant(_POLYNOMIAL, 8 * _FOLD_BYTES + 32), fold_constant(_POLYNOMIAL, 8 * _FOLD_BYTES - 32)
        constants = ir.Constant(quad, [low, high, low, high])

        def number(value: int) -> Any:
            return ir.Constant(i64, value)

        def load(kind: Any, place: Any) -> Any:
            loaded = builder.load(builder.bitcast(builder.gep(data, [place]), kind.as_pointer()))
            loaded.align = 1
            return loaded

        length = builder.mul(steps, number(_STREAM_BYTES))
        folded_from = builder.add(start, builder.mul(length, number(3)))
        before = builder.block
        loop, after = builder.append_basic_block("step"), builder.append_basic_block("end")
        builder.branch(loop)

        builder.position_at_end(loop)
        step = builder.phi(i64)
        streams = [builder.phi(i64) for _ in range(3)]
        folds = [builder.phi(quad) for _ in range(_FOLDS)]
        stream_at = builder.add(start, builder.mul(step, number(_STREAM_BYTES)))
        fold_at = builder.add(folded_from, builder.mul(step, number(_FOLD_BYTES)))
        moved: list[Any] = list(streams)
        next_folds: list[Any] = []
        for turn in range(_STREAM_BYTES // 8):
            for stream in range(3):
                place = builder.add(builder.add(stream_at, builder.mul(length, number(stream))), number(8 * turn))
                moved[stream] = builder.call(extend, (moved[stream], load(i64, place)))
            if turn < _FOLDS:
                lows = builder.call(multiply, (folds[turn], constants, ir.Constant(i8, 0x00)))
                highs = builder.call(multiply, (folds[turn], constants, ir.Constant(i8, 0x11)))
                more = load(quad, builder.add(fold_at, number(32 * turn)))
                next_folds.append(builder.xor(builder.xor(lows, highs), more))
        following = builder.add(step, number(1))
        builder.cbranch(builder.icmp_unsigned("<", following, steps), loop, after)
        step.add_incoming(number(0), before)
        step.add_incoming(following, loop)
        for stream, first in enumerate((args[3], number(0), number(0))):
            streams[stream].add_incoming(first, before)
            streams[stream].add_incoming(moved[stream], loop)
        for phi, value in zip(folds, next_folds, strict=True):
            phi.add_incoming(ir.Constant(quad, [0] * _QUAD), before)
            phi.add_incoming(value, loop)

        builder.position_at_end(after)
        last: Any = number(0)  # the CRC of these 256 bytes is that of everything folded into them
        for value in next_folds:
            for word in range(_QUAD):
                last = builder.call(extend, (last, builder.extract_element(value, ir.Constant(i32, word))))
        return context.make_tuple(builder, signature.return_type, (*moved, last))

    four = types.UniTuple(types.uint64, 4)  # type: ignore[no-untyped-call]
    return four(raw, types.int64, types.int64, types.uint64), generate


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

    if _FOLDING:

        @kernel
        def _block(steps: Any, stream_zeros: Any, folded_zeros: Any, crc: Any, raw: Any, at: Any) -> Any:  # noqa: PLR0917
            first, second, third, folded = _both(raw, at, steps, crc)
            streams = _over(stream_zeros, _over(stream_zeros, first) ^ second) ^ third
            return _over(folded_zeros, streams) ^ folded

        @kernel
        def _blocks(crc: Any, raw: Any, at: Any, end: Any) -> Any:
            """Takes all blocks that fit. Returns the register and the offset after them."""
            while at + _LARGE * _BLOCK_BYTES <= end:
                crc = _block(_LARGE, _LARGE_STREAM, _LARGE_FOLDED, crc, raw, at)
                at += _LARGE * _BLOCK_BYTES
            while at + _SMALL * _BLOCK_BYTES <= end:
                crc = _block(_SMALL, _SMALL_STREAM, _SMALL_FOLDED, crc, raw, at)
                at += _SMALL * _BLOCK_BYTES
            return crc, at

    else:

        @kernel
        def _blocks(crc: Any, raw: Any, at: Any, end: Any) -> Any:
            return crc, at

    @kernel
    def _extend(crc: Any, raw: Any, start: Any, end: Any) -> Any:
        """The register after `raw[start:end]`, inverted neither before nor after."""
        wide, at = _blocks(np.uint64(crc), raw, start, end)
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
