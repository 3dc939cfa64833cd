"""Splits a table's decoded rows into payloads.

Rows at or below the dispatcher's progress are at the sink already and are dropped before anything is encoded. A payload
never crosses

- the last seq of an open intent: the file that was being written must get exactly the same rows again;
- midnight UTC of commit_ts: each date has a directory of its own at the sink;

and holds about `PAYLOAD_BYTES` of encoded bytes: how many rows that are is guessed from rows before, and large values are
counted, so that a few of them among small rows make no large payload.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.commit_ts import milliseconds_of_all
from penstock.encode.text import string_data
from penstock.log.position import SEQ_BYTES, Seq
from penstock.schema.changes import ChangeBatch

PAYLOAD_BYTES = 8 << 20
_DAY_MS = 86_400_000
_SEQ_TEXT = f"S{SEQ_BYTES}"  # every seq has this length, so the zero padding that numpy ignores changes no order


@dataclass(frozen=True, slots=True)
class Resume:
    """Where a dispatcher continues in this run. `progress` and `intent_last` are seqs as bytes; empty where there is
    none."""

    epoch: int
    progress: bytes = b""
    intent_last: bytes = b""

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Resume:
        progress, intent = value.get("progress"), value.get("intent_last_seq")
        return cls(
            int(value["epoch"]),
            Seq.parse(progress).to_bytes() if progress else b"",
            Seq.parse(intent).to_bytes() if intent else b"",
        )


def split_into_payloads(batch: ChangeBatch, resume: Resume, rows_max: int) -> Iterator[ChangeBatch]:
    """The batch's rows after progress, each exactly once and in order, in slices of at most `rows_max` rows and, unless it is
    a single row, `PAYLOAD_BYTES` of strings and bytes."""
    first = rows_up_to(batch.seq, resume.progress)
    edges = {len(batch)}
    if (at := rows_up_to(batch.seq, resume.intent_last)) > first:
        edges.add(at)
    days = milliseconds_of_all(batch.commit_ts) // np.uint64(_DAY_MS)
    edges.update(int(i) + 1 for i in np.flatnonzero(days[1:] != days[:-1]))
    sizes = _sizes(batch)
    for edge in sorted(edges):
        while first < edge:
            last = min(edge, first + max(1, rows_max))
            if sizes is not None:
                most = sizes[first] + PAYLOAD_BYTES
                last = min(last, max(first + 1, int(np.searchsorted(sizes, most, side="right")) - 1))
            yield batch.slice(first, last)
            first = last


def _sizes(batch: ChangeBatch) -> npt.NDArray[np.int64] | None:
    """The bytes of the strings and binaries before each row, and last those of all; None where all fit in a payload."""
    columns = [string_data(column)[1] for column in (*batch.before, *batch.after) if _is_varying(column)]
    if sum(int(bounds[-1]) - int(bounds[0]) for bounds in columns) <= PAYLOAD_BYTES:
        return None
    sizes = np.zeros(len(batch) + 1, np.int64)
    for bounds in columns:
        sizes += bounds
        sizes -= int(bounds[0])
    return sizes


def _is_varying(column: pa.Array[Any]) -> bool:
    return pa.types.is_string(column.type) or pa.types.is_binary(column.type)


def rows_up_to(seqs: npt.NDArray[np.void], bound: bytes) -> int:
    """How many of the ascending seqs are at or below `bound`."""
    if not bound or not len(seqs):
        return 0
    return int(np.searchsorted(np.ascontiguousarray(seqs).view(_SEQ_TEXT), np.array(bound, _SEQ_TEXT), side="right"))
