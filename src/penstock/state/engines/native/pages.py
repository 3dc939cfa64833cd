"""The pages of a run: read from its file, and checked before anything of them is used.

The file is never mapped into memory: where a disk cannot serve a page fault, or a file was cut under the mapping, the
kernel ends the process with a signal. A read, however, fails as an error, and an error is `Corruption`, from which the
holder of the state heals.

`Pages` reads; `PageCache` keeps what lookups have touched.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from pathlib import Path

import google_crc32c

from penstock.errors import Corruption
from penstock.files import File
from penstock.state.engines.native.format import PAGE_BYTES, PAGE_SHIFT

_READ_PAGES = 256  # at once where the whole file is read: 1 MiB
_PRIVATE = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS


class Pages:
    """The first `size` bytes of a run, in pages with a checksum each. Thread-safe."""

    def __init__(self, file: File, path: Path, size: int, checksums: memoryview) -> None:
        self._file = file
        self._path = path
        self._size = size
        self._checksums = checksums

    def __len__(self) -> int:
        return len(self._checksums)

    def read(self, first: int, count: int) -> bytes:
        """The bytes of `count` pages, fewer at the end. Raises `Corruption` where one is not what was written."""
        start = first << PAGE_SHIFT
        raw = self._raw(start, min(count << PAGE_SHIFT, self._size - start))
        crc = google_crc32c.value
        for page in range(first, min(first + count, len(self._checksums))):
            at = (page - first) << PAGE_SHIFT
            if crc(raw[at : at + PAGE_BYTES]) != self._checksums[page]:
                raise self._bad(page, "does not match its checksum")
        return raw

    def read_between(self, start: int, end: int) -> bytes:
        """The bytes from `start` to `end` (excluded); whole pages are checked."""
        first = start >> PAGE_SHIFT
        raw = self.read(first, ((max(end - 1, start)) >> PAGE_SHIFT) - first + 1)
        return raw[start - (first << PAGE_SHIFT) : end - (first << PAGE_SHIFT)]

    def bad(self) -> Iterator[tuple[int, Corruption]]:
        """Reads every byte; the offset of each bad page, and what is wrong with it."""
        for first in range(0, len(self._checksums), _READ_PAGES):
            try:
                self.read(first, _READ_PAGES)
            except Corruption:
                for page in range(first, min(first + _READ_PAGES, len(self._checksums))):
                    try:
                        self.read(page, 1)
                    except Corruption as error:
                        yield page << PAGE_SHIFT, error

    def _raw(self, start: int, size: int) -> bytes:
        try:
            raw = self._file.read_at(start, size)
        except OSError as error:
            raise self._bad(start >> PAGE_SHIFT, f"cannot be read: {error}") from error
        if len(raw) < size:
            raise self._bad((start + len(raw)) >> PAGE_SHIFT, "is not there: the file was cut")
        return raw

    def _bad(self, page: int, what: str) -> Corruption:
        return Corruption(
            f"{self._path}: the page at {page << PAGE_SHIFT} {what}",
            hint="the disk changed it: the state is read again from another checkpoint or from the log",
        )


class PageCache:
    """Checked pages, each at its offset in `memory`, which takes no room where no page was loaded.

    It only grows: who finds it too large takes a new one for later lookups (base.py), and this one is gone with the
    last lookup that uses it. So no page is ever taken away under a reader.
    """

    __slots__ = ("_pages", "bytes", "checked", "memory")

    def __init__(self, pages: Pages, size: int) -> None:
        self._pages = pages
        self.memory = mmap.mmap(-1, size, flags=_PRIVATE)
        self.checked = bytearray(len(pages))  # 1: the page is in `memory`
        self.bytes = 0  # in `memory`, about: two threads may load a page at the same time

    def load(self, page: int) -> None:
        """Brings the page in. Raises `Corruption` where it is not what was written."""
        raw = self._pages.read(page, 1)
        start = page << PAGE_SHIFT
        self.memory[start : start + len(raw)] = raw
        self.checked[page] = 1
        self.bytes += PAGE_BYTES

    def load_between(self, start: int, end: int) -> None:
        """Brings in every page with a byte from `start` to `end` (excluded)."""
        for page in range(start >> PAGE_SHIFT, ((max(end - 1, start)) >> PAGE_SHIFT) + 1):
            if not self.checked[page]:
                self.load(page)
