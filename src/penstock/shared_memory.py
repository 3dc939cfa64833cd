"""Large buffers handed to another process as memory, by a descriptor: the receiver maps them, and copies nothing.

The memory has no name and is gone with its last user, however that ends. It is sealed before it is handed over: neither its
size nor a byte of it can change any more, so the receiver need not trust the sender to leave it alone.
"""

from __future__ import annotations

import fcntl
import os
from typing import BinaryIO

from penstock.errors import BadInput

_SEALS = (
    fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL
    if hasattr(fcntl, "F_SEAL_WRITE")
    else 0
)


def share(data: memoryview) -> BinaryIO | None:
    """The bytes in sealed memory; the caller closes it. None where the system has none to give, or cannot."""
    if not _SEALS or not hasattr(os, "memfd_create"):
        return None
    try:
        made = os.fdopen(os.memfd_create("penstock", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING), "wb", buffering=0)
    except OSError:  # too many open files; not allowed here
        return None
    try:
        with data.cast("B") as view:
            done = 0
            while done < len(view):
                done += made.write(view[done:])
        fcntl.fcntl(made, fcntl.F_ADD_SEALS, _SEALS)
    except OSError:  # no memory: the socket needs less of it at a time
        made.close()
        return None
    except BaseException:
        made.close()
        raise
    return made


def map_shared(descriptor: int, size: int) -> memoryview:
    """The `size` bytes behind a descriptor of `share`, which may be closed then: they are there as long as the view, or one of
    it, is, and take no open file. Raises `BadInput` for anything else: bytes that can go away under a reader end its process.
    """
    try:
        sealed = fcntl.fcntl(descriptor, fcntl.F_GET_SEALS) & _SEALS == _SEALS if _SEALS else False
    except OSError:
        sealed = False
    if not sealed or os.fstat(descriptor).st_size != size:
        raise BadInput(f"a body of {size} bytes does not come as sealed memory of that size")
    import pyarrow as pa  # who only asks for a status need not load it

    # Not Python's mmap: that keeps a descriptor of its own, and thousands of payloads may wait for a slow sink.
    try:
        with pa.memory_map(f"/proc/self/fd/{descriptor}") as mapped:
            return memoryview(mapped.read_buffer(size)).cast("B")
    except OSError:  # no /proc; too many open files for the moment that it takes
        return memoryview(os.pread(descriptor, size, 0))
