"""Splitting rows into payloads: nothing at or below progress, nothing twice, nothing across an intent or midnight."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from penstock.commit_ts import commit_ts_of
from penstock.delivery.storage.layout import date_of
from penstock.log.position import Seq
from penstock.schema.changes import OP_INSERT, SEQ_DTYPE, ChangeBatch
from penstock.schema.model import Column, TableSchema
from penstock.spark.payload_split import PAYLOAD_BYTES, Resume, split_into_payloads

TABLE = TableSchema("shop", "orders", 7, (Column("id", "bigint(20)", primary_key=True),))
DAY = commit_ts_of(86_400_000)


def batch_of(seqs: list[Seq], commit_ts: list[int]) -> ChangeBatch:
    seq = np.frombuffer(b"".join(s.to_bytes() for s in seqs), SEQ_DTYPE)
    ids = pa.array(range(len(seqs)), pa.int64())
    op = np.full(len(seqs), OP_INSERT, np.uint8)
    return ChangeBatch(TABLE, op, seq, np.array(commit_ts, np.uint64), [pa.nulls(len(seqs), pa.int64())], [ids])


seqs_strategy = st.lists(
    st.builds(Seq, st.integers(0, 3), st.integers(0, 300), st.integers(0, 300), st.integers(0, 5)),
    min_size=1,
    max_size=50,
)


@given(seqs=seqs_strategy, data=st.data(), rows_max=st.integers(1, 20))
def test_rows_after_progress_exactly_once_and_nothing_straddles(
    seqs: list[Seq], data: st.DataObject, rows_max: int
) -> None:
    seqs = sorted(set(seqs))
    days = sorted(data.draw(st.lists(st.integers(0, 3), min_size=len(seqs), max_size=len(seqs))))
    commit_ts = [(20_000 + day) * DAY + i for i, day in enumerate(days)]
    bounds = st.none() | st.sampled_from(seqs) | seqs_strategy.map(lambda s: s[0])
    progress, intent = data.draw(bounds), data.draw(bounds)
    resume = Resume.from_json(
        {
            "epoch": 4,
            "progress": str(progress) if progress else None,
            "intent_last_seq": str(intent) if intent else None,
        }
    )
    pieces = list(split_into_payloads(batch_of(seqs, commit_ts), resume, rows_max))
    staged = [Seq.from_bytes(s.tobytes()) for piece in pieces for s in piece.seq]
    assert staged == [s for s in seqs if progress is None or s > progress]
    for piece in pieces:
        inside = [Seq.from_bytes(s.tobytes()) for s in piece.seq]
        assert 1 <= len(inside) <= rows_max
        assert len({date_of(int(t)) for t in piece.commit_ts}) == 1
        if intent is not None:
            assert (inside[0] <= intent) == (inside[-1] <= intent), "a payload reaches over the intent's last seq"
        assert [seqs.index(s) for s in inside] == piece.after[0].to_pylist(), "columns are cut with their rows"


def test_a_seq_with_trailing_zero_bytes_compares_as_bytes() -> None:
    seqs = [Seq(1, 0, 0, 0), Seq(1, 0, 0, 1), Seq(1, 256, 0, 0)]
    pieces = list(split_into_payloads(batch_of(seqs, [DAY] * 3), Resume(1, Seq(1, 0, 0, 0).to_bytes()), 10))
    assert [len(p) for p in pieces] == [2]


def test_large_values_make_no_large_payload() -> None:
    """Sixty rows of a megabyte, where rows were small before, were one payload, in canal-json of 360 MiB."""
    lengths = [10] * 5_000 + [1 << 20] * 60 + [10] * 5_000 + [9 << 20, 0, 1]
    table = replace(TABLE, columns=(Column("b", "longblob"),))
    seq = np.zeros(len(lengths), SEQ_DTYPE)
    seq["row"] = np.arange(len(lengths))
    op = np.full(len(lengths), OP_INSERT, np.uint8)
    before, after = pa.nulls(len(lengths), pa.binary()), pa.array([bytes(n) for n in lengths], pa.binary())
    batch = ChangeBatch(table, op, seq, np.full(len(lengths), DAY, np.uint64), [before], [after])
    for part in (batch, batch.slice(4_000, 9_000)):
        pieces = list(split_into_payloads(part, Resume(1), 40_000))
        assert np.concatenate([piece.seq["row"] for piece in pieces]).tolist() == part.seq["row"].tolist()
        held = [sum(len(value) for value in piece.after[0].to_pylist()) for piece in pieces]
        assert all(size <= PAYLOAD_BYTES or len(piece) == 1 for size, piece in zip(held, pieces, strict=True))
        assert len(pieces) <= 2 * sum(held) // PAYLOAD_BYTES + 2, "no smaller than they have to be"
