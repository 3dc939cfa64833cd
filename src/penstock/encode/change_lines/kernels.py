"""Kernels that put the lines of changes together.

Texts of values and names are copied in blocks of 16 bytes, which is one load and one store, where they are *padded*: 16
bytes more can be read after them. So `out` needs `SPARE` bytes more than the lines take.
"""

# ruff: noqa: PLR0917 - compiled kernels take their arrays by place
from __future__ import annotations

from typing import Any

import numpy as np

from penstock.binlog.types import OP_DELETE, OP_INSERT
from penstock.encode.kernels.strings import HEX, NULL, QUOTE, UTF8_WIDTHS, put_base64, put_escaped
from penstock.encode.kernels.text import COLON, MINUS, put_all, put_unsigned
from penstock.kernels.compile import kernel
from penstock.kernels.copy import BLOCK_BYTES, copy_block, copy_bytes, copy_from

SPARE = 2 * BLOCK_BYTES
ORIGIN_FIXED_BYTES = 160  # of an origin's text, without the names of its file and tag

_OPEN, _CLOSE = ord("{"), ord("}")
_BASE64_OPEN = np.frombuffer(b'{"base64":"', np.uint8)
_BASE64_CLOSE = np.frombuffer(b'"}', np.uint8)
BASE64_FIXED_BYTES = len(_BASE64_OPEN) + len(_BASE64_CLOSE)
_POSITION = np.frombuffer(b'"position":"', np.uint8)
_GTID = np.frombuffer(b'","gtid":', np.uint8)
_TIMESTAMP = np.frombuffer(b',"timestamp":', np.uint8)


@kernel
def put_padded_text(out: Any, at: int, address: Any, first: Any, count: Any) -> Any:
    """A padded text, by blocks."""
    done = 0
    while done < count:
        copy_block(out, at + done, address, first + done)
        done += BLOCK_BYTES
    return at + count


@kernel
def _is_present(bitmaps: Any, which: Any, row: Any, column: Any) -> Any:
    return len(which) == 0 or (bitmaps[which[row], column >> 3] >> np.uint8(column & 7)) & np.uint8(1) != 0


@kernel
def lines(
    op: Any,
    words: Any,
    head: Any,
    head_bytes: Any,
    origin_of: Any,
    origin_starts: Any,
    origin_address: Any,
    names: Any,
    name_address: Any,
    addresses: Any,
    starts: Any,
    quoted: Any,
    padded: Any,
    missing: Any,
    valid: Any,
    bitmaps_before: Any,
    which_before: Any,
    bitmaps_after: Any,
    which_after: Any,
    out: Any,
    ends: Any,
) -> int:
    """A line for each row; `ends[row]` is where it ends in `out`. Returns the length of all.

    `head` bounds five texts in `head_bytes`: before the op's word, before the origin, before each image, at the end.
    `names` bounds `,"name":` of each column. The text of column c in image i of row r is at
    `addresses[i, c] + starts[i, c, r]`; where `missing[i, c]`, `valid[i, c, r]` says whether there is a value. Without
    bitmaps all columns are present.
    """
    columns = len(names) - 1
    at = 0
    for row in range(len(op)):
        copy_bytes(out, at, head_bytes, head[0], head[1] - head[0])
        at += head[1] - head[0]
        kind = op[row]
        for k in range(words.shape[1]):
            out[at + k] = words[kind, k]
        at += words.shape[1]
        copy_bytes(out, at, head_bytes, head[1], head[2] - head[1])
        at += head[2] - head[1]
        origin = origin_of[row]
        first = origin_starts[origin]
        at = put_padded_text(out, at, origin_address, first, origin_starts[origin + 1] - first)
        for image in range(2):
            copy_bytes(out, at, head_bytes, head[2 + image], head[3 + image] - head[2 + image])
            at += head[3 + image] - head[2 + image]
            if kind == (OP_INSERT if image == 0 else OP_DELETE):
                at = put_all(out, at, NULL)
                continue
            out[at] = _OPEN
            at += 1
            is_first = True
            for column in range(columns):
                if image == 0 and not _is_present(bitmaps_before, which_before, row, column):
                    continue
                if image == 1 and not _is_present(bitmaps_after, which_after, row, column):
                    continue
                skip = 1 if is_first else 0  # the comma
                is_first = False
                first = names[column] + skip
                at = put_padded_text(out, at, name_address, first, names[column + 1] - first)
                if missing[image, column] and not valid[image, column, row]:
                    at = put_all(out, at, NULL)
                    continue
                first = starts[image, column, row]
                count = starts[image, column, row + 1] - first
                if quoted[column]:
                    out[at] = QUOTE
                    at += 1
                if padded[image, column]:
                    at = put_padded_text(out, at, addresses[image, column], first, count)
                else:
                    copy_from(out, at, addresses[image, column], first, count)
                    at += count
                if quoted[column]:
                    out[at] = QUOTE
                    at += 1
            out[at] = _CLOSE
            at += 1
        copy_bytes(out, at, head_bytes, head[4], head[5] - head[4])
        at += head[5] - head[4]
        ends[row] = at
    return at


@kernel
def has_escapes(source: Any, first: Any, last: Any) -> Any:
    """Whether any byte of the text is one that JSON escapes."""
    found = False
    for place in range(first, last):
        byte = source[place]
        found |= (byte < 32) | (byte == 34) | (byte == 92)
    return found


