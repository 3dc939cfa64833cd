"""The pages of a run: read from its file, and checked before anything of them is used; a bad one is rebuilt.

The file is never mapped into memory: where a disk cannot serve a page fault, or a file was cut under the mapping, the
kernel ends the process with a signal. A read, however, fails as an error.

Every page of a run, also those of its parity, belongs to one stripe, and the pages of a stripe are 0 together, by XOR.
So a page that cannot be read, or does not match its checksum, is rebuilt from the others of its stripe; its own
checksum says whether that was right. Where two of a stripe are bad it is `Corruption`, from which the holder of the
state heals in other ways.

`Pages` reads; `PageCache` keeps what lookups have touched.
"""

from __future__ import annotations

import logging
import mmap
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import google_crc32c

from penstock.errors import Corruption
from penstock.files import File
from penstock.state.engines.native.format import FOOTER_BYTES, PAGE_BYTES, PAGE_SHIFT, STRIPE_PAGES

READ_PAGES = 256  # at once where the whole file is read: 1 MiB
_PRIVATE = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS

_logger = logging.getLogger(__name__)


class PageLayout(NamedTuple):
    """Where the pages of a run lie. Everything follows from the size of its data."""

    data_bytes: int

    @property
    def data(self) -> int:
        """How many pages the data has; the last one may be short."""
        return -(-self.data_bytes // PAGE_BYTES)

    @property
    def parity(self) -> int:
        """How many pages of parity there are, which is how many stripes there are."""
        return -(-self.data // STRIPE_PAGES)

    @property
    def parity_page_bytes(self) -> int:
        return min(PAGE_BYTES, self.data_bytes)

    @property
    def tail_bytes(self) -> int:
        """Of the checksums and the footer after them, which are there twice."""
        return 4 * (self.data + self.parity) + FOOTER_BYTES

    @property
    def parity_at(self) -> int:
        """At a page of the disk: there the parity has nothing in common with the data, which may be less than a page,
        and the second copy of the tail nothing with the first. So one bad page of the disk never costs both."""
        return -(-(self.data_bytes + self.tail_bytes) // PAGE_BYTES) * PAGE_BYTES

    @property
    def gap_bytes(self) -> int:
        """Of zeros before the parity."""
        return self.parity_at - self.data_bytes - self.tail_bytes

    @property
    def copy_at(self) -> int:
        """Where the second copy of the tail lies."""
        return self.parity_at + self.parity * self.parity_page_bytes

    @property
    def file_bytes(self) -> int:
        return self.copy_at + self.tail_bytes


class Pages:
    """The data of a run, in pages with a checksum each, and their parity. Thread-safe."""

    def __init__(self, file: File, path: Path, layout: PageLayout, checksums: memoryview) -> None:
        """`checksums`: of the pages of the data, then of those of the parity."""
        self._file = file
        self._path = path
        self._size = layout.data_bytes
        self._checksums = checksums
        self._data, self._stripes = layout.data, layout.parity
        self._parity_at, self._parity_page_bytes = layout.parity_at, layout.parity_page_bytes
        self.rebuilt: set[int] = set()  # pages that were bad, and could be rebuilt

    def __len__(self) -> int:
        return self._data

    def read(self, first: int, count: int) -> bytes:
        """The bytes of `count` pages of the data, fewer at the end. Bad ones are rebuilt; raises `Corruption` where that
        cannot be done."""
        start, end = first << PAGE_SHIFT, min(first + count, self._data)
        size = min(count << PAGE_SHIFT, self._size - start)
        try:
            raw = self._file.read_at(start, size)
        except OSError:
            raw = b""
        crc, checksums = google_crc32c.value, self._checksums
        if len(raw) == size:
            for page in range(first, end):
                at = (page - first) << PAGE_SHIFT
                if crc(raw[at : at + PAGE_BYTES]) != checksums[page]:
                    break
            else:
                return raw
        return b"".join([self._read(page) or self._rebuild(page) for page in range(first, end)])

    def read_between(self, start: int, end: int) -> bytes:
        """The bytes from `start` to `end` (excluded); whole pages are checked."""
        first = start >> PAGE_SHIFT
        raw = self.read(first, ((max(end - 1, start)) >> PAGE_SHIFT) - first + 1)
        return raw[start - (first << PAGE_SHIFT) : end - (first << PAGE_SHIFT)]

    @property
    def total(self) -> int:
        """How many pages data and parity have."""
        return self._data + self._stripes

    def bad(self, first: int, count: int) -> Iterator[tuple[int, str]]:
        """Reads `count` pages, of the data and then of the parity; gives the offset of each bad one and what is wrong
        with it."""
        for page in range(first, min(first + count, self.total)):
            if self._read(page) is None:
                offset, _ = self._place(page)
                what = "a page does not match its checksum, or cannot be read"
                try:
                    self._rebuild(page)
                except Corruption as error:
                    what = error.message
                yield offset, what

    def _read(self, page: int) -> bytes | None:
        """The page of data or parity as it is on the disk; None: it cannot be read, or is not what was written."""
        offset, size = self._place(page)
        try:
            raw = self._file.read_at(offset, size)
        except OSError:
            return None
        return raw if len(raw) == size and google_crc32c.value(raw) == self._checksums[page] else None

    def _rebuild(self, page: int) -> bytes:
        others, joined = [], 0
        for other in range(page % self._stripes, self._data + self._stripes, self._stripes):
            if other != page:
                raw = self._read(other)
                if raw is None:
                    others.append(self._place(other)[0])
                else:
                    joined ^= int.from_bytes(raw, "little")
        offset, size = self._place(page)
        rebuilt = b"" if others else joined.to_bytes(PAGE_BYTES, "little")[:size]
        if google_crc32c.value(rebuilt) != self._checksums[page] or others:
            raise Corruption(
                f"{self._path}: the page at {offset} cannot be read or does not match its checksum, and cannot be"
                f" rebuilt: its stripe has other bad pages at {', '.join(map(str, others)) or 'no place known'}",
                hint="the disk changed it: the state is read again from another checkpoint or from the log",
            )
        if page not in self.rebuilt:
            self.rebuilt.add(page)
            _logger.warning("%s: the page at %d was damaged, and was rebuilt from its parity", self._path, offset)
        return rebuilt

    def _place(self, page: int) -> tuple[int, int]:
        """Offset and size in the file of a page of data or parity."""
        if page < self._data:
            start = page << PAGE_SHIFT
            return start, min(PAGE_BYTES, self._size - start)
        return self._parity_at + (page - self._data) * self._parity_page_bytes, self._parity_page_bytes


class PageCache:
    """Checked pages, each at its offset in `memory`, which takes no room where no page was loaded; nor does `checked`.

    It only grows: who finds it too large takes a new one for later lookups (base.py), and this one is gone with the
    last lookup that uses it. So no page is ever taken away under a reader.
    """

    __slots__ = ("_pages", "bytes", "checked", "memory")

    def __init__(self, pages: Pages, size: int) -> None:
        self._pages = pages
        self.memory = mmap.mmap(-1, size, flags=_PRIVATE)
        self.checked = mmap.mmap(-1, len(pages), flags=_PRIVATE)  # 1: the page is in `memory`
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
