"""How Penstock compiles its inner loops: numba, cached on disk, without the GIL.

Kernels that call each other live in one file: numba's cache is keyed by the file of the outermost function only, so an
edit of a callee in another file would go unnoticed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

import numba

F = TypeVar("F", bound=Callable[..., object])


def kernel(function: F) -> F:
    """`function` compiled at its first call for the types it is called with; later processes load it from the cache."""
    return cast(F, numba.njit(cache=True, nogil=True)(function))
