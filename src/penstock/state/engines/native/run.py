"""Reads a run (docs/formats/checkpoint.md). To open one costs the same for any number of keys; a page is read and
checked against its checksum when it is first touched (pages.py), and nothing of it is used before."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from penstock.errors import Corruption, NotSupported
from penstock.files import File, Files
from penstock.log.frames.format import crc32c
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
    SLOT,
    TAG_BITS,
    TAG_MASK,
    TOMBSTONE,
    BadRun,
    Footer,
    Section,
    footer_crc,
    parse_footer,
    parse_header,
    parse_sections,
)
from penstock.state.engines.native.pages import READ_PAGES, PageCache, PageLayout, Pages
from penstock.state.engines.overlay import MISSING, Pair

Find = Callable[[bytes, int], bytes | None]  # key and its hash → value, None (a tombstone) or MISSING

_SECTION_BYTES = 40
_LAST_WHOLE_HEAD = PAGE_BYTES - RECORD_BYTES
_WINDOW_PAGES = 64  # that an iteration reads at once, when it goes on for long


class RunName(NamedTuple):
    """How a manifest names a run: size and checksum are part of the name, so that no other file is taken for it."""

    id: int
    bytes: int
    data_bytes: int  # before the checksums: says where everything lies, also where the end of the file is damaged
    footer_crc: int

    @property
    def file(self) -> str:
        return f"run-{self.id:016x}.run"


class SortedRun:
    """A run. Thread-safe. Its file stays open until the last reader of the run is gone, also where it was removed."""

    def __init__(self, files: Files, directory: Path, name: RunName) -> None:
        """Raises `BadRun`, `NotSupported`, or `FileNotFoundError`."""
        if sys.byteorder != "little":
            raise NotSupported("state checkpoints are read on little-endian machines only")
        self.name = name
        self.path = directory / name.file
        file = files.open(self.path)
        weakref.finalize(self, file.close).atexit = False
        try:
            self._open(file)
        except OSError as error:
            raise BadRun(0, f"the run cannot be read: {error}") from error
        except Corruption as error:
            raise BadRun(0, error.message) from error

    def _open(self, file: File) -> None:
        name, layout, size = self.name, PageLayout(self.name.data_bytes), file.size()
        self._file, self._layout = file, layout
        self.damage: list[Finding] = []  # that the open met and could do without
        if size != name.bytes:
            self._note(min(size, name.bytes), f"the run has {size} bytes, and should have {name.bytes}")
        footer, checksums = self._tail()
        self.pages = Pages(file, self.path, layout, checksums.cast("I"))
        self.footer = footer
        try:
            self.header = parse_header(file.read_at(0, HEADER_BYTES))  # not its whole page: a record may lie in it
        except (BadRun, OSError):
            self.header = parse_header(self.pages.read(0, 1))
        if (footer.file_bytes, footer.pages_at) != (name.bytes, name.data_bytes) or footer.run_id != name.id:
            raise BadRun(layout.data_bytes, "the run is not the one that the checkpoint means")
        if self.header.run_id != name.id:
            raise BadRun(0, f"the run calls itself {self.header.run_id}")
        self.cache = PageCache(self.pages, footer.pages_at)
        end = footer.namespaces_at + _SECTION_BYTES * footer.namespaces
        self.sections: dict[int, Section] = {}
        self._first_anchor: dict[int, int] = {}
        anchor = 0
        for section in parse_sections(self.pages.read_between(footer.namespaces_at, end)):
            self.sections[section.namespace] = section
            self._first_anchor[section.namespace] = anchor
            anchor += _anchors_of(section)

    def _tail(self) -> tuple[Footer, memoryview]:
        """The footer and the checksums of the pages, from the first good one of their two copies."""
        problem: BadRun | None = None
        for at in (self._layout.data_bytes, self._layout.copy_at):
            try:
                return self._tail_at(at)
            except BadRun as error:
                problem = problem or error
                self._note(error.offset, error.problem)
        assert problem is not None
        raise problem

    def _tail_at(self, at: int) -> tuple[Footer, memoryview]:
        size = self._layout.tail_bytes - FOOTER_BYTES
        try:
            raw = self._file.read_at(at, size + FOOTER_BYTES)
        except OSError as error:
            raise BadRun(at, f"the footer cannot be read: {error}") from error
        # Uncopied: they are all of an open that grows with the keys, and fresh memory costs more than their checksum.
        checksums, tail = memoryview(raw)[:size], raw[size:]
        footer = parse_footer(tail, at + size)
        if footer_crc(tail) != self.name.footer_crc:
            raise BadRun(at + size, "the run is not the one that the checkpoint means")
        if crc32c(checksums) != footer.pages_crc:
            raise BadRun(at, "the checksum of the pages' checksums does not match")
        return footer, checksums

    def _note(self, offset: int, problem: str) -> None:
        self.damage.append(Finding(str(self.path), offset, problem))

    @property
    def damaged(self) -> bool:
        """Whether damage was met, in this run's file, that could be rebuilt. The run is then written anew."""
        return bool(self.damage or self.pages.rebuilt)

    @property
    def records(self) -> int:
        return self.footer.puts + self.footer.tombstones

    def renew_cache(self, old: PageCache) -> PageCache:
        """An empty cache for later lookups, in place of `old`."""
        if self.cache is old:
            self.cache = PageCache(self.pages, self.footer.pages_at)
        return self.cache

    def finder(self, namespace: int, cache: PageCache) -> Find | None:
        """A function that looks up keys of one namespace; None where the run has none of it.

        A closure, because in Python local variables are read faster than attributes.
        """
        section = self.sections.get(namespace)
        if section is None:
            return None
        _, start, end, _, _ = section
        memory, checked, load = cache.memory, cache.checked, cache.load
        slots, index_at = self.footer.slots, self.footer.index_at
        unpack, unpack_slot = RECORD.unpack_from, SLOT.unpack_from

        def find(key: bytes, key_hash: int) -> bytes | None:
            slot_at = key_hash * slots >> 32
            tag = key_hash & TAG_MASK
            while True:
                at = index_at + (slot_at << 3)
                page = at >> PAGE_SHIFT
                if not checked[page]:
                    load(page)
                (slot,) = unpack_slot(memory, at)
                if not slot:
                    return MISSING
                if slot & TAG_MASK == tag:
                    at = slot >> TAG_BITS
                    page = at >> PAGE_SHIFT
                    if not checked[page]:
                        load(page)
                    if at & PAGE_MASK > _LAST_WHOLE_HEAD and not checked[page + 1]:
                        load(page + 1)
                    key_len, value_len = unpack(memory, at)
                    value_at = at + RECORD_BYTES + key_len
                    stop = value_at if value_len == TOMBSTONE else value_at + value_len
                    last = (stop - 1) >> PAGE_SHIFT
                    while page < last:
                        page += 1
                        if not checked[page]:
                            load(page)
                    if memory[at + RECORD_BYTES : value_at] == key and start <= at < end:
                        return None if value_len == TOMBSTONE else memory[value_at:stop]
                slot_at += 1
                if slot_at == slots:
                    slot_at = 0

        return find

    def between(self, namespace: int, start: bytes, end: bytes | None) -> Iterator[Pair]:
        """Pairs from `start` (included) to `end` (excluded) in byte order, tombstones too.

        Reads pages of its own, a few at first and then more at once, and leaves the cache to the lookups.
        """
        section = self.sections.get(namespace)
        if section is None:
            return
        unpack, read = RECORD.unpack_from, self.pages.read
        at = self._anchors_at(section, self._anchor_before(section, start)) if start else section.start
        window, base, limit, ahead = b"", 0, 0, 1  # the window holds the bytes from `base` to `limit` of the file
        while at < section.end:
            if at + RECORD_BYTES > limit:
                base, ahead = at & ~PAGE_MASK, min(2 * ahead, _WINDOW_PAGES)
                window = read(base >> PAGE_SHIFT, ahead + 1)
                limit = base + len(window)
            key_len, value_len = unpack(window, at - base)
            value_at = at + RECORD_BYTES + key_len
            stop = value_at if value_len == TOMBSTONE else value_at + value_len
            if stop > limit:
                base = at & ~PAGE_MASK
                window = read(base >> PAGE_SHIFT, ((stop - base) >> PAGE_SHIFT) + ahead)
                limit = base + len(window)
            key = window[at + RECORD_BYTES - base : value_at - base]
            at = stop
            if key < start:
                continue
            if end is not None and key >= end:
                return
            yield key, None if value_len == TOMBSTONE else window[value_at - base : stop - base]

    def backwards(self, namespace: int, start: bytes, end: bytes | None) -> Iterator[Pair]:
        """As `between`, from the last pair to the first: the records after each anchor are read forwards, and given
        backwards."""
        section = self.sections.get(namespace)
        if section is None:
            return
        last = _anchors_of(section) - 1 if end is None else self._anchor_before(section, end)
        stop = section.end if last + 1 == _anchors_of(section) else self._anchors_at(section, last + 1)
        for anchor in range(last, -1, -1):
            at = self._anchors_at(section, anchor)
            pairs = self._pairs(self.pages.read_between(at, stop))
            stop = at
            for key, value in reversed(pairs):
                if key < start:
                    return
                if end is None or key < end:
                    yield key, value

    @staticmethod
    def _pairs(records: bytes) -> list[Pair]:
        pairs: list[Pair] = []
        at = 0
        while at < len(records):
            key_len, value_len = RECORD.unpack_from(records, at)
            value_at = at + RECORD_BYTES + key_len
            stop = value_at if value_len == TOMBSTONE else value_at + value_len
            value = None if value_len == TOMBSTONE else records[value_at:stop]
            pairs.append((records[at + RECORD_BYTES : value_at], value))
            at = stop
        return pairs

    def findings(self) -> Iterator[Finding]:
        """Reads every byte and reports each bad place, also those that can be rebuilt."""
        yield from self.scrub(lambda _: None)

    def scrub(self, pause: Callable[[int], None]) -> list[Finding]:
        """As `findings`, from the disk and not from what the system has cached; `pause(bytes)` is called after each
        portion that was read."""
        self._file.forget_cached()
        found = list(self.damage)
        try:
            self._tail_at(self._layout.copy_at)
        except BadRun as error:
            found.append(Finding(str(self.path), error.offset, error.problem))
        if not self._has_gap():
            found.append(Finding(str(self.path), self._gap_at, "there are no zeros before the parity"))
        for first in range(0, self.pages.total, READ_PAGES):
            bad = self.pages.bad(first, READ_PAGES)
            found += [Finding(str(self.path), offset, problem) for offset, problem in bad]
            pause(READ_PAGES << PAGE_SHIFT)
        return found

    @property
    def _gap_at(self) -> int:
        return self._layout.data_bytes + self._layout.tail_bytes

    def _has_gap(self) -> bool:
        """Whether nothing but zeros lies before the parity: nobody reads them, but a scrub tells of every changed bit."""
        try:
            return self._file.read_at(self._gap_at, self._layout.gap_bytes) == bytes(self._layout.gap_bytes)
        except OSError:
            return False

    def check_all(self) -> None:
        """Reads all of the data. Raises `Corruption` at the first page that cannot be rebuilt."""
        for first in range(0, len(self.pages), READ_PAGES):
            self.pages.read(first, READ_PAGES)

    def _anchors_at(self, section: Section, number: int) -> int:
        """The offset of the record that this anchor of the namespace names."""
        at = self.footer.anchors_at + 8 * (self._first_anchor[section.namespace] + number)
        cache = self.cache
        cache.load_between(at, at + SLOT.size)
        return int(SLOT.unpack_from(cache.memory, at)[0])

    def _anchor_before(self, section: Section, key: bytes) -> int:
        """The number of the last anchored record whose key is not above `key`; else of the first record."""
        cache = self.cache
        low, high = 0, _anchors_of(section)
        while high - low > 1:
            middle = (low + high) // 2
            at = self._anchors_at(section, middle)
            cache.load_between(at, at + RECORD_BYTES)
            key_at = at + RECORD_BYTES
            key_end = key_at + RECORD.unpack_from(cache.memory, at)[0]
            cache.load_between(key_at, key_end)
            if cache.memory[key_at:key_end] <= key:
                low = middle
            else:
                high = middle
        return low


def _anchors_of(section: Section) -> int:
    """How many anchors a namespace has."""
    return -(-(section.puts + section.tombstones) // ANCHOR_EVERY)
