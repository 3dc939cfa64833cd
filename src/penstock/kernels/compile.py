"""How Penstock compiles its inner loops: numba, cached on disk, without the GIL.

numba's own cache notices an edit of the file that a kernel stands in, and of nothing else. Compiled code, however, also
holds what the kernel refers to: the code of other kernels, of intrinsics and of the functions that they call, and the
values of constants. So the key of our cache includes a digest of all of these, and a kernel may call kernels of any file.
Where the cache lies is said in places.py; without one, or where it fails, a kernel is compiled in memory.
The digest is taken of what this process has imported, never of the files: they may have been replaced since, by an
upgrade in place, and old code must not be kept under the name of the new.
"""

from __future__ import annotations

import contextlib
import hashlib
import inspect
from collections.abc import Callable, Iterator
from enum import EnumMeta
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any, TypeVar, cast

import numba
import numpy as np
from numba.core.caching import CompileResultCacheImpl, FunctionCache, UserProvidedCacheLocator
from numba.core.dispatcher import Dispatcher
from numba.core.extending import _Intrinsic
from numba.core.runtime import nrt

from penstock.kernels.places import place_for, refuse_others, warn_once

F = TypeVar("F", bound=Callable[..., object])

_COMPILED = (Dispatcher, _Intrinsic)
_OUTSIDE = frozenset({"numba", "numpy", "llvmlite", "builtins"})  # numba's cache knows their versions
_CONSTANTS = (bool, int, float, str, bytes, tuple, np.generic)
_NEEDS_REGISTRIES = "_numba_hashsecret"  # a symbol that is there only once numba's own implementations are imported


def kernel(function: F) -> F:
    """`function` compiled at its first call for the types it is called with; later processes load it from the cache."""
    return cast(F, cached(numba.njit(nogil=True)(function)))


def cached(dispatcher: Any) -> Any:
    """Gives what `numba.njit` returned our cache: for kernels that need other options than those of `kernel`."""
    if not isinstance(dispatcher, Dispatcher):
        return dispatcher  # NUMBA_DISABLE_JIT is set, for debugging: a plain function
    function = cast(Any, dispatcher).py_func
    if place_for(Path(inspect.getfile(function)).parent) is not None:
        try:
            cast(Any, dispatcher)._cache = _KernelCache(function)  # type: ignore[no-untyped-call]
        except (OSError, RuntimeError) as error:  # there is no source file to compare with, as in a zip archive
            warn_once(f"every process compiles its kernels anew: {error}")
    return dispatcher


class _Locator(UserProvidedCacheLocator):
    """Our own place instead of numba's, which are chosen without a look at who may write there."""

    def __init__(self, py_func: Any, py_file: str) -> None:
        self._py_file = py_file
        self._lineno = py_func.__code__.co_firstlineno
        self._cache_path = str(place_for(Path(py_file).parent))

    @classmethod
    def from_function(cls, py_func: Any, py_file: str) -> _Locator | None:
        return cls(py_func, py_file) if Path(py_file).exists() else None


class _CacheFiles(CompileResultCacheImpl):
    _locator_classes = [_Locator]  # noqa: RUF012 (numba reads it)


class _KernelCache(FunctionCache):
    """numba's cache on disk, whose key also depends on what the function refers to. A cache that cannot be read or
    written is no error: then the kernel is compiled."""

    _impl_class = _CacheFiles
    _digest = ""

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        try:
            refuse_others(Path(self.cache_path))
            return self._loaded(sig, target_context)
        except OSError as error:
            warn_once(f"a compiled kernel cannot be read and is compiled anew: {error}")
        except Exception as error:  # a damaged pickle may raise anything; a power cut may have left half of a file
            warn_once(f"a compiled kernel is damaged and is compiled anew: {error}")
            with contextlib.suppress(OSError):
                self.flush()  # type: ignore[no-untyped-call]
        return None

    def save_overload(self, sig: Any, data: Any) -> None:
        try:
            refuse_others(Path(self.cache_path))
            if _NEEDS_REGISTRIES in data.library.get_llvm_str():
                warn_once(f"{self._py_func.__qualname__} hashes, and is compiled anew by every process")
                return
            super().save_overload(sig, data)  # type: ignore[no-untyped-call]
        except OSError as error:
            warn_once(f"a compiled kernel cannot be kept for the next process: {error}")

    def _loaded(self, sig: Any, target_context: Any) -> Any:
        """As numba does it, but without its registries: to import all that numba can compile takes half a second in every
        process, and code that is compiled needs only what calls and frees memory. Compiling brings them in by itself.
        """
        nrt.rtsys.initialize(target_context)
        return self._load_overload(sig, target_context)  # type: ignore[no-untyped-call]

    def _index_key(self, sig: Any, codegen: Any) -> Any:
        if not self._digest:  # at the first call and not at import: a kernel may call one that stands below it
            self._digest = _digest_of(self._py_func)
        return (*super()._index_key(sig, codegen), self._digest)  # type: ignore[no-untyped-call]


def _digest_of(function: FunctionType) -> str:
    """A digest of the code of all functions that the compiled code includes, and of the constants that they use."""
    digest = hashlib.sha256(f"bounds are checked: {cast(Any, numba.config).BOUNDSCHECK}".encode())
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
