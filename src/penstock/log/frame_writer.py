"""Writes frames at the end of one file (docs/formats/frame.md): one gathered write and one sync a batch."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence

from penstock.files import Buffer, File
from penstock.log.frame import StateChange, encode_frame

_JOIN_BYTES_MAX = 32 << 10  # smaller buffers are joined: a vector element each would cost more than the copy
_TIME_INDEX_EVERY = 64


class FrameIndex:
    """Where the frames of a file are, and when they were written; becomes a ledger's footer."""

    def __init__(self) -> None:
        self.offsets = array("Q")
        self.times = array("Q")  # pairs of (highest wall_ms so far, entry)
        self.first_ms = 0
        self.last_ms = 0

    def add(self, offset: int, wall_ms: int) -> None:
        entry = len(self.offsets)
        self.offsets.append(offset)
        if entry == 0:
            self.first_ms = wall_ms
        self.last_ms = max(self.last_ms, wall_ms)
        if entry % _TIME_INDEX_EVERY == 0:
            self.times.extend((self.last_ms, entry))

    def finished_times(self) -> array[int]:
        """The time index, ending with the last entry."""
        last = len(self.offsets) - 1
        if last >= 0 and self.times[-1] != last:
            return self.times + array("Q", (self.last_ms, last))
        return self.times


class FrameWriter:
    """The owner's end of a frame file. What is written counts only after `sync`."""

    def __init__(
        self, file: File, file_id: int, epoch: int, *, next_entry: int, end: int, preallocate_bytes: int = 0
    ) -> None:
        self.file = file
        self.file_id = file_id
        self.next_entry = next_entry
        self.end = end
        self.synced_end = end
        self._epoch = epoch
        self._preallocate_bytes = preallocate_bytes
        self._allocated = file.size()
        self._waiting: list[Buffer] = []
        self._small: list[Buffer] = []
        file.seek_append(end)

    def add(self, data: Sequence[Buffer], changes: Sequence[StateChange], wall_ms: int) -> int:
        """Queues one frame for `sync`; its offset in the file."""
        buffers, size = encode_frame(
            self.file_id, self._epoch, self.next_entry, wall_ms, self.synced_end, data, changes
        )
        offset = self.end
        self.end += size
        self.next_entry += 1
        if size <= _JOIN_BYTES_MAX:
            self._small += buffers
        else:
            self._gather(buffers)
        return offset

    def _gather(self, buffers: Iterable[Buffer]) -> None:
        for buffer in buffers:
            if len(buffer) <= _JOIN_BYTES_MAX:
                self._small.append(buffer)
            else:
                self._flush_small()
                self._waiting.append(buffer)

    def _flush_small(self) -> None:
        if self._small:
            self._waiting.append(b"".join(self._small))
            self._small = []

    def sync(self) -> None:
        """Writes and syncs everything that was added. After an error the file is poisoned."""
        self._flush_small()
        if self._preallocate_bytes and self.end > self._allocated:
            self._allocated = self.end + self._preallocate_bytes
            self.file.preallocate(self._allocated)
        waiting, self._waiting = self._waiting, []
        self.file.append(waiting)
        self.file.datasync()
        self.synced_end = self.end
