"""The inner loops over frames (docs/formats/frame.md): fill the headers of a batch, check every frame of a chunk.

Compiled by numba, cached on disk, run without the GIL. numba is slow to import, so this module is imported only once there
is a batch or chunk large enough to be worth it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.kernels.compile import kernel
from penstock.kernels.crc32c import crc_of

# Why `check_frames` stopped.
END, BAD_MAGIC, BAD_HEADER, BAD_VERSION, BAD_FILE, BAD_ENTRY, BAD_BODY, FULL = range(8)


@kernel
def _put(raw: Any, at: Any, value: Any, size: int) -> None:
    left = np.uint64(value)
    for i in range(size):
        raw[at + i] = np.uint8(left & np.uint64(0xFF))
        left >>= np.uint64(8)


@kernel
def _get(raw: Any, at: Any, size: int) -> Any:
    value = np.uint64(0)
    for i in range(size):
        value |= np.uint64(raw[at + i]) << np.uint64(8 * i)
    return value


@kernel
def fill_frames(  # noqa: PLR0917
    raw: Any,
    data_lens: Any,
    changes_lens: Any,
    file_id: int,
    epoch: int,
    entry_id: int,
    wall_ms: int,
    synced_end: int,
    offsets: Any,
    messages: Any,
) -> None:
    """Fills in the headers and checksums of frames that lie back to back in `raw`, data and changes in place; and `offsets`.

    `messages`: how many each entry stands for; empty where that is one each.
    """
    at = 0
    for i in range(len(data_lens)):
        offsets[i] = at
        body = at + 64
        changes = body + data_lens[i]
        end = changes + changes_lens[i]
        raw[at], raw[at + 1], raw[at + 2], raw[at + 3] = 80, 83, 70, 49  # PSF1
        _put(raw, at + 4, 1, 2)
        _put(raw, at + 6, messages[i] - 1 if len(messages) else 0, 2)
        _put(raw, at + 8, file_id, 8)
        _put(raw, at + 16, epoch, 8)
        _put(raw, at + 24, entry_id + i, 8)
        _put(raw, at + 32, wall_ms, 8)
        _put(raw, at + 40, synced_end, 8)
        _put(raw, at + 48, data_lens[i], 4)
        _put(raw, at + 52, changes_lens[i], 4)
        _put(raw, at + 56, crc_of(raw, changes, end) if end > changes else 0, 4)
        _put(raw, at + 60, crc_of(raw, at, at + 60), 4)
        _put(raw, end, crc_of(raw, at, end), 4)
        at = end + 4


@kernel
def check_frames(raw: Any, at: Any, file_id: int, entry_id: int, found: Any) -> Any:
    """Checks the frames from `raw[at]` on, which must be entries `entry_id`, `entry_id + 1`, … of file `file_id`.

    Fills a row of `found` for each whole frame: offset, data_len, changes_len, wall_ms, synced_end. Returns (number of rows,
    offset where it stopped, why, bytes of the frame there if its header is good, how many messages more than one each the
    whole frames stand for). `END`: `raw` ends before that frame does.
    """
    count = 0
    more: Any = 0
    size = len(raw)
    while True:
        if count == len(found):
            return count, at, FULL, 0, more
        if at + 64 > size:
            return count, at, END, 64, more
        if raw[at] != 80 or raw[at + 1] != 83 or raw[at + 2] != 70 or raw[at + 3] != 49:
            return count, at, BAD_MAGIC, 0, more
        data_len = np.int64(_get(raw, at + 48, 4))
        changes_len = np.int64(_get(raw, at + 52, 4))
        end = at + 64 + data_len + changes_len
        # The body's checksum covers the header: where it matches, the header's own need not be computed.
        whole = end + 4 <= size and _get(raw, end, 4) == np.uint64(crc_of(raw, at, end))
        if not whole and _get(raw, at + 60, 4) != np.uint64(crc_of(raw, at, at + 60)):
            return count, at, BAD_HEADER, 0, more
        if raw[at + 4] != 1 or raw[at + 5] != 0:
            return count, at, BAD_VERSION, 0, more
        if _get(raw, at + 8, 8) != np.uint64(file_id):
            return count, at, BAD_FILE, 0, more
        if _get(raw, at + 24, 8) != np.uint64(entry_id + count):
            return count, at, BAD_ENTRY, 0, more
        if not whole:
            return count, at, END if end + 4 > size else BAD_BODY, end + 4 - at, more
        found[count, 0] = at
        found[count, 1] = data_len
        found[count, 2] = changes_len
        found[count, 3] = np.int64(_get(raw, at + 32, 8))
        found[count, 4] = np.int64(_get(raw, at + 40, 8))
        more += np.int64(raw[at + 6]) + (np.int64(raw[at + 7]) << 8)
        count += 1
        at = end + 4
