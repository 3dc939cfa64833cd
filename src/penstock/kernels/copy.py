"""Copies bytes from one array to another inside a kernel.

The plain loop `out[at + k] = source[first + k]` stays a loop over single bytes: LLVM cannot prove that the two arrays
do not overlap, so it does not make a memcpy of it.
"""

from __future__ import annotations

from typing import Any

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


copy_bytes: Any = intrinsic(_copy_bytes)
