"""Memory and CPU time as a part of a test's verdict: what a hostile input may cost.

Python's and numpy's memory is counted by tracemalloc, Arrow's by a pool of its own. What a compiled kernel allocates
inside is not seen; kernels here fill arrays that they are given.
"""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa

MIB = 1 << 20
_in_use: list[
    pa.MemoryPool
] = []  # an array that outlives its pool (in a traceback, say) ends the process when it is freed


@contextmanager
def bounded(*, mib: float, cpu_seconds: float) -> Iterator[None]:
    """Fails if what runs inside holds more than `mib` at any moment, or takes more CPU time, whether or not it raises."""
    usual = pa.default_memory_pool()
    pool = pa.proxy_memory_pool(usual)
    outer = tracemalloc.is_tracing()
    if not outer:
        tracemalloc.start()
    tracemalloc.reset_peak()
    before = tracemalloc.get_traced_memory()[0]
    pa.set_memory_pool(pool)
    began = time.thread_time()
    try:
        yield
    finally:
        seconds = time.thread_time() - began
        pa.set_memory_pool(usual)
        if pool.bytes_allocated():
            _in_use.append(pool)
        held = tracemalloc.get_traced_memory()[1] - before + (pool.max_memory() or 0)
        if not outer:
            tracemalloc.stop()
    assert held <= mib * MIB, f"{held / MIB:.1f} MiB were held; {mib} are allowed"
    assert seconds <= cpu_seconds, f"{seconds:.2f} s of CPU; {cpu_seconds} are allowed"
