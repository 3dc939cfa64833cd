"""Writes a run (docs/formats/checkpoint.md) as a stream: memory holds one buffer, and two numbers for each record.

The order: (1) a file with a temporary name; (2) the records, page by page; (3) the sections that say where they are;
(4) sync; (5) all of that is read back from the disk and compared, which also makes the parity (parity.py); (6)
checksums, footer, parity, and checksums and footer once more; (7) sync, and these are read back and compared; (8)
rename; (9) sync of the directory. Nothing refers to the run before (9): so no manifest ever names a run that was not on
the disk as it should be.
"""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import google_crc32c
import numpy as np
import numpy.typing as npt

from penstock.files import File, Files
from penstock.state.engines.key_kernels import Bytes, Ints, joined, sort_keys, starts_of
from penstock.state.engines.native import kernels
from penstock.state.engines.native.format import (
    ANCHOR_EVERY,
    PAGE_BYTES,
    Footer,
    Header,
    Section,
    aligned,
    footer_crc,
    pack_footer,
    pack_header,
    pack_sections,
    salt_of,
    slots_for,
)
from penstock.state.engines.native.pages import PageLayout
from penstock.state.engines.native.parity import compare_end, read_back
from penstock.state.engines.native.run import RunName, SortedRun
from penstock.state.engines.native.sources import MergeSources
from penstock.state.engines.overlay import KEYS_AT_ONCE, PAUSE_SECONDS, Layer, Pair

_BUFFER_BYTES = 4 << 20
_SYNC_BYTES = 16 << 20  # synced at least this often: one large sync would hold up the syncs of the log


class Batch(NamedTuple):
    """Keys and values of one namespace in buffers, unsorted. A value length below 0 means a tombstone."""

    keys: Bytes
    key_lens: Ints
    values: Bytes
    value_lens: Ints


def take(tables: Sequence[dict[bytes, bytes | None]], *, bottom: bool) -> Batch:
    """The content of tables of one namespace, newest first. Releases the GIL after each portion of keys."""
    keys: list[bytes] = []
    values: list[bytes] = []
    key_lens: list[Ints] = []
    value_lens: list[Ints] = []
    for pairs in _portions(tables, bottom=bottom):
        some_keys, some_values = zip(*pairs, strict=True)
        keys.append(b"".join(some_keys))
        key_lens.append(np.fromiter(map(len, some_keys), np.int64, len(some_keys)))
        if None in some_values:
            value_lens.append(np.array([-1 if value is None else len(value) for value in some_values], np.int64))
            values.append(b"".join(value for value in some_values if value is not None))
        else:
            value_lens.append(np.fromiter(map(len, some_values), np.int64, len(some_values)))
            values.append(b"".join(some_values))
        del pairs, some_keys, some_values
        time.sleep(PAUSE_SECONDS)
    return Batch(joined(keys), _concatenated(key_lens), joined(values), _concatenated(value_lens))


def _portions(tables: Sequence[dict[bytes, bytes | None]], *, bottom: bool) -> Iterator[list[Pair]]:
    """Each key once, with its newest value. `bottom`: without tombstones."""
    for number, table in enumerate(tables):
        newer = tables[:number]
        items = iter(table.items())
        while portion := list(itertools.islice(items, KEYS_AT_ONCE)):
            for other in newer:
                portion = [pair for pair in portion if pair[0] not in other]
            if bottom:
                portion = [pair for pair in portion if pair[1] is not None]
            if portion:
                yield portion


def _concatenated(parts: list[Ints]) -> Ints:
    return np.concatenate(parts) if parts else np.empty(0, np.int64)


