"""Large files written past the system's cache: a copy there costs more than all else that is done to the bytes.

The cache takes a fresh page for each one that is written, which on a virtual machine the host must often find first; and
what it pushes out is what readers of the log want. The disk takes whole blocks from aligned memory alone, so what is
appended passes through one small buffer, which stays in the processor's cache; the rest of the last block goes the usual way.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
from collections.abc import Iterable
from functools import partial

_BLOCK_BYTES = 4096  # a multiple of what any disk asks for
_BUFFER_BYTES = 2 << 20
_DIRECT: int = getattr(os, "O_DIRECT", 0)  # not on every system


class DirectAppender:
    """Appends to a descriptor, from `offset` on. What was appended is in the file after `finish`, not before."""

    def __init__(self, descriptor: int, offset: int) -> None:
        import numpy as np  # commands that only look need not load it

        self._array = partial(np.frombuffer, dtype=np.uint8)
        self._descriptor = descriptor
        self._start = offset
        self._written = offset
        self._memory = memoryview(mmap.mmap(-1, _BUFFER_BYTES))  # begins at a page, as the disk wants it
        self._bytes = self._array(self._memory)  # its copies let other threads go on meanwhile
        self._waiting = 0  # bytes in the buffer

    @classmethod
    def begin(cls, descriptor: int, offset: int) -> DirectAppender | None:
        """None where the file system has only the usual way."""
        if not _DIRECT or offset % _BLOCK_BYTES:
            return None
        try:
            _set_direct(descriptor, True)
        except OSError:
            return None
        return cls(descriptor, offset)

    @property
    def end(self) -> int:
        return self._written + self._waiting

    def append(self, views: Iterable[memoryview]) -> None:
        for view in views:
            data = self._array(view)
            taken = 0
            while taken < len(view):
                size = min(len(view) - taken, _BUFFER_BYTES - self._waiting)
                self._bytes[self._waiting : self._waiting + size] = data[taken : taken + size]
                taken += size
                self._waiting += size
                if self._waiting == _BUFFER_BYTES:
                    self._write(_BUFFER_BYTES)
                    self._waiting = 0

    def finish(self) -> None:
        """Writes what waits. The descriptor is one of the usual way from here on."""
        waiting, self._waiting = self._waiting, 0
        # A small file goes the usual way, whole: a write of its own to the disk would come before that of the sync.
        whole = waiting - waiting % _BLOCK_BYTES if self._written > self._start else 0
        self._write(whole)
        _set_direct(self._descriptor, False)
        self._write(waiting, whole)

    def _write(self, end: int, start: int = 0) -> None:
        while start < end:
            try:
                written = os.pwrite(self._descriptor, self._memory[start:end], self._written)
            except OSError as error:
                if error.errno != errno.EINVAL or not fcntl.fcntl(self._descriptor, fcntl.F_GETFL) & _DIRECT:
                    raise
                _set_direct(self._descriptor, False)  # larger blocks than ours, or a short write
                continue
            start += written
            self._written += written


def _set_direct(descriptor: int, direct: bool) -> None:
    flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
    fcntl.fcntl(descriptor, fcntl.F_SETFL, flags | _DIRECT if direct else flags & ~_DIRECT)
