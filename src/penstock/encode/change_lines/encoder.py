"""Decoded rows → lines (docs/formats/decode-jsonl.md), a few thousand rows at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from penstock.binlog.rows import DecodedRows
from penstock.binlog.types import OP_DELETE, OP_INSERT, OP_UPDATE
from penstock.encode.change_lines import kernels
from penstock.encode.change_lines.origins import OriginTexts
from penstock.encode.change_lines.values import Values, is_quoted, value_texts
from penstock.encode.lines import joined, json_text
from penstock.encode.text import Bytes, Offsets
from penstock.schema.model import TableSchema

# So few rows at a time that their texts and lines stay in the processor's cache, and that names alone never take much.
ROWS_AT_A_TIME = 2048
NAME_BYTES_MAX = 16 << 20
OUT_BYTES_MAX = 16 << 20  # of a block: larger ones are not kept

OPS = {OP_INSERT: "insert", OP_UPDATE: "update", OP_DELETE: "delete"}
_NO_BITMAPS = np.empty((0, 1), np.uint8)
_NO_ROWS: npt.NDArray[np.int64] = np.empty(0, np.int64)


class Lines(NamedTuple):
    """Lines of rows, back to back: that of row r ends at `ends[r]`. `event`, `row`: where the rows stand in the log."""

    event: npt.NDArray[np.int64]
    row: npt.NDArray[np.uint32]
    ends: Offsets
    data: Bytes

    def __len__(self) -> int:
        return len(self.ends)


class ChangeLines:
    """Writes the lines of one table version."""

    def __init__(self, table: TableSchema) -> None:
        self._columns = table.columns
        head = f'","schema":{json_text(table.schema)},"table":{json_text(table.table)},'
        self._head, self._head_bytes = joined([b'{"op":"', head.encode(), b',"before":', b',"after":', b"}\n"])
        names = [f",{json_text(column.name)}:".encode() for column in table.columns]
        self._names, name_bytes = joined(names)
        self._name_bytes = np.concatenate([name_bytes, np.zeros(kernels.SPARE, np.uint8)])
        self._quoted = np.array([is_quoted(column) for column in table.columns], np.bool_)
        self._words = np.zeros((256, 6), np.uint8)
        for op, word in OPS.items():
            self._words[op] = np.frombuffer(word.encode(), np.uint8)
        row_bytes = len(self._head_bytes) + 2 * (len(name_bytes) + 8 * len(names))
        self._rows = most = max(1, min(ROWS_AT_A_TIME, NAME_BYTES_MAX // row_bytes))
        columns = len(table.columns)
        self._scratch = (
            np.empty((2, columns), np.int64),
            np.empty((2, columns, most + 1), np.int64),
            np.empty((2, columns), np.bool_),
            np.empty((2, columns), np.bool_),
            np.empty((2, columns, most), np.bool_),
        )
        self._out = np.empty(0, np.uint8)

    def encode(self, rows: DecodedRows, origins: OriginTexts, origin_of: npt.NDArray[np.int64]) -> Iterator[Lines]:
        """The lines of all rows. `origin_of`: for each row, which of the origins is its own.

        The bytes of a block are valid until the next one is asked for: memory that was used before is in the cache.
        """
        for start in range(0, len(rows), self._rows):
            stop = min(start + self._rows, len(rows))
            yield self._block(rows.slice(start, stop), origins, origin_of[start:stop])

    def _block(self, rows: DecodedRows, origins: OriginTexts, origin_of: npt.NDArray[np.int64]) -> Lines:
        count = len(rows)
        addresses, starts, padded, missing, valid = self._scratch
        kept: list[Values] = []  # their memory is read by address
        room = count * (len(self._head_bytes) + 6 + 8)
        has_image = bool(np.any(rows.op != OP_INSERT)), bool(np.any(rows.op != OP_DELETE))
        for image, arrays in enumerate((rows.before, rows.after)):
            if not has_image[image]:
                continue
            room += count * (len(self._name_bytes) + 2)
            for c, column in enumerate(self._columns):
                texts = value_texts(column, arrays[c])
                kept.append(texts)
                addresses[image, c] = texts.data.ctypes.data
                starts[image, c, : count + 1] = texts.starts
                padded[image, c] = texts.padded
                missing[image, c] = len(texts.valid) > 0
                if len(texts.valid):
                    valid[image, c, :count] = texts.valid
                room += int(texts.starts[-1] - texts.starts[0]) + 4 * count
        origin_bytes = origins.starts[origin_of + 1] - origins.starts[origin_of]
        out = self._space(room + int(origin_bytes.sum()) + kernels.SPARE)
        ends: Offsets = np.empty(count, np.int64)
        before, after = (
            (_NO_BITMAPS, _NO_ROWS) if presence is None else (presence.bitmaps, presence.which)
            for presence in (rows.present_before, rows.present_after)
        )
        length = kernels.lines(
            rows.op,
            self._words,
            self._head,
            self._head_bytes,
            origin_of,
            origins.starts,
            origins.data.ctypes.data,
            self._names,
            self._name_bytes.ctypes.data,
            addresses,
            starts,
            self._quoted,
            padded,
            missing,
            valid,
            *before,
            *after,
            out,
            ends,
        )
        return Lines(rows.event, rows.row, ends, out[:length])

    def _space(self, size: int) -> Bytes:
        if size > len(self._out):
            made = np.empty(size * 5 // 4, np.uint8)
            if size > OUT_BYTES_MAX:
                return made
            self._out = made
        return self._out
