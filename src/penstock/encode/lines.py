"""Lines of text from constant fragments and the tokens of columns, without Python per row.

A line is fragment 0, token 0, fragment 1, token 1, … last fragment. Fragments are the same for all rows of a table
version; `tokens` gives what differs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.encode.kernels import lines as line_kernels
from penstock.encode.text import Bytes, Offsets, Text
from penstock.files import Buffer
from penstock.schema.changes import OP_DELETE, OP_INSERT, OP_UPDATE, ChangeBatch
from penstock.schema.model import Column

# So few rows are encoded at a time that their tokens and lines stay in the processor's cache.
ROWS_AT_A_TIME = 4096

ARRAY_OF_ONE = (np.frombuffer(b"[{", np.uint8), np.frombuffer(b"}]", np.uint8))
OBJECT = (np.frombuffer(b"{", np.uint8), np.frombuffer(b"}", np.uint8))

Tokens = Callable[[ChangeBatch], Sequence[Text]]


def encode_lines(batch: ChangeBatch, fragments: Sequence[bytes], tokens: Tokens) -> Buffer:
    """A line for each row of the batch; no bytes for an empty batch."""
    constants = joined(fragments)
    out, length = np.empty(0, np.uint8), 0
    for start in range(0, len(batch), ROWS_AT_A_TIME):
        part = batch.slice(start, min(start + ROWS_AT_A_TIME, len(batch)))
        starts, tokens_bytes = _arena(tokens(part))
        rows = starts.shape[1] - 1  # more than the part has, where a change is two lines
        end = length + rows * len(constants[1]) + len(tokens_bytes)
        if end > len(out):
            # Space for all rows, if the others are like these: pages that are never touched cost no memory.
            grown = np.empty(end * len(batch) // (start + len(part)) * 9 // 8 + 1, np.uint8)
            grown[:length] = out[:length]
            out = grown
        line_kernels.lines(*constants, starts, tokens_bytes, out[length:end])
        length = end
    return out[:length].data


def objects(
    columns: Sequence[Column],
    values: Sequence[Text],
    chosen: npt.NDArray[np.bool_],
    rows: npt.NDArray[np.bool_],
    ends: tuple[Bytes, Bytes] = OBJECT,
) -> Text:
    """For each of `rows` an object with its `chosen` columns between `ends`, else null. `chosen` has an element for each
    row that is true; `values` of a column, for each that is chosen."""
    starts, arena = _arena(values)
    names, name_bytes = joined([f"{json_text(column.name)}:".encode() for column in columns])
    offsets = np.empty(len(rows) + 1, np.int64)
    line_kernels.object_offsets(rows, chosen, ends, names, starts, offsets)
    out = np.empty(offsets[-1], np.uint8)
    line_kernels.objects(rows, chosen, ends, names, name_bytes, starts, arena, offsets, out)
    return Text(offsets, out)


def chosen_rows(values: pa.Array[Any], chosen: npt.NDArray[np.bool_]) -> pa.Array[Any]:
    return values if chosen.all() else values.filter(pa.array(chosen))


def op_words(op: npt.NDArray[np.uint8], insert: str, update: str, delete: str) -> Text:
    """The word for each row's operation; the three are of one length."""
    length = len(insert)
    words = np.zeros((256, length), np.uint8)
    for code, word in ((OP_INSERT, insert), (OP_UPDATE, update), (OP_DELETE, delete)):
        words[code] = np.frombuffer(word.encode(), np.uint8)
    return Text(np.arange(len(op) + 1, dtype=np.int64) * length, words[op].reshape(-1))


def seq_text(seq: npt.NDArray[np.void]) -> Text:
    """`ledger:entry:event:row`."""
    values = np.empty((len(seq), 4), np.uint64)
    for part, field in enumerate(("ledger", "entry", "event", "row")):
        values[:, part] = seq[field]
    offsets = np.empty(len(seq) + 1, np.int64)
    out = np.empty(len(seq) * 64, np.uint8)
    line_kernels.seqs(values, offsets, out)
    return Text(offsets, out[: offsets[-1]])


def joined(pieces: Sequence[bytes]) -> tuple[Offsets, Bytes]:
    bounds = np.zeros(len(pieces) + 1, np.int64)
    np.cumsum([len(piece) for piece in pieces], out=bounds[1:])
    return bounds, np.frombuffer(b"".join(pieces), np.uint8)


def json_text(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _arena(tokens: Sequence[Text]) -> tuple[npt.NDArray[np.int64], Bytes]:
    """All tokens in one buffer, and where those of each column start. Nothing is read past a column's last token."""
    if not tokens:
        return np.zeros((0, 1), np.int64), np.empty(0, np.uint8)
    starts = np.zeros((len(tokens), max(len(token.offsets) for token in tokens)), np.int64)
    base = 0
    for ordinal, token in enumerate(tokens):
        np.add(token.offsets, base, out=starts[ordinal, : len(token.offsets)])
        base += len(token.data)
    return starts, np.concatenate([token.data for token in tokens])
