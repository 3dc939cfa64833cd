"""The footer of a sealed ledger (docs/formats/ledger.md): where its entries are, and when they were written."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import NamedTuple, Protocol

import google_crc32c
import numpy as np
import numpy.typing as npt

from penstock.errors import NotSupported
from penstock.log.frames.file_header import corruption
from penstock.log.frames.format import crc32c
from penstock.log.frames.index import FrameIndex
from penstock.log.ledgers.info import LedgerInfo

FOOTER_MAGIC = b"PSX1"
TRAILER_BYTES = 64
_TRAILER = struct.Struct("<4sBBHQQQQIIQ4x")
_U32 = struct.Struct("<I")

U64Array = npt.NDArray[np.uint64]


class Footer(NamedTuple):
    """The index of a sealed ledger. `times` has two columns: the highest wall_ms so far, and the entry."""

    offsets: U64Array
    times: U64Array
    frames_end: int

    @classmethod
    def of(cls, index: FrameIndex, frames_end: int) -> Footer:
        """The footer that a ledger with this index would have."""
        times = np.asarray(index.finished_times(), np.uint64).reshape(-1, 2)
        return cls(np.asarray(index.offsets, np.uint64), times, frames_end)

    def frames_within(self, entry: int, size: int, stop: int) -> tuple[int, int]:
        """How many whole frames from `entry` on fit into `size` bytes: at least one, and none from entry `stop` on.

        Returns their bytes, and the entry after them.
        """
        start = int(self.offsets[entry])
        following = int(self.offsets.searchsorted(np.uint64(start + size), "right")) - 1
        if self.frames_end - start <= size:
            following = len(self.offsets)
        following = min(max(following, entry + 1), stop)
        end = int(self.offsets[following]) if following < len(self.offsets) else self.frames_end
        return end - start, following


def encode_footer(ledger_id: int, frames_end: int, index: FrameIndex) -> bytes:
    offsets = np.asarray(index.offsets, "<u8").tobytes()
    times = np.asarray(index.finished_times(), "<u8").tobytes()
    record = _TRAILER.pack(
        FOOTER_MAGIC,
        1,
        0,
        0,
        ledger_id,
        len(index.offsets),
        frames_end,
        len(times) // 16,
        google_crc32c.value(offsets),
        google_crc32c.value(times),
        0,
    )
    return b"".join((offsets, times, record, _U32.pack(google_crc32c.value(record))))


class FooterSource(Protocol):
    """A ledger's bytes, in a local file or in an object store."""

    @property
    def path(self) -> Path | str: ...

    def read_at(self, offset: int, size: int) -> bytes: ...

    def size(self) -> int: ...


def read_footer(file: FooterSource, info: LedgerInfo) -> Footer:
    """The footer of a sealed ledger. It was durable before the list called the ledger sealed: raises `Corruption` if not."""
    size = file.size()
    at = size - TRAILER_BYTES
    raw = file.read_at(max(at, 0), TRAILER_BYTES)
    if len(raw) < TRAILER_BYTES or google_crc32c.value(raw[:-4]) != _U32.unpack_from(raw, 60)[0]:
        raise corruption(file.path, max(at, 0), "the footer does not match its checksum")
    magic, version, _, _, ledger_id, entries, frames_end, times, index_crc, times_crc, _ = _TRAILER.unpack_from(raw)
    if version != 1:
        raise NotSupported(f"{file.path} has a footer of version {version}", hint="a newer Penstock wrote it: upgrade")
    if (magic, ledger_id, entries, frames_end) != (FOOTER_MAGIC, info.id, info.entries, info.frames_end) or (
        frames_end + 8 * entries + 16 * times != at
    ):
        raise corruption(file.path, at, "the footer does not agree with the ledger list")
    raw_index = file.read_at(frames_end, 8 * entries)
    raw_times = file.read_at(frames_end + 8 * entries, 16 * times)
    if crc32c(raw_index) != index_crc or crc32c(raw_times) != times_crc:
        raise corruption(file.path, frames_end, "the index does not match its checksum")
    return Footer(np.frombuffer(raw_index, "<u8"), np.frombuffer(raw_times, "<u8").reshape(-1, 2), frames_end)
