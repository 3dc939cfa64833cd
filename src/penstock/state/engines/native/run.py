"""Reads a run (docs/formats/checkpoint.md). To open one costs the same for any number of keys; a page is checked
against its checksum when it is first touched, and nothing of it is used before."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import google_crc32c
import numpy as np

from penstock.errors import Corruption, NotSupported
from penstock.files import Files
from penstock.state.engines.engine import Finding
from penstock.state.engines.native.format import (
    ANCHOR_EVERY,
    FOOTER_BYTES,
    HEADER_BYTES,
    PAGE_BYTES,
    PAGE_MASK,
    PAGE_SHIFT,
    RECORD,
    RECORD_BYTES,
    TAG_BITS,
    TAG_MASK,
    TOMBSTONE,
    BadRun,
    Section,
    footer_crc,
    parse_footer,
    parse_header,
    parse_sections,
)
from penstock.state.engines.overlay import MISSING, Pair

Find = Callable[[bytes, int], bytes | None]  # key and its hash → value, None (a tombstone) or MISSING

_SECTION_BYTES = 40
_LAST_WHOLE_HEAD = PAGE_BYTES - RECORD_BYTES


class RunName(NamedTuple):
    """How a manifest names a run: size and checksum are part of the name, so that no other file is taken for it."""

    id: int
    bytes: int
    footer_crc: int

    @property
    def file(self) -> str:
        return f"run-{self.id:016x}.run"


class SortedRun:
    """A run, memory-mapped. Thread-safe. The file stays mapped until the last reader of the run is gone."""

    def __init__(self, files: Files, directory: Path, name: RunName) -> None:
        """Raises `BadRun`, `NotSupported`, or `FileNotFoundError`."""
        if sys.byteorder != "little":
            raise NotSupported("state checkpoints are read on little-endian machines only")
        self.name = name
        self.path = directory / name.file
        file = files.open(self.path)
        try:
            self.mapped = mapped = file.map()
        finally:
            file.close()
        size = len(mapped)
        if size < HEADER_BYTES + FOOTER_BYTES:
            raise BadRun(0, f"a run of {size} bytes is too short")
        tail = mapped[size - FOOTER_BYTES :]
        self.footer = footer = parse_footer(tail, size - FOOTER_BYTES)
        self.header = parse_header(mapped[:HEADER_BYTES])
        if (size, footer_crc(tail)) != (name.bytes, name.footer_crc) or footer.file_bytes != size:
            raise BadRun(size - FOOTER_BYTES, "the run is not the one that the checkpoint means")
        if footer.run_id != name.id or self.header.run_id != name.id:
            raise BadRun(0, f"the run calls itself {self.header.run_id}")
        whole = memoryview(mapped)
        pages = mapped[footer.pages_at : footer.pages_at + 4 * footer.pages]
        if google_crc32c.value(pages) != footer.pages_crc:
            raise BadRun(footer.pages_at, "the checksum of the pages' checksums does not match")
        self._pages = memoryview(pages).cast("I")
        self.checked = bytearray(footer.pages)
        self._index = whole[footer.index_at : footer.index_at + 8 * footer.slots].cast("Q")
        self._anchors = whole[footer.anchors_at : footer.anchors_at + 8 * footer.anchors].cast("Q")
        end = footer.namespaces_at + _SECTION_BYTES * footer.namespaces
        try:
            self._check_between(footer.namespaces_at, end)
        except Corruption as error:
            raise BadRun(footer.namespaces_at, error.message) from error
        self.sections: dict[int, Section] = {}
        self._first_anchor: dict[int, int] = {}
        anchor = 0
        for section in parse_sections(mapped[footer.namespaces_at : end]):
            self.sections[section.namespace] = section
            self._first_anchor[section.namespace] = anchor
            anchor += -(-(section.puts + section.tombstones) // ANCHOR_EVERY)

    @property
    def records(self) -> int:
        return self.footer.puts + self.footer.tombstones

    def finder(self, namespace: int) -> Find | None:
        """A function that looks up keys of one namespace; None where the run has none of it.

        A closure, because in Python local variables are read faster than attributes.
        """
        section = self.sections.get(namespace)
        if section is None:
            return None
        _, start, end, _, _ = section
        mapped, index, checked, check = self.mapped, self._index, self.checked, self.check
        slots, index_at = self.footer.slots, self.footer.index_at
        unpack = RECORD.unpack_from

        def find(key: bytes, key_hash: int) -> bytes | None:
            slot_at = key_hash * slots >> 32
            tag = key_hash & TAG_MASK
            while True:
                page = (index_at + (slot_at << 3)) >> PAGE_SHIFT
                if not checked[page]:
                    check(page)
                slot = index[slot_at]
                if not slot:
                    return MISSING
                if slot & TAG_MASK == tag:
                    at = slot >> TAG_BITS
                    page = at >> PAGE_SHIFT
                    if not checked[page]:
                        check(page)
                    if at & PAGE_MASK > _LAST_WHOLE_HEAD and not checked[page + 1]:
                        check(page + 1)
                    key_len, value_len = unpack(mapped, at)
                    value_at = at + RECORD_BYTES + key_len
                    stop = value_at if value_len == TOMBSTONE else value_at + value_len
                    last = (stop - 1) >> PAGE_SHIFT
                    while page < last:
                        page += 1
                        if not checked[page]:
                            check(page)
                    if mapped[at + RECORD_BYTES : value_at] == key and start <= at < end:
                        return None if value_len == TOMBSTONE else mapped[value_at:stop]
                slot_at += 1
                if slot_at == slots:
                    slot_at = 0

        return find

    def between(self, namespace: int, start: bytes, end: bytes | None) -> Iterator[Pair]:
        """Pairs from `start` (included) to `end` (excluded) in byte order, tombstones too."""
        section = self.sections.get(namespace)
        if section is None:
            return
        mapped, unpack, check = self.mapped, RECORD.unpack_from, self._check_between
        at = self._anchor_before(section, start) if start else section.start
        checked_to = at
        while at < section.end:
            if at + RECORD_BYTES > checked_to:
                checked_to = check(at, at + RECORD_BYTES)
            key_len, value_len = unpack(mapped, at)
            value_at = at + RECORD_BYTES + key_len
            stop = value_at if value_len == TOMBSTONE else value_at + value_len
            if stop > checked_to:
                checked_to = check(at, stop)
            key = mapped[at + RECORD_BYTES : value_at]
            at = stop
            if key < start:
                continue
            if end is not None and key >= end:
                return
            yield key, None if value_len == TOMBSTONE else mapped[value_at:stop]

    def findings(self) -> Iterator[Finding]:
        """Reads every byte and reports each bad page; page by page, so that other threads get the GIL in between."""
        for page in range(self.footer.pages):
            try:
                self.check(page)
            except Corruption as error:
                yield Finding(str(self.path), page << PAGE_SHIFT, error.message)

    def check_all(self) -> None:
        """As `findings`, but without the GIL; raises `Corruption` at the first bad page."""
        from penstock.state.engines.native.kernels import first_bad_page  # here, because numba is slow to import

        pages = np.frombuffer(self._pages, np.uint32)
        bad = int(first_bad_page(self.array(), self.footer.pages_at, pages))
        if bad >= 0:
            raise self._corrupt(bad)

    def array(self) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
        return np.frombuffer(self.mapped, np.uint8)

    def _anchor_before(self, section: Section, start: bytes) -> int:
        """The offset of the last anchored record whose key is not above `start`; else of the first record."""
        first = self._first_anchor[section.namespace]
        low, high = 0, -(-(section.puts + section.tombstones) // ANCHOR_EVERY)
        anchors_at = self.footer.anchors_at
        while high - low > 1:
            middle = (low + high) // 2
            anchor = first + middle
            self._check_between(anchors_at + 8 * anchor, anchors_at + 8 * anchor + 8)
            at = self._anchors[anchor]
            self._check_between(at, at + RECORD_BYTES)
            key_at = at + RECORD_BYTES
            key_end = key_at + RECORD.unpack_from(self.mapped, at)[0]
            self._check_between(key_at, key_end)
            if self.mapped[key_at:key_end] <= start:
                low = middle
            else:
                high = middle
        self._check_between(anchors_at + 8 * (first + low), anchors_at + 8 * (first + low) + 8)
        return self._anchors[first + low]

    def _check_between(self, start: int, end: int) -> int:
        """Checks every page with a byte from `start` to `end` (excluded). Returns where the last page ends."""
        last = max(end - 1, start) >> PAGE_SHIFT
        for page in range(start >> PAGE_SHIFT, last + 1):
            if page < len(self.checked) and not self.checked[page]:
                self.check(page)
        return (last + 1) << PAGE_SHIFT

    def check(self, page: int) -> None:
        """Compares the page with its checksum, and marks it as checked. Raises `Corruption` where they differ."""
        start = page << PAGE_SHIFT
        if google_crc32c.value(self.mapped[start : min(start + PAGE_BYTES, self.footer.pages_at)]) != self._pages[page]:
            raise self._corrupt(page)
        self.checked[page] = 1

    def _corrupt(self, page: int) -> Corruption:
        return Corruption(
            f"{self.path}: the page at {page << PAGE_SHIFT} does not match its checksum",
            hint="the disk changed it: the state is read again from another checkpoint or from the log",
        )
