"""Copies bytes from one array to another inside a kernel.

The plain loop `out[at + k] = source[first + k]` stays a loop over single bytes: LLVM cannot prove that the two arrays
do not overlap, so it does not make a memcpy of it.

With NUMBA_BOUNDSCHECK=1, which `make soak` sets for damaged events, it is that loop, so that its bounds are checked too.
"""

from __future__ import annotations

from typing import Any

import numba
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic


def _copy_bytes(  # noqa: PLR0917
    typing: Any, out: Any, at: Any, source: Any, first: Any, count: Any
) -> Any:
    """`out[at:at + count] = source[first:first + count]`, without a check of bounds. The two must not overlap."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        target_type, _, source_type, _, _ = signature.args
        target = context.make_array(target_type)(context, builder, arguments[0]).data
        origin = context.make_array(source_type)(context, builder, arguments[2]).data
        memcpy: Any = cgutils.raw_memcpy
        memcpy(
            builder, builder.gep(target, [arguments[1]]), builder.gep(origin, [arguments[3]]), arguments[4], 1, align=1
        )
        return context.get_dummy_value()

    return types.void(out, types.int64, source, types.int64, types.int64), generate


def _copy_checked(out: Any, at: Any, source: Any, first: Any, count: Any) -> None:
    if count < 0 or at < 0 or first < 0:
        raise IndexError("a copy of no bytes, or from before the beginning")
    for k in range(count):
        out[at + k] = source[first + k]


_config: Any = numba.config
copy_bytes: Any = intrinsic(_copy_bytes)
if _config.BOUNDSCHECK:
    copy_bytes = numba.njit(nogil=True)(_copy_checked)


def _copy_from(  # noqa: PLR0917
    typing: Any, out: Any, at: Any, address: Any, first: Any, count: Any
) -> Any:
    """As `copy_bytes`, from the memory at an address: for kernels that read from many arrays. The caller keeps them."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        target = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        origin = builder.inttoptr(arguments[2], target.type)
        memcpy: Any = cgutils.raw_memcpy
        memcpy(
            builder, builder.gep(target, [arguments[1]]), builder.gep(origin, [arguments[3]]), arguments[4], 1, align=1
        )
        return context.get_dummy_value()

    return types.void(out, types.int64, types.int64, types.int64, types.int64), generate


copy_from: Any = intrinsic(_copy_from)

BLOCK_BYTES = 16


def _copy_block(typing: Any, out: Any, at: Any, address: Any, first: Any) -> Any:
    """The `BLOCK_BYTES` at `address + first`, as one load and one store. Both sides must have so many."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        target = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        block = ir.VectorType(ir.IntType(8), BLOCK_BYTES).as_pointer()
        origin = builder.gep(builder.inttoptr(arguments[2], target.type), [arguments[3]])
        value = builder.load(builder.bitcast(origin, block), align=1)
        builder.store(value, builder.bitcast(builder.gep(target, [arguments[1]]), block), align=1)
        return context.get_dummy_value()

    return types.void(out, types.int64, types.int64, types.int64), generate


copy_block: Any = intrinsic(_copy_block)
