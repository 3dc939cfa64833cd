"""Where changes come from: position, GTID and timestamp of their transactions, as text or as columns.

A transaction may have millions of rows, and a file millions of transactions: so a text is made once for each event, by
a kernel.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.binlog.types import Flavour
from penstock.encode.change_lines import kernels
from penstock.encode.text import Bytes, Offsets

_GTID_BYTES_MAX = 64  # without a tag


class OriginTexts(NamedTuple):
    """The text of each origin, padded: `data[starts[k] : starts[k + 1]]`."""

    starts: Offsets
    data: Bytes


@dataclass(frozen=True, slots=True)
class Origins:
    """Of some events: the transaction's position and GTID, and the event's own timestamp. An element for each event."""

    flavour: Flavour
    files: Sequence[str]
    tags: Sequence[str]
    file: npt.NDArray[np.int64]  # index among files
    pos: npt.NDArray[np.int64]
    gtid: npt.NDArray[np.uint8]  # 24 bytes each, as in an entry
    tag: npt.NDArray[np.int64]  # 0 none, else 1 + index among tags
    timestamp: npt.NDArray[np.uint32]

    def __len__(self) -> int:
        return len(self.pos)

    def take(self, which: npt.NDArray[np.int64]) -> Origins:
        return Origins(
            self.flavour,
            self.files,
            self.tags,
            self.file[which],
            self.pos[which],
            self.gtid[which],
            self.tag[which],
            self.timestamp[which],
        )

    def texts(self) -> OriginTexts:
        """As they stand in a line."""
        files, file_bytes = _joined([json.dumps(name, ensure_ascii=False)[1:-1].encode() for name in self.files])
        gtid_starts, gtids, known = self._gtids()
        starts: Offsets = np.empty(len(self) + 1, np.int64)
        room = len(self) * (kernels.ORIGIN_FIXED_BYTES + int(np.diff(files).max(initial=0))) + int(gtid_starts[-1])
        out = np.empty(room + kernels.SPARE, np.uint8)
        kernels.origin_texts(
            files, file_bytes, self.file, self.pos, gtid_starts, gtids, known, self.timestamp, starts, out
        )
        return OriginTexts(starts, out)

    def gtid_column(self) -> pa.Array[pa.StringScalar]:
        """The GTIDs as an Arrow column, missing where there is none."""
        starts, data, known = self._gtids()
        validity = pa.py_buffer(np.packbits(known, bitorder="little").tobytes())
        offsets = pa.py_buffer(starts.astype(np.int32).tobytes())
        return pa.StringArray.from_buffers(len(self), offsets, pa.py_buffer(data.tobytes()), validity)

    def _gtids(self) -> tuple[Offsets, Bytes, npt.NDArray[np.bool_]]:
        tags, tag_bytes = _joined([tag.encode() for tag in self.tags])
        starts: Offsets = np.empty(len(self) + 1, np.int64)
        known = np.empty(len(self), np.bool_)
        out = np.empty(len(self) * (_GTID_BYTES_MAX + 1 + int(np.diff(tags).max(initial=0))), np.uint8)
        mariadb = self.flavour is Flavour.MARIADB
        kernels.gtid_texts(mariadb, self.gtid, self.tag, tags, tag_bytes, known, starts, out)
        return starts, out[: starts[-1]], known


def _joined(pieces: Sequence[bytes]) -> tuple[Offsets, Bytes]:
    bounds: Offsets = np.zeros(len(pieces) + 1, np.int64)
    np.cumsum([len(piece) for piece in pieces], out=bounds[1:])
    return bounds, np.frombuffer(b"".join(pieces) or b"\0", np.uint8)
