"""Kernels are compiled once, by whichever process of the test run comes first; the others load them from numba's cache.

numba's cache is shared by all processes, but nothing keeps two of them from compiling the same kernel at the same time.
On a fresh clone that costs two processes 15 s of CPU more. A lock around each compilation does: whoever waits for it finds the
result in the cache.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_mutex = threading.RLock()  # of this process: flock belongs to an open file, not to a thread
_depth = 0


def compile_once(lock_file: Path) -> None:
    """From here on, this process compiles only while it holds a lock on the file."""
    from numba.core.dispatcher import Dispatcher

    compile_really = Dispatcher.compile

    def compile_locked(self: Any, *arguments: Any, **named: Any) -> Any:
        with _locked(lock_file):
            return compile_really(self, *arguments, **named)

    Dispatcher.compile = compile_locked


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Kernels that call kernels compile them on the way, so the lock may be taken again by the thread that holds it."""
    global _depth
    with _mutex:
        _depth += 1
        descriptor = os.open(path, os.O_CREAT | os.O_RDWR) if _depth == 1 else -1
        try:
            if descriptor >= 0:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            _depth -= 1
            if descriptor >= 0:
                os.close(descriptor)