@kernel
def escaped_starts(source: Any, bounds: Any, valid: Any, starts: Any) -> None:
    """Where each text starts and ends once it is escaped; a missing one takes no bytes."""
    at = 0
    starts[0] = 0
    for row in range(len(bounds) - 1):
        if len(valid) == 0 or valid[row]:
            for place in range(bounds[row], bounds[row + 1]):
                at += UTF8_WIDTHS[source[place]]
        starts[row + 1] = at


@kernel
def escape(source: Any, bounds: Any, valid: Any, out: Any) -> None:
    at = 0
    for row in range(len(bounds) - 1):
        if len(valid) == 0 or valid[row]:
            for place in range(bounds[row], bounds[row + 1]):
                at = put_escaped(out, at, np.int64(source[place]), False)


@kernel
def base64(source: Any, bounds: Any, valid: Any, starts: Any, out: Any) -> None:
    """Each value as `{"base64":"…"}`; a missing one takes no bytes."""
    at = 0
    starts[0] = 0
    for row in range(len(bounds) - 1):
        if len(valid) == 0 or valid[row]:
            copy_bytes(out, at, _BASE64_OPEN, 0, len(_BASE64_OPEN))
            at += len(_BASE64_OPEN)
            at = put_base64(out, at, source, np.int64(bounds[row]), np.int64(bounds[row + 1]))
            copy_bytes(out, at, _BASE64_CLOSE, 0, len(_BASE64_CLOSE))
            at += len(_BASE64_CLOSE)
        starts[row + 1] = at


@kernel
def _u(raw: Any, row: Any, first: Any, width: Any) -> Any:
    value = np.uint64(0)
    for k in range(width):
        value |= np.uint64(raw[row, first + k]) << np.uint64(8 * k)
    return value


@kernel
def put_mariadb_gtid(out: Any, at: int, gtids: Any, row: Any) -> Any:
    at = put_unsigned(out, at, _u(gtids, row, 0, 4))
    out[at] = MINUS
    at = put_unsigned(out, at + 1, _u(gtids, row, 4, 4))
    out[at] = MINUS
    return put_unsigned(out, at + 1, _u(gtids, row, 8, 8))


@kernel
def put_mysql_gtid(out: Any, at: int, gtids: Any, row: Any, tag: Any, tags: Any, tag_bytes: Any) -> Any:
    for k in range(16):
        if k in (4, 6, 8, 10):
            out[at] = MINUS
            at += 1
        out[at] = HEX[gtids[row, k] >> 4]
        out[at + 1] = HEX[gtids[row, k] & 15]
        at += 2
    out[at] = COLON
    at += 1
    if tag > 0:
        length = tags[tag] - tags[tag - 1]
        copy_bytes(out, at, tag_bytes, tags[tag - 1], length)
        at += length
        out[at] = COLON
        at += 1
    return put_unsigned(out, at, _u(gtids, row, 16, 8))


@kernel
def gtid_texts(
    mariadb: bool, gtids: Any, tag_of: Any, tags: Any, tag_bytes: Any, known: Any, starts: Any, out: Any
) -> None:
    """The GTID of each row of 24 bytes (docs/formats/entry.md), plain; `known` is false, and the text empty, without one."""
    at = 0
    starts[0] = 0
    for row in range(len(gtids)):
        known[row] = False
        for k in range(24):
            if gtids[row, k] != 0:
                known[row] = True
        if known[row]:
            if mariadb:
                at = put_mariadb_gtid(out, at, gtids, row)
            else:
                at = put_mysql_gtid(out, at, gtids, row, tag_of[row], tags, tag_bytes)
        starts[row + 1] = at


@kernel
def origin_texts(
    files: Any,
    file_bytes: Any,
    file_of: Any,
    positions: Any,
    gtid_starts: Any,
    gtid_bytes: Any,
    known: Any,
    timestamps: Any,
    starts: Any,
    out: Any,
) -> None:
    """`"position":"FILE:OFFSET","gtid":"…","timestamp":N` of each; `file_bytes` holds escaped names, bounded by `files`."""
    at = 0
    starts[0] = 0
    for row in range(len(positions)):
        copy_bytes(out, at, _POSITION, 0, len(_POSITION))
        at += len(_POSITION)
        first = files[file_of[row]]
        length = files[file_of[row] + 1] - first
        copy_bytes(out, at, file_bytes, first, length)
        at += length
        out[at] = COLON
        at = put_unsigned(out, at + 1, positions[row])
        copy_bytes(out, at, _GTID, 0, len(_GTID))
        at += len(_GTID)
        if known[row]:
            out[at] = QUOTE
            at += 1
            length = gtid_starts[row + 1] - gtid_starts[row]
            copy_bytes(out, at, gtid_bytes, gtid_starts[row], length)
            at += length
            out[at] = QUOTE
            at += 1
        else:
            copy_bytes(out, at, NULL, 0, 4)
            at += 4
        copy_bytes(out, at, _TIMESTAMP, 0, len(_TIMESTAMP))
        at = put_unsigned(out, at + len(_TIMESTAMP), timestamps[row])
        starts[row + 1] = at


@kernel
def gather(source_of: Any, line_of: Any, addresses: Any, bases: Any, ends: Any, out: Any) -> int:
    """Lines in a given order. Line k is `line_of[k]` of source s = `source_of[k]`: it ends at `ends[bases[s] + line]`
    of the bytes at `addresses[s]`, and starts where the line before it ends; `ends[bases[s] - 1]` is where the source's first one
    starts."""
    at = 0
    for k in range(len(source_of)):
        source = source_of[k]
        place = bases[source] + line_of[k]
        first = ends[place - 1]
        count = ends[place] - first
        copy_from(out, at, addresses[source], first, count)
        at += count
    return at
