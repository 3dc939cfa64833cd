"""Checks a chunk of bytes that was read from a file: which whole frames it starts with, and what follows them.

Large chunks are checked by a compiled loop (kernels.py), small ones in Python while numba is not loaded anyway.
"""

from __future__ import annotations

import sys
import threading

import numpy as np

from penstock.errors import NotSupported
from penstock.log.frames.format import FRAME_BYTES_MIN, HEADER_BYTES, BadFrame, decode_header, verify_body
from penstock.log.frames.index import I64Array

_PYTHON_BYTES_MAX = 256 << 10  # smaller chunks are not worth the import of numba
_KERNELS = "penstock.log.frames.kernels"
_REASONS = (  # by the status that `kernels.check_frames` returns
    "the frame reaches over the end",
    "no frame starts here",
    "the header's checksum does not match",
    "",
    "the frame belongs to another file",
    "another entry stands here",
    "the checksum does not match",
)

_scratch = threading.local()


def check_chunk(raw: bytes, file_id: int, first: int) -> tuple[I64Array, int, int, str, int]:
    """The whole frames at the head of `raw`, which must be entry `first` and the entries after it.

    Returns (table, end, need, reason, more). The table has a row for each frame, all of which match their checksums: offset in
    `raw`, bytes of data, bytes of changes, wall_ms. `end` is where the last of them ends. `need` is how many bytes the next
    frame takes, as far as that is known. `reason` says why no frame stands at `end`; "" where `raw` merely ends there. `more` is
    how many messages the frames stand for beyond one each.
    """
    if len(raw) <= _PYTHON_BYTES_MAX and _KERNELS not in sys.modules:
        return _check_in_python(raw, file_id, first)
    from penstock.log.frames.kernels import BAD_VERSION, END, check_frames  # here, because numba is slow to import

    rows = len(raw) // FRAME_BYTES_MIN + 1
    found = getattr(_scratch, "found", None)  # a fresh table each time would cost more in page faults than the check
    if found is None or len(found) < rows:
        found = _scratch.found = np.empty((rows, 5), np.int64)
    count, at, status, need, more = check_frames(np.frombuffer(raw, np.uint8), 0, file_id, first, found)
    if status == BAD_VERSION:
        raise _unknown_version(raw[at + 4], raw[at + 5])
    reason = "" if status == END else _REASONS[status]
    return found[:count, :4].copy(), at, need, reason, more


def _check_in_python(raw: bytes, file_id: int, first: int) -> tuple[I64Array, int, int, str, int]:
    rows: list[tuple[int, int, int, int]] = []
    at, need, reason, more = 0, HEADER_BYTES, "", 0
    while at + HEADER_BYTES <= len(raw):
        try:
            header = decode_header(raw, at, file_id)
            if header.entry_id != first + len(rows):
                raise BadFrame(f"entry {header.entry_id} stands where {first + len(rows)} should")
            need = header.frame_bytes
            if at + need > len(raw):
                break
            verify_body(raw, at, header)
        except BadFrame as error:
            reason = str(error)
            break
        rows.append((at, header.data_len, header.changes_len, header.wall_ms))
        more += header.messages - 1
        at += need
        need = HEADER_BYTES
    return np.array(rows, np.int64).reshape(-1, 4), at, need, reason, more


def _unknown_version(version: int, flags: int) -> NotSupported:
    return NotSupported(
        f"frame version {version} with flags {flags:#x} is not known", hint="a newer Penstock wrote it: upgrade"
    )
