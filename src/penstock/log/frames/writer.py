"""Writes frames at the end of one file (docs/formats/frame.md): one gathered write and one sync a batch.

Many entries at a time are encoded by a compiled loop (kernels.py), few in Python: the calls and the import of numba cost
more than they save there.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import NamedTuple, cast

import numpy as np

from penstock.files import Buffer, File
from penstock.log.frames.format import HEADER_BYTES, TRAILER_BYTES, Changes, encode_changes, encode_frame
from penstock.log.frames.index import I64Array

_JOIN_BYTES_MAX = 32 << 10  # smaller buffers are joined: an element of the gathered write costs more than the copy
_KEEP_BYTES_MAX = 1 << 20  # a larger entry is not copied for a reader that may come
_KERNELS = "penstock.log.frames.kernels"
_KERNEL_FRAMES_MIN = 24  # fewer are encoded in Python
_IMPORT_FRAMES_MIN = 256  # the same, while numba is not imported yet
_NO_HEADER, _NO_TRAILER = bytes(HEADER_BYTES), bytes(TRAILER_BYTES)
_ONE_EACH = np.empty(0, np.int64)  # of messages
_GAP = bytearray(TRAILER_BYTES + HEADER_BYTES)  # between the data of two frames: a trailer and a header


class NewEntry(NamedTuple):
    """An entry to be appended: its data, in one buffer or several, its state changes, the messages that it stands for."""

    data: Buffer | Sequence[Buffer]
    changes: Changes = ()
    messages: int = 1


class EncodedFrames(NamedTuple):
    """Frames back to back in memory, as they go to the file; `first` is the entry id of the first of them."""

    first: int
    raw: bytearray | memoryview
    offsets: I64Array
    data_lens: I64Array
    changes_lens: I64Array
    more: int = 0  # messages that they stand for beyond one each


def _buffers(entry: NewEntry | Buffer) -> tuple[Sequence[Buffer], Changes, int]:
    data, changes, messages = entry if isinstance(entry, NewEntry) else (entry, (), 1)
    return (data,) if isinstance(data, bytes | bytearray | memoryview) else data, changes, messages


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
        self.messages = self.synced_messages = 0  # that the frames since the file was opened stand for
        self._epoch = epoch
        self._preallocate_bytes = preallocate_bytes
        self._allocated = file.size()
        self._waiting: list[Buffer] = []
        self._small: list[Buffer] = []
        file.seek_append(end)

    def add(self, data: Sequence[Buffer], changes: Changes, wall_ms: int, messages: int = 1) -> int:
        """Queues one frame for `sync`. Returns its offset in the file."""
        buffers, size = encode_frame(
            self.file_id, self._epoch, self.next_entry, wall_ms, self.synced_end, data, changes, messages
        )
        offset = self.end
        self.end += size
        self.next_entry += 1
        self.messages += messages
        if size <= _JOIN_BYTES_MAX:
            self._small += buffers
        else:
            self._gather(buffers)
        return offset

    def add_many(
        self, entries: Sequence[NewEntry | Buffer], wall_ms: int, *, keep: bool = False
    ) -> tuple[I64Array, list[EncodedFrames]]:
        """Queues many frames. Returns their offsets in the file, and frames that are in one piece in memory.

        With `keep` those are all frames but the largest; without, whatever happened to be joined.
        """
        join_bytes_max = _KEEP_BYTES_MAX if keep else _JOIN_BYTES_MAX
        if len(entries) < (_KERNEL_FRAMES_MIN if _KERNELS in sys.modules else _IMPORT_FRAMES_MIN):
            return self._add_in_python(entries, wall_ms, join_bytes_max if keep else -1)
        if set(map(type, entries)) == {bytes}:  # the usual case, without a step in Python for each entry
            lens = np.fromiter(map(len, entries), np.int64, len(entries))
            if int(lens.max()) <= join_bytes_max:
                joined = _GAP.join((b"", *cast("Sequence[bytes]", entries), b""))
                raw = memoryview(joined)[TRAILER_BYTES : len(joined) - HEADER_BYTES]
                only = self._fill(raw, lens, np.zeros(len(lens), np.int64), wall_ms)
                return only.offsets + (self.end - len(raw)), [only]
        offsets: list[int] = []
        encoded: list[EncodedFrames] = []
        parts: list[Buffer] = []
        data_lens: list[int] = []
        changes_lens: list[int] = []
        counts: list[int] = []

        def encode() -> None:
            if data_lens:
                lens, more = np.array(data_lens, np.int64), np.array(changes_lens, np.int64)
                encoded.append(self._fill(bytearray().join(parts), lens, more, wall_ms, np.array(counts, np.int64)))
                start = self.end - len(encoded[-1].raw)
                offsets.extend((encoded[-1].offsets + start).tolist())
                for gathered in (parts, data_lens, changes_lens, counts):
                    gathered.clear()

        for entry in entries:
            buffers, changes, messages = _buffers(entry)
            size = sum(map(len, buffers))
            if size > join_bytes_max:
                encode()
                offsets.append(self.add(buffers, changes, wall_ms, messages))
                continue
            raw_changes = encode_changes(changes, wall_ms) if changes else b""
            parts += (_NO_HEADER, *buffers, raw_changes, _NO_TRAILER)
            data_lens.append(size)
            changes_lens.append(len(raw_changes))
            counts.append(messages)
        encode()
        return np.asarray(offsets, np.int64), encoded

    def _add_in_python(
        self, entries: Sequence[NewEntry | Buffer], wall_ms: int, keep_bytes_max: int
    ) -> tuple[I64Array, list[EncodedFrames]]:
        offsets = np.empty(len(entries), np.int64)
        encoded: list[EncodedFrames] = []
        for number, entry in enumerate(entries):
            buffers, changes, messages = _buffers(entry)
            offsets[number] = self.end
            data_len = sum(map(len, buffers))
            if data_len > keep_bytes_max:
                self.add(buffers, changes, wall_ms, messages)
                continue
            frame, size = encode_frame(
                self.file_id, self._epoch, self.next_entry, wall_ms, self.synced_end, buffers, changes, messages
            )
            raw = bytearray().join(frame)
            self._gather((raw,))
            lens = np.array((data_len,), np.int64)
            more = np.array((size - data_len - HEADER_BYTES - TRAILER_BYTES,), np.int64)
            encoded.append(EncodedFrames(self.next_entry, raw, np.zeros(1, np.int64), lens, more, messages - 1))
            self.end += size
            self.next_entry += 1
            self.messages += messages
        return offsets, encoded

    def _fill(
        self,
        raw: bytearray | memoryview,
        lens: I64Array,
        more: I64Array,
        wall_ms: int,
        messages: I64Array = _ONE_EACH,
    ) -> EncodedFrames:
        from penstock.log.frames.kernels import fill_frames  # here, because numba is slow to import

        offsets = np.empty(len(lens), np.int64)
        fill_frames(
            np.frombuffer(raw, np.uint8),
            lens,
            more,
            self.file_id,
            self._epoch,
            self.next_entry,
            wall_ms,
            self.synced_end,
            offsets,
            messages,
        )
        encoded = EncodedFrames(
            self.next_entry, raw, offsets, lens, more, int(messages.sum()) - len(lens) if len(messages) else 0
        )
        self._flush_small()
        self._waiting.append(raw)
        self.end += len(raw)
        self.next_entry += len(lens)
        self.messages += len(lens) + encoded.more
        return encoded

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

    def take_back(self, next_entry: int) -> None:
        """Forgets what was added since the last sync; `next_entry` is the entry id that the next frame gets."""
        self._waiting, self._small = [], []
        self.end = self.synced_end
        self.messages = self.synced_messages
        self.next_entry = next_entry

    def go_on(self) -> None:
        """Lets the next frame follow the last synced one, over whatever stands there now. Nothing may be queued."""
        self._allocated = self.synced_end
        self.file.seek_append(self.synced_end)

    def sync(self) -> None:
        """Writes and syncs everything that was added. After an error the file refuses further writes."""
        self._flush_small()
        if self._preallocate_bytes and self.end > self._allocated:
            self._allocated = self.end + self._preallocate_bytes
            self.file.preallocate(self._allocated)
        waiting, self._waiting = self._waiting, []
        self.file.append(waiting)
        self.file.datasync()
        self.synced_end = self.end
        self.synced_messages = self.messages
