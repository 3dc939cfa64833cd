"""Rows by key give the same answer in memory and laid down, whatever the order, the sizes and the types of the keys."""

from __future__ import annotations

import random
from decimal import Decimal
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pytest

from penstock.files.private import unnamed_file
from penstock.operations.verify import keyed_rows
from penstock.operations.verify.keyed_rows import KeyedRows, pairs


class World:
    """Changes of some keys, and what their last ones are."""

    def __init__(self, directory: Path, bytes_max: int) -> None:
        self.files = 0
        self._directory = directory
        self._bytes_max = bytes_max

    def open_file(self) -> IO[bytes]:
        self.files += 1
        return unnamed_file(self._directory)

    def rows(self, keys: list[str]) -> KeyedRows:
        return KeyedRows(keys, self.open_file, self._bytes_max)


KINDS: dict[str, Any] = {
    "int64": (pa.int64(), lambda n: n),
    "decimal": (pa.decimal128(20, 0), Decimal),
    "text": (pa.string(), lambda n: "ä" * (n % 7) + str(n)),
    "bytes": (pa.binary(), lambda n: n.to_bytes(4, "big")),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bytes_max", [1 << 30, 20_000, 300])
def test_the_last_row_of_each_key(tmp_path: Path, kind: str, bytes_max: int) -> None:
    world = World(tmp_path, bytes_max)
    type_, of = KINDS[kind]
    random_ = random.Random(7)
    sides, truths = [], []
    for side in range(2):
        made, truth = world.rows(["k", "part"]), {}
        for number in range(30):
            keys = [random_.randrange(1000 + side) for _ in range(100)]
            table = {
                "k": pa.array(map(of, keys), type_),
                "part": pa.array([k % 2 for k in keys]),
                "v": [f"{number}:{k}" for k in keys],
            }
            made.add(pa.table(table))
            truth |= {of(k): f"{number}:{k}" for k in keys}
        sides.append(made)
        truths.append(truth)
    found: list[dict[Any, str]] = [{}, {}]
    for parts in pairs(*sides):
        for side, table in enumerate(parts):
            if table is not None:
                seen = dict(zip(table["k"].to_pylist(), table["v"].to_pylist(), strict=True))
                assert len(seen) == table.num_rows and not seen.keys() & found[side].keys()
                found[side] |= seen
        both = [set(table["k"].to_pylist()) if table is not None else set() for table in parts]
        assert both[0] <= truths[0].keys() and not both[0] & (truths[1].keys() - both[1]), "a key is in one part"
    assert found == truths
    assert (world.files > 0) == (bytes_max < 1 << 30)
    assert bytes_max > 300 or world.files > 2, "parts were parted again"


def test_one_key_that_changes_for_ever_stays_in_memory(tmp_path: Path) -> None:
    world = World(tmp_path, 10_000)
    made = world.rows(["k"])
    for number in range(200):
        made.add(pa.table({"k": [1] * 100, "v": [number] * 100}))
    last = made.last()
    assert made.in_memory and last is not None and last.to_pylist() == [{"k": 1, "v": 199}]


def test_a_hash_that_never_differs_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keyed_rows, "add_fixed", lambda *_: None)
    world = World(tmp_path, 1_000)
    one, other = world.rows(["k"]), world.rows(["k"])
    one.add(pa.table({"k": list(range(1000))}))
    (found,) = [part for part, _ in pairs(one, other) if part is not None]
    assert found.num_rows == 1000
