"""The peer of the log: the same bytes in the same groups with one fdatasync each, without frames, checksums or
futures.

Whoever compares the two calls `warm_memory` before each of them, and has both write for less than two seconds. A machine may be a guest whose host takes memory back
that was free for two seconds (Linux calls it free page reporting, and reports blocks of 2 MiB and more). The first write to
such a page waits until the host finds a new one: 64 KiB copied into the system's cache then cost 75 to 130 µs of processor
time instead of 10 to 13, which is more than all else that either of the two does. Which of them met such pages was chance.
The figures are measured; that it is the host is inferred from them and from the balloon device that reports free pages.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

_STEP_BYTES = 16 << 20  # space is reserved ahead in steps, as the log does it


def warm_memory(path: Path, total_bytes: int) -> None:
    """The host has found memory for so many bytes of the system's cache when this returns, and nobody uses it."""
    data = os.urandom(1 << 20)
    file = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
    try:
        for at in range(0, total_bytes, len(data)):
            os.pwrite(file, data, at)
    finally:
        os.close(file)
        path.unlink()  # before the system begins to write it back


def write(path: Path, total_bytes: int, group_bytes: int) -> tuple[float, float]:
    """Seconds, and processor seconds, to make `total_bytes` durable, `group_bytes` a sync."""
    group = memoryview(os.urandom(1 << 20) * (group_bytes // (1 << 20) + 1))[:group_bytes]
    file = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
    try:
        os.posix_fallocate(file, 0, _STEP_BYTES)
        os.fsync(file)
        reserved, end = _STEP_BYTES, 0
        started, used = time.perf_counter(), time.process_time()
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
        return time.perf_counter() - started, time.process_time() - used
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
