"""Large bodies between two processes through memory that both have: a *window*.

The sender maps it once and puts one body after another into it; the receiver copies each into memory of its own before it
looks at it. So the window's pages stay the same for as long as a connection lasts: fresh pages for each body cost more than
both copies. The receiver need not trust the sender, which may write on or die at any moment: what it works with is its
own copy, and a window that could shrink, or lose pages, under a reader is refused, because that would end its process.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import weakref
from collections import deque

from penstock.errors import BadInput

WINDOW_BYTES = 16 << 20  # twice what a task's payload has; pages that no body has reached take no memory
_FUTURE_WRITE: int = getattr(
    fcntl, "F_SEAL_FUTURE_WRITE", 0x10
)  # Linux 5.1; nobody but who has it mapped may change it
_SEALS = (
    fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL | _FUTURE_WRITE if hasattr(fcntl, "F_SEAL_SEAL") else 0
)
_HUGE_BYTES = 2 << 20  # a huge page; mappings below that have none
_COPY_BYTES_MIN = 1 << 20  # a copy of so much lets other threads go on meanwhile
_IDLE_MAX = 8  # about the payloads of a file of the default size, which are let go of together

# No lock: memory may come back in the middle of anything, wherever a last view ends.
_idle: deque[mmap.mmap] = deque(maxlen=_IDLE_MAX)


class Window:
    """The sender's side. `descriptor` goes to the receiver."""

    def __init__(self, descriptor: int, memory: mmap.mmap) -> None:
        self.descriptor = descriptor
        self._memory = memoryview(memory)

    @classmethod
    def make(cls) -> Window | None:
        """None where the system has no such memory to give, or cannot."""
        if not _SEALS or not hasattr(os, "memfd_create"):
            return None
        try:
            descriptor = os.memfd_create("penstock", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        except OSError:  # too many open files; not allowed here
            return None
        try:
            os.ftruncate(descriptor, WINDOW_BYTES)
            memory = mmap.mmap(descriptor, WINDOW_BYTES)
            fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS)
        except (OSError, ValueError):
            os.close(descriptor)
            return None
        return cls(descriptor, memory)

    def put(self, data: memoryview) -> None:
        _copy(self._memory[: data.nbytes], data)

    def close(self) -> None:
        os.close(self.descriptor)
        self._memory.release()


def map_window(descriptor: int) -> memoryview:
    """The receiver's side of a window; the descriptor may be closed then. Raises `BadInput` for anything else."""
    try:
        sealed = fcntl.fcntl(descriptor, fcntl.F_GET_SEALS) & _SEALS == _SEALS if _SEALS else False
    except OSError:
        sealed = False
    if not sealed or os.fstat(descriptor).st_size != WINDOW_BYTES:
        raise BadInput("a message's body comes through memory that is no window: it could go away under its reader")
    return memoryview(mmap.mmap(descriptor, WINDOW_BYTES, prot=mmap.PROT_READ))


def copied(data: memoryview) -> memoryview:
    """The bytes in memory of this process alone."""
    memory = own_memory(data.nbytes)
    _copy(memory, data)
    return memory.toreadonly()


def own_memory(size: int) -> memoryview:
    """Memory for `size` bytes, given back with the last view of it; what it holds means nothing. A large one has pages that
    were used before, or huge ones where the system gives them: the small ones of a fresh gigabyte take half a second of
    processor time."""
    if size < _HUGE_BYTES:
        return memoryview(bytearray(size))
    import numpy as np  # who only asks for a status need not load it

    full, rest = divmod(size, _HUGE_BYTES)
    # Linux puts a mapping at the boundary of a huge page if its length is a multiple of one.
    memory = _used_before((full + (rest > 0)) * _HUGE_BYTES)
    if memory is not None:
        _let_go_after(memory, size)
    else:
        memory = mmap.mmap(-1, (full + (rest > 0)) * _HUGE_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        if hasattr(mmap, "MADV_HUGEPAGE"):
            # The last page is a huge one where the bytes all but fill it: no more is taken than is counted, but for little.
            huge = full + (rest > _HUGE_BYTES * 15 // 16)
            with contextlib.suppress(OSError):  # a kernel without them
                memory.madvise(mmap.MADV_HUGEPAGE, 0, huge * _HUGE_BYTES)
    lent = np.frombuffer(memory, np.uint8, size)
    if len(memory) <= WINDOW_BYTES:
        weakref.finalize(lent, _idle.append, memory).atexit = False
    return lent.data


def _used_before(length: int) -> mmap.mmap | None:
    for _ in range(len(_idle)):
        try:
            memory = _idle.popleft()
        except IndexError:  # another thread was quicker
            return None
        if len(memory) == length:
            return memory
        _idle.append(memory)
    return None


def _let_go_after(memory: mmap.mmap, size: int) -> None:
    """A longer body may have been here: the pages that this one does not reach would be held, and counted by nobody. Less than
    a fresh mapping may have too much is left, because bodies of nearly the same size follow each other."""
    end = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
    if len(memory) - end >= _HUGE_BYTES // 16 and hasattr(mmap, "MADV_DONTNEED"):
        memory.madvise(mmap.MADV_DONTNEED, end, len(memory) - end)


def _copy(target: memoryview, source: memoryview) -> None:
    if source.nbytes < _COPY_BYTES_MIN:
        target[:] = source.cast("B")
        return
    import numpy as np  # who only asks for a status need not load it

    np.copyto(np.frombuffer(target, np.uint8), np.frombuffer(source, np.uint8))
