"""How Penstock compiles its inner loops: numba, cached on disk, without the GIL.

numba's own cache notices an edit of the file that a kernel stands in, and of nothing else. Compiled code, however, also
holds what the kernel refers to by global names: the code of other kernels and intrinsics, and the values of constants.
So the key of our cache includes a digest of all of these, followed through the callees, and a kernel may call kernels
of any file.
"""

from __future__ import annotations

import hashlib
import inspect
import linecache
from collections.abc import Callable, Iterator
from enum import EnumMeta
from types import CodeType, FunctionType
from typing import Any, TypeVar, cast

import numba
import numpy as np
from numba.core.caching import FunctionCache
from numba.core.dispatcher import Dispatcher
from numba.core.extending import _Intrinsic

F = TypeVar("F", bound=Callable[..., object])

_CALLED = (Dispatcher, _Intrinsic)  # what one kernel can call of another file
_CONSTANTS = (bool, int, float, str, bytes, tuple, np.generic)


def kernel(function: F) -> F:
    """`function` compiled at its first call for the types it is called with; later processes load it from the cache."""
    return cast(F, cached(numba.njit(nogil=True)(function)))


def cached(dispatcher: Any) -> Any:
    """Gives what `numba.njit` returned our cache: for kernels that need other options than those of `kernel`."""
    dispatcher._cache = _KernelCache(dispatcher.py_func)  # type: ignore[no-untyped-call]
    return dispatcher


class _KernelCache(FunctionCache):
    """numba's cache on disk, whose key also depends on what the function refers to."""

    _digest = ""

    def _index_key(self, sig: Any, codegen: Any) -> Any:
        if not self._digest:  # at the first call and not at import: a kernel may call one that stands below it
            self._digest = _digest_of(self._py_func)
        return (*super()._index_key(sig, codegen), self._digest)  # type: ignore[no-untyped-call]


def _digest_of(function: FunctionType) -> str:
    """A digest of the source files of all functions that the compiled code includes, and of their constants."""
    digest = hashlib.sha256()
    seen: set[FunctionType] = set()
    waiting = [function]
    while waiting:
        caller = waiting.pop()
        if caller in seen:
            continue
        seen.add(caller)
        digest.update("".join(linecache.getlines(inspect.getfile(caller), caller.__globals__)).encode())
        for name in sorted(set(_names(caller.__code__))):
            value: Any = caller.__globals__.get(name)
            if isinstance(value, _CALLED):
                waiting.append(inspect.unwrap(value))
            elif isinstance(value, EnumMeta):
                digest.update(f"{name}={list(value)!r}".encode())
            elif isinstance(value, _CONSTANTS):
                digest.update(f"{name}={value!r}".encode())
            elif isinstance(value, np.ndarray):
                digest.update(f"{name}={value.dtype}{value.shape}".encode() + value.tobytes())
    return digest.hexdigest()


def _names(code: CodeType) -> Iterator[str]:
    """Every global name, and every attribute, that the code or a function inside it mentions."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)
