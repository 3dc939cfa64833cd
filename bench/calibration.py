"""A fixed piece of work, measured with every run, so that figures from different machines and loads can be compared."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator

from bench.result import Result

_ROUNDS = 7
_BYTES = 1 << 20
_REPEATS = 20
_STEPS = 300_000


def measure() -> Iterator[Result]:
    """The fastest of a few rounds, which is the least disturbed one."""
    block = bytes(range(256)) * (_BYTES // 256)
    best_hash = best_loop = float("inf")
    for _ in range(_ROUNDS):
        started = time.perf_counter()
        for _ in range(_REPEATS):
            hashlib.sha256(block).digest()
        best_hash = min(best_hash, time.perf_counter() - started)
        started = time.perf_counter()
        total = 0
        for step in range(_STEPS):
            total += step & 7
        best_loop = min(best_loop, time.perf_counter() - started)
    yield Result("calibration: SHA-256", _BYTES * _REPEATS / best_hash / 1e6, "MB/s")
    yield Result("calibration: Python loop", _STEPS / best_loop / 1e6, "M steps/s")
