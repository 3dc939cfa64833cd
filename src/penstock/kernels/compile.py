"""How Penstock compiles its inner loops: numba, cached on disk, without the GIL.

numba's own cache notices an edit of the file that a kernel stands in, and of nothing else. Compiled code, however, also
holds what the kernel refers to: the code of other kernels, of intrinsics and of the functions that they call, and the
values of constants. So the key of our cache includes a digest of all of these, and a kernel may call kernels of any file.
The digest is taken of what this process has imported, never of the files: they may have been replaced since, by an
upgrade in place, and old code must not be kept under the name of the new.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Iterator
from enum import EnumMeta
from types import CodeType, FunctionType, ModuleType
from typing import Any, TypeVar, cast

import numba
import numpy as np
from numba.core.caching import FunctionCache
from numba.core.dispatcher import Dispatcher
from numba.core.extending import _Intrinsic

F = TypeVar("F", bound=Callable[..., object])

_COMPILED = (Dispatcher, _Intrinsic)
_OUTSIDE = frozenset({"numba", "numpy", "llvmlite", "builtins"})  # numba's cache knows their versions
_CONSTANTS = (bool, int, float, str, bytes, tuple, np.generic)


def kernel(function: F) -> F:
    """`function` compiled at its first call for the types it is called with; later processes load it from the cache."""
    return cast(F, cached(numba.njit(nogil=True)(function)))


def cached(dispatcher: Any) -> Any:
    """Gives what `numba.njit` returned our cache: for kernels that need other options than those of `kernel`."""
    if isinstance(dispatcher, Dispatcher):  # else NUMBA_DISABLE_JIT is set, for debugging: a plain function
        cast(Any, dispatcher)._cache = _KernelCache(dispatcher.py_func)  # type: ignore[no-untyped-call]
    return dispatcher


class _KernelCache(FunctionCache):
    """numba's cache on disk, whose key also depends on what the function refers to."""

    _digest = ""

    def _index_key(self, sig: Any, codegen: Any) -> Any:
        if not self._digest:  # at the first call and not at import: a kernel may call one that stands below it
            self._digest = _digest_of(self._py_func)
        return (*super()._index_key(sig, codegen), self._digest)  # type: ignore[no-untyped-call]


def _digest_of(function: FunctionType) -> str:
    """A digest of the code of all functions that the compiled code includes, and of the constants that they use."""
    digest = hashlib.sha256()
    seen: set[FunctionType] = set()
    waiting = [function]
    while waiting:
        caller = waiting.pop()
        if caller in seen:
            continue
        seen.add(caller)
        digest.update(f"{caller.__qualname__}{caller.__defaults__!r}".encode())
        for part in _code_of(caller.__code__):
            digest.update(part)
        for name, value in _referred(caller):
            if isinstance(value, _COMPILED):
                waiting.append(inspect.unwrap(cast(Any, value)))
            elif isinstance(value, FunctionType) and value.__module__.partition(".")[0] not in _OUTSIDE:
                waiting.append(value)
            elif isinstance(value, EnumMeta):
                digest.update(f"{name}={list(value)!r}".encode())
            elif isinstance(value, _CONSTANTS):
                digest.update(f"{name}={value!r}".encode())
            elif isinstance(value, np.ndarray):
                digest.update(f"{name}={value.dtype}{value.shape}".encode() + value.tobytes())
    return digest.hexdigest()


def _referred(function: FunctionType) -> Iterator[tuple[str, object]]:
    """(name, value) of everything that the function refers to by a global name, `module.name`, or a closure."""
    names = sorted(set(_names(function.__code__)))
    found = [(name, function.__globals__[name]) for name in names if name in function.__globals__]
    for cell_name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        found.append((cell_name, cell.cell_contents))
    for name, value in found:
        yield name, value
        if isinstance(value, ModuleType) and value.__name__.partition(".")[0] not in _OUTSIDE:
            yield from ((f"{name}.{other}", getattr(value, other)) for other in names if hasattr(value, other))


def _code_of(code: CodeType) -> Iterator[bytes]:
    """What the code does, without where it stands: the same in every process."""
    yield code.co_code
    yield repr((code.co_names, code.co_varnames, code.co_freevars)).encode()
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _code_of(constant)
        elif isinstance(constant, frozenset):
            yield repr(sorted(map(repr, constant))).encode()
        else:
            yield repr(constant).encode()


def _names(code: CodeType) -> Iterator[str]:
    """Every global name, and every attribute, that the code or a function inside it mentions."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)
