"""The peer of the log: the same bytes in the same groups with one fdatasync each, without frames, checksums or
futures."""

from __future__ import annotations

import os
import time
from pathlib import Path

_STEP_BYTES = 16 << 20  # space is reserved ahead in steps, as the log does it


def write(path: Path, total_bytes: int, group_bytes: int) -> float:
    """Seconds to make `total_bytes` durable, `group_bytes` a sync."""
    group = memoryview(os.urandom(1 << 20) * (group_bytes // (1 << 20) + 1))[:group_bytes]
    file = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
    try:
        os.posix_fallocate(file, 0, _STEP_BYTES)
        os.fsync(file)
        reserved, end = _STEP_BYTES, 0
        started = time.perf_counter()
        while end < total_bytes:
            data = group[: min(group_bytes, total_bytes - end)]
            while end + len(data) > reserved:
                os.posix_fallocate(file, reserved, _STEP_BYTES)
                reserved += _STEP_BYTES
            written = 0
            while written < len(data):
                written += os.pwrite(file, data[written:], end + written)
            os.fdatasync(file)
            end += len(data)
        return time.perf_counter() - started
    finally:
        os.close(file)
        path.unlink()


def latencies(path: Path, size: int, count: int) -> list[float]:
    """Seconds of single writes with a sync each, one after the other."""
    data = os.urandom(size)
    file = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
    seen = []
    try:
        os.posix_fallocate(file, 0, _STEP_BYTES)
        os.fsync(file)
        for number in range(count):
            started = time.perf_counter()
            os.pwrite(file, data, number * size)
            os.fdatasync(file)
            seen.append(time.perf_counter() - started)
    finally:
        os.close(file)
        path.unlink()
    return seen


def read(path: Path, chunk_bytes: int = 1 << 20) -> float:
    """Seconds to read the whole file with plain `read`."""
    with path.open("rb", buffering=0) as file:
        started = time.perf_counter()
        while file.read(chunk_bytes):
            pass
        return time.perf_counter() - started


def read_into(path: Path, chunk_bytes: int = 1 << 20) -> float:
    """As `read`, always into the same buffer, which stays in the processor's cache."""
    buffer = bytearray(chunk_bytes)
    with path.open("rb", buffering=0) as file:
        started = time.perf_counter()
        while file.readinto(buffer):
            pass
        return time.perf_counter() - started
