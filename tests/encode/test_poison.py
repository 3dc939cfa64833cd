"""One row that a format refuses is found among many, and told apart from them."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from penstock.encode import open_format
from penstock.encode.poison import dead_letter, encode_parts
from penstock.errors import Unavailable
from penstock.log.position import Seq
from penstock.schema.changes import OP_INSERT, SEQ_DTYPE, ChangeBatch
from penstock.schema.model import Column, TableSchema

TABLE = TableSchema("shop", "t", 5, (Column("id", "int", primary_key=True), Column("e", "enum('a','b')", elements=("a", "b")), Column("b", "blob")))  # fmt: skip


def batch(enums: list[int]) -> ChangeBatch:
    rows = len(enums)
    seq = np.frombuffer(b"".join(Seq(1, n, 0, 0).to_bytes() for n in range(rows)), SEQ_DTYPE)
    after = [
        pa.array(range(rows), pa.int32()),
        pa.array(enums, pa.uint16()),
        pa.array([b"\x00\xff"] * rows, pa.binary()),
    ]
    before = [pa.nulls(rows, column.type) for column in after]
    return ChangeBatch(TABLE, np.full(rows, OP_INSERT, np.uint8), seq, np.full(rows, 9, np.uint64), before, after)


@pytest.mark.parametrize("bad", [[], [0], [99], [7, 8, 50], list(range(100))])
@pytest.mark.parametrize("name", ["csv", "parquet", "debezium-json"])
def test_the_others_are_encoded_as_they_are(name: str, bad: list[int]) -> None:
    fmt = open_format(name)
    rows = batch([9 if n in bad else 1 + n % 2 for n in range(100)])
    parts = list(encode_parts(fmt, rows))
    refused = [part for part in parts if part.body is None]
    assert [int(part.rows.after[0][0].as_py()) for part in refused] == bad
    assert sum(len(part.rows) for part in parts) == 100
    assert [int(part.rows.seq[0]["entry"]) for part in parts] == sorted(
        int(part.rows.seq[0]["entry"]) for part in parts
    )
    if not bad:
        assert len(parts) == 1
    left = [part.body for part in parts if part.body is not None]
    if left and len(bad) < 100:
        assert fmt.rows(fmt.assemble(left)).num_rows == 100 - len(bad)


def test_a_dead_letter_says_where_why_and_what() -> None:
    (part,) = encode_parts(open_format("csv"), batch([9]))
    value = json.loads(dead_letter(part))
    assert (value["seq"], value["commit_ts"], value["op"]) == ("1:0:0:0", 9, "I")
    assert (value["schema"], value["table"], value["version"]) == ("shop", "t", 5)
    assert "ordinal" in value["error"] and value["after"] == {"id": 0, "e": 9, "b": {"hex": "00ff"}}


def test_what_may_heal_is_no_poison() -> None:
    class Away:
        def encode(self, _batch: ChangeBatch) -> bytes:
            raise Unavailable("later")

    with pytest.raises(Unavailable):
        list(encode_parts(Away(), replace(batch([1]))))  # type: ignore[arg-type]
