"""An offloaded ledger as a file to read: whole blocks are fetched, and each is checked against the index.

The bytes are those of the sealed local file: header, frames, footer. The footer comes with the index object, even where
the local file had none. A read that continues the last one fetches more and more at a time, so that a remote store gets
few requests; a read elsewhere fetches little.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator
from uuid import UUID

from prometheus_client import Histogram

from penstock.log.frames.format import crc32c
from penstock.log.frames.reader import rebuild_index
from penstock.log.ledgers.footer import Footer, read_footer
from penstock.log.ledgers.info import LedgerInfo
from penstock.log.offload.format import OffloadIndex, checksum_of, damaged, index_name, part_name
from penstock.objects import ObjectStore
from penstock.observe.metrics import METRICS

_FETCH_BYTES_MIN = 256 << 10
_FETCH_BYTES_MAX = 4 << 20
_INDEXES_MAX = 16  # about 4 MB each at worst, as with footers


class OffloadedLedger:
    """A `LedgerFile` for one pass of one reader. Reads raise `Corruption`, `FileNotFoundError`, `Unavailable`."""

    def __init__(self, objects: ObjectStore, index: OffloadIndex) -> None:
        self._objects = objects
        self._index = index
        self._fetched = (0, b"")  # where the fetched and checked bytes start, and the bytes
        self._fetch = _FETCH_BYTES_MIN
        self.path = f"{objects.url}/{index.log}/{index.ledger_id:016d}-{index.attempt}"

    @property
    def entries(self) -> int:
        """How many entries the objects hold; the list names fewer where the log was truncated since."""
        return self._index.entries

    def size(self) -> int:
        return self._index.frames_end + len(self._index.footer)

    def read_at(self, offset: int, size: int) -> bytes:
        end = min(offset + size, self.size())
        if offset >= end:
            return b""
        frames_end = self._index.frames_end
        after = self._index.footer[max(offset - frames_end, 0) : max(end - frames_end, 0)]
        if offset >= frames_end:
            return after
        end = min(end, frames_end)
        base, raw = self._fetched
        known = base + len(raw)
        if base <= offset and end <= known:
            return raw[offset - base : end - base] + after
        first = b""
        if base <= offset <= known and raw:  # a continued read: fetch the rest, and more ahead
            first, offset = raw[offset - base :], known
            self._fetch = min(2 * self._fetch, _FETCH_BYTES_MAX)
            wanted = max(end - offset, self._fetch)
        else:
            self._fetch = _FETCH_BYTES_MIN
            wanted = end - offset
        base, raw = self._fetched = self._load(offset, wanted)
        return b"".join((first, raw[offset - base : end - base], after))

    def footer(self, info: LedgerInfo) -> Footer:
        if info.footer or self.entries == info.entries:
            return read_footer(self, info)
        return Footer.of(rebuild_index(self, info.id, info.entries, info.frames_end), info.frames_end)

    def close(self) -> None:
        self._fetched = (0, b"")

    def blocks(self, first: int, last: int) -> bytes:
        """The bytes of blocks `first` to `last`, both included, which lie in one part. Each block is checked."""
        index = self._index
        start = first * index.block_bytes
        end = min((last + 1) * index.block_bytes, index.frames_end)
        part, at = divmod(start, index.part_bytes)
        name = part_name(index.log, index.ledger_id, index.attempt, part)
        where = f"{self._objects.url}/{name}"
        with _measured(METRICS.log_offload_read_seconds):
            raw = self._objects.get(name, at, end - start)
            METRICS.log_offload_read_bytes.inc(len(raw))
            if len(raw) != end - start:
                raise damaged(where, at + len(raw), "the object ends here")
            view = memoryview(raw)
            for number in range(first, last + 1):
                low = (number - first) * index.block_bytes
                if crc32c(view[low : low + index.block_bytes]) != index.checksums[number]:
                    raise damaged(where, at + low, "the block does not match its checksum")
        return raw

    def _load(self, offset: int, size: int) -> tuple[int, bytes]:
        """Whole blocks that hold the `size` bytes from `offset` on (fewer at the end). Returns where they start, and them."""
        index = self._index
        end = min(offset + size, index.frames_end)
        first, stop = offset // index.block_bytes, -(-end // index.block_bytes)
        in_part = index.part_bytes // index.block_bytes
        found = []
        at = first
        while at < stop:
            last = min(stop, (at // in_part + 1) * in_part) - 1
            found.append(self.blocks(at, last))
            at = last + 1
        return first * index.block_bytes, found[0] if len(found) == 1 else b"".join(found)


class OffloadIndexes:
    """The index objects of one log that were used last. Thread-safe."""

    def __init__(self, log: UUID) -> None:
        self._log = log
        self._lock = threading.Lock()
        self._known: OrderedDict[str, OffloadIndex] = OrderedDict()

    def get(self, objects: ObjectStore, info: LedgerInfo) -> OffloadIndex:
        assert info.offload is not None
        with self._lock:
            index = self._known.get(info.offload.attempt)
            if index is not None:
                self._known.move_to_end(info.offload.attempt)
        if index is None:
            index = read_index(objects, self._log, info)
            with self._lock:
                self._known[info.offload.attempt] = index
                while len(self._known) > _INDEXES_MAX:
                    self._known.popitem(last=False)
        return index


def read_index(objects: ObjectStore, log: UUID, info: LedgerInfo) -> OffloadIndex:
    """The index of an offloaded ledger. Raises `Corruption` where it is not the one that the ledger list describes."""
    offload = info.offload
    assert offload is not None
    name = index_name(log, info.id, offload.attempt)
    where = f"{objects.url}/{name}"
    with _measured(METRICS.log_offload_index_read_seconds):
        raw = objects.get(name, 0, offload.index_bytes + 1)
        if len(raw) != offload.index_bytes or checksum_of(raw) != offload.index_crc:
            raise damaged(where, 0, "it is not the index that the ledger list means")
        index = OffloadIndex.decode(raw, where)
        if (index.log, index.ledger_id, index.attempt) != (log, info.id, offload.attempt):
            raise damaged(where, 0, f"it belongs to {index.log}, ledger {index.ledger_id}")
        if index.entries < info.entries or index.frames_end < info.frames_end:
            raise damaged(where, 0, "it holds fewer entries than the ledger list says")
    return index


@contextlib.contextmanager
def _measured(seconds: Histogram) -> Iterator[None]:
    started = time.perf_counter()
    try:
        yield
    except Exception:
        METRICS.log_offload_read_errors.inc()
        raise
    seconds.observe(time.perf_counter() - started)