class RunWriter:
    """Writes one run. `records_max`: at most so many records will be added."""

    def __init__(self, files: Files, directory: Path, header: Header, records_max: int) -> None:
        self._files = files
        self._header = header
        self._path = directory / f"run-{header.run_id:016x}.run"
        self._temporary = directory / f".{self._path.name}.tmp"
        self._offsets = np.empty(records_max, np.int64)
        self._hashes = np.empty(records_max, np.uint32)
        self._count = 0
        self._sections: list[Section] = []
        self._anchors: list[Ints] = []
        self._pages: list[npt.NDArray[np.uint32]] = []
        self._totals = np.zeros(3, np.int64)  # puts, tombstones, bytes of content
        self._raw = np.empty(_BUFFER_BYTES, np.uint8)
        self._used = 0
        self._start = 0  # the offset in the file at which the buffer begins
        self._unsynced = 0
        files.remove(self._temporary)
        self._file: File = files.create(self._temporary)
        self._put(pack_header(header))

    def add_batch(self, namespace: int, batch: Batch) -> None:
        """Adds a namespace. The namespaces are added in ascending order."""
        key_starts, value_starts = starts_of(batch.key_lens), starts_of(batch.value_lens)
        keys, values = batch.keys.ctypes.data, batch.values.ctypes.data
        order = sort_keys(keys, key_starts, batch.key_lens)
        start, first, done = self._start + self._used, self._count, 0
        while done < len(order):
            done, self._used, self._count = kernels.write_records(
                keys, key_starts, batch.key_lens, values, value_starts, batch.value_lens, order, done,
                salt_of(namespace), self._raw, self._raw.ctypes.data, self._used, self._start, self._offsets,
                self._hashes, self._count,
            )  # fmt: skip
            if done < len(order):
                following = int(order[done])
                self._flush(8 + int(batch.key_lens[following]) + max(int(batch.value_lens[following]), 0))
        tombstones = int(np.count_nonzero(batch.value_lens < 0))
        content = int(batch.key_lens.sum()) + int(np.maximum(batch.value_lens, 0).sum())
        self._close_section(namespace, start, first, (len(order) - tombstones, tombstones, content))

    def add_merged(self, namespace: int, sources: Sequence[SortedRun], *, bottom: bool) -> None:
        """Adds a namespace, merged from runs, newest first."""
        windows = MergeSources(sources, namespace)
        start, first = self._start + self._used, self._count
        totals = np.zeros(3, np.int64)
        while True:
            self._used, self._count, state = kernels.merge_records(
                windows.at, windows.end, windows.more, bottom, salt_of(namespace), self._raw, self._raw.ctypes.data,
                self._used, self._start, self._offsets, self._hashes, self._count, totals,
            )  # fmt: skip
            if state == kernels.DONE:
                break
            if state == kernels.USED_UP:
                windows.refill()
            else:
                self._flush(int(kernels.next_size(windows.at, windows.end)))
        puts, tombstones, content = totals.tolist()
        self._close_section(namespace, start, first, (puts, tombstones, content))

    def finish(self) -> RunName | None:
        """Makes the run durable. None: no record was added, and there is no run."""
        if not self._count:
            self.abandon()
            return None
        namespaces_at = self._align()
        self._put(pack_sections(self._sections))
        anchors_at = self._align()
        anchors = np.concatenate(self._anchors)
        self._put_array(anchors)
        index_at = self._align()
        slots = np.zeros(slots_for(self._count), np.uint64)
        kernels.build_index(self._offsets, self._hashes, self._count, slots)
        self._put_array(slots)
        layout = PageLayout(self._start + self._used)
        self._flush(0, whole_pages=False)
        try:
            name = self._finish(layout, (namespaces_at, anchors_at, len(anchors), index_at, len(slots)))
        finally:
            self._file.close()
        self._files.rename(self._temporary, self._path)
        self._files.sync_directory(self._path.parent)
        return name

    def _finish(self, layout: PageLayout, places: tuple[int, int, int, int, int]) -> RunName:
        """Steps (4) to (7)."""
        namespaces_at, anchors_at, anchors, index_at, slots = places
        self._file.datasync()
        data = np.concatenate(self._pages)
        parity, parity_checksums = read_back(self._file, layout, data)
        checksums = np.concatenate([data, parity_checksums]).tobytes()
        puts, tombstones, content = self._totals.tolist()
        footer = pack_footer(
            Footer(
                self._header.run_id, layout.file_bytes, namespaces_at, len(self._sections), anchors_at, anchors,
                index_at, slots, layout.data_bytes, layout.data, puts, tombstones, content,
                google_crc32c.value(checksums),
            )
        )  # fmt: skip
        end = [checksums, footer, bytes(layout.gap_bytes), *parity, checksums, footer]
        self._file.append(end)
        self._file.datasync()
        compare_end(self._file, layout, end)
        return RunName(self._header.run_id, layout.file_bytes, layout.data_bytes, footer_crc(footer))

    def abandon(self) -> None:
        """Gives up. A temporary file that cannot be removed now is removed by the next checkpoint."""
        self._file.close()
        with contextlib.suppress(Exception):
            self._files.remove(self._temporary)

    def _close_section(self, namespace: int, start: int, first: int, totals: tuple[int, int, int]) -> None:
        if self._count == first:
            return
        self._sections.append(Section(namespace, start, self._start + self._used, totals[0], totals[1]))
        self._anchors.append(self._offsets[first : self._count : ANCHOR_EVERY].copy())
        self._totals += totals

    def _align(self) -> int:
        at = self._start + self._used
        self._put(bytes(aligned(at) - at))
        return aligned(at)

    def _put_array(self, array: npt.NDArray[np.generic]) -> None:
        self._put_bytes(array.view(np.uint8))

    def _put(self, data: bytes) -> None:
        self._put_bytes(np.frombuffer(data, np.uint8))

    def _put_bytes(self, data: Bytes) -> None:
        at = 0
        while at < len(data):
            if self._used == len(self._raw):
                self._flush(1)
            size = min(len(data) - at, len(self._raw) - self._used)
            self._raw[self._used : self._used + size] = data[at : at + size]
            self._used += size
            at += size

    def _flush(self, space: int, *, whole_pages: bool = True) -> None:
        """Writes the buffer, by default only its whole pages, to the file; then at least `space` bytes are free."""
        size = self._used - self._used % PAGE_BYTES if whole_pages else self._used
        if size:
            checksums = np.empty(-(-size // PAGE_BYTES), np.uint32)
            kernels.page_checksums(self._raw, size, checksums)
            self._pages.append(checksums)
            self._file.append([self._raw[:size].data])
            self._unsynced += size
            if self._unsynced >= _SYNC_BYTES:
                self._file.datasync()
                self._unsynced = 0
        rest = self._used - size
        target = self._raw if rest + space <= len(self._raw) else np.empty(rest + space, np.uint8)
        target[:rest] = self._raw[size : self._used].copy()
        self._raw = target
        self._start += size
        self._used = rest


def write_layers(
    files: Files, directory: Path, header: Header, layers: Sequence[Layer], *, bottom: bool
) -> RunName | None:
    """Writes a run of layers, newest first. `bottom`: no run lies below it, so tombstones are left out."""
    tables: dict[int, list[dict[bytes, bytes | None]]] = {}
    for layer in layers:
        for namespace, table in layer.tables.items():
            tables.setdefault(namespace, []).append(table)
    writer = RunWriter(files, directory, header, sum(len(t) for some in tables.values() for t in some))
    try:
        for namespace in sorted(tables):
            batch = take(tables[namespace], bottom=bottom)
            if len(batch.key_lens):
                writer.add_batch(namespace, batch)
        return writer.finish()
    except BaseException:
        writer.abandon()
        raise


def write_merged(
    files: Files, directory: Path, header: Header, runs: Sequence[SortedRun], *, bottom: bool
) -> RunName | None:
    """Writes a run that merges runs, oldest first. `bottom`: as for `write_layers`."""
    writer = RunWriter(files, directory, header, sum(run.records for run in runs))
    try:
        for namespace in sorted({n for run in runs for n in run.sections}):
            writer.add_merged(namespace, [run for run in reversed(runs) if namespace in run.sections], bottom=bottom)
        return writer.finish()
    except BaseException:
        writer.abandon()
        raise
